"""One step: deploy a unit, and say what became of it. All decisions are the core's; this turns them into events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import dagster as dg
from msgspec.structs import replace

from streamform import api
from streamform.errors import LockHeld, StreamformError
from streamform.results import ApplyResult, UnitOutcome
from streamform_dagster._compat import launched_op_tag
from streamform_dagster.assets import DIGEST_TAG, Bound
from streamform_dagster.events import Reporter, outcome_metadata, raise_error, waiting_plans
from streamform_dagster.metadata import RawMetadata, key, markdown, verdict_tag

LOOK_AGAIN_S = 0.5
T = TypeVar("T")


def deploy(context: dg.AssetExecutionContext, bound: Bound, *, lock_wait_s: float) -> Iterator[dg.MaterializeResult[Any]]:
    """Apply the unit, then end units whose models are gone where the run is about the whole project.

    Raises: Failure, after the events of everything that was done.
    """
    step = _Step(context, bound, lock_wait_s)
    outcomes: list[UnitOutcome] = []
    for unit in step.units():
        result = step.apply(unit)
        yield from step.report(result)
        outcomes += result.units
    step.finish(outcomes)


class _Step:
    def __init__(self, context: dg.AssetExecutionContext, bound: Bound, lock_wait_s: float) -> None:
        self.context, self.bound, self.project, self.lock_wait_s = context, bound, bound.project, lock_wait_s
        self.reporter = Reporter(context.op_execution_context, bound.project)

    def units(self) -> Iterator[str]:
        """The unit of the step; and, once in a run of everything, units that only the record knows."""
        yield self.bound.unit.models[0]
        plan = self.reporter.plan
        if plan is not None and plan.situation is not None and self.covers_project():
            yield from [unit.name for unit in plan.situation.units if unit.unit is None]

    def covers_project(self) -> bool:
        """Whether the run selects every model, and this is its first unit's step."""
        run = self.reporter.run
        whole_job = not run.asset_selection and run.job_name == self.project.job_name("apply")
        everything = whole_job or self.bound.project_keys <= (run.asset_selection or frozenset())
        return everything and self.bound.unit == self.project.catalog.units[0]

    def apply(self, unit: str) -> ApplyResult:
        """Apply one unit. Raises: Failure."""
        try:
            return while_locked(lambda: self._apply(unit), self.lock_wait_s, self.context.log.info)
        except StreamformError as error:
            raise_error(error, self.reporter)

    def _apply(self, unit: str) -> ApplyResult:
        return api.apply(
            self.project.dir,
            target=self.project.target,
            unit=unit,
            by=self.reporter.person.name,
            policy=api.strict_policy(),
            progress=self.reporter.progress(),
            on_plan=self.reporter.on_plan,
        )

    def report(self, result: ApplyResult) -> Iterator[dg.MaterializeResult[Any]]:
        """The events of what was done."""
        outcomes = sorted(map(self.with_plan, result.units), key=lambda outcome: outcome.outcome == "unchanged")
        for outcome in outcomes:
            self.compare_with_location(outcome)
            mirrored = self.mirror(result, outcome)
            if outcome.outcome == "applied":
                yield from self.models(outcome)
            elif outcome.outcome == "unchanged" and (adopted := list(self.adopted(outcome))):
                yield from adopted
            elif outcome.outcome == "unchanged" and not mirrored:
                self.reporter.unchanged(outcome_metadata(outcome))

    def mirror(self, result: ApplyResult, outcome: UnitOutcome) -> bool:
        """Mirror the record; where the unit is blocked now, only one that finishing an earlier attempt wrote."""
        if outcome.outcome != "blocked":
            facts = {**outcome_metadata(outcome), **self.reporter.approved_by(outcome), **self.reporter.diff_metadata(outcome)}
            return self.reporter.record(result.record, facts)
        changed = result.record is not None and result.record.before != result.record.after
        return changed and self.reporter.record(result.record, {key("unit"): outcome.name})

    def with_plan(self, outcome: UnitOutcome) -> UnitOutcome:
        """The outcome with its plan, which one that finished an earlier attempt does not have."""
        plan = self.reporter.plan
        if outcome.plan is not None or plan is None or plan.situation is None:
            return outcome
        return replace(outcome, plan=next((unit for unit in plan.situation.units if unit.name == outcome.name), None))

    def compare_with_location(self, outcome: UnitOutcome) -> None:
        """Log which digest is applied, and say so when the code location shows something else."""
        unit = None if outcome.plan is None else outcome.plan.unit
        if unit is None or self.bound.unit.models[0] not in unit.models:
            return
        now = unit.manifest.application_digest
        self.context.log.info(f"unit {outcome.name}: application digest {now[:12]}, {outcome.outcome}")
        shown = launched_op_tag(self.context.instance, self.reporter.run, self.context.op_execution_context.op_def.name, DIGEST_TAG)
        if shown not in (None, now):
            self.context.log.warning(
                f"the code location shows unit {outcome.name} with digest {str(shown)[:12]}; this run is about {now[:12]}, "
                "which is on disk now. Reload the code location."
            )

    def models(self, outcome: UnitOutcome, **more: str) -> Iterator[dg.MaterializeResult[Any]]:
        """A materialization for each model of the unit that this step has."""
        facts: RawMetadata = {**outcome_metadata(outcome), **{key(name): value for name, value in more.items()}}
        deployed = self.bound.unit.models if outcome.plan is None else outcome.plan.models
        for model, asset in self.bound.keys.items():
            if model in deployed:
                tags = {key("verdict"): verdict_tag(outcome.verdict)}
                yield dg.MaterializeResult(asset_key=asset, metadata={**facts, **_model_diff(outcome, model)}, tags=tags)

    def adopted(self, outcome: UnitOutcome) -> Iterator[dg.MaterializeResult[Any]]:
        """Materializations of what was applied elsewhere: on the command line, or by a run that could not say so."""
        unit = None if outcome.plan is None else outcome.plan.unit
        if unit is None:
            return
        events = self.context.instance.get_latest_materialization_events(list(self.bound.keys.values()))
        for result in self.models(outcome, adopted_from="the store"):
            event = events.get(result.asset_key) if result.asset_key is not None else None
            seen = None if event is None or event.asset_materialization is None else event.asset_materialization.metadata
            known = None if seen is None else seen.get(key("desired_digest"))
            if known is None or known.value != unit.manifest.application_digest:
                yield result

    def finish(self, outcomes: list[UnitOutcome]) -> None:
        """Say on the check what waits, and fail where something was blocked or went wrong. Raises: Failure."""
        assert self.reporter.plan is not None, "an apply that returns has shown its plan"
        self.reporter.check(waiting_plans(self.reporter.plan, outcomes))
        if failed := [outcome for outcome in outcomes if outcome.outcome == "failed"]:
            raise self.reporter.failed(failed[0])
        if blocked := [outcome for outcome in outcomes if outcome.outcome == "blocked"]:
            raise self.reporter.blocked(blocked)


def _model_diff(outcome: UnitOutcome, model: str) -> RawMetadata:
    """What changed in one model."""
    from streamform.render.diff import diff_markdown

    if outcome.plan is None:
        return {}
    part = outcome.plan.diff.part({model}, set(), ())
    return {} if part.is_empty else {key("plan_diff"): markdown(diff_markdown(part))}


def while_locked(act: Callable[[], T], wait_s: float, log: Callable[[str], None]) -> T:
    """The act's result; while another process changes the target, wait for it this long. Raises: LockHeld."""
    deadline = time.monotonic() + wait_s
    waiting = False
    while True:
        try:
            return act()
        except LockHeld as error:
            if time.monotonic() >= deadline:
                raise
            if not waiting:
                log(f"waiting: {error.message}")
            waiting = True
            time.sleep(LOOK_AGAIN_S)
