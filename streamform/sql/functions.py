"""FUNCTIONS and AGGREGATES: every operator and function, one row each.

A row says how the function is typed, shown, computed and written for Flink. docs/sql.md is printed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from streamform.sql import numeric as n
from streamform.values.rows import INTEGER_RANGES, Value
from streamform.values.types import FLOAT64, INT64, MAX_PRECISION, NULL, DataType

if TYPE_CHECKING:
    from streamform.sql.expressions import Call, Expression


@dataclass(frozen=True, slots=True)
class Function:
    """One operator or function."""

    name: str
    node: str
    """The parser's class for it."""
    arity: int
    typing: Callable[[str, Sequence[Expression]], n.Typing]
    render: str
    """Canonical text over the operands' texts."""
    flink: str
    """Flink SQL over the operands' SQL."""
    code: str | None = None
    """Python over the operands' names, for operands that are not NULL; None where `value` computes."""
    float_code: str | None = None
    """The same where an operand is a float, whose NaN is not comparable."""
    value: Callable[[Call], Callable[..., Value]] | None = None
    """Makes the function that computes one call from operands that are not NULL."""
    nulls: Literal["strict", "and", "or", "is_null", "is_not_null"] = "strict"
    """How NULL operands are treated; strict means that one NULL makes the result NULL."""

    def __repr__(self) -> str:
        return f"Function({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return function_named, (self.name,)


def function_named(name: str) -> Function:
    """The row of this name."""
    return FUNCTIONS[name]


def _comparison(name: str, node: str, code: str, flink: str | None = None) -> Function:
    of_floats = f"(None if {{0}} != {{0}} or {{1}} != {{1}} else {code})"
    return Function(name, node, 2, n.type_comparison, f"({{0}} {name} {{1}})", f"({{0}} {flink or name} {{1}})", code, of_floats)


def _arithmetic(name: str, node: str) -> Function:
    text = f"({{0}} {name} {{1}})"
    return Function(name, node, 2, n.type_arithmetic, text, text, value=n.arithmetic_value)


_ROWS = (
    _arithmetic("+", "Add"),
    _arithmetic("-", "Sub"),
    _arithmetic("*", "Mul"),
    _arithmetic("/", "Div"),
    _comparison("=", "EQ", "({0} == {1})"),
    _comparison("!=", "NEQ", "({0} != {1})", "<>"),
    _comparison("<", "LT", "({0} < {1})"),
    _comparison("<=", "LTE", "({0} <= {1})"),
    _comparison(">", "GT", "({0} > {1})"),
    _comparison(">=", "GTE", "({0} >= {1})"),
    Function("AND", "And", 2, n.type_logic, "({0} AND {1})", "({0} AND {1})", nulls="and"),
    Function("OR", "Or", 2, n.type_logic, "({0} OR {1})", "({0} OR {1})", nulls="or"),
    Function("NOT", "Not", 1, n.type_logic, "(NOT {0})", "(NOT {0})", "(not {0})"),
    Function("IS NULL", "Is", 1, n.type_null_test, "({0} IS NULL)", "({0} IS NULL)", nulls="is_null"),
    Function("IS NOT NULL", "IsNot", 1, n.type_null_test, "({0} IS NOT NULL)", "({0} IS NOT NULL)", nulls="is_not_null"),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}
BY_NODE: dict[str, Function] = {row.node: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate. Its accumulator `a` starts as `initial` and takes in each value `x` that is not NULL.

    An accumulator of None takes the first value itself.
    """

    name: str
    node: str
    typing: Callable[[DataType], DataType]
    initial: Value
    code: str
    """Python for the accumulator after a value."""
    bounds: Callable[[DataType], tuple[Value, Value] | None]
    """The smallest and largest value that the result's type holds, where folding can leave it."""


def _sum_type(type_: DataType) -> DataType:
    if type_.is_integer:
        return INT64
    if type_.kind == "decimal":
        return DataType("decimal", MAX_PRECISION, type_.scale)
    if type_ == FLOAT64:
        return FLOAT64
    raise n.TypeMismatch(f"SUM needs a number, not {type_}")


def _same_type(type_: DataType) -> DataType:
    if type_ is NULL:
        raise n.TypeMismatch("NULL has no type; write CAST(NULL AS type)")
    return type_


def _sum_bounds(type_: DataType) -> tuple[Value, Value] | None:
    if type_.is_integer:
        return INTEGER_RANGES[type_.kind]
    if type_.kind == "decimal":
        largest = Decimal((0, (9,) * type_.precision, -type_.scale))
        return largest.copy_negate(), largest
    return None


def _no_bounds(type_: DataType) -> tuple[Value, Value] | None:
    return None


AGGREGATES: dict[str, AggregateFunction] = {
    row.name: row
    for row in (
        AggregateFunction("sum", "Sum", _sum_type, None, "a + x", _sum_bounds),
        AggregateFunction("count", "Count", lambda type_: INT64, 0, "a + 1", _no_bounds),
        AggregateFunction("min", "Min", _same_type, None, "x if x < a else a", _no_bounds),
        AggregateFunction("max", "Max", _same_type, None, "x if x > a else a", _no_bounds),
    )
}
AGGREGATE_BY_NODE: dict[str, AggregateFunction] = {row.node: row for row in AGGREGATES.values()}
SUM_EXTRA_DIGITS = 10
"""A quotient over SUM(decimal(p,s)) is typed as if the sum had p + 10 digits."""


def sum_digits(call_type: DataType, argument: DataType) -> int:
    """The digits that a quotient's type counts for a SUM, 0 where the sum is no decimal."""
    return min(MAX_PRECISION, argument.precision + SUM_EXTRA_DIGITS) if call_type.kind == "decimal" else 0
