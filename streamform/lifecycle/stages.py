"""Stages: the acts that an apply walks, made from a diff and a backend's capabilities, and what they cost.

`plan` prints them, `apply` walks them, and both call the same function, so nothing happens that was not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from streamform.backends.base import Capabilities
from streamform.diff.carry import can_carry, is_repairable, stale_models
from streamform.diff.model import Classification, Diff
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec

Observed = Literal["running", "stopped", "missing", "failed", "none"]
StageKind = Literal[
    "carry-state",
    "rehearse",
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


class Carrying(Struct, frozen=True):
    """Whether a changed query's job can take over the state of the one that runs."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Desired model -> running model, for models that were there before."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Desired node id -> running node id."""
    retention_changed: bool = False
    is_checked: bool = False
    """Whether the compiled plans were compared; otherwise it is assumed, and compared before anything is stopped."""
    problem: str | None = None
    """Why state can't be carried."""


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
    carrying: Carrying | None = None
    """None where the question does not arise: the verdict forbids it, or nothing is there to carry."""
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
        return Staging((Stage("adopt-job", "keep the running job; it computes the same"), WRITE_RECORD), (), Classification.SAFE)
    if s.carrying is not None and s.carrying.problem is None:
        return _carried(s, s.carrying, s.plan)
    lost = Consequence("state-discarded", "state", f"state is not carried ({_why(s)}); it is computed again from the sources")
    requires = max(s.diff.verdict, Classification.BACKFILL_REQUIRED)
    return Staging((*stop, *_start(s, restore=False), WRITE_RECORD), (lost, *_start_consequences(s, fresh=False)), requires)


def _why(s: UnitSituation) -> str:
    """Why a job's state is not carried to a changed query."""
    if s.carrying is not None and s.carrying.problem is not None:
        return s.carrying.problem
    return "the unit's models ran in other units" if s.is_regrouped else f"the verdict is {s.diff.verdict.text}"


def _carried(s: UnitSituation, carrying: Carrying, plan: Plan) -> Staging:
    """The changed query's job goes on from the state and the positions of the one that runs."""
    keyed = [node.id for node in plan.nodes if node.state is not None]
    what = f"the state of {', '.join(keyed)} and the positions of the sources" if keyed else "the positions of the sources"
    how = "shown to fit the changed query" if carrying.is_checked else "assumed to fit until Flink has compiled the changed query"
    facts = (("nodes", keyed), ("models", dict(carrying.models)), ("retention", carrying.retention_changed))
    submit = Stage("submit", "start the job of the changed query from the savepoint", (("restore", False), ("carry", True)))
    verify = Stage("verify", "wait until every task runs and a checkpoint is complete")
    stages = (Stage("carry-state", f"carry {what}: {how}", facts), *_rehearse(s), *_stop(s), submit, verify, WRITE_RECORD)
    return Staging(stages, tuple(_carry_consequences(s, carrying, plan)), s.diff.verdict)


def _rehearse(s: UnitSituation) -> tuple[Stage, ...]:
    """Before anything is stopped. What is stopped already has nothing to lose."""
    text = "rehearse it: start the changed query's job from a fresh savepoint, without sinks, until a checkpoint is complete"
    return (Stage("rehearse", text),) if s.observed == "running" else ()


def _carry_consequences(s: UnitSituation, carrying: Carrying, plan: Plan) -> Iterator[Consequence]:
    """What stays as it was, and what is given up, when only what comes next is computed the new way."""
    for model in s.diff.models:
        keyed = [node.id for node in model.nodes if node.rule == "R2"]
        if keyed:
            yield Consequence("state-discarded", model.name, f"the state of {', '.join(keyed)} is no longer used")
    changed = _changed_models(s.diff, plan)
    for name in _sinks(plan):
        if name not in carrying.models:
            yield Consequence("skip-history", name, f"`{name}` gets rows from here on; what happened before is not written to it")
        elif name in changed and _upserts(plan, name):
            yield Consequence(
                "stale-rows", name, f"rows of `{name}` that were written before stay as they are until their key is written again"
            )
    if carrying.retention_changed:
        text = "the new retention holds for stored keys, too: from their last update, and for those that had none from their next one"
        yield Consequence("state-carries-over", "retention", text)


def _changed_models(diff: Diff, plan: Plan) -> set[str]:
    """Models with a node that changed in what it emits, and those that read them."""
    changed = {model.name for model in diff.models if model.verdict > Classification.SAFE}
    for node in plan.nodes:
        if any(plan.by_id[name].model in changed for name in node.inputs):
            changed.add(node.model)
    return changed


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
