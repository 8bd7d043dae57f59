"""What the commands of api.py return; views in render/ turn these into text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from streamform.diagnostics import Diagnostic
    from streamform.diff.model import Diff
    from streamform.lifecycle.apply import UnitResult
    from streamform.lifecycle.approval import PendingPlan, Status
    from streamform.lifecycle.deployed import Deployed
    from streamform.lifecycle.health import UnitHealth
    from streamform.lifecycle.lock import LockHolder
    from streamform.lifecycle.ports import Observation
    from streamform.lifecycle.situation import Situation, UnitPlan
    from streamform.project.model import Project
    from streamform.simulator.counterexample import Counterexample
    from streamform.simulator.coverage import ModelCoverage
    from streamform.simulator.fixture import Fixture
    from streamform.simulator.run import FixtureReport


class CheckReport(Struct, frozen=True, dict=True):
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


class TestReport(Struct, frozen=True, dict=True):
    """The outcome of every fixture that was run."""

    __test__ = False

    fixtures: tuple[FixtureReport, ...]
    model: str | None = None
    strict: bool = False
    """Whether having no fixture at all counts as a failure."""
    coverage: tuple[ModelCoverage, ...] | None = None

    @property
    def passed(self) -> bool:
        return all(report.passed for report in self.fixtures) and not (self.strict and not self.fixtures)


class ApprovalView(Struct, frozen=True):
    """What the gate would say about a unit's plan now."""

    required: bool
    status: Status | None
    acknowledge: str | None


class PlanResult(Struct, frozen=True, dict=True):
    """A comparison, and what apply would do about it. `situation` is None against a file."""

    project: str
    target: str
    backend: str
    against: str
    diff: Diff
    situation: Situation | None = None
    approvals: Mapping[str, ApprovalView] = field(default_factory=dict)
    """By unit."""
    counterexamples: tuple[Counterexample, ...] | None = None
    """What a search for histories that show the difference found; None where none was asked for."""


class SavedPlan(Struct, frozen=True, dict=True):
    """A plan and the document that it was written to."""

    result: PlanResult
    file: str
    document: Mapping[str, Any]


class UnitOutcome(Struct, frozen=True):
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


class RecordChange(Struct, frozen=True):
    """The applied record as it is stored, before and after a command; None where there is none."""

    before: str | None
    after: str | None


class ApplyResult(Struct, frozen=True, dict=True):
    """The outcome of every unit; the worst one is the apply's."""

    project: str
    target: str
    units: tuple[UnitOutcome, ...]
    diff: Diff | None = None
    record: RecordChange | None = None

    @property
    def outcome(self) -> Literal["failed", "blocked", "applied", "unchanged"]:
        words = {unit.outcome for unit in self.units}
        if "failed" in words:
            return "failed"
        if "blocked" in words:
            return "blocked"
        return "applied" if words & {"applied", "removed", "stopped"} else "unchanged"


class PendingView(Struct, frozen=True):
    """A registered plan with what it is worth now."""

    plan: PendingPlan
    status: Status
    expires_at_ms: int | None


class UnlockResult(Struct, frozen=True):
    """Who held a target's lock, None for nobody. Whoever held it does so no more."""

    target: str
    holder: LockHolder | None
    was_forced: bool = False


class StatusResult(Struct, frozen=True, dict=True):
    """What runs beside what is recorded."""

    application: str
    target: str
    deployed: Deployed
    observations: Mapping[str, Observation]
    state: Literal["reachable", "gateway-unreachable", "jobmanager-unreachable"] = "reachable"
    problem: str | None = None
    health: tuple[UnitHealth, ...] = ()
    """What it means, for every unit."""
    holder: LockHolder | None = None
    """Who changes the target at this moment."""

    @property
    def passed(self) -> bool:
        """Whether everything recorded runs and nothing is unresolved."""
        running = all(observation.word == "running" for observation in self.observations.values())
        unresolved = any(entry.is_open for entry in self.deployed.newest.values())
        return self.problem is None and bool(self.observations) and running and not unresolved


class BuildResult(Struct, frozen=True, dict=True):
    """The script of an application, and the files it was written to."""

    text: str
    warnings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
