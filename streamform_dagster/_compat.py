"""What we use of Dagster beyond its documented names; each returns None where this Dagster does not have it."""

from __future__ import annotations

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance, DagsterRun, OpExecutionContext
from dagster._core.run_coordinator.base import SubmitRunContext
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

PARTITION_TAG = "dagster/partition"
MAX_RETRIES_TAG = "dagster/max_retries"
SCHEDULE_TAG, SENSOR_TAG = "dagster/schedule_name", "dagster/sensor_name"


def launched_from(run: DagsterRun) -> tuple[str, str] | None:
    """Repository and code location that a run was launched from."""
    if run.remote_job_origin is None:
        return None
    origin = run.remote_job_origin.repository_origin
    return origin.repository_name, origin.code_location_origin.location_name


def launched_op_tag(instance: DagsterInstance, run: DagsterRun, op: str, tag: str) -> str | None:
    """A tag of an op as the code location had it when the run was launched."""
    if run.job_snapshot_id is None:
        return None
    snapshot = instance.get_job_snapshot(run.job_snapshot_id)
    return next((d.tags.get(tag) for d in snapshot.node_defs_snapshot.op_def_snaps if d.name == op), None)


def is_failing(instance: DagsterInstance, check: AssetCheckKey) -> bool:
    """Whether the newest result of a check is a failure."""
    record = instance.get_latest_asset_check_evaluation_record(check)
    return record is not None and record.status == AssetCheckExecutionRecordStatus.FAILED


def log_evaluation(context: OpExecutionContext, evaluation: AssetCheckEvaluation) -> None:
    """Log a result of a check that another op owns; accepted, though the declared type leaves it out."""
    context.log_event(evaluation)  # type: ignore[arg-type]


__all__ = [
    "MAX_RETRIES_TAG",
    "PARTITION_TAG",
    "SCHEDULE_TAG",
    "SENSOR_TAG",
    "SubmitRunContext",
    "is_failing",
    "launched_from",
    "launched_op_tag",
    "log_evaluation",
]
