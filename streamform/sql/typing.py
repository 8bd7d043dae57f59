"""The types of functions and of what has several branches, as Flink derives them.

A function that the published manifests know keeps their types (numeric.py). Everything else takes Flink's: a whole
number written in a query is int32 when it fits, a number with a point is a decimal of its own digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamform.sql.numeric import TypeMismatch, Typing, literal_decimal
from streamform.values.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    MAX_PRECISION,
    MONTHS,
    NULL,
    TIMESTAMP,
    DataType,
    as_decimal,
)

if TYPE_CHECKING:
    from streamform.sql.expressions import Expression

Typer = Callable[[str, Sequence["Expression"]], Typing]


def flink_type(expression: Expression) -> DataType:
    """The type that Flink gives the expression: constants are as narrow as they are written."""
    value, exact = getattr(expression, "value", None), getattr(expression, "exact", None)
    if exact is not None:
        return literal_decimal(exact) or FLOAT64
    if expression.type == INT64 and isinstance(value, int):
        return INT32 if -(2**31) <= value < 2**31 else INT64
    return expression.type


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The type that values of all these types are converted to, None where there is none."""
    known = [type_ for type_ in types if type_ is not NULL]
    if not known or all(type_ == known[0] for type_ in known):
        return known[0] if known else None
    if not all(type_.is_numeric for type_ in known):
        return None
    if FLOAT64 in known:
        return FLOAT64
    if all(type_.is_integer for type_ in known):
        return INT64
    decimals = [as_decimal(type_) if type_.kind == "decimal" else _integer_decimal(type_) for type_ in known]
    scale = max(d.scale for d in decimals)
    whole = max(d.precision - d.scale for d in decimals)
    return DataType("decimal", min(MAX_PRECISION, whole + scale), scale)


def _integer_decimal(type_: DataType) -> DataType:
    """The decimal that Flink gives an integer beside decimals: 10 digits for int32, 19 for int64."""
    return DataType("decimal", 10 if type_ == INT32 else 19, 0)


def _common(name: str, args: Sequence[Expression]) -> DataType:
    types = [flink_type(arg) for arg in args]
    common = common_type(types)
    if common is None:
        shown = ", ".join(dict.fromkeys(str(t) for t in types if t is not NULL)) or "NULL"
        raise TypeMismatch(f"{name} of {shown} has no common type" if shown != "NULL" else f"{name} of NULL has no type")
    return common


def type_branches(name: str, args: Sequence[Expression]) -> Typing:
    """COALESCE and the like: all operands in one type, which is the result's."""
    common = _common(name, args)
    return (common,) * len(args), common


def type_extremes(name: str, args: Sequence[Expression]) -> Typing:
    """GREATEST and LEAST: as branches, over types that have an order."""
    return type_branches(name, args)


def type_case(name: str, args: Sequence[Expression]) -> Typing:
    """CASE: conditions and values in turn, then the value otherwise."""
    values = [*args[1:-1:2], args[-1]]
    common = _common(name, values)
    for condition in args[:-1:2]:
        if condition.type != BOOLEAN:
            raise TypeMismatch(f"WHEN needs a condition, not {_shown(condition.type)}")
    return (*(BOOLEAN, common) * (len(args) // 2), common), common


def type_same(name: str, args: Sequence[Expression]) -> Typing:
    """A comparison that also decides about NULL: operands of one type."""
    common = _common(name, args)
    return (common,) * len(args), BOOLEAN


def type_truth(name: str, args: Sequence[Expression]) -> Typing:
    """IS TRUE and IS FALSE: a condition."""
    if args[0].type != BOOLEAN:
        raise TypeMismatch(f"{name} needs a condition, not {_shown(args[0].type)}")
    return (BOOLEAN,), BOOLEAN


def _shown(type_: DataType) -> str:
    return "NULL" if type_ is NULL else str(type_)


def signature(*operands: DataType, result: DataType, rest: DataType | None = None) -> Typer:
    """A typer for fixed operand types; `rest` is the type of any further ones. int32 is taken where int64 is asked."""

    def typer(name: str, args: Sequence[Expression]) -> Typing:
        wanted = [*operands[: len(args)], *([rest] * (len(args) - len(operands)) if rest is not None else [])]
        for position, (arg, type_) in enumerate(zip(args, wanted, strict=True), 1):
            actual = flink_type(arg)
            if actual != type_ and actual is not NULL and not (type_ in (INT64, FLOAT64) and _widens(actual, type_)):
                raise TypeMismatch(f"operand {position} of {name} must be {type_}, not {_shown(actual)}")
        return tuple(wanted), result

    return typer


def _widens(actual: DataType, wanted: DataType) -> bool:
    return actual.is_integer if wanted == INT64 else actual.is_numeric


def _number(name: str, arg: Expression) -> DataType:
    type_ = flink_type(arg)
    if not type_.is_numeric:
        raise TypeMismatch(f"{name} needs a number, not {_shown(type_)}")
    return type_


def type_same_number(name: str, args: Sequence[Expression]) -> Typing:
    """ABS, SIGN and minus: the operand's type."""
    type_ = _number(name, args[0])
    return (type_,), type_


def type_whole(name: str, args: Sequence[Expression]) -> Typing:
    """FLOOR and CEIL of a number: a decimal loses its scale."""
    type_ = _number(name, args[0])
    return (type_,), DataType("decimal", type_.precision, 0) if type_.kind == "decimal" else type_


def type_round(name: str, args: Sequence[Expression]) -> Typing:
    """ROUND: a decimal keeps as many digits behind the point as are asked for, which must be a constant."""
    type_ = _number(name, args[0])
    digits = 0 if len(args) == 1 else getattr(args[1], "value", None)
    if not isinstance(digits, int) or isinstance(digits, bool):
        raise TypeMismatch(f"the second operand of {name} must be a whole number")
    operands = (type_, INT32)[: len(args)]
    if type_.kind != "decimal" or digits >= type_.scale:
        return operands, type_
    whole = type_.precision - type_.scale
    if digits < 0:
        return operands, DataType("decimal", min(MAX_PRECISION, 1 + whole), 0)
    return operands, DataType("decimal", min(MAX_PRECISION, 1 + whole + digits), digits)


def type_modulo(name: str, args: Sequence[Expression]) -> Typing:
    """% and MOD: whole numbers take the divisor's type, decimals the wider scale."""
    left, right = (_number(name, arg) for arg in args)
    if FLOAT64 in (left, right):
        raise TypeMismatch(f"{name} needs whole numbers or decimals, not float64")
    if left.is_integer and right.is_integer:
        return (left, right), right
    a, b = (type_ if type_.kind == "decimal" else _integer_decimal(type_) for type_ in (left, right))
    scale = max(a.scale, b.scale)
    return (a, b), DataType("decimal", min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def type_shift(name: str, args: Sequence[Expression]) -> Typing:
    """A timestamp or date moved by an interval."""
    moved, by = args[0].type, args[1].type
    if moved not in (TIMESTAMP, DATE) or by not in (INTERVAL, MONTHS):
        raise TypeMismatch(f"{_shown(moved)} {name} {_shown(by)} is not defined")
    return (moved, by), moved


def type_time_part(name: str, args: Sequence[Expression]) -> Typing:
    """A part of a timestamp or date, as a whole number; a date has no time of the day."""
    if args[0].type == DATE and name.rpartition(" ")[2] in ("HOUR", "MINUTE", "SECOND"):
        raise TypeMismatch(f"{name} needs a timestamp, not date")
    if args[0].type not in (TIMESTAMP, DATE):
        raise TypeMismatch(f"{name} needs a timestamp, not {_shown(args[0].type)}")
    return (args[0].type,), INT64
