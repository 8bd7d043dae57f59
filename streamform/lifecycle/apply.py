"""Apply: walk the stages of an attempt, each written down before it acts, and close the attempt with what runs then.

A killed apply leaves an open attempt; the next one goes on with it, under the same ids, so nothing is done twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from streamform import __version__
from streamform.errors import DataError, Refused, StreamformError
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.deployed import NOTHING, Deployed, read_deployed, with_unit
from streamform.lifecycle.gate import Open
from streamform.lifecycle.journal import Action, Attempt, Outcome, RunningState, StageEntry
from streamform.lifecycle.ports import Backend, Clock, DesiredUnit, Progress, RunningUnit, StageContext
from streamform.lifecycle.situation import UnitPlan
from streamform.lifecycle.stages import Stage
from streamform.lifecycle.store import Store
from streamform.project.model import Project, Target
from streamform.values.instants import render_instant

UnitOutcome = Literal["applied", "unchanged", "failed", "removed", "stopped"]


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What became of one unit."""

    name: str
    plan_id: str
    verdict: str
    requires: str
    outcome: UnitOutcome
    job_id: str | None = None
    stages: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    """What the stages returned, by kind."""
    problem: str | None = None


@dataclass(frozen=True)
class Applier:
    """Carries out plans on one target. The caller holds the target's lock."""

    project: Project
    target: Target
    store: Store
    backend: Backend
    clock: Clock
    by: str
    progress: Callable[[Progress], None]
    sources: Callable[[DesiredUnit], Mapping[str, Any]]
    """The source text that is kept beside a unit's artifact."""
    rebuild_unit: Callable[[str, Attempt], DesiredUnit | None]
    """The unit of an attempt, compiled from its stored artifact."""

    def apply(self, plan: UnitPlan, decision: Open) -> UnitResult:
        """Bring one unit to its desired plan. `decision` must be for exactly this plan."""
        assert decision.plan_id == plan.plan_id, "a decision for another plan"
        if not plan.staging.changes:
            return self.catch_up(plan)
        attempt = self.begin(plan, decision, "remove" if plan.unit is None else "apply")
        return self.walk(attempt, plan.unit)

    def catch_up(self, plan: UnitPlan) -> UnitResult:
        """Nothing differs: consume what is new, where that is the backend's way. No entry is written."""
        results: dict[str, Any] = {}
        for stage in plan.staging.stages:
            context = self.context(
                plan.name, plan.unit, plan.running, plan.replaced, plan.carry, plan.sequence, "", None, {}, {}, lambda facts: None
            )
            results[stage.kind] = dict(self.backend.execute(stage, context))
        job = plan.running.job_id if plan.running else None
        return UnitResult(
            plan.name, plan.plan_id, plan.diff.verdict.text, plan.staging.requires.text, "unchanged", job, tuple(results), results
        )

    def begin(self, plan: UnitPlan, decision: Open, action: Action) -> Attempt:
        """Write the attempt's intent; in the same write its approvals are consumed."""
        artifact = None if plan.unit is None else self.store.write_artifact(plan.unit, self.sources(plan.unit))
        newest = self.store.newest(plan.name)
        attempt = Attempt(
            plan.name,
            self.target.name,
            plan.sequence + 1,
            plan.previous,
            uuid.uuid4().hex[:12],
            action,
            self.by,
            self.clock.now_ms(),
            plan.plan_id,
            plan.diff.verdict.text,
            plan.staging.requires.text,
            artifact,
            plan.models,
            dict(plan.carry),
            tuple(unit.name for unit in plan.replaced),
            tuple(asdict(entry) for entry in decision.approvals),
            tuple(StageEntry(stage.kind, dict(stage.facts)) for stage in plan.staging.stages),
            running=newest.running if newest is not None else None,
        )
        return self.store.write_attempt(attempt, replaces=None)

    def resume(self, attempt: Attempt) -> UnitResult:
        """Go on with an attempt that was cut off."""
        unit = None if attempt.artifact is None else self.rebuild_unit(attempt.artifact, attempt)
        return self.walk(attempt, unit)

    def walk(self, attempt: Attempt, unit: DesiredUnit | None) -> UnitResult:
        """Carry out every stage that is not done, then close the attempt."""
        deployed = read_deployed(self.store)
        while (index := attempt.next_stage) is not None:
            entry = attempt.stages[index]
            if entry.state == "waiting":
                attempt = self.write(attempt, attempt.with_stage(index, replace(entry, state="begun", begun_at_ms=self.clock.now_ms())))
            try:
                attempt = self.stage(attempt, index, unit, deployed)
            except (Refused, DataError) as error:
                return self.failed(attempt, unit, deployed, error)
        return self.closed(attempt)

    def stage(self, attempt: Attempt, index: int, unit: DesiredUnit | None, deployed: Deployed) -> Attempt:
        entry = attempt.stages[index]
        stage = Stage(entry.kind, entry.kind, tuple(entry.facts.items()))  # type: ignore[arg-type]
        if stage.kind == "write-record":
            return self.write_record(attempt, index, unit, deployed)
        holder = [attempt]

        def remember(facts: Mapping[str, Any]) -> None:
            current = holder[0].stages[index]
            holder[0] = self.write(holder[0], holder[0].with_stage(index, replace(current, remembered={**current.remembered, **facts})))

        running = deployed.units.get(attempt.unit)
        replaced = tuple(deployed.units[name] for name in attempt.replaces if name in deployed.units)
        done = {s.kind: s.result for s in attempt.stages if s.state == "done"}
        context = self.context(
            attempt.unit,
            unit,
            running,
            replaced,
            attempt.carry,
            attempt.sequence,
            attempt.attempt,
            attempt.artifact,
            done,
            entry.remembered,
            remember,
        )
        result = dict(self.backend.execute(stage, context))
        current = holder[0].stages[index]
        return self.write(holder[0], holder[0].with_stage(index, replace(current, state="done", result=result)))

    def context(
        self,
        name: str,
        unit: DesiredUnit | None,
        running: RunningUnit | None,
        replaced: tuple[RunningUnit, ...],
        carry: Mapping[str, str],
        sequence: int,
        attempt: str,
        artifact: str | None,
        done: Mapping[str, Mapping[str, Any]],
        remembered: Mapping[str, Any],
        remember: Callable[[Mapping[str, Any]], None],
    ) -> StageContext:
        return StageContext(
            self.project,
            self.target,
            unit,
            name,
            running,
            replaced,
            carry,
            sequence,
            attempt,
            artifact,
            done,
            self.progress,
            remember,
            remembered,
        )

    def write_record(self, attempt: Attempt, index: int, unit: DesiredUnit | None, deployed: Deployed) -> Attempt:
        """Write the record with this unit as it is now, and what runs into the entry."""
        running = None if unit is None else self.running_after(attempt, deployed)
        digest = self.record(attempt, unit, running, deployed)
        entry = replace(attempt.stages[index], state="done", result={"record_digest": digest})
        return self.write(attempt, replace(attempt.with_stage(index, entry), running=running, record_digest=digest))

    def running_after(self, attempt: Attempt, deployed: Deployed) -> RunningState:
        """What runs when every stage is done."""
        results = {s.kind: s.result for s in attempt.stages if s.state == "done"}
        before = deployed.units.get(attempt.unit)
        submitted = results.get("submit", {})
        assert attempt.artifact is not None
        adopted = "adopt-job" in results and before is not None
        job = before.job_id if adopted and before else submitted.get("job_id")
        job_artifact = before.artifact if adopted and before and before.artifact else attempt.artifact
        details: dict[str, Any] = dict(before.details) if adopted and before else {}
        for result in results.values():
            details |= result.get("details", {})
        return RunningState(attempt.models, attempt.artifact, job_artifact, job, None, "applied", details)

    def record(self, attempt: Attempt, unit: DesiredUnit | None, running: RunningState | None, deployed: Deployed) -> str:
        new = None
        if unit is not None and running is not None:
            new = RunningUnit(
                attempt.unit,
                attempt.models,
                unit.manifest,
                unit.facts,
                running.job_artifact,
                running.job_id,
                None,
                running.status,
                running.details,
            )
        after = with_unit(deployed, new, attempt.unit, attempt.replaces)
        jobs = tuple(u.job_id for u in after.units.values() if u.job_id is not None and u.status == "applied")
        record = AppliedRecord(
            self.target.name,
            render_instant(self.clock.now_ms()).replace(".000Z", "Z"),
            __version__,
            self.target.backend,
            jobs,
            after.manifest or NOTHING,
            artifact_digest=attempt.artifact,
            attempt=attempt.attempt,
        )
        return self.store.write_record(record)

    def closed(self, attempt: Attempt, outcome: Outcome | None = None) -> UnitResult:
        """Close a complete attempt."""
        words: dict[Action, Outcome] = {
            "apply": "applied",
            "stop": "stopped",
            "discard": "stopped",
            "remove": "removed",
            "adopt": "applied",
        }
        final = outcome or words[attempt.action]
        attempt = self.write(attempt, replace(attempt, outcome=final, finished_at_ms=self.clock.now_ms()))
        for name in attempt.replaces:
            self.close_replaced(name, attempt)
        return self.result(attempt)

    def close_replaced(self, name: str, attempt: Attempt) -> None:
        """End the chain of a unit that another one took over."""
        newest = self.store.newest(name)
        if newest is None or newest.running is None:
            return
        from streamform.lifecycle.journal import attempt_digest

        entry = Attempt(
            name,
            self.target.name,
            newest.sequence + 1,
            attempt_digest(newest),
            attempt.attempt,
            "remove",
            self.by,
            self.clock.now_ms(),
            attempt.plan_id,
            attempt.verdict,
            attempt.requires,
            None,
            (),
            outcome="removed",
            finished_at_ms=self.clock.now_ms(),
        )
        self.store.write_attempt(entry, replaces=None)

    def failed(self, attempt: Attempt, unit: DesiredUnit | None, deployed: Deployed, error: StreamformError) -> UnitResult:
        """Bring back what ran before where it was disturbed, and close the attempt as failed."""
        index = attempt.next_stage
        assert index is not None
        entry = attempt.stages[index]
        done = {s.kind: s.result for s in attempt.stages if s.state == "done"}
        running = deployed.units.get(attempt.unit)
        context = self.context(
            attempt.unit,
            unit,
            running,
            (),
            attempt.carry,
            attempt.sequence,
            attempt.attempt,
            attempt.artifact,
            done,
            entry.remembered,
            lambda facts: None,
        )
        restored = self.backend.compensate(context, error)
        state = attempt.running
        if restored is not None and state is not None:
            status = restored.get("status", "applied")
            state = replace(
                state,
                job_id=restored.get("job_id"),
                savepoint=restored.get("savepoint"),
                status=status,
                details={**state.details, **restored.get("details", {})},
            )
            self.rewrite_jobs(attempt, state, deployed)
        text = error.message + (f"; {restored['text']}" if restored and "text" in restored else "")
        attempt = self.write(attempt, replace(attempt, outcome="failed", problem=text, finished_at_ms=self.clock.now_ms(), running=state))
        return self.result(attempt)

    def rewrite_jobs(self, attempt: Attempt, state: RunningState, deployed: Deployed) -> None:
        """The record of what ran before, under the job that runs it again."""
        before = deployed.units.get(attempt.unit)
        if before is None or deployed.record is None:
            return
        unit = replace(before, job_id=state.job_id, savepoint=state.savepoint, status=state.status, details=state.details)
        after = with_unit(deployed, unit, attempt.unit)
        jobs = tuple(u.job_id for u in after.units.values() if u.job_id is not None and u.status == "applied")
        self.store.write_record(replace(deployed.record, jobs=jobs))

    def abandon(self, attempt: Attempt, why: str) -> None:
        """Close an attempt that had not acted yet."""
        self.write(attempt, replace(attempt, outcome="failed", problem=why, finished_at_ms=self.clock.now_ms()))

    def write(self, before: Attempt, after: Attempt) -> Attempt:
        return self.store.write_attempt(after, replaces=before)

    def result(self, attempt: Attempt) -> UnitResult:
        """The result that an attempt's entry says."""
        words: dict[str, UnitOutcome] = {"applied": "applied", "failed": "failed", "removed": "removed", "stopped": "stopped"}
        results = {s.kind: dict(s.result) for s in attempt.stages if s.state == "done"}
        job = attempt.running.job_id if attempt.running is not None else None
        kinds = tuple(s.kind for s in attempt.stages if s.state == "done")
        return UnitResult(
            attempt.unit,
            attempt.plan_id or "",
            attempt.verdict,
            attempt.requires,
            words[attempt.outcome],
            job,
            kinds,
            results,
            attempt.problem,
        )
