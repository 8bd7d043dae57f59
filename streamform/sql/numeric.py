"""Arithmetic and comparison: the types of results, and values exactly as Flink computes them or an error.

Where Flink loses a value without a word (an integer that wraps, a decimal that no longer fits and becomes NULL, a
float divided by zero) these functions raise ValueLost. Flink's own intermediate types are followed, because a quotient
is rounded in them before it is rounded to the declared scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from streamform.values.rows import EXACT, INTEGER_RANGES, Value, fits_decimal, round_decimal
from streamform.values.types import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    MAX_PRECISION,
    NULL,
    DataType,
    as_decimal,
)

if TYPE_CHECKING:
    from streamform.sql.expressions import Call, Expression

_DIVIDE = Context(prec=38, rounding=ROUND_HALF_UP)
MIN_DIVISION_SCALE = 6


class ValueLost(ArithmeticError):
    """Flink would lose this value without a word, or fail; the message says which."""


class TypeMismatch(ValueError):
    """The operand types have no common meaning; the message names them."""


Typing = tuple[tuple[DataType, ...], DataType]
"""The types that the operands are converted to, and the type of the result."""


def type_arithmetic(name: str, args: Sequence[Expression]) -> Typing:
    """Types of `+ - * /` over numbers: integers stay integers, decimals widen, anything with a float is float64.

    Raises: TypeMismatch for operands that are not numbers.
    """
    left, right = (arg.type for arg in args)
    for type_ in (left, right):
        if not type_.is_numeric and type_ is not NULL:
            raise TypeMismatch(f"{left} {name} {right} is not defined")
    if left is NULL or right is NULL:
        raise TypeMismatch(f"NULL in `{name}` has no type; write CAST(NULL AS type)")
    if FLOAT64 in (left, right):
        return (FLOAT64, FLOAT64), FLOAT64
    if left.is_integer and right.is_integer:
        common = INT64 if INT64 in (left, right) else INT32
        return (common, common), common
    first, second = as_decimal(left), as_decimal(right)
    digits = tuple(getattr(arg, "sum_digits", 0) for arg in args)
    return (first, second), _decimal_result(name, first, second, digits)


def _decimal_result(name: str, a: DataType, b: DataType, sum_digits: tuple[int, ...]) -> DataType:
    if name in "+-":
        scale = max(a.scale, b.scale)
        return _capped(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if name == "*":
        return _capped(a.precision + b.precision + 1, a.scale + b.scale)
    scale = min(MAX_PRECISION, max(MIN_DIVISION_SCALE, a.scale + 4))
    return _capped((sum_digits[0] or a.precision) - a.scale + b.scale + scale, scale)


def _capped(precision: int, scale: int) -> DataType:
    if scale > MAX_PRECISION:
        raise TypeMismatch(f"the result needs {scale} digits behind the point, more than {MAX_PRECISION}; CAST an operand to fewer")
    return DataType("decimal", min(MAX_PRECISION, max(1, precision)), scale)


def flink_decimal_type(name: str, a: DataType, b: DataType) -> DataType:
    """The type in which Flink computes the operation before our CAST to the declared type."""
    if name in "+-":
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    elif name == "*":
        precision, scale = a.precision + b.precision, a.scale + b.scale
    else:
        scale = max(MIN_DIVISION_SCALE, a.scale + b.precision + 1)
        precision = a.precision - a.scale + b.scale + scale
    if precision <= MAX_PRECISION:
        return DataType("decimal", precision, scale)
    whole = precision - scale
    return DataType("decimal", MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, MIN_DIVISION_SCALE)))


def type_comparison(name: str, args: Sequence[Expression]) -> Typing:
    """Types of a comparison: numbers with numbers, and otherwise equal types only.

    A number written with a point is compared with a decimal exactly, not as a float.
    Raises: TypeMismatch.
    """
    left, right = (arg.type for arg in args)
    if left is NULL or right is NULL:
        raise TypeMismatch("a comparison with NULL is never true; use IS NULL or IS NOT NULL")
    exact = [getattr(arg, "exact", None) for arg in args]
    if left.is_numeric and right.is_numeric:
        return _comparison_operands(left, right, exact), BOOLEAN
    if left == right:
        return (left, right), BOOLEAN
    raise TypeMismatch(f"{left} can't be compared with {right}")


def _comparison_operands(left: DataType, right: DataType, exact: list[Decimal | None]) -> tuple[DataType, DataType]:
    if left.is_integer and right.is_integer:
        return (INT64, INT64)
    first = literal_decimal(exact[0]) if right.is_exact and exact[0] is not None else left
    second = literal_decimal(exact[1]) if left.is_exact and exact[1] is not None else right
    if first is None or second is None or FLOAT64 in (first, second):
        return (FLOAT64, FLOAT64)
    return (as_decimal(first), as_decimal(second))


def literal_decimal(value: Decimal) -> DataType | None:
    """The narrowest decimal type that holds the number as written, or None when there is none."""
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    precision = max(len(value.as_tuple().digits) + max(0, int(exponent)), scale, 1)
    return DataType("decimal", precision, scale) if precision <= MAX_PRECISION else None


def type_logic(name: str, args: Sequence[Expression]) -> Typing:
    """Types of AND, OR and NOT: conditions only. Raises: TypeMismatch."""
    for arg in args:
        if arg.type != BOOLEAN:
            raise TypeMismatch(f"{name} needs a condition, not {'NULL' if arg.type is NULL else arg.type}")
    return (BOOLEAN,) * len(args), BOOLEAN


def type_null_test(name: str, args: Sequence[Expression]) -> Typing:
    """Types of IS NULL: anything. Raises: TypeMismatch for a bare NULL."""
    if args[0].type is NULL:
        raise TypeMismatch("NULL IS NULL has no column to test")
    return (args[0].type,), BOOLEAN


def integer_checker(type_: DataType) -> Callable[[int], int]:
    """A function that passes integers in range on and raises ValueLost for others."""
    low, high = INTEGER_RANGES[type_.kind]

    def check(value: int) -> int:
        if low <= value <= high:
            return value
        raise ValueLost(f"{value} does not fit {type_}; Flink would wrap around")

    return check


def decimal_checker(type_: DataType) -> Callable[[Decimal], Decimal]:
    """A function that rounds to the type's scale and raises ValueLost when the value does not fit."""
    precision, scale = type_.precision, type_.scale

    def check(value: Decimal) -> Decimal:
        rounded = round_decimal(value, scale)
        if fits_decimal(rounded, precision, scale):
            return rounded
        raise ValueLost(f"{value} does not fit {type_}; Flink would make it NULL")

    return check


def arithmetic_value(call: Call) -> Callable[..., Value]:
    """The function that computes this call from operands that are not NULL and already converted."""
    name = call.function.name
    if call.type.kind == "float64":
        return _FLOAT[name]
    if call.type.kind == "decimal":
        return _decimal_value(name, call)
    check = integer_checker(call.type)
    if name == "/":
        return lambda a, b: check(truncated_quotient(a, b))
    return {"+": lambda a, b: check(a + b), "-": lambda a, b: check(a - b), "*": lambda a, b: check(a * b)}[name]


def truncated_quotient(a: int, b: int) -> int:
    """The whole quotient, cut off towards zero. Raises: ValueLost for a divisor of zero."""
    if b == 0:
        raise ValueLost("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _float_quotient(a: float, b: float) -> float:
    if b == 0:
        raise ValueLost("division by zero; Flink would make it Infinity or NaN")
    return a / b


_FLOAT: dict[str, Callable[..., Value]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _float_quotient,
}


def decimal_quotient(a: DataType, b: DataType, result: DataType) -> Callable[[Decimal, Decimal], Decimal]:
    """The function that divides decimals of these types as Flink does: to 38 digits, then its own type, then the result's."""
    in_flink, declared = decimal_checker(flink_decimal_type("/", a, b)), decimal_checker(result)

    def divide(x: Decimal, y: Decimal) -> Decimal:
        if not y:
            raise ValueLost("division by zero")
        return declared(in_flink(_DIVIDE.divide(x, y)))

    return divide


def _decimal_value(name: str, call: Call) -> Callable[..., Value]:
    a, b = call.operands
    if name == "/":
        return decimal_quotient(a, b, call.type)
    compute, declared = flink_decimal_type(name, a, b), decimal_checker(call.type)
    operate = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[name]
    if compute.scale == call.type.scale:
        return lambda x, y: declared(operate(x, y))
    in_flink = decimal_checker(compute)
    return lambda x, y: declared(in_flink(operate(x, y)))
