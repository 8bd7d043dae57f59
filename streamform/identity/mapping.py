"""Which running stream can supply the state of each desired stream, and the proof of it.

A stream maps when its model is the same one (by name or hint) and both hold the same by structure. Nothing maps in part:
a stream whose key differs starts cold here, and the rules of the plan diff decide what that means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from streamform.identity.rewrites import REWRITES, Rewrite, rewrites_between
from streamform.identity.structure import Stream, Structure

Proof = tuple[Rewrite, ...]


class StreamMapping(Struct, frozen=True):
    """The proven counterparts between two plans."""

    streams: Mapping[str, str] = field(default_factory=dict)
    """Desired keyed node -> running keyed node that holds the same."""
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    """For each of them, and for each model in `outputs`, the rewrites between the two texts."""
    slots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each of them whose accumulators have other names: desired accumulator -> running accumulator."""
    same_input: Mapping[str, str] = field(default_factory=dict)
    """Desired keyed node -> running keyed node that folds the same rows, where each common accumulator is the same."""
    outputs: frozenset[str] = frozenset()
    """Desired models that show exactly what their counterparts show."""
    internal: frozenset[str] = frozenset()
    """Models of either plan that nothing outside sees."""
    candidates: Mapping[str, str] = field(default_factory=dict)
    """Desired model without a counterpart -> the only running model without one that holds the same state."""


def between(running: Structure, desired: Structure, renamed: Mapping[str, str]) -> StreamMapping:
    """The mapping, indexed by the desired plan. `renamed` maps a desired model to the running one that it was.

    It is checked before it is returned: see `check_mapping`.
    """
    taken: set[str] = set()
    streams: dict[str, str] = {}
    same_input: dict[str, str] = {}
    for stream in desired.streams.values():
        was = renamed.get(stream.model, stream.model)
        own = [other for other in running.streams.values() if other.model == was]
        found = next((other for other in own if other.state_key == stream.state_key and other.node not in taken), None)
        if found is not None:
            streams[stream.node] = found.node
            taken.add(found.node)
        fed = [other for other in own if _folds_the_same(other, stream)]
        if len(fed) == 1:
            same_input[stream.node] = fed[0].node
    shown = {name for name, output in desired.outputs.items() if _shows_the_same(running, output.key, renamed.get(name, name))}
    mapping = StreamMapping(
        streams,
        _proofs(running, desired, streams, shown, renamed),
        {node: names for node, was in streams.items() if (names := _slots(desired.streams[node], running.streams[was]))},
        same_input,
        frozenset(shown),
        frozenset(o.model for side in (running, desired) for o in side.outputs.values() if o.is_internal),
        _candidates(running, desired, renamed),
    )
    check_mapping(mapping, running, desired, renamed)
    return mapping


def merged(mappings: Iterable[StreamMapping]) -> StreamMapping:
    """The mappings of units as one; units share no node and no model."""
    every = list(mappings)
    return StreamMapping(
        {node: was for m in every for node, was in m.streams.items()},
        {subject: proof for m in every for subject, proof in m.proofs.items()},
        {node: names for m in every for node, names in m.slots.items()},
        {node: was for m in every for node, was in m.same_input.items()},
        frozenset().union(*(m.outputs for m in every)),
        frozenset().union(*(m.internal for m in every)),
        {model: was for m in every for model, was in m.candidates.items()},
    )


def check_mapping(mapping: StreamMapping, running: Structure, desired: Structure, renamed: Mapping[str, str]) -> None:
    """Fail loudly unless the mapping is in bounds, takes no running stream twice, and agrees in names and keys: a fault of ours."""
    assert len(set(mapping.streams.values())) == len(mapping.streams), "a running stream supplies two desired ones"
    for node, was in mapping.streams.items():
        assert node in desired.streams, f"{node} is no stream of the desired plan"
        assert was in running.streams, f"{was} is no stream of the running plan"
        target, source = desired.streams[node], running.streams[was]
        assert renamed.get(target.model, target.model) == source.model, f"{node} and {was} belong to other models"
        assert target.state_key == source.state_key, f"{node} and {was} hold different state"
        assert {key for _, key in target.accumulators} == {key for _, key in source.accumulators}, f"{node} keeps other values than {was}"


def _folds_the_same(running: Stream, desired: Stream) -> bool:
    if running.input_key != desired.input_key:
        return False
    before, after = running.by_name, desired.by_name
    return all(before[name] == after[name] for name in before.keys() & after.keys())


def _shows_the_same(running: Structure, key: str, was: str) -> bool:
    found = running.outputs.get(was)
    return found is not None and found.key == key


def _slots(desired: Stream, running: Stream) -> dict[str, str]:
    """Names of accumulators that are called otherwise; equal accumulators are paired in order."""
    names: dict[str, list[str]] = {}
    for name, key in running.accumulators:
        names.setdefault(key, []).append(name)
    pairs = {name: names[key].pop(0) for name, key in desired.accumulators}
    return pairs if any(name != was for name, was in pairs.items()) else {}


def _proofs(
    running: Structure, desired: Structure, streams: Mapping[str, str], shown: set[str], renamed: Mapping[str, str]
) -> dict[str, Proof]:
    proofs = {
        node: rewrites_between(dict(running.streams[was].evidence), dict(desired.streams[node].evidence)) for node, was in streams.items()
    }
    for model in shown:
        before, after = running.outputs[renamed.get(model, model)], desired.outputs[model]
        own = set(rewrites_between(dict(before.evidence), dict(after.evidence)))
        own.update(row for node in streams if desired.streams[node].model == model for row in proofs[node])
        proofs[model] = tuple(row for row in REWRITES if row in own)
    return proofs


def _candidates(running: Structure, desired: Structure, renamed: Mapping[str, str]) -> dict[str, str]:
    """Models that look renamed: both sides lack a counterpart, and exactly one on the other side holds the same state."""
    taken = {renamed.get(name, name) for name in desired.outputs}
    free = _states_by_model(running, {name for name in running.outputs if name not in taken})
    new = _states_by_model(desired, {name for name in desired.outputs if renamed.get(name, name) not in running.outputs})
    found: dict[str, str] = {}
    for model, states in new.items():
        matching = [was for was, held in free.items() if held == states]
        if len(matching) == 1 and sum(held == states for held in new.values()) == 1:
            found[model] = matching[0]
    return found


def _states_by_model(side: Structure, models: set[str]) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for stream in side.streams.values():
        if stream.model in models:
            held.setdefault(stream.model, []).append(stream.state_key)
    return {model: sorted(keys) for model, keys in held.items()}
