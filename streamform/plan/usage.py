"""Which columns keyed state is made of, traced back to the sources."""

from __future__ import annotations

from collections.abc import Iterable

from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, Plan, ProjectSpec, SourceSpec, UnionSpec
from streamform.sql.expressions import columns_of


def state_columns(plan: Plan) -> dict[str, frozenset[str]]:
    """For each source node, the columns that some keyed state downstream depends on, filters on the way included."""
    needed: dict[str, set[str]] = {node.id: set() for node in plan.nodes}
    for node in reversed(plan.nodes):
        for below in plan.inputs_of(node):
            needed[below.id] |= _read_from_input(node, below, needed[node.id])
    return {node.id: frozenset(needed[node.id] | _own(node, needed[node.id])) for node in plan.nodes if isinstance(node.spec, SourceSpec)}


def _read_from_input(node: Node, below: Node, needed: set[str]) -> set[str]:
    spec = node.spec
    if isinstance(spec, AggregateSpec):
        parts = (part for call in spec.calls for part in (call.argument, call.condition) if part is not None)
        read = {key.name for key in spec.keys} | _columns(parts)
        return read | ({spec.window.time} if spec.window else set())
    if isinstance(spec, FilterSpec):
        return needed | columns_of(spec.predicate) if needed else set()
    if isinstance(spec, UnionSpec):
        return {column.name for column, united in zip(below.schema, node.schema, strict=True) if united.name in needed}
    if isinstance(spec, ProjectSpec):
        return _columns(output.expression for output in spec.outputs if output.name in needed)
    return needed


def _own(node: Node, needed: set[str]) -> set[str]:
    """What the source itself reads to decide which events it delivers, where state depends on any of them."""
    spec = node.spec
    if not isinstance(spec, SourceSpec) or not needed:
        return set()
    clock = {spec.source.event_time} if spec.source.event_time else set()
    return clock | _columns(contract.condition for contract in spec.contracts)


def _columns(expressions: Iterable[object]) -> set[str]:
    found: set[str] = set()
    for expression in expressions:
        found |= columns_of(expression)  # type: ignore[arg-type]
    return found
