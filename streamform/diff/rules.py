"""RULES: every way in which a node can differ, what it costs, and the sentence that says so.

Of the rows that apply to a node the most severe wins, the first of equals. Row ids are stable: K keyed, N stateless,
S sink, P propagation, A added, R removed, I proved by structural identity, D deployment facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from streamform.diff.facets import Facets, key_types, schema_change
from streamform.diff.model import ChangeKind, Classification

SAFE, COMPATIBLE, MIGRATION, BACKFILL, INCOMPATIBLE = Classification

Facts = dict[str, str]
Test = Callable[[Facets], Facts | None]
"""The facts of the sentence when the row applies, None when it does not."""


class Rule(NamedTuple):
    """One row."""

    id: str
    kind: ChangeKind
    classification: Classification
    test: Test | None
    sentence: str
    """What users read, over the facts."""
    why: str
    """For the documentation."""


def _when(condition: bool, **facts: str) -> Facts | None:
    return facts if condition else None


def _is_sink(f: Facets) -> bool:
    return f.after.operator == "sink"


def _state_kind(f: Facets) -> Facts | None:
    old, new = f.before.state, f.after.state
    return _when((old is None) != (new is None), before="keyed" if old else "stateless", after="keyed" if new else "stateless")


def _keyed(f: Facets) -> bool:
    return f.before.state is not None and f.after.state is not None


def _window(f: Facets) -> Facts | None:
    if f.before.state is None or f.after.state is None:
        return None
    old, new = f.before.state.window_text, f.after.state.window_text
    return _when(old != new, before=old, after=new)


def _key(f: Facets) -> Facts | None:
    if f.before.state is None or f.after.state is None:
        return None
    old, new = f.before.state.keys, f.after.state.keys
    return _when(old != new, before=", ".join(old) or "none", after=", ".join(new) or "none")


def _key_type(f: Facets) -> Facts | None:
    if not _keyed(f) or _key(f):
        return None
    changed = next(((a, b) for a, b in zip(key_types(f.before), key_types(f.after), strict=True) if a != b), None)
    return None if changed is None else {"column": changed[0][0], "before": changed[0][1], "after": changed[1][1]}


def _accumulators(f: Facets) -> tuple[dict[str, str], dict[str, str]]:
    return (dict(f.before.state.accumulators) if f.before.state else {}, dict(f.after.state.accumulators) if f.after.state else {})


def _accumulator_type(f: Facets) -> Facts | None:
    old, new = _accumulators(f)
    name = next((n for n in old if n in new and old[n] != new[n]), None)
    return None if name is None or not _keyed(f) else {"name": name, "before": old[name], "after": new[name]}


def _accumulator_added(f: Facets) -> Facts | None:
    old, new = _accumulators(f)
    added = [n for n in new if n not in old]
    return _when(_keyed(f) and bool(added), name=", ".join(f"`{n}`" for n in added))


def _accumulator_removed(f: Facets) -> Facts | None:
    old, new = _accumulators(f)
    removed = [n for n in old if n not in new]
    return _when(_keyed(f) and bool(removed), name=", ".join(f"`{n}`" for n in removed))


def _retention(f: Facets) -> Facts | None:
    if f.before.state is None or f.after.state is None:
        return None
    old, new = f.before.state.retention, f.after.state.retention
    return _when(old != new, before=old, after=new)


def _input(f: Facets) -> Facts | None:
    return _when(_keyed(f) and f.upstream is not None, upstream=f.upstream or "")


def _destination(definition: str) -> str:
    """The connector and address in a sink's definition, empty for a model without a sink."""
    return definition.partition(" ")[2]


def _named(f: Facets) -> str:
    """The sink as sentences name it."""
    address = _destination(f.before.definition).partition(" ")[2]
    return f"`{address}`" if address else f"the {f.model_before.materialized} sink"


def _sink_key(f: Facets) -> Facts | None:
    changed = f.changed_fields & {"key", "materialized"}
    return _when(_is_sink(f) and bool(changed), sink=_named(f))


def _sink_target(f: Facets) -> Facts | None:
    old, new = _destination(f.before.definition), _destination(f.after.definition)
    return _when(_is_sink(f) and old != new, before=_place(old), after=_place(new))


def _place(destination: str) -> str:
    address = destination.partition(" ")[2]
    return f"`{address}`" if address else "no sink"


def _sink_schema(change: str) -> Test:
    return lambda f: _when(_is_sink(f) and schema_change(f.before.schema, f.after.schema) == change, sink=_named(f))


def _sink_other(f: Facets) -> Facts | None:
    return _when(_is_sink(f), sink=_named(f))


def _contract(f: Facets) -> Facts | None:
    old, new = (node.definition.partition(" contracts=[")[2] for node in (f.before, f.after))
    return _when(f.after.operator == "source" and old != new)


def _stateless_schema(change: str) -> Test:
    return lambda f: _when(not _is_sink(f) and f.after.state is None and schema_change(f.before.schema, f.after.schema) == change)


def _always(f: Facets) -> Facts | None:
    return {}


RULES: tuple[Rule, ...] = (
    Rule(
        "K1",
        ChangeKind.STATE_KIND_CHANGED,
        INCOMPATIBLE,
        _state_kind,
        "the node was {before} and is now {after}; nothing that is stored can be used",
        "A stateless node has nothing that a keyed one could continue from.",
    ),
    Rule(
        "K2",
        ChangeKind.WINDOW_CHANGED,
        INCOMPATIBLE,
        _window,
        "the window changed from {before} to {after}; what was accumulated in the old windows can't be cut anew",
        "State is kept by window; there is no mapping from old windows to new ones.",
    ),
    Rule(
        "K3",
        ChangeKind.KEY_CHANGED,
        INCOMPATIBLE,
        _key,
        "the grouping key changed; existing state cannot be reused",
        "State is partitioned and addressed by the key, in order; there is no mapping from old keys to new.",
    ),
    Rule(
        "K4",
        ChangeKind.KEY_CHANGED,
        INCOMPATIBLE,
        _key_type,
        "key column `{column}` changed type from {before} to {after}; existing state is addressed by the old type",
        "Keys are stored in their type's encoding; a key of another type finds nothing.",
    ),
    Rule(
        "K5",
        ChangeKind.ACCUMULATOR_TYPE_CHANGED,
        INCOMPATIBLE,
        _accumulator_type,
        "accumulator `{name}` changed type from {before} to {after}; the stored values are encoded the old way",
        "The stored value has a different encoding.",
    ),
    Rule(
        "K6",
        ChangeKind.ACCUMULATOR_ADDED,
        BACKFILL,
        _accumulator_added,
        "accumulator {name} added; it is empty for every existing key until history is replayed",
        "The new accumulator starts at its initial value; a from-scratch run would have accumulated history into it.",
    ),
    Rule(
        "P1",
        ChangeKind.INPUT_CHANGED,
        BACKFILL,
        _input,
        "what it reads changed at `{upstream}`; existing state was accumulated from the previous input",
        "Continuing from that state gives totals that a from-scratch run never produces. A clock decides which events reach the state, so a changed clock counts.",
    ),
    Rule(
        "K7",
        ChangeKind.ACCUMULATOR_REMOVED,
        MIGRATION,
        _accumulator_removed,
        "accumulator {name} removed; it is dropped from existing state",
        "Every remaining value is exactly what a from-scratch run would hold.",
    ),
    Rule(
        "K8",
        ChangeKind.RETENTION_CHANGED,
        MIGRATION,
        _retention,
        "retention changed from {before} to {after}; timers change, stored values do not",
        "Timers change, values do not.",
    ),
    Rule(
        "K9",
        ChangeKind.KEYED_COMPATIBLE,
        COMPATIBLE,
        lambda f: _when(_keyed(f)),
        "no stored value is affected",
        "The order of accumulators, the output's shape or a name changed; the stored values are the same.",
    ),
    Rule(
        "S1",
        ChangeKind.SINK_KEY_CHANGED,
        BACKFILL,
        _sink_key,
        "rows already written to {sink} are keyed the old way; rebuild the sink",
        "A compacted topic or table becomes a mixture of old and new keys unless it is rebuilt.",
    ),
    Rule(
        "S2",
        ChangeKind.SINK_TARGET,
        COMPATIBLE,
        _sink_target,
        "output moves from {before} to {after}; what was written before is left as it is",
        "Output moves; the old place keeps its rows.",
    ),
    Rule(
        "S3",
        ChangeKind.SINK_RESHAPED,
        COMPATIBLE,
        _sink_schema("reshaped"),
        "readers of {sink} see other columns from now on; rows already written keep the old shape",
        "Readers see new columns; rows already written keep the old shape.",
    ),
    Rule(
        "S4",
        ChangeKind.SINK_RENAMED,
        COMPATIBLE,
        _sink_schema("renamed"),
        "readers of {sink} see renamed columns from now on; rows already written keep the old names",
        "Readers see new names; rows already written keep the old ones.",
    ),
    Rule(
        "S5",
        ChangeKind.SINK_RENAMED,
        COMPATIBLE,
        _sink_other,
        "what readers of {sink} see does not change",
        "Only what the sink knows about its input changed.",
    ),
    Rule(
        "N1",
        ChangeKind.CONTRACT_CHANGED,
        COMPATIBLE,
        _contract,
        "events are checked against other contracts from now on; those already let through or quarantined stay so",
        "Contracts decide which events get through from now on.",
    ),
    Rule(
        "N2",
        ChangeKind.OUTPUT_RESHAPED,
        COMPATIBLE,
        _stateless_schema("reshaped"),
        "stateless; no stored value is affected",
        "There is no state to migrate.",
    ),
    Rule(
        "N3",
        ChangeKind.OUTPUT_RENAMED,
        COMPATIBLE,
        _stateless_schema("renamed"),
        "stateless; no stored value is affected",
        "There is no state to migrate.",
    ),
    Rule(
        "N4",
        ChangeKind.STATELESS_DEFINITION,
        COMPATIBLE,
        _always,
        "stateless; no stored value is affected",
        "There is no state to migrate.",
    ),
    Rule("A1", ChangeKind.STATELESS_ADDED, COMPATIBLE, None, "added; stateless", "A new stateless node has nothing to catch up with."),
    Rule(
        "A2",
        ChangeKind.KEYED_ADDED,
        BACKFILL,
        None,
        "added; its state starts empty, and holds history only when the source replays it",
        "Its state starts empty, and history is in it only if the source replays it.",
    ),
    Rule("R1", ChangeKind.STATELESS_REMOVED, COMPATIBLE, None, "removed; stateless", "Nothing was stored."),
    Rule(
        "R2",
        ChangeKind.KEYED_REMOVED,
        COMPATIBLE,
        None,
        "removed; its state is discarded when the old job stops",
        "Nobody reads the state any more.",
    ),
    Rule(
        "I1",
        ChangeKind.PROVED_UNCHANGED,
        SAFE,
        None,
        "holds what `{was}` holds ({rewrites})",
        "In structural identity: the stream's normal form is the running one's, so its state is, too.",
    ),
    Rule(
        "I2",
        ChangeKind.PROVED_UNCHANGED,
        SAFE,
        None,
        "`{model}` shows what it showed ({rewrites})",
        "In structural identity: the model's rows, names and place are the running ones.",
    ),
    Rule(
        "I3",
        ChangeKind.PROVED_UNCHANGED,
        SAFE,
        None,
        "nothing outside sees `{model}`; what reads it is judged on its own",
        "In structural identity: a stateless part of a model without a sink has an effect only through its readers.",
    ),
)

RULE_BY_ID = {rule.id: rule for rule in RULES}


def classify(facets: Facets) -> tuple[Rule, Facts]:
    """The row that decides a changed node, with the facts of its sentence."""
    applicable = [(rule, facts) for rule in RULES if rule.test is not None and (facts := rule.test(facets)) is not None]
    return max(applicable, key=lambda pair: (pair[0].classification, -RULES.index(pair[0])))


def sentence(rule_id: str, facts: tuple[tuple[str, str], ...]) -> str:
    """The sentence of a row over its facts."""
    return RULE_BY_ID[rule_id].sentence.format(**dict(facts))
