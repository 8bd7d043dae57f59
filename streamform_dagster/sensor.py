"""The approval sensor: launches one run for each approved plan, and says in a sentence why it did nothing.

It only launches. The run plans again and asks the gate, so an approval that no longer fits lets nothing through.
"""

# Annotations are evaluated, because Dagster reads those of decorated functions.

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from streamform import api
from streamform.errors import StreamformError
from streamform.results import PendingView
from streamform_dagster.approval import plan_partitions
from streamform_dagster.metadata import key
from streamform_dagster.project import StreamformProject

CURSOR_VERSION = 1
INTERVAL_S = 15


@dataclass(frozen=True)
class Launches:
    """What the sensor can launch."""

    project: StreamformProject
    keys: Mapping[str, dg.AssetKey]
    apply_job: Any
    stop_job: Any


def build_approval_sensor(launches: Launches) -> dg.SensorDefinition:
    """The sensor of a project."""
    project = launches.project

    @dg.sensor(
        name=project.job_name("approval_sensor"),
        jobs=[launches.apply_job, launches.stop_job],
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Launches the apply of a plan that was approved.",
    )
    def approval_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, launches)

    return approval_sensor


def _tick(context: dg.SensorEvaluationContext, launches: Launches) -> dg.SensorResult:
    project = launches.project
    asked = read_cursor(context.cursor)
    try:
        _, views = api.approvals(project.dir, target=project.target, policy=api.strict_policy())
    except StreamformError as error:
        return dg.SensorResult(skip_reason=f"The approvals can't be read: {error.message}.", cursor=context.cursor)
    approved = {run_key(view): view for view in views if view.status == "approved"}
    requests = [_request(launches, run, view) for run, view in approved.items() if run not in asked]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else _reason(views, approved),
        cursor=json.dumps({"v": CURSOR_VERSION, "asked": sorted(approved)}),
        dynamic_partitions_requests=_partition_requests(context, project, views),
    )


def read_cursor(cursor: str | None) -> set[str]:
    """The run keys that were asked for; a cursor that can't be read is an empty one, and run keys prevent a second run."""
    try:
        document = json.loads(cursor or "{}")
        asked = document["asked"] if document.get("v") == CURSOR_VERSION else []
        return {entry for entry in asked if isinstance(entry, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def run_key(view: PendingView) -> str:
    """One run for each approval: the plan, and when it was last approved."""
    times = [entry.at_ms for entry in view.plan.decisions if entry.decision == "approve"]
    return f"{view.plan.plan_id}@{max(times, default=0)}"


def _request(launches: Launches, run: str, view: PendingView) -> dg.RunRequest:
    plan = view.plan
    people = sorted({entry.by or "nobody known" for entry in plan.decisions if entry.decision == "approve"})
    tags = {key("plan_id"): plan.plan_id, key("trigger"): "approval", key("approved_by"): ", ".join(people)}
    project = launches.project
    if plan.subject.get("action") == "stop":
        config = {"ops": {project.op_name("stop"): {"config": {"unit": plan.unit, "discard_state": True}}}}
        return dg.RunRequest(run_key=run, job_name=project.job_name("stop"), run_config=config, tags=tags)
    assets = _assets(launches, plan.unit)
    return dg.RunRequest(run_key=run, job_name=project.job_name("apply"), asset_selection=assets, asset_check_keys=[], tags=tags)


def _assets(launches: Launches, unit: str) -> Sequence[dg.AssetKey] | None:
    """The assets of a unit; everything where the location does not know it, such as one whose models are gone."""
    found = next((u for u in launches.project.catalog.units if unit == u.name or unit in u.models), None)
    return None if found is None else [launches.keys[model] for model in found.models]


def _partition_requests(
    context: dg.SensorEvaluationContext, project: StreamformProject, views: Sequence[PendingView]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Plans that wait get a partition, wherever they were registered; one that became stale undecided loses it."""
    present = set(context.instance.get_dynamic_partitions(project.partitions_name))
    waiting = [view.plan.plan_id for view in views if view.status in ("pending", "approved", "rejected", "expired")]
    stale = [view.plan.plan_id for view in views if view.status == "stale" and not view.plan.decisions]
    partitions = plan_partitions(project)
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if missing := [plan_id for plan_id in waiting if plan_id not in present]:
        requests.append(partitions.build_add_request(missing))
    if over := [plan_id for plan_id in stale if plan_id in present]:
        requests.append(partitions.build_delete_request(over))
    return requests


def _reason(views: Sequence[PendingView], approved: Mapping[str, PendingView]) -> str:
    if approved:
        names = ", ".join(view.plan.plan_id for view in approved.values())
        return f"The run for {names} was requested already; the approval stands until an apply uses it."
    waiting = [view.plan.plan_id for view in views if view.status == "pending"]
    return f"Waiting for a decision about {', '.join(waiting)}." if waiting else "No plan waits for a decision."
