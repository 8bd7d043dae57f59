"""What an apply or a stop did, as events of a run: record, models, checks, and the failure of a plan that waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import dagster as dg

from streamform import api
from streamform.errors import ProjectError, StreamformError
from streamform.lifecycle.ports import Progress
from streamform.results import PlanResult, RecordChange, UnitOutcome
from streamform_dagster._compat import is_failing, log_evaluation
from streamform_dagster.approval import BLOCKED_TAG, add_plan_partitions, approval_metadata, failure_of, forbid_retries
from streamform_dagster.identity import person_of, run_of
from streamform_dagster.metadata import RawMetadata, cut_text, digest, fenced, key, markdown
from streamform_dagster.project import StreamformProject
from streamform_dagster.record import Mirrored, last_mirrored, record_materialization

PROGRESS_EVERY_S = 10.0


class Reporter:
    """Writes the events of one run about one project."""

    def __init__(self, context: dg.OpExecutionContext, project: StreamformProject) -> None:
        self.context, self.project = context, project
        self.instance = context.instance
        self.run = run_of(context)
        self.person = person_of(self.instance, self.run)
        self.plan: PlanResult | None = None
        self.mirrored: Mirrored | None = None

    # while it runs

    def progress(self) -> Callable[[Progress], None]:
        """Progress in the run's log; a fraction that moves is told now and then, because each line is a write."""
        told: dict[str, float] = {}

        def tell(event: Progress) -> None:
            now = time.monotonic()
            if event.fraction is not None and now - told.get(event.stage, -PROGRESS_EVERY_S) < PROGRESS_EVERY_S:
                return
            told[event.stage] = now
            share = "" if event.fraction is None else f" {event.fraction:.0%}"
            self.context.log.info(f"{event.stage}: {event.text}{share}")

        return tell

    def on_plan(self, plan: PlanResult) -> None:
        """Log the diff, and keep the plan for the events."""
        from streamform.render.diff import render_diff

        self.plan = plan
        if not plan.diff.is_empty:
            self.context.log.info(render_diff(plan.diff, plan.project, plan.against))

    # events

    def record(self, change: RecordChange | None, facts: Mapping[str, Any]) -> bool:
        """Mirror the record where the mirror does not have it yet; whether that was so."""
        if change is None or change.after is None:
            return False
        last, now = self.mirrored or last_mirrored(self.instance, self.project), digest(change.after)
        if last is not None and last.record_digest == now:
            return False
        replaced = None if change.before is None else digest(change.before)
        if replaced == now:
            facts = {**facts, key("adopted_from"): "the store"}
            replaced = None if last is None else last.record_digest
        self.mirrored = Mirrored(1 if last is None else last.seq + 1, now)
        self.context.log_event(record_materialization(self.project, self.mirrored, change.after, replaced, facts))
        return True

    def unchanged(self, facts: Mapping[str, Any]) -> None:
        """One observation says that nothing had to be changed."""
        self.context.log_event(dg.AssetObservation(self.project.record_key, description="Nothing to change.", metadata=facts))

    def check(self, waiting: Mapping[str, str]) -> None:
        """Say on the `plan` check which plans wait, by unit; that none does is said only where one did before."""
        check = self.project.plan_check_key
        if not waiting and not is_failing(self.instance, check):
            return
        evaluation = dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            passed=not waiting,
            metadata=waiting_metadata(waiting),
            description=waiting_text(waiting),
        )
        log_evaluation(self.context, evaluation)

    def blocked(self, outcomes: list[UnitOutcome]) -> dg.Failure:
        """The failure of plans that wait for a decision: registered, with partitions, and not to be retried."""
        add_plan_partitions(self.instance, self.project, [outcome.plan_id for outcome in outcomes])
        first, *others = outcomes
        forbid_retries(self.instance, self.run, {BLOCKED_TAG: first.plan_id})
        text = f"{first.requires}: {first.reason} (unit {first.name}, plan {first.plan_id})"
        metadata = {
            key("verdict"): first.verdict,
            **self.diff_metadata(first),
            **approval_metadata(self.project, self.run, first.plan_id, first.acknowledge),
            key("reason"): first.reason or "",
        }
        metadata |= {name: value for name, value in outcome_metadata(first).items() if name not in metadata}
        if others:
            metadata[key("also_blocked")] = ", ".join(f"{o.name}: plan {o.plan_id}" for o in others)
        return dg.Failure(cut_text(text), metadata, allow_retries=False)

    def failed(self, outcome: UnitOutcome) -> dg.Failure:
        """The failure of an attempt that went wrong."""
        text = f"{outcome.name}: {outcome.reason or 'failed'}"
        return dg.Failure(cut_text(text), {**outcome_metadata(outcome), **self.diff_metadata(outcome), key("error"): text})

    def approved_by(self, outcome: UnitOutcome) -> RawMetadata:
        """Whose approvals let the plan through, where it needed some."""
        view = None if self.plan is None else self.plan.approvals.get(outcome.name)
        if view is None or not view.required or outcome.outcome == "blocked":
            return {}
        _, views = api.approvals(self.project.dir, target=self.project.target)
        decisions = [entry for view in views if view.plan.plan_id == outcome.plan_id for entry in view.plan.decisions]
        return {key("approved_by"): ", ".join(entry.by or "nobody known" for entry in decisions if entry.decision == "approve")}

    def diff_metadata(self, outcome: UnitOutcome) -> RawMetadata:
        """What changed, and what that costs."""
        from streamform.render.diff import diff_markdown
        from streamform.render.stages import consequences_markdown

        if outcome.plan is None:
            return {}
        metadata: RawMetadata = {key("plan_diff"): markdown(diff_markdown(outcome.plan.diff))}
        if text := consequences_markdown(outcome.plan.staging):
            metadata[key("consequences")] = markdown(text)
        return metadata


def raise_error(error: StreamformError, reporter: Reporter) -> NoReturn:
    """Fail the step. An error of the project stays until somebody edits it, so it is not retried.

    Raises: Failure.
    """
    if isinstance(error, ProjectError):
        forbid_retries(reporter.instance, reporter.run)
        raise problems_failure(error)
    raise failure_of(error, allow_retries=True)


def problems_failure(error: StreamformError) -> dg.Failure:
    """The failure of a project that does not load or compile."""
    text = problems_text(error)
    return dg.Failure(cut_text(error.message), {key("problems"): markdown(fenced(text))}, allow_retries=False)


def problems_text(error: StreamformError) -> str:
    """Every diagnostic, as `streamform check` shows them."""
    from streamform.render.problems import render_diagnostics

    if isinstance(error, ProjectError):
        return render_diagnostics(error.diagnostics)
    return f"error: {error.message}" + (f"\n  help: {error.help}" if error.help else "")


def outcome_metadata(outcome: UnitOutcome) -> RawMetadata:
    """What every event about a unit says."""
    metadata: RawMetadata = {
        key("unit"): outcome.name,
        key("outcome"): outcome.outcome,
        key("plan_id"): outcome.plan_id,
        key("verdict"): outcome.verdict,
        key("requires"): outcome.requires,
    }
    done = outcome.result
    if done is not None and done.job_id:
        metadata[key("job_id")] = done.job_id
    if outcome.plan is not None and outcome.plan.unit is not None:
        metadata[key("desired_digest")] = outcome.plan.unit.manifest.application_digest
    if outcome.plan is not None and outcome.plan.running is not None:
        metadata[key("running_digest")] = outcome.plan.running.manifest.application_digest
    for stage, facts in done.stages if done is not None else ():
        if stage != "write-record":
            place = f"{stage}/{facts['model']}" if "model" in facts else stage
            metadata |= {
                key(f"{place}/{name}"): value
                for name, value in facts.items()
                if name != "model" and isinstance(value, bool | int | float | str)
            }
    return metadata


def waiting_text(waiting: Mapping[str, str]) -> str:
    """Which plans wait."""
    if not waiting:
        return "No plan waits for a decision."
    return "Waiting for a decision: " + ", ".join(f"plan {plan_id} of unit {unit}" for unit, plan_id in waiting.items())


def waiting_metadata(waiting: Mapping[str, str]) -> RawMetadata:
    """The ids of the plans that wait."""
    return {key("plan_id"): ", ".join(waiting.values())} if waiting else {}


def waiting_plans(plan: PlanResult, outcomes: Iterable[UnitOutcome] = ()) -> dict[str, str]:
    """Plan ids by unit: those that were blocked, and those of units that were only looked at."""
    acted = {outcome.name: outcome for outcome in outcomes}
    waiting = {name: outcome.plan_id for name, outcome in acted.items() if outcome.outcome == "blocked"}
    for unit in plan.situation.units if plan.situation is not None else ():
        view = plan.approvals[unit.name]
        if unit.name not in acted and view.required and view.status != "approved":
            waiting[unit.name] = unit.plan_id
    return waiting
