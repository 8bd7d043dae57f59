"""Aggregates to Python code: the slots that each accumulator has in an entry, and how rows go in and come out.

A slot holds a value, a count, or, where values must be known again, a dictionary of counts by value. Over append input
rows only go in, so MIN keeps one value; over updating input rows come out too, and MIN keeps all of them, counted.
"""

from __future__ import annotations

from msgspec import Struct, field

from streamform.runtime.codegen import Code, expression_code
from streamform.sql.aggregates import AGGREGATES, AggregateFunction
from streamform.sql.expressions import AggregateCall
from streamform.sql.numeric import ValueLost

Lines = list[str]


class Accumulator(Struct):
    """One aggregate's code over the entry `e` and the row `r`."""

    initial: list[str]
    """Python for each slot of a new entry."""
    add: Lines
    subtract: Lines
    """Empty over append input."""
    result: str
    """Python for the aggregate's value."""
    merge: Lines = field(default_factory=list)
    """Over append input: takes in the slots of another entry `o`."""


class _Slots(Struct):
    """Hands out positions in the entry."""

    next: int
    initial: list[str] = field(default_factory=list)

    def take(self, initial: str) -> str:
        """The next slot, as Python."""
        self.initial.append(initial)
        self.next += 1
        return f"e[{self.next - 1}]"


def accumulators(calls: tuple[AggregateCall, ...], code: Code, *, updating: bool) -> list[Accumulator]:
    """The code of each call, their slots in order."""
    result: list[Accumulator] = []
    position = 0
    for call in calls:
        slots = _Slots(position)
        result.append(_accumulator(call, code, slots, updating=updating))
        position = slots.next
    return result


def _accumulator(call: AggregateCall, code: Code, slots: _Slots, *, updating: bool) -> Accumulator:
    function = AGGREGATES[call.function]
    value = slots.take(repr(function.initial))
    if call.argument is None:
        guarded = _guarded(call, code, [f"{value} += 1"], [f"{value} -= 1"] if updating else [])
        return Accumulator(slots.initial, *guarded, value, [f"{value} += {_other(value)}"])
    if function.keeps_one:
        add, subtract, result = _extreme(function, value, slots, updating=updating)
    else:
        add, subtract, result = _total(call, code, value, slots, updating=updating)
    merge = _merged(function, value, slots, add)
    if call.distinct:
        seen = slots.take("{}")
        add, subtract = _once(seen, add, subtract, updating=updating)
        merge = [f"for x in {_other(seen)}:", *_indented(add)]
    return Accumulator(slots.initial, *_guarded(call, code, add, subtract), result, merge)


def _other(slot: str) -> str:
    """The slot of the entry that is taken in."""
    return f"o{slot[1:]}"


def _merged(function: AggregateFunction, value: str, slots: _Slots, add: Lines) -> Lines:
    """Another entry's total as one more value; where values are counted, all of them count."""
    if function.name == "count":
        return [f"{value} += {_other(value)}"]
    if function.finish is not None:
        count = f"e[{slots.next - 1}]"
        add = [*add[:-1], f"{count} += {_other(count)}"]
    return [f"x = {_other(value)}", "if x is not None:", *_indented(add)]


def _total(call: AggregateCall, code: Code, value: str, slots: _Slots, *, updating: bool) -> tuple[Lines, Lines, str]:
    """Values that can be added and taken out again: SUM, COUNT and AVG."""
    function = AGGREGATES[call.function]
    assert call.argument is not None
    if function.name == "count":
        return [f"{value} += 1"], [f"{value} -= 1"], value
    folded = function.folded_type(call.argument.type, call.type)
    bounds = function.bounds(folded)
    check: Lines = []
    if bounds is not None:
        low, high = (code.bind(bound, "c") for bound in bounds)
        lost = code.bind(ValueLost(f"{call.name} no longer fits {folded}; Flink would lose the value"), "lost")
        check = [f"if not {low} <= y <= {high}: raise {lost}"]
    add = [f"a = {value}", "y = x if a is None else a + x", *check, f"{value} = y"]
    subtract = [f"y = {value} - x", *check, f"{value} = y"]
    result = value
    if function.finish is not None or updating:
        count = slots.take("0")
        add, subtract = [*add, f"{count} += 1"], [*subtract, f"{count} -= 1"]
        result = f"({value} if {count} else None)"
        if function.finish is not None:
            result = f"({code.bind(function.finish(folded, call.type))}({value}, {count}) if {count} else None)"
    return add, subtract, result


def _extreme(function: AggregateFunction, value: str, slots: _Slots, *, updating: bool) -> tuple[Lines, Lines, str]:
    """MIN and MAX: one value over append input, every value counted over updating input."""
    better = "x < a" if function.name == "min" else "x > a"
    add = [f"a = {value}", f"if a is None or {better}:", f"    {value} = x"]
    if not updating:
        return add, [], value
    seen = slots.take("{}")
    add += [f"d = {seen}", "d[x] = d.get(x, 0) + 1"]
    left = f"{function.name}(d) if d else None"
    subtract = [
        f"d = {seen}",
        "n = d.pop(x, 0) - 1",
        "if n > 0:",
        "    d[x] = n",
        f"elif x == {value}:",
        f"    {value} = {left}",
    ]
    return add, subtract, value


def _once(seen: str, add: Lines, subtract: Lines, *, updating: bool) -> tuple[Lines, Lines]:
    """DISTINCT: only the first of equal values goes in, and only the last comes out."""
    if not updating:
        return [f"d = {seen}", "if x not in d:", "    d[x] = 1", *_indented(add)], []
    into = [f"d = {seen}", "n = d.get(x, 0)", "d[x] = n + 1", "if not n:", *_indented(add)]
    out = [f"d = {seen}", "n = d.pop(x, 0) - 1", "if n > 0:", "    d[x] = n", "else:", *_indented(subtract)]
    return into, out


def _guarded(call: AggregateCall, code: Code, add: Lines, subtract: Lines) -> tuple[Lines, Lines]:
    """Only rows that pass FILTER, and only values that are not NULL."""
    guards: list[str] = []
    if call.condition is not None:
        guards.append(f"{expression_code(call.condition, code)} is True")
    if call.argument is not None:
        guards.append(f"(x := {expression_code(call.argument, code)}) is not None")
    if not guards:
        return add, subtract
    test = f"if {' and '.join(guards)}:"
    return [test, *_indented(add)], [test, *_indented(subtract)] if subtract else []


def _indented(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]


def indented(lines: Lines, depth: int) -> Lines:
    """The lines, so many levels further in."""
    return ["    " * depth + line for line in lines]
