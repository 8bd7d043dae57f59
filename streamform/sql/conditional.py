"""Python for functions that decide about NULL themselves, over the code of their operands.

An emitter gets the call, the operands' code (each already of its operand type, None for NULL) and a maker of fresh
local variables, and gives one expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamform.sql.expressions import Call

Fresh = Callable[[], str]
Emitter = Callable[["Call", Sequence[str], Fresh], str]


def _logic(decides: str, other: str) -> Emitter:
    """AND or OR: the right side is evaluated only when the left does not decide, as Flink's code does."""

    def emit(call: Call, args: Sequence[str], fresh: Fresh) -> str:
        a, b = fresh(), fresh()
        return (
            f"({decides} if ({a} := {args[0]}) is {decides} else {decides} if ({b} := {args[1]}) is {decides} "
            f"else None if {a} is None or {b} is None else {other})"
        )

    return emit


emit_and = _logic("False", "True")
emit_or = _logic("True", "False")


def emit_test(test: str) -> Emitter:
    """A test of one operand that is never NULL itself, such as `is None`."""
    return lambda call, args, fresh: f"({args[0]} {test})"


def emit_distinct(operator: str) -> Emitter:
    """IS [NOT] DISTINCT FROM: NULL equals NULL."""
    return lambda call, args, fresh: f"({args[0]} {operator} {args[1]})"


def emit_coalesce(call: Call, args: Sequence[str], fresh: Fresh) -> str:
    """The first operand that is not NULL; later ones are not evaluated."""
    code = args[-1]
    for arg in reversed(args[:-1]):
        name = fresh()
        code = f"{name} if ({name} := {arg}) is not None else {code}"
    return f"({code})"


def emit_case(call: Call, args: Sequence[str], fresh: Fresh) -> str:
    """The value of the first condition that is true; other values are not evaluated."""
    code = args[-1]
    for condition, value in reversed(list(zip(args[:-1:2], args[1:-1:2], strict=True))):
        code = f"{value} if {condition} is True else {code}"
    return f"({code})"


def emit_in(call: Call, args: Sequence[str], fresh: Fresh) -> str:
    """Whether the first operand is among the others; NULL when it is not and one of them is NULL."""
    name, items = fresh(), ", ".join(args[1:])
    miss = "None" if any(getattr(arg, "value", ...) is None for arg in call.args[1:]) else "False"
    return f"(None if ({name} := {args[0]}) is None else True if {name} in ({items},) else {miss})"


def emit_extreme(function: str) -> Emitter:
    """GREATEST or LEAST: NULL when an operand is."""

    def emit(call: Call, args: Sequence[str], fresh: Fresh) -> str:
        names = [fresh() for _ in args]
        tests = " or ".join([f"({name} := {arg}) is None" for name, arg in zip(names, args, strict=True)])
        return f"(None if {tests} else {function}({', '.join(names)}))"

    return emit
