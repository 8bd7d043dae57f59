"""Approvals in Dagster: the asset of decisions with a partition for each plan, the decide job, and the link to it.

The core's store is the authority. What stands here is where people decide, and evidence that they did.
"""

# Annotations are evaluated, because Dagster reads those of decorated functions.

import os
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import quote, urlencode

import dagster as dg
from dagster import DagsterInstance, DagsterRun
from pydantic import Field

from streamform import api
from streamform.errors import StreamformError
from streamform.results import PendingView
from streamform_dagster._compat import MAX_RETRIES_TAG, PARTITION_TAG, launched_from
from streamform_dagster.identity import person_of, run_of
from streamform_dagster.metadata import RawMetadata, cut_text, key, markdown
from streamform_dagster.project import StreamformProject

URL_VARIABLE = "STREAMFORM_DAGSTER_URL"
DEFAULT_URL = "http://localhost:3000"
DEFAULT_LOCATION = ("__repository__", "definitions.py")
"""Where `dagster dev -f definitions.py` puts a project; used for runs that no code location launched."""

BLOCKED_TAG = key("blocked")


class DecideConfig(dg.Config):
    """A decision about one plan."""

    plan: str = Field(description="The id of the plan.")
    decision: Literal["approve", "reject", "revoke"]
    reason: str = Field(description="Why, in a sentence.")
    acknowledge: str = Field("", description="For an approval: the words under streamform/acknowledge, where the plan has them.")


def plan_partitions(project: StreamformProject) -> dg.DynamicPartitionsDefinition:
    """One partition a plan that was registered."""
    return dg.DynamicPartitionsDefinition(name=project.partitions_name)


def add_plan_partitions(instance: DagsterInstance, project: StreamformProject, plan_ids: Iterable[str]) -> None:
    """See to it that these plans have partitions."""
    present = set(instance.get_dynamic_partitions(project.partitions_name))
    missing = [plan_id for plan_id in plan_ids if plan_id not in present]
    if missing:
        instance.add_dynamic_partitions(project.partitions_name, missing)


def decide_yaml(project: StreamformProject, plan_id: str) -> str:
    """The configuration of an approval; reason and acknowledgement are for the person to write."""
    return (
        f"ops:\n  {project.op_name('decide')}:\n    config:\n"
        f'      plan: "{plan_id}"\n'
        "      decision: approve\n"
        "      # add `reason: ...`, and `acknowledge: ...` where the plan names words for it\n"
    )


def approve_url(project: StreamformProject, run: DagsterRun, plan_id: str) -> str:
    """The launchpad of the decide job, with plan and decision filled in."""
    base = (os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
    repository, location = launched_from(run) or DEFAULT_LOCATION
    job = f"locations/{repository}@{quote(location, safe='')}/jobs/{project.job_name('decide')}"
    filled = {"config": decide_yaml(project, plan_id), "tags[0][key]": PARTITION_TAG, "tags[0][value]": plan_id}
    return f"{base}/{job}/playground/setup?{urlencode(filled, quote_via=quote)}"


def approval_metadata(project: StreamformProject, run: DagsterRun, plan_id: str, acknowledge: str | None) -> RawMetadata:
    """How to approve a plan."""
    metadata: RawMetadata = {
        key("approve_url"): dg.MetadataValue.url(approve_url(project, run, plan_id)),
        key("approve_yaml"): markdown(
            f"```yaml\n{decide_yaml(project, plan_id)}```\nin job `{project.job_name('decide')}`, partition `{plan_id}`"
        ),
    }
    return metadata if acknowledge is None else {key("acknowledge"): acknowledge, **metadata}


def forbid_retries(instance: DagsterInstance, run: DagsterRun, tags: Mapping[str, str] | None = None) -> None:
    """Keep run retries from repeating what only a person can change. A failure's `allow_retries` stops op retries alone."""
    instance.add_run_tags(run.run_id, {MAX_RETRIES_TAG: "0", **(tags or {})})


def failure_of(error: StreamformError, *, allow_retries: bool) -> dg.Failure:
    """An error as a failure that shows what to do."""
    metadata: RawMetadata = {key("help"): error.help} if error.help else {}
    return dg.Failure(cut_text(error.message), {key("error"): error.message, **metadata}, allow_retries=allow_retries)


def approvals_spec(project: StreamformProject) -> dg.AssetSpec:
    """The external asset of decisions. Nothing materializes it but the decide job, one plan at a time."""
    return dg.AssetSpec(
        project.approvals_key,
        partitions_def=plan_partitions(project),
        group_name=project.group,
        kinds={"streamform"},
        description=(
            f"Decisions about plans of `{project.app}` on target `{project.target}`, written by the job `{project.job_name('decide')}`. "
            "A partition without one is a plan that waits."
        ),
    )


def build_decide_job(project: StreamformProject) -> dg.JobDefinition:
    """The job that writes one decision."""

    @dg.op(name=project.op_name("decide"))
    def decide(context: dg.OpExecutionContext, config: DecideConfig) -> None:
        _decide(context, project, config)

    @dg.job(
        name=project.job_name("decide"),
        partitions_def=plan_partitions(project),
        executor_def=dg.in_process_executor,
        run_tags=project.run_tags,
        description="Approve, reject or revoke a plan: partition and `plan` are its id, `reason` is a sentence of yours.",
    )
    def decide_job() -> None:
        decide()

    return decide_job


def _decide(context: dg.OpExecutionContext, project: StreamformProject, config: DecideConfig) -> None:
    run = run_of(context)
    if context.has_partition_key and context.partition_key != config.plan:
        forbid_retries(context.instance, run)
        text = f"the partition is {context.partition_key}, and the configuration is about plan {config.plan}"
        raise dg.Failure(text, allow_retries=False)
    person = person_of(context.instance, run)
    try:
        (view,) = api.decide(
            project.dir,
            [config.plan],
            config.decision,
            by=person.name,
            reason=config.reason,
            acknowledge=config.acknowledge or None,
            target=project.target,
            verified=person.verified,
        )
    except StreamformError as error:
        forbid_retries(context.instance, run)
        raise failure_of(error, allow_retries=False) from None
    text = f"{config.decision} written for plan {config.plan} of unit {view.plan.unit}; the plan is {view.status}"
    context.log.info(text)
    event = dg.AssetMaterialization(project.approvals_key, description=text, metadata=_decision_metadata(view), partition=config.plan)
    context.log_event(event)


def _decision_metadata(view: PendingView) -> RawMetadata:
    plan, entry = view.plan, view.plan.decisions[-1]
    return {
        key("plan_id"): plan.plan_id,
        key("decision"): entry.decision,
        key("by"): entry.by or "nobody known",
        key("verified"): entry.verified,
        key("reason"): entry.reason,
        key("status"): view.status,
        key("unit"): plan.unit,
        key("verdict"): plan.verdict,
        key("requires"): plan.requires,
        key("plan_diff"): markdown(plan.diff_markdown),
        key("subject"): dg.MetadataValue.json(dict(plan.subject)),
    }
