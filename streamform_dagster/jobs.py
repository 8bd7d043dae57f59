"""Jobs and the schedule of a project. Their number does not grow with its models."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

from collections.abc import Collection
from typing import Any

import dagster as dg
from pydantic import Field

from streamform import api
from streamform.errors import StreamformError
from streamform_dagster.deploy import while_locked
from streamform_dagster.events import Reporter, outcome_metadata, raise_error
from streamform_dagster.project import StreamformProject

PLAN_CHECK_CRON = "*/15 * * * *"


class StopConfig(dg.Config):
    """What to stop."""

    unit: str | None = Field(None, description="One unit; all of them without it.")
    discard_state: bool = Field(False, description="Forget the state, instead of keeping it in a savepoint.")


def build_apply_job(project: StreamformProject, keys: Collection[dg.AssetKey]) -> Any:
    """The job that applies every unit."""
    return dg.define_asset_job(
        project.job_name("apply"),
        selection=dg.AssetSelection.assets(*keys).without_checks(),
        executor_def=dg.in_process_executor,
        run_tags=project.run_tags,
        description="Plan, ask the gate, and deploy what it lets through.",
    )


def build_plan_check_job(project: StreamformProject, *checks: dg.AssetChecksDefinition) -> Any:
    """The job that only looks."""
    return dg.define_asset_job(
        project.job_name("plan_check"),
        selection=dg.AssetSelection.checks(*checks),
        executor_def=dg.in_process_executor,
        run_tags=project.run_tags,
        description="Look at what runs and compare it with the project; a plan that needs an approval is registered.",
    )


def build_plan_check_schedule(project: StreamformProject, job: Any) -> dg.ScheduleDefinition:
    """The schedule of the plan check, off until somebody turns it on."""
    return dg.ScheduleDefinition(
        name=project.job_name("plan_check_schedule"),
        job=job,
        cron_schedule=PLAN_CHECK_CRON,
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )


def build_stop_job(project: StreamformProject, lock_wait_s: float) -> dg.JobDefinition:
    """The job that stops units; discarding state asks the gate."""

    @dg.op(name=project.op_name("stop"))
    def stop(context: dg.OpExecutionContext, config: StopConfig) -> None:
        _stop(context, project, config, lock_wait_s)

    @dg.job(
        name=project.job_name("stop"),
        executor_def=dg.in_process_executor,
        run_tags=project.run_tags,
        description="Stop running jobs with a savepoint, or discard state.",
    )
    def stop_job() -> None:
        stop()

    return stop_job


def _stop(context: dg.OpExecutionContext, project: StreamformProject, config: StopConfig, lock_wait_s: float) -> None:
    reporter = Reporter(context, project)

    def act() -> Any:
        return api.stop(
            project.dir,
            target=project.target,
            unit=config.unit,
            discard_state=config.discard_state,
            by=reporter.person.name,
            policy=api.strict_policy(),
            progress=reporter.progress(),
        )

    try:
        result = while_locked(act, lock_wait_s, context.log.info)
    except StreamformError as error:
        raise_error(error, reporter)
    for outcome in result.units:
        context.log.info(f"{outcome.name}: {outcome.outcome}")
        if outcome.outcome != "blocked":
            reporter.record(result.record, outcome_metadata(outcome))
    if failed := [outcome for outcome in result.units if outcome.outcome == "failed"]:
        raise reporter.failed(failed[0])
    if blocked := [outcome for outcome in result.units if outcome.outcome == "blocked"]:
        raise reporter.blocked(blocked)
