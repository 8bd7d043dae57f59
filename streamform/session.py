"""A target that is open for one command: its store, its backend, the gate, and the units that a command is about.

Part of the facade: api.py has the commands, this has what several of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from streamform.adapters.clock import SystemClock
from streamform.adapters.factory import open_backend, open_documents
from streamform.codes import listed, suggest
from streamform.errors import StateError, StoreError, UsageError
from streamform.identity.manifest import build_manifest
from streamform.lifecycle.deployed import Deployed, read_deployed
from streamform.lifecycle.ports import Backend, DesiredUnit, Progress
from streamform.lifecycle.situation import PlanOf, Situation, UnitPlan, assess
from streamform.lifecycle.store import FACTS_FILE, PROJECT_FILE, STATEMENTS_FILE, Store, artifact_digest
from streamform.plan.units import unit_sources
from streamform.results import ApprovalView, UnitOutcome

if TYPE_CHECKING:
    from streamform.lifecycle.apply import Applier, UnitResult
    from streamform.lifecycle.approval import PendingPlan
    from streamform.lifecycle.deploy_plan import DeployPlan
    from streamform.lifecycle.journal import Action, Attempt
    from streamform.plan.compiled import Compiled
    from streamform.plan.nodes import Plan
    from streamform.project.model import Policy, Project, Target
    from streamform.simulator.counterexample import Counterexample


def open_store(project_dir: Path, project: Project, target: Target) -> Store:
    """What is written down about a target. Its address is the same wherever the command is given, because plan ids hold it."""
    return Store(open_documents(project_dir.resolve(), project.name, target), target.name)


class Session:
    """One target, open for one command."""

    def __init__(self, project_dir: Path, compiled: Compiled, target: Target) -> None:
        self.compiled, self.target = compiled, target
        self.store = open_store(project_dir, compiled.project, target)
        self.backend: Backend = open_backend(project_dir, compiled.project, target)
        self.clock = SystemClock()

    @property
    def project(self) -> Project:
        return self.compiled.project

    def deployed(self) -> Deployed:
        """The running side, as it is written down."""
        return read_deployed(self.store)

    def record_text(self) -> str | None:
        """The applied record as it is stored."""
        content = self.store.documents.read(self.store.record_path)
        return None if content is None else content.decode("utf-8", "replace")

    def assess(self, *, observe: bool) -> Situation:
        """The situation of every unit."""
        deployed, address = self.deployed(), self.store.documents.describe()
        return assess(self.compiled, self.target, deployed, self.backend, address, plan_of=self.plan_of(deployed), observe=observe)

    def plan_of(self, deployed: Deployed) -> PlanOf:
        """How the typed plan of a running unit is found: compiled from the source text beside its artifact."""

        def found(name: str) -> Plan | None:
            entry = deployed.newest.get(name)
            artifact = None if entry is None or entry.running is None else entry.running.artifact
            return None if artifact is None else self.stored_plan(artifact)

        return found

    def stored_plan(self, artifact: str) -> Plan | None:
        """The plan of an artifact; None where this release compiles its text to something else."""
        from streamform.plan.compile import compile_project
        from streamform.project.serialize import read_project_part

        plan = compile_project(read_project_part(self.store.read_artifact(artifact, PROJECT_FILE))).plan
        wanted = self.store.artifact_manifest(artifact).application_digest
        return plan if build_manifest(plan).application_digest == wanted else None

    def counterexamples(self, situation: Situation) -> tuple[Counterexample, ...]:
        """Searches over every unit whose running plan is known."""
        from streamform.diff.match import hints_of
        from streamform.identity.mapping import between
        from streamform.identity.structure import structure_of
        from streamform.plan.nodes import joined
        from streamform.simulator.carry import Carry
        from streamform.simulator.counterexample import find_counterexamples

        plan_of = self.plan_of(self.deployed())
        found: list[Counterexample] = []
        for unit in situation.units:
            running = [*(() if unit.running is None else (unit.running,)), *unit.replaced]
            plans = [plan for plan in (plan_of(other.name) for other in running) if plan is not None]
            if unit.unit is not None and plans and len(plans) == len(running):
                before, after = joined(plans), unit.unit.plan
                mapping = between(structure_of(before), structure_of(after), hints_of(self.project).models)
                carry = Carry(before, after, {**unit.carry, **mapping.streams}, mapping.slots, forced=True)
                found += find_counterexamples(unit.diff, carry)
        return tuple(found)

    def with_adoption(self, applier: Applier, situation: Situation) -> Situation:
        """The situation where each first apply takes over what somebody else wrote into its sinks."""
        from streamform.lifecycle.adoption import can_adopt, with_adopted

        def adopted(plan: UnitPlan) -> UnitPlan:
            return with_adopted(plan, self.backend.foreign_sinks(applier.idle_context(plan))) if can_adopt(plan) else plan

        return replace(situation, units=tuple(map(adopted, situation.units)))

    def holder(self, action: str, by: str) -> dict[str, Any]:
        """What the lock says about who holds it."""
        return {"action": action, "by": by, "at_ms": self.clock.now_ms()}

    def applier(self, by: str, progress: Callable[[Progress], None]) -> Applier:
        """What carries out plans."""
        from streamform.lifecycle.apply import Applier

        return Applier(self.project, self.target, self.store, self.backend, self.clock, by, progress, self.source_text, self.stored_unit)

    def source_text(self, unit: DesiredUnit) -> Mapping[str, Any]:
        """The source text that is kept beside a unit's artifact."""
        from streamform.project.serialize import project_part

        return project_part(self.project, set(unit.models), unit_sources(unit.plan))

    def stored_unit(self, artifact: str, attempt: Attempt) -> DesiredUnit:
        """The unit of an attempt, compiled from its artifact. Raises: StoreError when this release compiles it to something else."""
        from streamform.plan.compile import compile_project
        from streamform.project.serialize import read_project_part

        compiled = compile_project(read_project_part(self.store.read_artifact(artifact, PROJECT_FILE)))
        manifest = build_manifest(compiled.plan)
        if manifest.application_digest != self.store.artifact_manifest(artifact).application_digest:
            raise StoreError(
                f"the unfinished attempt {attempt.attempt} of unit `{attempt.unit}` compiles to something else in this release",
                "finish it with the release that began it",
            )
        facts, statements = (self.store.read_artifact(artifact, name) for name in (FACTS_FILE, STATEMENTS_FILE))
        return DesiredUnit(attempt.unit, attempt.models, compiled.plan, manifest, facts, tuple(statements))

    # approvals

    def pending(self, plan_id: str) -> PendingPlan | None:
        """A registered plan, with the attempt that used its approval."""
        return with_consumption(self.store, self.store.pending_plan(plan_id))

    def approval_view(self, unit: UnitPlan, policy: Policy | None) -> ApprovalView:
        """What the gate would say about a unit's plan now."""
        from streamform.lifecycle.approval import acknowledgement, status_of
        from streamform.lifecycle.gate import needs_approval

        required = needs_approval(unit.staging.requires, policy)
        pending = self.pending(unit.plan_id)
        status = status_of(pending, policy, self.clock.now_ms()) if pending is not None and policy is not None else None
        return ApprovalView(required, status, acknowledgement(unit.staging.requires.text) if required else None)

    def register(self, unit: UnitPlan, by: str) -> PendingPlan:
        """Write down that a unit's plan waits for a decision; an older pending plan of the unit becomes stale."""
        from streamform.lifecycle.approval import PendingPlan, Request, acknowledgement, with_request
        from streamform.render.diff import diff_markdown

        now = self.clock.now_ms()
        for other in self.store.pending():
            if other.unit == unit.name and other.plan_id != unit.plan_id and other.superseded_by is None:
                self.store.write_pending(replace(other, superseded_by=unit.plan_id), replaces=other)
        present = self.store.pending_plan(unit.plan_id)
        if present is not None:
            wanted = replace(with_request(present, by, now), superseded_by=None)
            return present if wanted == present else self.store.write_pending(wanted, replaces=present)
        requires = unit.staging.requires.text
        fresh = PendingPlan(
            unit.plan_id,
            self.project.name,
            self.target.name,
            unit.name,
            unit.diff.verdict.text,
            requires,
            acknowledgement(requires),
            unit.subject,
            diff_markdown(unit.diff),
            now,
            (Request(by, now),),
        )
        return self.store.write_pending(fresh, replaces=None)

    def register_waiting(self, situation: Situation, policy: Policy | None, by: str) -> None:
        """Write down every plan that needs an approval; one whose last attempt is unfinished is none."""
        from streamform.lifecycle.gate import needs_approval

        for unit in situation.units:
            if unit.open_attempt is None and needs_approval(unit.staging.requires, policy):
                self.register(unit, by)

    # applying

    def apply_unit(self, applier: Applier, unit: UnitPlan, policy: Policy | None, action: Action = "apply") -> UnitOutcome:
        """Ask the gate, then carry the unit's plan out, or register it as waiting."""
        from streamform.lifecycle.gate import GateInput, Shut, decide

        question = GateInput(unit.plan_id, unit.staging.requires, policy, self.pending(unit.plan_id), self.clock.now_ms())
        decision = decide(question)
        verdict, requires = unit.diff.verdict.text, unit.staging.requires.text
        if isinstance(decision, Shut):
            registered = self.register(unit, applier.by)
            return UnitOutcome(unit.name, unit.plan_id, verdict, requires, "blocked", None, decision.reason, registered.acknowledge, unit)
        result = applier.apply(unit, decision, action)
        return UnitOutcome(unit.name, unit.plan_id, verdict, requires, result.outcome, result, result.problem, None, unit)

    def check_saved(self, saved: DeployPlan | None) -> None:
        """Refuse a saved plan, before anything is done, that is not this target's, is stale or was applied. Raises: DocumentError, Refused."""
        if saved is None:
            return
        from streamform.lifecycle.deploy_plan import check_place, due_units, refuse_applied

        check_place(saved, self.project.name, self.target.name)
        newest = self.deployed().newest
        refuse_applied(saved, due_units(saved, self.assess(observe=True).units, newest), newest)

    def due(self, units: list[UnitPlan], situation: Situation, saved: DeployPlan | None) -> list[UnitPlan]:
        """Those units whose plans are to be carried out: all, or what is left of a saved plan. Raises: Refused when that is stale."""
        if saved is None:
            return units
        from streamform.lifecycle.deploy_plan import due_units

        names = {unit.name for unit in due_units(saved, situation.units, self.deployed().newest)}
        return [unit for unit in units if unit.name in names]

    def finish_open(self, applier: Applier, *, discards: bool = False) -> list[UnitOutcome]:
        """Go on with attempts that were cut off; one that had not acted and is no longer wanted is closed instead.

        `discards`: what follows gives the state up, so one that can't be finished for its state is closed, too.
        """
        deployed = self.deployed()
        unfinished = [attempt for name in deployed.newest if (attempt := deployed.open_attempt(name)) is not None]
        if not unfinished:
            return []
        wanted = {unit.name: unit for unit in self.assess(observe=False).units}
        outcomes: list[UnitOutcome] = []
        for attempt in unfinished:
            if self._is_idle(applier, attempt, wanted.get(attempt.unit), deployed):
                applier.abandon(attempt, "cut off before it acted")
                continue
            try:
                outcomes.append(_outcome(applier.resume(attempt)))
            except StateError as error:
                newest = self.store.newest(attempt.unit)
                if not discards or newest is None:
                    raise
                applier.abandon(newest, error.message)
        return outcomes

    def _is_idle(self, applier: Applier, attempt: Attempt, wanted: UnitPlan | None, deployed: Deployed) -> bool:
        same = wanted is not None and wanted.unit is not None and artifact_digest(wanted.unit) == attempt.artifact
        first = attempt.stages[0]
        if same or first.state == "done":
            return False
        if first.state == "waiting":
            return True
        from streamform.lifecycle.apply import stage_of

        return not self.backend.has_acted(stage_of(first), applier.attempt_context(attempt, applier.unit_of(attempt), deployed))


def _outcome(result: UnitResult) -> UnitOutcome:
    return UnitOutcome(result.name, result.plan_id, result.verdict, result.requires, result.outcome, result, result.problem)


@contextmanager
def open_session(project_dir: Path, compiled: Compiled, target: Target) -> Iterator[Session]:
    """A session that releases its backend at the end."""
    session = Session(project_dir, compiled, target)
    try:
        yield session
    finally:
        session.backend.close()


def with_consumption(store: Store, plan: PendingPlan | None) -> PendingPlan | None:
    """The pending plan with the attempt that used it, which the journal knows."""
    if plan is None:
        return None
    used = next((a.attempt for a in store.attempts(plan.unit) if a.plan_id == plan.plan_id and a.approvals), None)
    return plan if used is None else replace(plan, consumed_by=used)


def wanted_units(units: Sequence[UnitPlan], unit: str | None) -> list[UnitPlan]:
    """The units that a command is about: all, or the one of this name or model. Raises: UsageError for an unknown one."""
    if unit is None:
        return list(units)
    chosen = [u for u in units if unit == u.name or unit in u.models]
    if not chosen:
        names = [u.name for u in units]
        raise UsageError(f"there is no unit or model `{unit}`{suggest(unit, names)}", f"units are {listed(names)}")
    return chosen
