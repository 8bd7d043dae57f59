"""Small event histories for two plans, drawn from the constants that stand in them; the same seed gives the same history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TypeVar

from msgspec import Struct

from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, Plan, ProjectSpec, SourceSpec
from streamform.project.model import Source
from streamform.sql.expressions import Expression, Literal, walk
from streamform.values.rows import INTEGER_RANGES, Row, Value
from streamform.values.types import DataType

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
STEPS_MS = (0, 1_000, 60_000, 600_000, 7_200_000, 90_000_000)
"""How far event time moves between two events."""

Drawn = TypeVar("Drawn")


class Event(Struct, frozen=True):
    """One event of a declared source."""

    source: str
    row: Row


class Draws:
    """Numbers that look random and are the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self.seed, self.count = seed, 0

    def below(self, bound: int) -> int:
        """A number from 0 to below the bound."""
        self.count += 1
        found = hashlib.blake2b(f"{self.seed}:{self.count}".encode(), digest_size=8).digest()
        return int.from_bytes(found, "big") % bound

    def choice(self, options: Sequence[Drawn]) -> Drawn:
        """One of some."""
        return options[self.below(len(options))]


def history(sources: Sequence[Source], pools: dict[str, dict[str, list[Value]]], draws: Draws, size: int) -> list[Event]:
    """Events in an order of arrival whose times mostly grow."""
    events: list[Event] = []
    now_ms = START_MS
    for _ in range(size):
        source = draws.choice(sources)
        now_ms += draws.choice(STEPS_MS) * (-1 if draws.below(8) == 0 else 1)
        row = tuple(
            max(now_ms, START_MS - 90_000_000) if column.name == source.event_time else draws.choice(pools[source.name][column.name])
            for column in source.schema
        )
        events.append(Event(source.name, row))
    return events


def sources_of(plans: Sequence[Plan]) -> list[Source]:
    """The sources that any of the plans reads, as the last one declares them."""
    found = {node.spec.source.name: node.spec.source for plan in plans for node in plan.nodes if isinstance(node.spec, SourceSpec)}
    return [found[name] for name in sorted(found)]


def value_pools(sources: Sequence[Source], plans: Sequence[Plan]) -> dict[str, dict[str, list[Value]]]:
    """By source and column: the simplest values, and those at and beside the constants of its type."""
    constants = [literal for plan in plans for node in plan.nodes for literal in _constants(node)]
    return {source.name: {c.name: _pool(c.type, constants) for c in source.schema} for source in sources}


def _constants(node: Node) -> Iterator[Literal]:
    for expression in _expressions(node):
        yield from (part for part in walk(expression) if isinstance(part, Literal) and part.value is not None)


def _expressions(node: Node) -> Iterator[Expression]:
    spec = node.spec
    if isinstance(spec, FilterSpec):
        yield spec.predicate
    elif isinstance(spec, ProjectSpec):
        yield from (output.expression for output in spec.outputs)
    elif isinstance(spec, SourceSpec):
        yield from (contract.condition for contract in spec.contracts)
    elif isinstance(spec, AggregateSpec):
        yield from spec.keys
        yield from (part for call in spec.calls for part in (call.argument, call.condition) if part is not None)


def _pool(type_: DataType, constants: list[Literal]) -> list[Value]:
    kind = type_.kind
    if kind == "string":
        return list(dict.fromkeys(["a", *(str(c.value) for c in constants if isinstance(c.value, str)), "b", None]))
    if kind == "boolean":
        return [True, False, None]
    numbers = [n for c in constants if not isinstance(c.value, bool) and (n := _number(c)) is not None]
    around = [*map(Decimal, (1, 2)), *(n + step for n in numbers for step in (0, 1, -1)), Decimal(0), Decimal(-1)]
    if kind == "timestamp":
        return [START_MS, START_MS + 60_000, None]
    return [*dict.fromkeys(v for number in around if (v := _fitting(number, type_)) is not None), None]


def _number(literal: Literal) -> Decimal | None:
    if isinstance(literal.value, int | Decimal) and literal.type.kind not in ("interval", "months", "date", "timestamp"):
        return Decimal(literal.value)
    return literal.exact


def _fitting(number: Decimal, type_: DataType) -> Value:
    """The number in a type, None where it does not fit."""
    if type_.kind == "float64":
        return float(number)
    if type_.kind == "decimal":
        return number.quantize(Decimal(1).scaleb(-type_.scale)) if abs(number) < Decimal(10) ** (type_.precision - type_.scale) else None
    low, high = INTEGER_RANGES.get(type_.kind, (0, -1))
    return int(number) if number == int(number) and low <= number <= high else None
