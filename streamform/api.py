"""The facade: one function a command. The command line and Dagster call this and nothing deeper.

Read it in the order of the pipeline: load, compile, plan, decide, apply. Imports of what only some commands need stand
inside the functions, so that `streamform --help` loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamform.codes import listed, suggest
from streamform.errors import ProjectError, UsageError

if TYPE_CHECKING:
    from streamform.diagnostics import Diagnostic
    from streamform.diff.model import Diff
    from streamform.lifecycle.apply import Applier, UnitResult
    from streamform.lifecycle.approval import DecisionWord, PendingPlan, Status
    from streamform.lifecycle.deployed import Deployed
    from streamform.lifecycle.journal import Attempt
    from streamform.lifecycle.ports import Backend, Observation, Progress
    from streamform.lifecycle.situation import Situation, UnitPlan
    from streamform.lifecycle.store import Store
    from streamform.plan.compile import Compiled
    from streamform.plan.graph import Graph
    from streamform.project.load import Loaded
    from streamform.project.model import Policy, Project, Target
    from streamform.simulator.fixture import Fixture
    from streamform.simulator.run import FixtureReport


# load and check


@dataclass(frozen=True)
class CheckReport:
    """Every problem of a project in one run. `project` is None when its documents do not load."""

    project: Project | None
    fixtures: tuple[Fixture, ...]
    diagnostics: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...]
    strict: bool

    @property
    def passed(self) -> bool:
        failing = ("error", "warning") if self.strict else ("error",)
        return self.project is not None and not any(d.severity in failing for d in self.diagnostics)


def load(project_dir: Path, *, tests: bool = False) -> Loaded:
    """The project in a folder. Raises: ProjectError when its documents do not load."""
    from streamform.project.load import load_project, read_project_files

    return load_project(read_project_files(project_dir, tests=tests))


def check(project_dir: Path, *, strict: bool = False) -> CheckReport:
    """Check documents, SQL, targets, hints and fixtures; every problem is in the report."""
    from streamform.plan.compile import compile_project

    try:
        loaded = load(project_dir, tests=True)
        fixtures, broken = _fixtures(loaded)
        if broken:
            raise ProjectError(broken)
    except ProjectError as error:
        return CheckReport(None, (), error.diagnostics, (), strict)
    compiled = compile_project(loaded)
    found = [*compiled.diagnostics, *_fixture_problems(fixtures, compiled)]
    notes = tuple(d for d in found if d.severity == "note")
    return CheckReport(compiled.project, tuple(fixtures), tuple(d for d in found if d.severity != "note"), notes, strict)


def _fixtures(loaded: Loaded) -> tuple[list[Fixture], list[Diagnostic]]:
    from streamform.simulator.fixture import parse_fixture

    fixtures: list[Fixture] = []
    broken: list[Diagnostic] = []
    for path in loaded.files.under("tests", ".yml"):
        parsed = parse_fixture(loaded.files.texts[path], path)
        if isinstance(parsed, list):
            broken.extend(loaded.with_excerpt(d) for d in parsed)
        else:
            fixtures.append(parsed)
    return fixtures, broken


def _fixture_problems(fixtures: Sequence[Fixture], compiled: Compiled) -> Iterator[Diagnostic]:
    from streamform.simulator.fixture import check_fixture

    names = [model.name for model in compiled.project.models]
    for fixture in fixtures:
        yield from check_fixture(fixture, compiled.plan, names)


def compile(project_dir: Path, target: str | None = None) -> Compiled:
    """The compiled project, as it is on a target where one is named. Raises: ProjectError when it has errors."""
    from streamform.plan.compile import compile_project
    from streamform.project.model import for_target

    loaded = load(project_dir)
    project = loaded.project if target is None else for_target(loaded.project, choose_target(loaded.project, target))
    compiled = compile_project(loaded, project)
    if compiled.has_errors:
        raise ProjectError([d for d in compiled.diagnostics if d.severity == "error"])
    return compiled


def graph(project_dir: Path, target: str | None = None) -> tuple[Project, Graph]:
    """The project and its graph, cycles included. Raises: ProjectError when the documents do not load."""
    from streamform.plan.compile import compile_project
    from streamform.project.model import for_target

    loaded = load(project_dir)
    project = loaded.project if target is None else for_target(loaded.project, choose_target(loaded.project, target))
    return project, compile_project(loaded, project).graph


def refuse_cycles(project: Project, found: Graph) -> None:
    """Raise ProjectError when models read each other in a circle."""
    from streamform.codes import problem

    if found.cycles:
        cycles = [problem("SF103", path=f"models/{cycle[0]}.sql", cycle=" reads ".join(cycle), model=cycle[0]) for cycle in found.cycles]
        raise ProjectError(cycles)


def chosen_models(compiled: Compiled, model: str | None) -> list[str]:
    """The models that a command is about: one, or all in dependency order. Raises: UsageError for an unknown one."""
    names = [m.name for m in compiled.plan.models]
    if model is None:
        return names
    if model not in names:
        raise UsageError(f"there is no model `{model}`{suggest(model, names)}", f"models are {listed(names)}")
    return [model]


def choose_target(project: Project, name: str | None) -> Target:
    """The named target, or the only one. Raises: UsageError listing them."""
    names = [target.name for target in project.targets]
    if name is None and len(names) == 1:
        return project.targets[0]
    if name is None:
        problem = "the project has several targets" if names else "the project declares no target"
        raise UsageError(problem, f"pass --target with one of {listed(names)}" if names else "declare one under targets: in streamform.yml")
    target = project.target(name)
    if target is None:
        raise UsageError(f"there is no target `{name}`{suggest(name, names)}", f"targets are {listed(names)}")
    return target


# test


@dataclass(frozen=True)
class TestReport:
    """The outcome of every fixture that was run."""

    __test__ = False

    fixtures: tuple[FixtureReport, ...]
    model: str | None = None

    @property
    def passed(self) -> bool:
        return all(report.passed for report in self.fixtures)


def test(project_dir: Path, *, model: str | None = None, files: Sequence[str] = (), stdin: Callable[[], str] | None = None) -> TestReport:
    """Run fixtures through the simulator: those under tests/, or the files given (`-` reads from stdin).

    Raises: ProjectError when project or fixtures are invalid, UsageError for an unknown model or file.
    """
    from streamform.plan.compile import compile_project
    from streamform.simulator.run import run_fixture

    loaded = load(project_dir, tests=not files)
    compiled = compile_project(loaded)
    if compiled.has_errors:
        raise ProjectError([d for d in compiled.diagnostics if d.severity == "error"])
    if model is not None:
        chosen_models(compiled, model)
    fixtures, broken = _given_fixtures(project_dir, files, stdin) if files else _fixtures(loaded)
    problems = [*broken, *_fixture_problems(fixtures, compiled)]
    if problems:
        raise ProjectError(problems)
    chosen = [fixture for fixture in fixtures if model in (None, fixture.model)]
    emit_unchanged = compiled.project.emit_unchanged
    return TestReport(tuple(run_fixture(f, compiled.plan, emit_unchanged=emit_unchanged) for f in chosen), model)


def _given_fixtures(project_dir: Path, files: Sequence[str], stdin: Callable[[], str] | None) -> tuple[list[Fixture], list[Diagnostic]]:
    from streamform.simulator.fixture import STANDARD_INPUT, parse_fixture

    fixtures: list[Fixture] = []
    broken: list[Diagnostic] = []
    for file in files:
        text = (stdin or _no_stdin)() if file == "-" else _read_text(project_dir / file)
        parsed = parse_fixture(text, STANDARD_INPUT if file == "-" else file)
        if isinstance(parsed, list):
            broken.extend(parsed)
        else:
            fixtures.append(parsed)
    return fixtures, broken


def _no_stdin() -> str:
    raise UsageError("there is no standard input to read a fixture from", "pass a file")


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"can't read {path}: {(error.strerror or str(error)).lower()}", "check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", "check the file") from None


# plan


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """What the gate would say about a unit's plan now."""

    required: bool
    status: Status | None
    acknowledge: str | None


@dataclass(frozen=True)
class PlanResult:
    """A comparison, and what apply would do about it. `situation` is None against a file."""

    project: str
    target: str
    backend: str
    against: str
    diff: Diff
    situation: Situation | None = None
    approvals: Mapping[str, ApprovalView] = field(default_factory=dict)
    """By unit."""


def plan(project_dir: Path, *, target: str | None = None, against: Path | None = None) -> PlanResult:
    """Compare what runs with what the project describes; contacts nothing.

    Raises: ProjectError, UsageError, DocumentError when a side can't be read.
    """
    compiled, chosen = _compiled_for(project_dir, target)
    if against is not None:
        return _plan_against(compiled, chosen, against)
    with _session(project_dir, compiled, chosen) as session:
        situation = session.assess(observe=False)
        views = {unit.name: session.approval_view(unit, chosen.approvals) for unit in situation.units}
    return PlanResult(compiled.project.name, chosen.name, chosen.backend, f"target `{chosen.name}`", situation.diff, situation, views)


def _compiled_for(project_dir: Path, target: str | None) -> tuple[Compiled, Target]:
    from streamform.plan.compile import compile_project
    from streamform.project.model import for_target

    loaded = load(project_dir)
    base = compile_project(loaded)
    if base.has_errors:
        raise ProjectError([d for d in base.diagnostics if d.severity == "error"])
    chosen = choose_target(loaded.project, target)
    moved = for_target(loaded.project, chosen)
    compiled = base if moved is loaded.project else compile_project(loaded, moved)
    if compiled.has_errors:
        raise ProjectError([d for d in compiled.diagnostics if d.severity == "error"])
    return compiled, chosen


def _plan_against(compiled: Compiled, target: Target, against: Path) -> PlanResult:
    from streamform.diff.compare import compare
    from streamform.diff.match import hints_of
    from streamform.diff.model import Side
    from streamform.identity.manifest import build_manifest
    from streamform.identity.read import parse_running
    from streamform.identity.record import AppliedRecord
    from streamform.plan.usage import state_columns

    running = parse_running(_read_text(against), str(against))
    side = None
    if isinstance(running, AppliedRecord):
        side = Side(running.manifest.application_digest, running.applied_at, running.streamform_version, running.jobs)
        running = running.manifest
    desired = build_manifest(compiled.plan)
    diff = compare(running, desired, hints_of(compiled.project), state_columns=state_columns(compiled.plan), side=side)
    return PlanResult(compiled.project.name, target.name, target.backend, str(against), diff)


# the life cycle of a target


class _Session:
    """A target with its store and backend, open for one command."""

    def __init__(self, project_dir: Path, compiled: Compiled, target: Target) -> None:
        from streamform.adapters.clock import SystemClock
        from streamform.adapters.factory import open_backend, open_documents
        from streamform.lifecycle.store import Store

        self.project_dir, self.compiled, self.target = project_dir, compiled, target
        self.store: Store = Store(open_documents(project_dir, target), target.name)
        self.backend: Backend = open_backend(project_dir, compiled.project, target)
        self.clock = SystemClock()

    def deployed(self) -> Deployed:
        from streamform.lifecycle.deployed import read_deployed

        return read_deployed(self.store)

    def assess(self, *, observe: bool) -> Situation:
        from streamform.lifecycle.situation import assess

        return assess(self.compiled, self.target, self.deployed(), self.backend, self.store.documents.describe(), observe=observe)

    def approval_view(self, unit: UnitPlan, policy: Policy | None) -> ApprovalView:
        from streamform.lifecycle.approval import acknowledgement, status_of
        from streamform.lifecycle.gate import needs_approval

        required = needs_approval(unit.staging.requires, policy)
        pending = _with_consumption(self.store, self.store.pending_plan(unit.plan_id))
        status = status_of(pending, policy, self.clock.now_ms()) if pending is not None and policy is not None else None
        return ApprovalView(required, status, acknowledgement(unit.staging.requires.text) if required else None)

    def applier(self, by: str, progress: Callable[[Progress], None]) -> Applier:
        from streamform.lifecycle.apply import Applier
        from streamform.plan.units import unit_sources
        from streamform.project.serialize import project_part

        project = self.compiled.project
        return Applier(
            project,
            self.target,
            self.store,
            self.backend,
            self.clock,
            by,
            progress,
            lambda unit: project_part(project, set(unit.models), unit_sources(unit.plan)),
            self.rebuild_unit,
        )

    def rebuild_unit(self, artifact: str, attempt: Attempt) -> Any:
        from streamform.errors import StoreError
        from streamform.identity.manifest import build_manifest
        from streamform.lifecycle.ports import DesiredUnit
        from streamform.lifecycle.store import FACTS_FILE, PROJECT_FILE, STATEMENTS_FILE
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
        return DesiredUnit(attempt.unit, tuple(attempt.models), compiled.plan, manifest, facts, tuple(statements))

    def holder(self, action: str, by: str) -> dict[str, Any]:
        return {"action": action, "by": by, "at_ms": self.clock.now_ms()}


@contextmanager
def _session(project_dir: Path, compiled: Compiled, target: Target) -> Iterator[_Session]:
    session = _Session(project_dir, compiled, target)
    try:
        yield session
    finally:
        session.backend.close()


def _with_consumption(store: Store, plan: PendingPlan | None) -> PendingPlan | None:
    """The pending plan with the attempt that used it, which the journal knows."""
    if plan is None:
        return None
    used = next((a.attempt for a in store.attempts(plan.unit) if a.plan_id == plan.plan_id and a.approvals), None)
    return plan if used is None else replace(plan, consumed_by=used)


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What apply did about one unit, or why it did nothing."""

    name: str
    plan_id: str
    verdict: str
    requires: str
    outcome: Literal["applied", "unchanged", "blocked", "failed", "removed", "stopped"]
    result: UnitResult | None = None
    reason: str | None = None
    acknowledge: str | None = None
    plan: UnitPlan | None = None


@dataclass(frozen=True)
class ApplyResult:
    """The outcome of every unit; the worst one is the apply's."""

    target: str
    units: tuple[UnitOutcome, ...]
    diff: Diff
    project: str = ""

    @property
    def outcome(self) -> str:
        words = {unit.outcome for unit in self.units}
        return next(
            (word for word in ("failed", "blocked", "applied") if word in words),
            "applied" if words & {"removed", "stopped"} else "unchanged",
        )


def apply(
    project_dir: Path,
    *,
    target: str | None = None,
    unit: str | None = None,
    by: str,
    policy: Policy | None = None,
    progress: Callable[[Progress], None] = lambda event: None,
    on_plan: Callable[[PlanResult], None] = lambda result: None,
) -> ApplyResult:
    """Plan, ask the gate, and carry out what it lets through, one unit at a time.

    `policy` is what holds where the target declares none; None asks nothing. A unit that is blocked holds up no other.
    Raises: StreamformError when a unit's outcome is unknown, when nothing could be done, or when the lock is held.
    """
    compiled, chosen = _compiled_for(project_dir, target)
    with _session(project_dir, compiled, chosen) as session, session.store.lock(session.holder("apply", by)):
        applier = session.applier(by, progress)
        finished = _finish_open(session, applier)
        situation = session.assess(observe=True)
        wanted = _wanted_units(situation, unit)
        effective = chosen.approvals or policy
        views = {u.name: session.approval_view(u, effective) for u in situation.units}
        on_plan(PlanResult(compiled.project.name, chosen.name, chosen.backend, f"target `{chosen.name}`", situation.diff, situation, views))
        outcomes = [_apply_unit(session, applier, plan_, effective, by) for plan_ in wanted]
    resumed = [outcome for outcome in finished if outcome.name not in {o.name for o in outcomes if o.outcome != "unchanged"}]
    fresh = [outcome for outcome in outcomes if outcome.name not in {o.name for o in resumed}]
    return ApplyResult(chosen.name, (*resumed, *fresh), situation.diff, compiled.project.name)


def _wanted_units(situation: Situation, unit: str | None) -> list[UnitPlan]:
    if unit is None:
        return list(situation.units)
    chosen = [u for u in situation.units if unit == u.name or unit in u.models]
    if not chosen:
        names = [u.name for u in situation.units]
        raise UsageError(f"there is no unit or model `{unit}`{suggest(unit, names)}", f"units are {listed(names)}")
    return chosen


def _finish_open(session: _Session, applier: Applier) -> list[UnitOutcome]:
    """Go on with attempts that were cut off; one that had not acted and is no longer wanted is closed instead."""
    deployed = session.deployed()
    wanted = {u.name: u for u in session.assess(observe=False).units}
    outcomes: list[UnitOutcome] = []
    for name in deployed.newest:
        attempt = deployed.open_attempt(name)
        if attempt is None:
            continue
        if _is_idle(session, applier, attempt, wanted.get(name)):
            applier.abandon(attempt, "cut off before it acted")
            continue
        result = applier.resume(attempt)
        outcomes.append(UnitOutcome(name, result.plan_id, result.verdict, result.requires, result.outcome, result, result.problem))
    return outcomes


def _is_idle(session: _Session, applier: Applier, attempt: Attempt, wanted: UnitPlan | None) -> bool:
    from streamform.lifecycle.stages import Stage
    from streamform.lifecycle.store import artifact_digest

    same = wanted is not None and wanted.unit is not None and artifact_digest(wanted.unit) == attempt.artifact
    if same or any(stage.state == "done" for stage in attempt.stages):
        return False
    first = attempt.stages[0]
    if first.state == "waiting":
        return True
    unit = None if attempt.artifact is None else session.rebuild_unit(attempt.artifact, attempt)
    running = session.deployed().units.get(attempt.unit)
    context = applier.context(
        attempt.unit,
        unit,
        running,
        (),
        attempt.carry,
        attempt.sequence,
        attempt.attempt,
        attempt.artifact,
        {},
        first.remembered,
        lambda facts: None,
    )
    return not session.backend.has_acted(Stage(first.kind, first.kind, tuple(first.facts.items())), context)  # type: ignore[arg-type]


def _apply_unit(session: _Session, applier: Applier, plan_: UnitPlan, policy: Policy | None, by: str) -> UnitOutcome:
    from streamform.lifecycle.gate import GateInput, Shut, decide

    pending = _with_consumption(session.store, session.store.pending_plan(plan_.plan_id))
    decision = decide(GateInput(plan_.plan_id, plan_.staging.requires, policy, pending, session.clock.now_ms()))
    verdict, requires = plan_.diff.verdict.text, plan_.staging.requires.text
    if isinstance(decision, Shut):
        registered = register(session, plan_, by)
        return UnitOutcome(plan_.name, plan_.plan_id, verdict, requires, "blocked", None, decision.reason, registered.acknowledge, plan_)
    result = applier.apply(plan_, decision)
    return UnitOutcome(plan_.name, plan_.plan_id, verdict, requires, result.outcome, result, result.problem, None, plan_)


# approvals


def register(session: _Session, plan_: UnitPlan, by: str) -> PendingPlan:
    """Write down that a unit's plan waits for a decision; an older pending plan of the unit becomes stale."""
    from streamform.lifecycle.approval import PendingPlan, Request, acknowledgement, with_request
    from streamform.render.diff import diff_markdown

    now = session.clock.now_ms()
    for other in session.store.pending():
        if other.unit == plan_.name and other.plan_id != plan_.plan_id and other.superseded_by is None:
            session.store.write_pending(replace(other, superseded_by=plan_.plan_id), replaces=other)
    present = session.store.pending_plan(plan_.plan_id)
    if present is not None:
        wanted = replace(with_request(present, by, now), superseded_by=None)
        return present if wanted == present else session.store.write_pending(wanted, replaces=present)
    requires = plan_.staging.requires.text
    fresh = PendingPlan(
        plan_.plan_id,
        session.compiled.project.name,
        session.target.name,
        plan_.name,
        plan_.diff.verdict.text,
        requires,
        acknowledgement(requires),
        plan_.subject,
        diff_markdown(plan_.diff),
        now,
        (Request(by, now),),
    )
    return session.store.write_pending(fresh, replaces=None)


@dataclass(frozen=True, slots=True)
class PendingView:
    """A registered plan with what it is worth now."""

    plan: PendingPlan
    status: Status
    expires_at_ms: int | None


def approvals(project_dir: Path, *, target: str | None = None, policy: Policy | None = None) -> tuple[str, list[PendingView]]:
    """Every registered plan of a target, oldest first; the target's name beside them."""
    from streamform.adapters.clock import SystemClock
    from streamform.adapters.factory import open_documents
    from streamform.lifecycle.approval import expires_at_ms, status_of
    from streamform.lifecycle.store import Store

    chosen = choose_target(load(project_dir).project, target)
    store = Store(open_documents(project_dir, chosen), chosen.name)
    effective, now = _effective(chosen, policy), SystemClock().now_ms()
    plans = [p for plan_ in store.pending() if (p := _with_consumption(store, plan_)) is not None]
    return chosen.name, [PendingView(p, status_of(p, effective, now), expires_at_ms(p, effective)) for p in plans]


def _effective(target: Target, policy: Policy | None) -> Policy:
    from streamform.project.model import Policy as PolicyType

    return target.approvals or policy or PolicyType()


def decide(
    project_dir: Path,
    plan_ids: Sequence[str],
    decision: DecisionWord,
    *,
    by: str,
    reason: str,
    acknowledge: str | None = None,
    target: str | None = None,
    verified: bool = False,
) -> list[PendingView]:
    """Write a decision about registered plans.

    Raises: UsageError for an id that nothing registered, Refused where a rule says no; nothing is written then.
    """
    from streamform.adapters.clock import SystemClock
    from streamform.adapters.factory import open_documents
    from streamform.lifecycle.approval import DecisionEntry, expires_at_ms, status_of
    from streamform.lifecycle.store import Store

    project = load(project_dir).project
    chosen = [choose_target(project, target)] if target is not None else list(project.targets)
    clock = SystemClock()
    found = [_find_pending(project_dir, chosen, plan_id) for plan_id in plan_ids]
    for plan_, _ in found:
        _check_decision(plan_, decision, by, reason, acknowledge)
    views: list[PendingView] = []
    for plan_, owner in found:
        store = Store(open_documents(project_dir, owner), owner.name)
        entry = DecisionEntry(decision, by, clock.now_ms(), reason, verified)
        present = store.pending_plan(plan_.plan_id)
        assert present is not None
        written = store.write_pending(replace(present, decisions=(*present.decisions, entry)), replaces=present)
        policy = _effective(owner, None)
        views.append(PendingView(written, status_of(written, policy, clock.now_ms()), expires_at_ms(written, policy)))
    return views


def _find_pending(project_dir: Path, targets: Sequence[Target], plan_id: str) -> tuple[PendingPlan, Target]:
    from streamform.adapters.factory import open_documents
    from streamform.lifecycle.store import Store

    for target in targets:
        store = Store(open_documents(project_dir, target), target.name)
        plan_ = _with_consumption(store, store.pending_plan(plan_id))
        if plan_ is not None:
            return plan_, target
    raise UsageError(f"no plan `{plan_id}` is registered", "a blocked `streamform apply` registers one; `streamform approvals` lists them")


def _check_decision(plan_: PendingPlan, decision: DecisionWord, by: str, reason: str, acknowledge: str | None) -> None:
    from streamform.errors import Refused

    if not reason.strip():
        raise Refused("a decision needs a reason", "pass --reason with a sentence")
    if plan_.consumed_by is not None:
        raise Refused(f"plan {plan_.plan_id} was applied already", "run `streamform plan` for what is pending now")
    if plan_.superseded_by is not None:
        raise Refused(
            f"plan {plan_.plan_id} is stale: {plan_.superseded_by} was registered for unit `{plan_.unit}` since",
            f"decide about {plan_.superseded_by}",
        )
    if decision == "approve" and plan_.acknowledge is not None and acknowledge != plan_.acknowledge:
        raise Refused(
            f"plan {plan_.plan_id} requires {plan_.requires}; an approval must acknowledge that",
            f'pass --acknowledge "{plan_.acknowledge}"',
        )
    if decision == "revoke" and not any(entry.decision == "approve" for entry in plan_.decisions):
        raise Refused(f"plan {plan_.plan_id} has no approval to revoke", "reject it instead")


# history and status


def history(project_dir: Path, *, target: str | None = None) -> tuple[str, list[Attempt]]:
    """Every journal entry of a target in order of time; the target's name beside them."""
    from streamform.adapters.factory import open_documents
    from streamform.lifecycle.store import Store

    chosen = choose_target(load(project_dir).project, target)
    store = Store(open_documents(project_dir, chosen), chosen.name)
    entries = [entry for unit in store.units() for entry in store.attempts(unit)]
    return chosen.name, sorted(entries, key=lambda e: (e.started_at_ms, e.unit, e.sequence))


@dataclass(frozen=True)
class StatusResult:
    """What runs beside what is recorded."""

    application: str
    target: str
    deployed: Deployed
    observations: Mapping[str, Observation]
    state: Literal["reachable", "gateway-unreachable", "jobmanager-unreachable"] = "reachable"
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether everything recorded runs and nothing is unresolved."""
        running = all(observation.word == "running" for observation in self.observations.values())
        unresolved = any(entry.is_open for entry in self.deployed.newest.values())
        return self.problem is None and bool(self.observations) and running and not unresolved


def status(project_dir: Path, *, target: str | None = None) -> StatusResult:
    """Look at every unit of a target."""
    from streamform.errors import Unreachable

    compiled, chosen = _compiled_for(project_dir, target)
    with _session(project_dir, compiled, chosen) as session:
        deployed = session.deployed()
        try:
            seen = {name: session.backend.observe(name, running) for name, running in deployed.units.items()}
        except Unreachable as error:
            return StatusResult(compiled.project.name, chosen.name, deployed, {}, "gateway-unreachable", error.message)
    return StatusResult(compiled.project.name, chosen.name, deployed, seen)
