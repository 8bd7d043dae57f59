"""Stages: the acts that an apply walks, made from a diff and a backend's capabilities, and what they cost.

`plan` prints them, `apply` walks them, and both call the same function, so nothing happens that was not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from streamform.backends.base import Capabilities
from streamform.diff.carry import can_carry, is_repairable, stale_models
from streamform.diff.model import Classification, Diff
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec

Observed = Literal["running", "stopped", "missing", "failed", "none"]
StageKind = Literal[
    "stop-job",
    "submit",
    "adopt-job",
    "verify",
    "initialize",
    "continue",
    "rebuild",
    "repair-sink",
    "switch",
    "catch-up",
    "remove",
    "write-record",
]


class Consequence(Struct, frozen=True):
    """Something that a stage does to state or output, which an approval covers."""

    kind: str
    subject: str
    text: str


class Stage(Struct, frozen=True):
    """One act. `facts` are the parts that a backend needs and that plan prints."""

    kind: StageKind
    text: str
    """What users read."""
    facts: tuple[tuple[str, Any], ...] = ()

    def fact(self, name: str) -> Any:
        """A fact by name, None where there is none."""
        return dict(self.facts).get(name)


class Staging(Struct, frozen=True):
    """The stages of one unit with what they require of the gate."""

    stages: tuple[Stage, ...]
    consequences: tuple[Consequence, ...]
    requires: Classification

    @property
    def changes(self) -> bool:
        """Whether anything happens beyond consuming new events."""
        return any(stage.kind != "catch-up" for stage in self.stages)


class UnitSituation(Struct, frozen=True):
    """What build_stages looks at: the unit as desired, what runs, and what was observed."""

    plan: Plan | None
    """The desired plan of the unit; None for a unit that is removed."""
    diff: Diff
    observed: Observed
    unchanged: bool
    """Whether manifest and deployment facts equal those that were applied."""
    has_state: bool
    """Whether a record says that the unit was applied."""
    startup: Literal["earliest", "latest"] = "earliest"
    has_savepoint: bool = False
    is_regrouped: bool = False
    """Whether its models ran in other units, or with models that are in another unit now."""
    replaced: tuple[str, ...] = ()
    """Running units that end with it, beside the one that keeps its name."""
    slots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For keyed nodes that are proven to hold what a running one holds under other names: desired accumulator -> running accumulator."""


def build_stages(situation: UnitSituation, capabilities: Capabilities) -> Staging:
    """The stages that bring the unit from what was observed to what is desired."""
    if situation.plan is None:
        return _remove(situation, capabilities)
    return _job_stages(situation) if capabilities.has_jobs else _embedded_stages(situation)


WRITE_RECORD = Stage("write-record", "write the applied record")
SWITCH = Stage("switch", "use the new state from here on")
CATCH_UP = Stage("catch-up", "consume every source up to its end")


def _remove(situation: UnitSituation, capabilities: Capabilities) -> Staging:
    text = "stop the job with a savepoint" if capabilities.has_jobs else "forget the unit's state and positions"
    kinds: tuple[Stage, ...] = (Stage("remove", text), WRITE_RECORD)
    lost = Consequence("state-discarded", "state", "the state of the removed models is no longer used; their sinks are left as they are")
    return Staging(kinds, (lost,), situation.diff.verdict)


def _embedded_stages(s: UnitSituation) -> Staging:
    """Own state: continue where the verdict allows it, else rebuild from the start of the sources and repair the sinks."""
    assert s.plan is not None
    if not s.has_state:
        return Staging((Stage("initialize", "create state and sinks"), WRITE_RECORD, CATCH_UP), (), Classification.SAFE)
    if s.observed == "missing":
        return _rebuilt(s, Classification.STATE_INCOMPATIBLE, "the state database is gone; everything is computed again from the sources")
    if s.unchanged:
        return Staging((CATCH_UP,), (), Classification.SAFE)
    if can_carry(s.diff, s.plan) and not s.is_regrouped:
        return _continued(s, s.plan)
    return _rebuilt(s, max(s.diff.verdict, Classification.BACKFILL_REQUIRED), "state is computed again from the start of the sources")


def _continued(s: UnitSituation, plan: Plan) -> Staging:
    """Keep the state, migrated where the verdict says so, and repair from it the sinks that an edit behind it leaves stale."""
    migrates = s.diff.verdict == Classification.STATE_MIGRATION_REQUIRED
    text = f"continue from existing state under the new plan{', migrated' if migrates else ''}"
    facts: tuple[tuple[str, Any], ...] = (("slots", {node: dict(names) for node, names in s.slots.items()}),) if s.slots else ()
    stale = stale_models(s.diff, plan)
    repaired = [model for model in stale if is_repairable(plan, model)]
    repairs = [
        Stage("repair-sink", f"make the sink of `{m}` equal to a fresh run's, from the kept state", (("model", m), ("from", "state")))
        for m in repaired
    ]
    consequences = tuple(Consequence("stale-rows", m, _STALE[m in repaired].format(model=m)) for m in stale)
    stages = (Stage("continue", text, facts), *repairs, WRITE_RECORD, CATCH_UP)
    return Staging(stages, consequences, s.diff.verdict)


_STALE = {
    True: "rows of `{model}` that the new plan does not give are repaired from the kept state",
    False: "rows of `{model}` that were written before the change stay as they are until their keys change",
}
"""By whether the sink is repaired."""


def _rebuilt(s: UnitSituation, requires: Classification, why: str) -> Staging:
    assert s.plan is not None
    consequences = [Consequence("replay-from-earliest", source, f"`{source}` is read again from its start") for source in _sources(s.plan)]
    consequences.insert(0, Consequence("state-discarded", "state", why))
    sinks = _sinks(s.plan)
    consequences += [
        Consequence("rewrites-keys", m, f"rows of `{m}` that differ are rewritten, rows that are gone are deleted")
        for m in sinks
        if _upserts(s.plan, m)
    ]
    consequences += [Consequence("rewrites-rows", m, f"the rows of `{m}` are replaced") for m in sinks if not _upserts(s.plan, m)]
    stages: tuple[Stage, ...] = (
        Stage("rebuild", why),
        *(Stage("repair-sink", f"make the sink of `{m}` equal to a fresh run's", (("model", m),)) for m in sinks),
    )
    return Staging((*stages, SWITCH, WRITE_RECORD, CATCH_UP), tuple(consequences), requires)


def _job_stages(s: UnitSituation) -> Staging:
    """A job of its own: adopt it, restore it, or stop it with a savepoint and start as the diff requires."""
    assert s.plan is not None
    if not s.has_state:
        return Staging((*_start(s, restore=False), WRITE_RECORD), _start_consequences(s, fresh=True), Classification.SAFE)
    if s.unchanged and s.observed == "running":
        return Staging((), (), Classification.SAFE)
    same = s.unchanged or (s.diff.verdict == Classification.SAFE and not s.is_regrouped)
    if same and s.observed == "stopped" and s.has_savepoint:
        return Staging((*_start(s, restore=True), WRITE_RECORD), (), Classification.SAFE)
    stop = _stop(s)
    if s.observed in ("failed", "missing") or (s.observed == "stopped" and not s.has_savepoint):
        lost = Consequence("state-discarded", "state", f"the job is {s.observed}; its state is lost and everything is computed again")
        stages = (*stop, *_start(s, restore=False), WRITE_RECORD)
        return Staging(stages, (lost, *_start_consequences(s, fresh=False)), Classification.STATE_INCOMPATIBLE)
    if same and s.observed == "running":
        return Staging((Stage("adopt-job", "keep the running job; only names differ"), WRITE_RECORD), (), Classification.SAFE)
    lost = Consequence(
        "state-discarded", "state", "state is not carried to a changed query on this target; it is computed again from the sources"
    )
    requires = max(s.diff.verdict, Classification.BACKFILL_REQUIRED)
    return Staging((*stop, *_start(s, restore=False), WRITE_RECORD), (lost, *_start_consequences(s, fresh=False)), requires)


def _stop(s: UnitSituation) -> tuple[Stage, ...]:
    if s.replaced:
        return (Stage("stop-job", "stop the jobs that it takes over, each with a savepoint"),)
    return (Stage("stop-job", "stop the running job with a savepoint"),) if s.observed == "running" else ()


def _start(s: UnitSituation, *, restore: bool) -> tuple[Stage, ...]:
    origin = "its savepoint" if restore else f"the sources' {'beginning' if s.startup == 'earliest' else 'end'}"
    submit = Stage("submit", f"start the job from {origin}", (("restore", restore),))
    return submit, Stage("verify", "wait until every task runs and a checkpoint is complete")


def _start_consequences(s: UnitSituation, *, fresh: bool) -> tuple[Consequence, ...]:
    assert s.plan is not None
    if s.startup == "latest":
        return tuple(
            Consequence("skip-history", source, f"`{source}` is read from its end; earlier events are never counted")
            for source in _sources(s.plan)
        )
    if fresh:
        return ()
    found = [Consequence("replay-from-earliest", source, f"`{source}` is read again from its beginning") for source in _sources(s.plan)]
    for model in _sinks(s.plan):
        if _upserts(s.plan, model):
            found.append(Consequence("stale-rows", model, f"keys of `{model}` that the new plan does not produce stay in its sink"))
        else:
            found.append(Consequence("duplicates-rows", model, f"rows of `{model}` that were already written are written again"))
    return tuple(found)


def _sources(plan: Plan) -> list[str]:
    return sorted({node.spec.source.name for node in plan.nodes if isinstance(node.spec, SourceSpec)})


def _sinks(plan: Plan) -> list[str]:
    """Models with a sink outside."""
    return [node.model for node in plan.nodes if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None]


def _upserts(plan: Plan, model: str) -> bool:
    return next(m.materialized == "upsert" for m in plan.models if m.name == model)
