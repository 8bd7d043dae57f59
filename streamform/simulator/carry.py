"""A dataflow that goes on from another one's state and clocks, as the embedded backend does it in its state database."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from msgspec import Struct, field

from streamform.errors import DataError
from streamform.plan.nodes import Node, Plan, SourceSpec
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.keyed import AggregateOperator, empty_entry, entry_layout
from streamform.runtime.state import MemoryStore, StateStore
from streamform.runtime.windows import Windowed, node_deadline


class Carry(Struct, frozen=True):
    """Two plans, and which running node each desired node goes on from."""

    before: Plan
    after: Plan
    nodes: Mapping[str, str]
    slots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What an accumulator was called, by desired node, where it has another name now."""
    forced: bool = False
    """Whether accumulators that were never stored begin empty, as if the verdict did not matter; else they are an error."""


def carried(old: Dataflow, carry: Carry, *, emit_unchanged: bool = False) -> Dataflow:
    """The new plan on the state and the clocks of the old one. Raises: DataError when state lacks what the plan needs."""
    dataflow = Dataflow(carry.after, lambda node: _store(node, old, carry), emit_unchanged=emit_unchanged)
    for node_id, source in dataflow.sources.items():
        was = carry.nodes.get(node_id) or _same_source(node_id, carry)
        if was in old.sources and source.clock is not None:
            source.clock.watermark_ms = old.sources[was].watermark_ms
            dataflow.counts[node_id] = old.counts[was]
    return dataflow


def _same_source(node_id: str, carry: Carry) -> str | None:
    """A running node that reads the same declared source; a new reader joins at its watermark."""
    spec = carry.after.by_id[node_id].spec
    assert isinstance(spec, SourceSpec)
    readers = [n.id for n in carry.before.nodes if isinstance(n.spec, SourceSpec) and n.spec.source.name == spec.source.name]
    return readers[0] if readers else None


def _store(node: Node, old: Dataflow, carry: Carry) -> StateStore:
    """The entries that a node's counterpart holds, in the node's own order of slots."""
    store = MemoryStore(node_deadline(node))
    was = carry.nodes.get(node.id)
    operator = None if was is None else old.operators.get(was)
    if was is None or not isinstance(operator, AggregateOperator | Windowed):
        return store
    assert isinstance(operator.store, MemoryStore)
    order = _slot_order(carry.before.by_id[was], node, carry)
    empty = empty_entry(node, carry.after.inputs_of(node)[0]) if None in order else []
    for key, entry in operator.store.live.items():
        store.live[key] = [empty[place] if stored is None else entry[stored] for place, stored in enumerate(order)]
        if store.deadline is not None:
            store.schedule(key, store.deadline(key, store.live[key]))
    return store


def _slot_order(running: Node, desired: Node, carry: Carry) -> list[int | None]:
    """Where each slot of a desired entry stands in the running entry; None for one that was never stored."""
    layout = entry_layout(running, carry.before.inputs_of(running)[0])
    starts = dict(zip((name for name, _ in layout), accumulate((slots for _, slots in layout), initial=0), strict=False))
    stored, renamed = dict(layout), carry.slots.get(desired.id, {})
    order: list[int | None] = []
    for name, slots in entry_layout(desired, carry.after.inputs_of(desired)[0]):
        was = renamed.get(name, name)
        if stored.get(was) == slots:
            order.extend(range(starts[was], starts[was] + slots))
        elif carry.forced:
            order.extend([None] * slots)
        else:
            raise DataError(f"the state of {running.id} holds no {was}, which {desired.id} needs", None)
    return order
