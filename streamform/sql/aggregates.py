"""AGGREGATES: every aggregate function, one row each.

An accumulator starts as `initial` and takes in each value that is not NULL: MIN and MAX keep one of them, the others add
them up. How that is done, and undone, is runtime/accumulate.py.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from msgspec import Struct

from streamform.sql import numeric as n
from streamform.values.rows import INTEGER_RANGES, Value
from streamform.values.types import FLOAT64, INT64, MAX_PRECISION, NULL, DataType

SUM_EXTRA_DIGITS = 10
"""A quotient over SUM(decimal(p,s)) is typed as if the sum had p + 10 digits."""


class AggregateFunction(Struct, frozen=True):
    """One aggregate."""

    name: str
    about: str
    typing: Callable[[DataType], DataType]
    initial: Value
    bounds: Callable[[DataType], tuple[Value, Value] | None]
    """The smallest and largest value that the accumulator's type holds, where folding can leave it."""
    accumulator: Callable[[DataType], DataType] | None = None
    """The type that is folded, over the operand's type, where it is not the result's."""
    finish: Callable[[DataType, DataType], Callable[[Any, int], Value]] | None = None
    """Makes the result from accumulator and count, over the accumulator's and the result's type."""
    keeps_one: bool = False
    """Whether the result is one of the values, so that DISTINCT makes no difference."""

    def folded_type(self, operand: DataType, result: DataType) -> DataType:
        """The type of the accumulator."""
        return result if self.accumulator is None else self.accumulator(operand)


def _sum_type(type_: DataType) -> DataType:
    if type_.is_integer:
        return INT64
    if type_.kind == "decimal":
        return DataType("decimal", MAX_PRECISION, type_.scale)
    if type_ == FLOAT64:
        return FLOAT64
    raise n.TypeMismatch(f"SUM needs a number, not {type_}")


def _average_type(type_: DataType) -> DataType:
    if type_.kind == "decimal":
        return DataType("decimal", MAX_PRECISION, max(n.MIN_DIVISION_SCALE, type_.scale))
    if not type_.is_numeric:
        raise n.TypeMismatch(f"AVG needs a number, not {type_}")
    return type_


def _ordered_type(type_: DataType) -> DataType:
    if type_ is NULL:
        raise n.TypeMismatch("NULL has no type; write CAST(NULL AS type)")
    return type_


def _any_type(type_: DataType) -> DataType:
    return INT64


def _sum_bounds(type_: DataType) -> tuple[Value, Value] | None:
    if type_.is_integer:
        return INTEGER_RANGES[type_.kind]
    if type_.kind == "decimal":
        largest = Decimal((0, (9,) * type_.precision, -type_.scale))
        return largest.copy_negate(), largest
    return None


def _no_bounds(type_: DataType) -> tuple[Value, Value] | None:
    return None


def _average(folded: DataType, result: DataType) -> Callable[[Any, int], Value]:
    """The quotient as Flink computes it: whole numbers are cut off, decimals are rounded in Flink's own type first."""
    if result == FLOAT64:
        return lambda total, count: total / count
    if result.is_integer:
        check = n.integer_checker(result)
        return lambda total, count: check(n.truncated_quotient(total, count))
    divide = n.decimal_quotient(folded, DataType("decimal", 19, 0), result)
    return lambda total, count: divide(total, Decimal(count))


_ROWS = (
    AggregateFunction("sum", "The sum; NULL where there is no value.", _sum_type, None, _sum_bounds),
    AggregateFunction("count", "How many rows, or values that are not NULL.", _any_type, 0, _no_bounds),
    AggregateFunction("min", "The smallest value.", _ordered_type, None, _no_bounds, keeps_one=True),
    AggregateFunction("max", "The largest value.", _ordered_type, None, _no_bounds, keeps_one=True),
    AggregateFunction(
        "avg",
        "The mean; of whole numbers a whole number, cut off.",
        _average_type,
        None,
        _sum_bounds,
        _sum_type,
        finish=_average,
    ),
)

AGGREGATES: dict[str, AggregateFunction] = {row.name: row for row in _ROWS}


def sum_digits(call_type: DataType, argument: DataType) -> int:
    """The digits that a quotient's type counts for a SUM, 0 where the sum is no decimal."""
    return min(MAX_PRECISION, argument.precision + SUM_EXTRA_DIGITS) if call_type.kind == "decimal" else 0
