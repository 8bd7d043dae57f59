"""Layouts: in which order Flink stores the values of an aggregate, and how a changed query keeps that order.

Flink stores what a key has accumulated as one row, in the order in which the query names its aggregates. A query that names them in
another order, or one less, would read the wrong values; so they are computed in the old order inside, and picked outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from streamform.backends.flink.expression import emit_aggregate
from streamform.backends.flink.text import identifier
from streamform.plan.nodes import AggregateSpec, Plan

Layouts = Mapping[str, Sequence[str]]
"""For each aggregate's node id, its calls in Flink SQL in the order in which their values are stored."""


class UnitLayouts(Struct, frozen=True):
    """Where a unit keeps layouts: in its views, which sinks and other models read, or only in what sinks read."""

    views: Layouts
    sinks: Layouts


def possible_layouts(layouts: Layouts, natural: Layouts) -> list[UnitLayouts]:
    """The ways to keep layouts, the likeliest first. Flink gives each reader of a model an aggregate of only what that reader uses."""
    changed = {name: layout for name, layout in layouts.items() if list(layout) != list(natural[name])}
    own = UnitLayouts({}, {})
    return [UnitLayouts(changed, {}), UnitLayouts({}, changed), own] if changed else [own]


class Laid(Struct, frozen=True):
    """The columns of an aggregate that keeps a layout, in Flink SQL."""

    inside: tuple[str, ...]
    """The calls in the order of the layout, under names."""
    outside: tuple[str, ...]
    """What the aggregate hands on."""


def layouts_of(plan: Plan) -> dict[str, list[str]]:
    """The layouts of a plan that is submitted as it is."""
    return {node.id: _natural(node.spec) for node in plan.nodes if isinstance(node.spec, AggregateSpec)}


def kept_layouts(plan: Plan, running: Layouts, nodes: Mapping[str, str]) -> dict[str, list[str]]:
    """The layouts under which a plan takes over state; `nodes` maps a node id to the running node's.

    An aggregate with a call that the running one has not gets its own order: its state can't be taken over.
    """
    found = layouts_of(plan)
    for name, own in found.items():
        before = list(running.get(nodes.get(name, ""), ()))
        if own and set(own) <= set(before):
            found[name] = before
    return found


def laid_out(spec: AggregateSpec, layout: Sequence[str]) -> Laid | None:
    """The columns of an aggregate under a layout, None where its own order is the layout."""
    own = _natural(spec)
    if not layout or list(layout) == own or not set(own) <= set(layout):
        return None
    names = {emit_aggregate(call): identifier(call.name) for call in reversed(spec.calls)}
    taken = {*names.values(), *(identifier(key.name) for key in spec.keys)}
    for place, text in enumerate(layout):
        if text not in names:
            names[text] = _unused(f"retained/{place}", taken)
    retained = [names[text] for text in layout if text not in own]
    outside = [_renamed(names[emit_aggregate(call)], identifier(call.name)) for call in spec.calls]
    if retained:
        first = identifier(spec.calls[0].name)
        outside[0] = f"CASE WHEN {_never(retained)} THEN NULL ELSE {names[emit_aggregate(spec.calls[0])]} END AS {first}"
    return Laid(tuple(f"{text} AS {names[text]}" for text in layout), tuple(outside))


def _natural(spec: AggregateSpec) -> list[str]:
    return list(dict.fromkeys(emit_aggregate(call) for call in spec.calls))


def _never(columns: Sequence[str]) -> str:
    """A condition that holds for no row, and that Flink can't know to: so it goes on computing the columns."""
    return " OR ".join(f"CHAR_LENGTH(CAST({column} AS STRING)) < 0" for column in columns)


def _renamed(name: str, wanted: str) -> str:
    return name if name == wanted else f"{name} AS {wanted}"


def _unused(name: str, taken: set[str]) -> str:
    while identifier(name) in taken:
        name += "_"
    taken.add(identifier(name))
    return identifier(name)
