"""Apply: walk the stages of an attempt, each written down before it acts, and close the attempt with what runs then.

A killed apply leaves an open attempt; the next one goes on with it, under the same ids, so nothing is done twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from streamform import __version__
from streamform.errors import DataError, Refused, StateError, StreamformError
from streamform.identity.manifest import sink_addresses
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.adoption import adopted_models
from streamform.lifecycle.deployed import NOTHING, Deployed, read_deployed, with_unit
from streamform.lifecycle.gate import Open
from streamform.lifecycle.journal import Action, Attempt, Outcome, RunningState, StageEntry, attempt_digest
from streamform.lifecycle.ports import Backend, Clock, DesiredUnit, Progress, RunningUnit, StageContext
from streamform.lifecycle.situation import UnitPlan
from streamform.lifecycle.stages import Stage
from streamform.lifecycle.store import Store
from streamform.project.model import Project, Target
from streamform.values.instants import render_instant

UnitOutcomeWord = Literal["applied", "unchanged", "failed", "removed", "stopped"]

_CLOSED: dict[Action, Outcome] = {"apply": "applied", "stop": "stopped", "discard": "stopped", "remove": "removed", "adopt": "applied"}


class UnitResult(Struct, frozen=True):
    """What became of one unit."""

    name: str
    plan_id: str
    verdict: str
    requires: str
    outcome: UnitOutcomeWord
    job_id: str | None = None
    stages: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Kind and result of each stage that was carried out, in order."""
    problem: str | None = None


class Applier(Struct, frozen=True, dict=True):
    """Carries out plans on one target. The caller holds the target's lock."""

    project: Project
    target: Target
    store: Store
    backend: Backend
    clock: Clock
    by: str
    progress: Callable[[Progress], None]
    source_text: Callable[[DesiredUnit], Mapping[str, Any]]
    """The source text that is kept beside a unit's artifact."""
    stored_unit: Callable[[str, Attempt], DesiredUnit]
    """The unit of an attempt, compiled from its artifact."""

    def apply(self, plan: UnitPlan, decision: Open, action: Action = "apply") -> UnitResult:
        """Carry out the stages of one unit's plan. `decision` must be for exactly this plan."""
        assert decision.plan_id == plan.plan_id, "a decision for another plan"
        if not plan.staging.changes:
            return self.catch_up(plan)
        action = "remove" if plan.unit is None and action == "apply" else action
        unit = plan.unit if action == "apply" else None
        if unit is not None:
            self.check_is_free(plan)
            self.backend.preflight(self.idle_context(plan))
        return self.walk(self.begin(plan, unit, decision, action), unit)

    def check_is_free(self, plan: UnitPlan) -> None:
        """Raise Refused while models of the unit run in another one that goes on."""
        ending = {plan.name, *(unit.name for unit in plan.replaced)}
        for name, unit in read_deployed(self.store).units.items():
            both = sorted(set(plan.models) & set(unit.models))
            if both and name not in ending and unit.status == "applied":
                raise Refused(f"unit `{name}` still runs model `{both[0]}` of unit `{plan.name}`", f"apply unit `{name}` first")

    def catch_up(self, plan: UnitPlan) -> UnitResult:
        """Nothing differs: consume what is new, where that is the backend's way. No entry is written."""
        context = self.idle_context(plan)
        results = tuple((stage.kind, dict(self.backend.execute(stage, context))) for stage in plan.staging.stages)
        job = plan.running.job_id if plan.running else None
        verdict, requires = plan.diff.verdict.text, plan.staging.requires.text
        return UnitResult(plan.name, plan.plan_id, verdict, requires, "unchanged", job, results)

    def begin(self, plan: UnitPlan, unit: DesiredUnit | None, decision: Open, action: Action) -> Attempt:
        """Write the attempt's intent; in the same write its approvals are consumed."""
        newest = self.store.newest(plan.name)
        attempt = Attempt(
            unit=plan.name,
            target=self.target.name,
            sequence=plan.sequence + 1,
            previous=plan.previous,
            attempt=os.urandom(6).hex(),
            action=action,
            by=self.by,
            started_at_ms=self.clock.now_ms(),
            plan_id=plan.plan_id,
            verdict=plan.diff.verdict.text,
            requires=plan.staging.requires.text,
            artifact=None if unit is None else self.store.write_artifact(unit, self.source_text(unit)),
            models=plan.models,
            carry=dict(plan.carry),
            replaces=tuple(replaced.name for replaced in plan.replaced),
            approvals=tuple(to_builtins(entry) for entry in decision.approvals),
            stages=tuple(StageEntry(stage.kind, dict(stage.facts)) for stage in plan.staging.stages),
            running=newest.running if newest is not None else None,
        )
        return self.store.write_attempt(attempt, replaces=None)

    def resume(self, attempt: Attempt) -> UnitResult:
        """Go on with an attempt that was cut off."""
        return self.walk(attempt, self.unit_of(attempt))

    def unit_of(self, attempt: Attempt) -> DesiredUnit | None:
        """The unit that an attempt deploys, None for one that ends something."""
        return None if attempt.artifact is None else self.stored_unit(attempt.artifact, attempt)

    def abandon(self, attempt: Attempt, why: str) -> None:
        """Close an attempt that had not acted yet."""
        self.write(attempt, replace(attempt, outcome="failed", problem=why, finished_at_ms=self.clock.now_ms()))

    def walk(self, attempt: Attempt, unit: DesiredUnit | None) -> UnitResult:
        """Carry out every stage that is not done, then close the attempt.

        A state that can't be read or written leaves it open, to be resumed; while sources are consumed nothing is left to resume.
        """
        deployed = read_deployed(self.store)
        while (index := attempt.next_stage) is not None:
            entry = attempt.stages[index]
            if entry.state == "waiting":
                attempt = self.write(attempt, attempt.with_stage(index, replace(entry, state="begun", begun_at_ms=self.clock.now_ms())))
            if entry.kind == "write-record":
                attempt = self.write_record(attempt, index, unit, deployed)
                continue
            try:
                attempt = self.execute(attempt, index, unit, deployed)
            except (Refused, DataError, StateError) as error:
                if isinstance(error, StateError) and entry.kind != "catch-up":
                    raise
                written = self.store.newest(attempt.unit)
                assert written is not None, "the attempt is open, with what the stage wanted remembered"
                return self.failed(written, unit, deployed, error)
        return self.closed(attempt)

    def execute(self, attempt: Attempt, index: int, unit: DesiredUnit | None, deployed: Deployed) -> Attempt:
        """Carry out one stage; what it wants remembered is written before it acts."""
        current = [attempt]

        def remember(facts: Mapping[str, Any]) -> None:
            entry = current[0].stages[index]
            wider = replace(entry, remembered={**entry.remembered, **facts})
            current[0] = self.write(current[0], current[0].with_stage(index, wider))

        context = replace(self.attempt_context(attempt, unit, deployed), remember=remember)
        result = dict(self.backend.execute(stage_of(attempt.stages[index]), context))
        entry = current[0].stages[index]
        return self.write(current[0], current[0].with_stage(index, replace(entry, state="done", result=result)))

    def attempt_context(self, attempt: Attempt, unit: DesiredUnit | None, deployed: Deployed) -> StageContext:
        """The context of the attempt's next stage, without a way to remember."""
        index = attempt.next_stage
        return StageContext(
            project=self.project,
            target=self.target,
            unit=unit,
            unit_name=attempt.unit,
            running=deployed.units.get(attempt.unit),
            replaced=tuple(deployed.units[name] for name in attempt.replaces if name in deployed.units),
            carry=attempt.carry,
            sequence=attempt.sequence,
            attempt=attempt.attempt,
            artifact=attempt.artifact,
            done=_results(attempt),
            progress=self.progress,
            remember=_forget,
            remembered={} if index is None else attempt.stages[index].remembered,
            written=self.written,
            adopted=adopted_models([stage.facts for stage in attempt.stages]),
        )

    def idle_context(self, plan: UnitPlan) -> StageContext:
        """The context of a stage outside an attempt."""
        return StageContext(
            project=self.project,
            target=self.target,
            unit=plan.unit,
            unit_name=plan.name,
            running=plan.running,
            replaced=plan.replaced,
            carry=plan.carry,
            sequence=plan.sequence,
            attempt="",
            artifact=None,
            done={},
            progress=self.progress,
            remember=_forget,
            remembered={},
            written=self.written,
            adopted=adopted_models([dict(stage.facts) for stage in plan.staging.stages]),
        )

    def written(self) -> frozenset[str]:
        """Addresses of every sink that an attempt of any unit began to fill."""
        found: set[str] = set()
        for name in self.store.units():
            begun = [a for a in self.store.attempts(name) if a.stages and a.stages[0].state != "waiting"]
            for artifact in {attempt.artifact for attempt in begun if attempt.artifact is not None}:
                found |= sink_addresses(self.store.artifact_manifest(artifact))
        return frozenset(found)

    def write_record(self, attempt: Attempt, index: int, unit: DesiredUnit | None, deployed: Deployed) -> Attempt:
        """Write the record with this unit as it is now, and what runs into the entry."""
        state = None if attempt.action == "remove" else running_after(attempt, deployed)
        digest = self.record(attempt, unit, state, deployed)
        entry = replace(attempt.stages[index], state="done", result={"record_digest": digest})
        return self.write(attempt, replace(attempt.with_stage(index, entry), running=state, record_digest=digest))

    def record(self, attempt: Attempt, unit: DesiredUnit | None, state: RunningState | None, deployed: Deployed) -> str:
        """Replace the record; its digest."""
        before = deployed.units.get(attempt.unit)
        now: RunningUnit | None = None
        if state is not None and unit is not None:
            now = RunningUnit(attempt.unit, attempt.models, unit.manifest, unit.facts, state.job_artifact, state.job_id)
        elif state is not None and before is not None:
            now = replace(before, job_id=state.job_id, savepoint=state.savepoint, status=state.status)
        after = with_unit(deployed, now, attempt.unit, attempt.replaces)
        record = AppliedRecord(
            target=self.target.name,
            applied_at=render_instant(self.clock.now_ms()).replace(".000Z", "Z"),
            streamform_version=__version__,
            backend=self.target.backend,
            jobs=running_jobs(after),
            manifest=after.manifest or NOTHING,
            artifact_digest=attempt.artifact,
            attempt=attempt.attempt,
        )
        return self.store.write_record(record)

    def closed(self, attempt: Attempt) -> UnitResult:
        """Close the chains of the units that a complete attempt took over, then the attempt, so that a kill between leaves it open."""
        for name in attempt.replaces:
            self.close_replaced(name, attempt)
        return result_of(self.write(attempt, replace(attempt, outcome=_CLOSED[attempt.action], finished_at_ms=self.clock.now_ms())))

    def close_replaced(self, name: str, attempt: Attempt) -> None:
        """End the chain of a unit that another one took over; once ended nothing is written again."""
        newest = self.store.newest(name)
        if newest is None or newest.running is None:
            return
        self.store.write_attempt(self.closing_entry(newest, attempt, "remove", "removed", None), replaces=None)

    def closing_entry(self, newest: Attempt, cause: Attempt, action: Action, outcome: Outcome, state: RunningState | None) -> Attempt:
        """An entry of another unit's chain that says what an attempt did to it."""
        now = self.clock.now_ms()
        return Attempt(
            unit=newest.unit,
            target=self.target.name,
            sequence=newest.sequence + 1,
            previous=attempt_digest(newest),
            attempt=cause.attempt,
            action=action,
            by=self.by,
            started_at_ms=now,
            plan_id=cause.plan_id,
            verdict=cause.verdict,
            requires=cause.requires,
            artifact=None,
            models=() if state is None else state.models,
            outcome=outcome,
            finished_at_ms=now,
            running=state,
        )

    def failed(self, attempt: Attempt, unit: DesiredUnit | None, deployed: Deployed, error: StreamformError) -> UnitResult:
        """Bring back what ran before where it was disturbed, and close the attempt as failed."""
        is_deployed = any(stage.kind == "write-record" and stage.state == "done" for stage in attempt.stages)
        restored = self.backend.compensate(self.attempt_context(attempt, unit, deployed), error)
        state, text = attempt.running, error.message if error.help is None else f"{error.message}; {error.help}"
        if is_deployed:
            text = f"{text}; the plan is deployed, and the next apply goes on from here"
        for name, savepoint in (restored or {}).get("stopped", {}).items():
            self.note_stopped(name, savepoint, attempt)
        if restored is not None and state is not None:
            details = {**state.details, **restored.get("details", {})}
            status = restored.get("status", "applied")
            state = replace(state, job_id=restored.get("job_id"), savepoint=restored.get("savepoint"), status=status, details=details)
            text = f"{text}; {restored.get('text', 'what ran before runs again')}"
            self.rewrite_jobs(attempt, state)
        closed = replace(attempt, outcome="failed", problem=text, finished_at_ms=self.clock.now_ms(), running=state)
        return result_of(self.write(attempt, closed))

    def note_stopped(self, name: str, savepoint: str | None, attempt: Attempt) -> None:
        """Write that a unit that was to be taken over stays stopped; once written it is not written again."""
        newest = self.store.newest(name)
        if newest is None or newest.running is None or newest.running.status == "stopped":
            return
        state = replace(newest.running, job_id=None, savepoint=savepoint, status="stopped")
        self.store.write_attempt(self.closing_entry(newest, attempt, "stop", "stopped", state), replaces=None)

    def rewrite_jobs(self, attempt: Attempt, state: RunningState) -> None:
        """The record of what ran before, under the job that runs it again."""
        deployed = read_deployed(self.store)
        before = deployed.units.get(attempt.unit)
        if before is None or deployed.record is None:
            return
        unit = replace(before, job_id=state.job_id, savepoint=state.savepoint, status=state.status, details=state.details)
        self.store.write_record(replace(deployed.record, jobs=running_jobs(with_unit(deployed, unit, attempt.unit))))

    def write(self, before: Attempt, after: Attempt) -> Attempt:
        """Replace an entry by its next form."""
        return self.store.write_attempt(after, replaces=before)


def _forget(facts: Mapping[str, Any]) -> None:
    """Outside an attempt there is nothing to write into."""


def _results(attempt: Attempt) -> dict[str, dict[str, Any]]:
    return {stage.kind: dict(stage.result) for stage in attempt.stages if stage.state == "done"}


def stage_of(entry: StageEntry) -> Stage:
    """The stage that an entry of the journal holds."""
    return Stage(entry.kind, entry.kind, tuple(entry.facts.items()))


def running_after(attempt: Attempt, deployed: Deployed) -> RunningState:
    """What runs when every stage of an attempt is done."""
    results = _results(attempt)
    if attempt.action in ("stop", "discard"):
        assert attempt.running is not None, "only what was applied is stopped"
        savepoint = results.get("stop-job", {}).get("savepoint")
        return replace(attempt.running, job_id=None, savepoint=savepoint, status="stopped" if attempt.action == "stop" else "discarded")
    assert attempt.artifact is not None, "an apply has an artifact"
    before = deployed.units.get(attempt.unit)
    details: dict[str, Any] = {}
    for result in results.values():
        details |= result.get("details", {})
    if "adopt-job" in results and before is not None:
        kept = {**before.details, **details}
        return RunningState(attempt.models, attempt.artifact, before.artifact or attempt.artifact, before.job_id, details=kept)
    job = results.get("submit", {}).get("job_id")
    restored = any(stage.kind == "submit" and stage.facts.get("restore") for stage in attempt.stages)
    submitted = before.artifact if restored and before is not None else None
    return RunningState(attempt.models, attempt.artifact, submitted or attempt.artifact, job, details=details)


def running_jobs(deployed: Deployed) -> tuple[str, ...]:
    """The jobs that the record names."""
    return tuple(u.job_id for u in deployed.units.values() if u.job_id is not None and u.status == "applied")


def result_of(attempt: Attempt) -> UnitResult:
    """The result that a closed entry says."""
    words: dict[Outcome, UnitOutcomeWord] = {"applied": "applied", "failed": "failed", "removed": "removed", "stopped": "stopped"}
    job = attempt.running.job_id if attempt.running is not None else None
    stages = tuple((stage.kind, stage.result) for stage in attempt.stages if stage.state == "done")
    return UnitResult(
        attempt.unit,
        attempt.plan_id or "",
        attempt.verdict,
        attempt.requires,
        words[attempt.outcome],
        job,
        stages,
        attempt.problem,
    )
