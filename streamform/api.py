"""The facade: one function a command. The command line and Dagster call this and nothing deeper.

Read it in the order of the pipeline: load, compile, plan, decide, apply. Imports of what only some commands need stand
inside the functions, so that `streamform --help` loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from streamform.codes import listed, suggest
from streamform.compiling import choose_target, chosen_models, compile, compile_for_target, load, without_errors
from streamform.errors import ProjectError, Refused, UsageError
from streamform.operations import approvals, decide, history, revisions, status, strict_policy, unlock
from streamform.results import ApplyResult, BuildResult, CheckReport, PlanResult, RecordChange, TestReport

if TYPE_CHECKING:
    from threading import Event

    from streamform.catalog import Catalog
    from streamform.lifecycle.apply import Applier
    from streamform.lifecycle.deploy_plan import DeployPlan
    from streamform.lifecycle.journal import Action
    from streamform.lifecycle.ports import Progress
    from streamform.lifecycle.situation import Situation
    from streamform.plan.compiled import Compiled
    from streamform.plan.graph import Graph
    from streamform.plan.lineage import ColumnLineage
    from streamform.project.model import Policy, Project, Target
    from streamform.session import Session

__all__ = [
    "apply",
    "approvals",
    "build",
    "catalog",
    "check",
    "choose_target",
    "chosen_models",
    "compile",
    "compile_for_target",
    "decide",
    "graph",
    "history",
    "init",
    "lineage",
    "load",
    "plan",
    "refuse_cycles",
    "revisions",
    "run",
    "status",
    "stop",
    "strict_policy",
    "test",
    "unlock",
]

OnProgress = Callable[["Progress"], None]
IdentityMode = Literal["conservative", "structural"]


def _silent(event: Progress) -> None:
    """Tell nobody."""


# load and check


def check(project_dir: Path, *, strict: bool = False) -> CheckReport:
    """Check documents, SQL, targets, hints and fixtures; every problem is in the report."""
    from streamform.fixtures import fixture_problems, read_fixtures
    from streamform.plan.compile import compile_project
    from streamform.plan.notes import advise

    try:
        loaded = load(project_dir, tests=True)
        fixtures, broken = read_fixtures(loaded)
        if broken:
            raise ProjectError(broken)
    except ProjectError as error:
        return CheckReport(None, (), error.diagnostics, (), strict)
    compiled = compile_project(loaded)
    found = (*compiled.diagnostics, *fixture_problems(fixtures, compiled))
    notes = tuple(advise(compiled, {fixture.model for fixture in fixtures}, loaded.files.unread))
    return CheckReport(compiled.project, tuple(fixtures), found, notes, strict)


def catalog(project_dir: Path, target: str | None = None) -> Catalog:
    """What a project declares on a target, with whatever compiles of it; its problems are in the catalog."""
    from streamform.catalog import build_catalog

    return build_catalog(project_dir, target)


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


def lineage(project_dir: Path, column: str | None = None, *, target: str | None = None) -> list[ColumnLineage]:
    """Where columns come from: of `MODEL`, of `MODEL.COLUMN`, or of every model. Raises: ProjectError, UsageError."""
    from streamform.plan.lineage import trace_lineage

    compiled = compile(project_dir, target)
    names = [m.name for m in compiled.plan.models]
    model, _, wanted = (column or "").rpartition(".") if column not in names else (column, "", "")
    found = trace_lineage(compiled.plan, chosen_models(compiled, (model or column) if column else None))
    if not model or not wanted:
        return found
    chosen = [lineage for lineage in found if lineage.column == wanted]
    if not chosen:
        columns = [lineage.column for lineage in found]
        raise UsageError(f"model `{model}` has no column `{wanted}`{suggest(wanted, columns)}", f"columns are {listed(columns)}")
    return chosen


# test


def test(
    project_dir: Path,
    *,
    model: str | None = None,
    files: Sequence[str] = (),
    stdin: Callable[[], str] | None = None,
    strict: bool = False,
    coverage: bool = False,
) -> TestReport:
    """Run fixtures through the simulator: those under tests/, or the files given (`-` reads from stdin).

    Raises: ProjectError when project or fixtures are invalid, UsageError for an unknown model, file or revision.
    """
    from streamform.fixtures import fixture_problems, given_fixtures, read_fixtures, run_one
    from streamform.plan.compile import compile_project

    loaded = load(project_dir, tests=not files)
    compiled = without_errors(compile_project(loaded))
    if model is not None:
        chosen_models(compiled, model)
    fixtures, broken = given_fixtures(project_dir, files, stdin) if files else read_fixtures(loaded)
    problems = [*broken, *fixture_problems(fixtures, compiled)]
    if problems:
        raise ProjectError(problems)
    chosen = [fixture for fixture in fixtures if model in (None, fixture.model)]
    reports = tuple(run_one(project_dir, compiled, fixture, lambda before: compile(before).plan) for fixture in chosen)
    measured = None
    if coverage:
        from streamform.simulator.coverage import measure_coverage

        measured = tuple(measure_coverage(compiled.plan, reports))
    return TestReport(reports, model, strict, measured)


# plan


def plan(
    project_dir: Path,
    *,
    target: str | None = None,
    against: str | None = None,
    identity: IdentityMode | None = None,
    counterexamples: bool = False,
    observe: bool = False,
    policy: Policy | None = None,
    requested_by: str | None = None,
) -> PlanResult:
    """Compare what runs with what the project describes; contacts nothing unless told to `observe`.

    `against` names another running side: a file, `git:REF` or `target:NAME`. `identity` replaces the project's own mode.
    `counterexamples`: search for the smallest history that shows why a model needs a backfill.
    `policy` is what holds where the target declares none. With `requested_by` each plan that needs an approval is
    registered as waiting, asked for by them.
    Raises: ProjectError, UsageError, DocumentError when a side can't be read, Unreachable when what runs can't be observed.
    """
    compiled, chosen = compile_for_target(project_dir, target)
    if identity is not None:
        compiled = replace(compiled, project=replace(compiled.project, identity=identity))
    if against is not None:
        return _plan_against(project_dir, compiled, chosen, against, counterexamples=counterexamples)
    from streamform.session import open_session

    with open_session(project_dir, compiled, chosen) as session:
        situation = session.assess(observe=observe)
        effective = chosen.approvals or policy
        if requested_by is not None:
            session.register_waiting(situation, effective, requested_by)
        result = _plan_result(session, situation, effective)
        return replace(result, counterexamples=session.counterexamples(situation)) if counterexamples else result


def _plan_against(project_dir: Path, compiled: Compiled, target: Target, against: str, *, counterexamples: bool) -> PlanResult:
    from streamform.against import read_running
    from streamform.diff.compare import compare
    from streamform.diff.match import hints_of, match_nodes
    from streamform.diff.proofs import Proofs
    from streamform.identity.manifest import build_manifest
    from streamform.identity.mapping import between
    from streamform.identity.structure import structure_of
    from streamform.plan.usage import state_columns
    from streamform.simulator.carry import Carry
    from streamform.simulator.counterexample import find_counterexamples

    running = read_running(project_dir, compiled.project, target, against)
    hints = hints_of(compiled.project)
    decides = compiled.project.identity == "structural"
    proofs = Proofs(decides=decides, is_known=False)
    if running.plan is not None:
        proofs = Proofs(between(structure_of(running.plan), structure_of(compiled.plan), hints.models), decides)
    columns = state_columns(compiled.plan)
    diff = compare(running.manifest, build_manifest(compiled.plan), hints, state_columns=columns, side=running.side, proofs=proofs)
    found = None
    if counterexamples and running.plan is not None:
        mapping = proofs.mapping
        nodes = match_nodes(running.manifest, build_manifest(compiled.plan), hints, mapping.streams).nodes
        found = find_counterexamples(diff, Carry(running.plan, compiled.plan, nodes, mapping.slots, forced=True))
    return PlanResult(compiled.project.name, target.name, target.backend, against, diff, counterexamples=found)


# apply, run, stop


def apply(
    project_dir: Path,
    *,
    target: str | None = None,
    unit: str | None = None,
    by: str,
    policy: Policy | None = None,
    progress: OnProgress = _silent,
    on_plan: Callable[[PlanResult], None] = lambda result: None,
    saved: DeployPlan | None = None,
    adopt: bool = False,
) -> ApplyResult:
    """Plan, ask the gate, and carry out what it lets through, one unit at a time.

    `policy` is what holds where the target declares none; None asks nothing. A unit that is blocked holds up no other.
    With `adopt` a first apply keeps the rows that somebody else wrote into its sinks, which is a plan of its own.
    Raises: StreamformError when a unit's outcome is unknown, nothing could be done, the lock is held, or a `saved` plan is stale.
    """
    from streamform.session import open_session

    compiled, chosen = compile_for_target(project_dir, target)
    with open_session(project_dir, compiled, chosen) as session, session.store.lock(session.holder("apply", by)):
        return _apply(session, session.applier(by, progress), unit, policy, on_plan, saved, adopt=adopt)


def _apply(
    session: Session,
    applier: Applier,
    unit: str | None,
    policy: Policy | None,
    on_plan: Callable[[PlanResult], None],
    saved: DeployPlan | None = None,
    *,
    adopt: bool = False,
) -> ApplyResult:
    from streamform.session import wanted_units

    session.check_saved(saved)
    before = session.record_text()
    finished = {outcome.name: outcome for outcome in session.finish_open(applier)}
    situation = session.assess(observe=True)
    if adopt:
        situation = session.with_adoption(applier, situation)
    chosen = session.due(wanted_units(situation.units, unit), situation, saved)
    effective = session.target.approvals or policy
    on_plan(_plan_result(session, situation, effective))
    fresh = [session.apply_unit(applier, unit_plan, effective) for unit_plan in chosen]
    units = tuple(finished.get(o.name, o) if o.outcome == "unchanged" else o for o in fresh)
    rest = tuple(o for name, o in finished.items() if name not in {u.name for u in fresh})
    record = RecordChange(before, session.record_text())
    return ApplyResult(session.project.name, session.target.name, (*rest, *units), situation.diff, record)


def _plan_result(session: Session, situation: Situation, policy: Policy | None) -> PlanResult:
    views = {unit.name: session.approval_view(unit, policy) for unit in situation.units}
    name = session.target.name
    return PlanResult(session.project.name, name, session.target.backend, f"target `{name}`", situation.diff, situation, views)


def run(
    project_dir: Path,
    *,
    target: str | None = None,
    by: str,
    stop: Event,
    progress: OnProgress = _silent,
    on_applied: Callable[[ApplyResult], None] = lambda result: None,
) -> ApplyResult:
    """Apply to an embedded target, then go on consuming until `stop` is set; the last thing is a checkpoint.

    Raises: UsageError for a target whose units run by themselves.
    """
    from streamform.session import open_session

    compiled, chosen = compile_for_target(project_dir, target)
    with open_session(project_dir, compiled, chosen) as session, session.store.lock(session.holder("run", by)):
        if session.backend.capabilities.has_jobs:
            raise UsageError(f"target `{chosen.name}` runs its units as jobs", "use `streamform apply`; `run` is for embedded targets")
        applier = session.applier(by, progress)
        result = _apply(session, applier, None, None, lambda plan_: None)
        on_applied(result)
        if result.outcome in ("applied", "unchanged"):
            units = session.assess(observe=False).units
            session.backend.follow([applier.idle_context(unit) for unit in units if unit.unit is not None], stop)
    return result


def stop(
    project_dir: Path,
    *,
    target: str | None = None,
    unit: str | None = None,
    discard_state: bool = False,
    by: str,
    policy: Policy | None = None,
    progress: OnProgress = _silent,
) -> ApplyResult:
    """Stop units with a savepoint, or discard their state; the gate is asked as for an apply.

    Raises: Refused when nothing runs.
    """
    from streamform.lifecycle.stop import stop_plan
    from streamform.session import open_session, wanted_units

    compiled, chosen = compile_for_target(project_dir, target)
    with open_session(project_dir, compiled, chosen) as session, session.store.lock(session.holder("stop", by)):
        applier = session.applier(by, progress)
        before = session.record_text()
        session.finish_open(applier, discards=discard_state)
        running = [u for u in session.assess(observe=True).units if u.running is not None]
        if not running:
            raise Refused(f"nothing is applied to target `{chosen.name}`", "run `streamform apply` first")
        plans = [stop_plan(u, session.backend, discard_state=discard_state) for u in wanted_units(running, unit)]
        action: Action = "discard" if discard_state else "stop"
        outcomes = tuple(session.apply_unit(applier, plan_, chosen.approvals or policy, action) for plan_ in plans)
        record = RecordChange(before, session.record_text())
    return ApplyResult(session.project.name, chosen.name, outcomes, record=record)


# init and build


def init(folder: Path, *, dagster: bool = False) -> list[str]:
    """Write the example project; the paths written, relative to the folder. Raises: UsageError for a folder that is not empty."""
    from streamform.adapters.templates import write_example

    return write_example(folder, dagster=dagster)


def build(project_dir: Path, target: str | None = None, *, to_folder: bool = True) -> BuildResult:
    """The SQL that would be submitted to a Flink target, written below build/ or only returned.

    Raises: ProjectError, UsageError for a target that is no Flink target, Refused where Flink can't express a model.
    """
    from streamform.adapters.build_files import write_build
    from streamform.backends.flink.script import emit_application
    from streamform.identity.manifest import build_manifest
    from streamform.render.inspect import manifest_text

    compiled, chosen = compile_for_target(project_dir, _flink_target(project_dir, target))
    if chosen.backend != "flink":
        raise UsageError(f"target `{chosen.name}` is {chosen.backend}; it has no SQL", "name a flink target with --target")
    script = emit_application(compiled.project.name, chosen, compiled.plan)
    if not to_folder:
        return BuildResult(script.text, script.warnings)
    files = {"application.sql": script.text, "plan.json": manifest_text(build_manifest(compiled.plan))}
    return BuildResult(script.text, script.warnings, write_build(project_dir, "flink", files))


def _flink_target(project_dir: Path, name: str | None) -> str | None:
    """The named target, or the only one that is Flink."""
    if name is not None:
        return name
    flink = [target.name for target in load(project_dir).project.targets if target.backend == "flink"]
    return flink[0] if len(flink) == 1 else None
