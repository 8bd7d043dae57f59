"""FUNCTIONS: every operator and scalar function, one row each.

A row says how the function is typed, shown, computed and written for Flink. docs/sql.md is printed from it. A function
whose result depends on when it runs has no row (unsupported.py says why).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from streamform.sql import conditional as c
from streamform.sql import numeric as n
from streamform.sql import text as x
from streamform.sql import time as t
from streamform.sql import typing as ty
from streamform.values.rows import EXACT, Value, round_decimal
from streamform.values.types import BOOLEAN, FLOAT64, INT32, INT64, STRING, TIMESTAMP

if TYPE_CHECKING:
    from streamform.sql.expressions import Call

MANY = 255


class Function(Struct, frozen=True):
    """One operator or function."""

    name: str
    typing: ty.Typer
    group: str
    """Where docs/sql.md lists it."""
    about: str
    arity: tuple[int, int] = (2, 2)
    render: str = ""
    """Canonical text over the operands' texts; NAME(a, b) when empty."""
    flink: str | Callable[[Call, list[str]], str] = ""
    """Flink SQL over the operands' SQL, constants as they are written; as rendered when empty."""
    code: str | None = None
    """Python over the operands' names, for operands that are not NULL; None where `value` or `emit` computes."""
    float_code: str | None = None
    """The same where an operand is a float, whose NaN is not comparable."""
    value: Callable[[Call], Callable[..., Value]] | None = None
    """Makes the function that computes one call from operands that are not NULL."""
    emit: c.Emitter | None = None
    """Python for a function that decides about NULL itself; every other function is NULL where an operand is."""
    constants: tuple[int, ...] = ()
    """Operands that must be constants, by position."""
    check: Callable[[Call], None] | None = None
    """Refuses constants that the function can't take. Raises: ValueError."""

    def __repr__(self) -> str:
        return f"Function({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return function_named, (self.name,)

    def rendered(self, args: list[str]) -> str:
        """The call's canonical text."""
        return self.render.format(*args) if self.render else f"{self.name}({', '.join(args)})"

    def in_flink(self, call: Call, args: list[str]) -> str:
        """A call of this function in Flink SQL."""
        if callable(self.flink):
            return self.flink(call, args)
        return self.flink.format(*args) if self.flink else self.rendered(args)


def function_named(name: str) -> Function:
    """The row of this name."""
    return FUNCTIONS[name]


def _binary(name: str, typing: ty.Typer, group: str, about: str, **row: Any) -> Function:
    return Function(name, typing, group, about, render=f"({{0}} {name} {{1}})", **row)


def _comparison(name: str, code: str, about: str, flink: str = "") -> Function:
    of_floats = f"(None if {{0}} != {{0}} or {{1}} != {{1}} else {code})"
    return _binary(name, n.type_comparison, "comparison", about, flink=flink, code=code, float_code=of_floats)


def _arithmetic(name: str, about: str) -> Function:
    return _binary(name, n.type_arithmetic, "arithmetic", about, value=n.arithmetic_value)


def _test(name: str, typing: ty.Typer, about: str, emit: c.Emitter) -> Function:
    return Function(name, typing, "comparison", about, (1, 1), f"({{0}} {name})", emit=emit)


def _simple(function: Callable[..., Value]) -> Callable[[Call], Callable[..., Value]]:
    """A value maker for a function that does not depend on the call's types."""
    return lambda call: function


def _text(name: str, typing: ty.Typer, about: str, function: Callable[..., Value], arity: tuple[int, int], **row: Any) -> Function:
    return Function(name, typing, "text", about, arity, value=_simple(function), **row)


def _negated(call: Call) -> Callable[..., Value]:
    if call.type.is_integer:
        check = n.integer_checker(call.type)
        return lambda a: check(-a)
    return lambda a: a.copy_negate() if isinstance(a, Decimal) and a else -a


def _absolute(call: Call) -> Callable[..., Value]:
    check = n.integer_checker(call.type) if call.type.is_integer else None
    return (lambda a: check(abs(a))) if check else (lambda a: a.copy_abs() if isinstance(a, Decimal) else abs(a))


def _sign(call: Call) -> Callable[..., Value]:
    if call.type.kind == "decimal":
        plus, minus = round_decimal(Decimal(1), call.type.scale), round_decimal(Decimal(-1), call.type.scale)
        return lambda a: plus if a > 0 else minus if a < 0 else a
    if call.type == FLOAT64:
        return lambda a: a if a != a or a == 0 else math.copysign(1.0, a)
    return lambda a: (a > 0) - (a < 0)


def _floor(call: Call) -> Callable[..., Value]:
    return _whole(call, "ROUND_FLOOR", math.floor)


def _ceil(call: Call) -> Callable[..., Value]:
    return _whole(call, "ROUND_CEILING", math.ceil)


def _whole(call: Call, rounding: str, of_float: Callable[[float], int]) -> Callable[..., Value]:
    if call.type.kind == "decimal":
        fits = n.decimal_checker(call.type)
        return lambda a: fits(a.quantize(Decimal(1), rounding=rounding, context=EXACT))
    if call.type == FLOAT64:
        return lambda a: a if not math.isfinite(a) else float(of_float(a))
    return lambda a: a


def _round(call: Call) -> Callable[..., Value]:
    digits = getattr(call.args[1], "value", 0) if len(call.args) > 1 else 0
    quantum = Decimal(1).scaleb(-digits)
    if call.type.kind == "decimal":
        fits = n.decimal_checker(call.type)
        return lambda a, *_: a if digits >= -a.as_tuple().exponent else fits(a.quantize(quantum, rounding="ROUND_HALF_UP", context=EXACT))
    if call.type == FLOAT64:
        return lambda a, *_: (
            a if not math.isfinite(a) else float(Decimal(repr(a)).quantize(quantum, rounding="ROUND_HALF_UP", context=EXACT))
        )
    check = n.integer_checker(call.type)
    return lambda a, *_: a if digits >= 0 else check(int(Decimal(a).quantize(quantum, rounding="ROUND_HALF_UP", context=EXACT)))


def _modulo(call: Call) -> Callable[..., Value]:
    if call.type == FLOAT64:
        return _float_modulo
    if call.type.kind == "decimal":
        fits = n.decimal_checker(call.type)
        return lambda a, b: fits(EXACT.remainder(a, _divisor(b)))
    return lambda a, b: int(math.copysign(1, a)) * (abs(a) % abs(_divisor(b))) if a else a % _divisor(b)


def _divisor(b: Any) -> Any:
    if not b:
        raise n.ValueLost("division by zero")
    return b


def _float_modulo(a: float, b: float) -> float:
    if b == 0 or not math.isfinite(a):
        raise n.ValueLost("division by zero; Flink would make it NaN")
    return math.fmod(a, b)


MAX_EXPONENT = 16


def _power(call: Call) -> Callable[..., Value]:
    """Products, because the last digit of a general power depends on the machine."""

    def power(a: float, exponent: Any) -> float:
        result = math.prod([a] * abs(int(exponent)))
        if exponent < 0:
            result = 1.0 / result if result else math.inf
        if not math.isfinite(result):
            raise n.ValueLost(f"{a} to the power of {exponent} is no finite number; Flink would make it Infinity")
        return result

    return power


def _power_in_flink(call: Call, args: list[str]) -> str:
    base, exponent = args[0], int(args[1])
    product = "(" + " * ".join([base] * abs(exponent)) + ")"
    return product if exponent > 0 else f"(CAST(1 AS DOUBLE) / {product})"


def _check_exponent(exponent: Any) -> None:
    if not isinstance(exponent, int) or not 1 <= abs(exponent) <= MAX_EXPONENT:
        raise ValueError(
            f"POWER takes a whole exponent from 1 to {MAX_EXPONENT} or its negative; other powers differ from machine to machine"
        )


def _shift(call: Call, sign: int) -> Callable[..., Value]:
    moves: dict[tuple[str, str], Callable[[int, int], int]] = {
        ("timestamp", "interval"): t.add_ms,
        ("timestamp", "months"): t.add_months,
        ("date", "interval"): t.add_ms_to_date,
        ("date", "months"): t.add_months_to_date,
    }
    move = moves[call.operands[0].kind, call.operands[1].kind]
    return move if sign > 0 else lambda moment, length: move(moment, -length)


def _time_part(unit: str) -> Callable[[Call], Callable[..., Value]]:
    return lambda call: t.part_of_date(unit) if call.operands[0].kind == "date" else t.part_of_timestamp(unit)


def _timestamp_add(unit: str) -> Callable[[Call], Callable[..., Value]]:
    if unit in t.UNIT_MS:
        return lambda call: lambda number, moment: t.add_ms(moment, number * t.UNIT_MS[unit])
    return lambda call: lambda number, moment: t.add_months(moment, number * t.UNIT_MONTHS[unit])


def _day_part_in_flink(unit: str) -> Callable[[Call, list[str]], str]:
    """Of a timestamp's day, since Flink takes the next day for times of the day before 1970."""
    whole = {"timestamp": f"EXTRACT({unit} FROM FLOOR({{0}} TO DAY))", "date": f"EXTRACT({unit} FROM {{0}})"}
    return lambda call, args: whole[call.operands[0].kind].format(*args)


def _ceil_in_flink(unit: str) -> str:
    """Flink's CEIL takes the wrong quarter for the first of October, and forgets the time of the day on the first of a month."""
    floor = f"FLOOR({{0}} TO {unit})"
    return f"CASE WHEN {floor} = {{0}} THEN {{0}} ELSE {floor} + INTERVAL '{t.UNIT_MONTHS[unit]}' MONTH END"


def _time_rows() -> list[Function]:
    """The rows that exist once for each unit of time."""
    rows: list[Function] = []
    for unit in t.PARTS:
        about = f"The {unit.lower()} of a timestamp or date." if unit not in ("DOW", "DOY") else _DAYS[unit]
        rows.append(
            Function(
                f"EXTRACT {unit}",
                ty.type_time_part,
                "time",
                about,
                (1, 1),
                f"EXTRACT({unit} FROM {{0}})",
                _day_part_in_flink(unit) if unit in t.DAY_PARTS else "",
                value=_time_part(unit),
            )
        )
    moment = ty.signature(TIMESTAMP, result=TIMESTAMP)
    for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR"):
        for kind, about, compute in (("FLOOR", "beginning of the", t.floor_to), ("CEIL", "beginning of the next", t.ceil_to)):
            shown = f"{kind}({{0}} TO {unit})"
            text = f"The {about} {unit.lower()}."
            flink = _ceil_in_flink(unit) if kind == "CEIL" and unit in t.UNIT_MONTHS else ""
            rows.append(Function(f"{kind} TO {unit}", moment, "time", text, (1, 1), shown, flink, value=_simple(compute(unit))))
    moved, between = ty.signature(INT64, TIMESTAMP, result=TIMESTAMP), ty.signature(TIMESTAMP, TIMESTAMP, result=INT32)
    for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR"):
        add, diff = f"TIMESTAMPADD({unit}, {{0}}, {{1}})", f"TIMESTAMPDIFF({unit}, {{0}}, {{1}})"
        rows.append(
            Function(
                f"TIMESTAMPADD {unit}", moved, "time", f"A timestamp moved by {unit.lower()}s.", (2, 2), add, value=_timestamp_add(unit)
            )
        )
        about = f"Whole {unit.lower()}s from the first timestamp to the second."
        rows.append(Function(f"TIMESTAMPDIFF {unit}", between, "time", about, (2, 2), diff, value=_simple(t.difference(unit))))
    return rows


_DAYS = {"DOW": "The day of the week, 1 for Sunday.", "DOY": "The day of the year, from 1."}


def _constant(call: Call, position: int) -> Any:
    return getattr(call.args[position], "value", None)


_ROWS: tuple[Function, ...] = (
    _arithmetic("+", "Sum. Whole numbers that do not fit are an error."),
    _arithmetic("-", "Difference."),
    _arithmetic("*", "Product."),
    _arithmetic("/", "Quotient; of whole numbers a whole number, cut off towards zero. Division by zero is an error."),
    _binary(
        "%",
        ty.type_modulo,
        "arithmetic",
        "Remainder, with the sign of the first operand. Also MOD(a, b).",
        value=_modulo,
        flink="MOD({0}, {1})",
    ),
    Function("NEGATE", ty.type_same_number, "arithmetic", "The number with the other sign.", (1, 1), "(- {0})", value=_negated),
    _comparison("=", "({0} == {1})", "Equal."),
    _comparison("!=", "({0} != {1})", "Not equal; also written <>.", "({0} <> {1})"),
    _comparison("<", "({0} < {1})", "Less. Text is compared by code points."),
    _comparison("<=", "({0} <= {1})", "Less or equal."),
    _comparison(">", "({0} > {1})", "Greater."),
    _comparison(">=", "({0} >= {1})", "Greater or equal."),
    _binary("AND", n.type_logic, "logic", "Both. The right side is not evaluated where the left is false.", emit=c.emit_and),
    _binary("OR", n.type_logic, "logic", "At least one. The right side is not evaluated where the left is true.", emit=c.emit_or),
    Function("NOT", n.type_logic, "logic", "The opposite.", (1, 1), "(NOT {0})", code="(not {0})"),
    _test("IS NULL", n.type_null_test, "Whether there is no value.", c.emit_test("is None")),
    _test("IS NOT NULL", n.type_null_test, "Whether there is a value.", c.emit_test("is not None")),
    _test("IS TRUE", ty.type_truth, "True, not false and not NULL.", c.emit_test("is True")),
    _test("IS NOT TRUE", ty.type_truth, "False or NULL.", c.emit_test("is not True")),
    _test("IS FALSE", ty.type_truth, "False, not true and not NULL.", c.emit_test("is False")),
    _test("IS NOT FALSE", ty.type_truth, "True or NULL.", c.emit_test("is not False")),
    _binary("IS DISTINCT FROM", ty.type_same, "comparison", "Not equal, where NULL equals NULL.", emit=c.emit_distinct("!=")),
    _binary("IS NOT DISTINCT FROM", ty.type_same, "comparison", "Equal, where NULL equals NULL.", emit=c.emit_distinct("==")),
    Function("IN", ty.type_same, "comparison", "Whether the first operand is one of the constants.", (2, MANY), emit=c.emit_in),
    Function(
        "CASE",
        ty.type_case,
        "conditional",
        "The value of the first condition that is true. IF(c, a, b) and NULLIF(a, b) are CASE.",
        (3, MANY),
        emit=c.emit_case,
    ),
    Function(
        "COALESCE",
        ty.type_branches,
        "conditional",
        "The first operand that is not NULL. Also IFNULL(a, b).",
        (1, MANY),
        emit=c.emit_coalesce,
    ),
    Function("GREATEST", ty.type_extremes, "conditional", "The largest operand, NULL where one is.", (1, MANY), emit=c.emit_extreme("max")),
    Function("LEAST", ty.type_extremes, "conditional", "The smallest operand, NULL where one is.", (1, MANY), emit=c.emit_extreme("min")),
    Function("ABS", ty.type_same_number, "arithmetic", "Without sign.", (1, 1), value=_absolute),
    Function("SIGN", ty.type_same_number, "arithmetic", "-1, 0 or 1.", (1, 1), value=_sign),
    Function("FLOOR", ty.type_whole, "arithmetic", "The largest whole number not above.", (1, 1), value=_floor),
    Function("CEIL", ty.type_whole, "arithmetic", "The smallest whole number not below.", (1, 1), value=_ceil),
    Function(
        "ROUND",
        ty.type_round,
        "arithmetic",
        "Rounded half away from zero, to a constant number of digits.",
        (1, 2),
        value=_round,
        constants=(1,),
    ),
    Function(
        "POWER",
        ty.signature(FLOAT64, INT64, result=FLOAT64),
        "arithmetic",
        f"The first operand to the power of the second, a whole constant from 1 to {MAX_EXPONENT} or its negative.",
        flink=_power_in_flink,
        value=_power,
        constants=(1,),
        check=lambda call: _check_exponent(_constant(call, 1)),
    ),
    _text("UPPER", ty.signature(STRING, result=STRING), "In upper case.", str.upper, (1, 1)),
    _text("LOWER", ty.signature(STRING, result=STRING), "In lower case.", str.lower, (1, 1)),
    _text("INITCAP", ty.signature(STRING, result=STRING), "Each word with its first letter in upper case.", x.capitalized, (1, 1)),
    _text("CHAR_LENGTH", ty.signature(STRING, result=INT32), "How many characters.", len, (1, 1)),
    _text("SUBSTRING", ty.signature(STRING, INT32, INT32, result=STRING), "The part from a position on, of a length.", x.substring, (2, 3)),
    _text("LEFT", ty.signature(STRING, INT32, result=STRING), "The first characters.", x.left, (2, 2)),
    _text("RIGHT", ty.signature(STRING, INT32, result=STRING), "The last characters.", x.right, (2, 2)),
    _text(
        "POSITION",
        ty.signature(STRING, STRING, result=INT32),
        "Where the first operand begins in the second, 0 for nowhere.",
        x.position,
        (2, 2),
        render="POSITION({0} IN {1})",
    ),
    _text("REPLACE", ty.signature(STRING, STRING, STRING, result=STRING), "Every occurrence replaced.", x.replaced, (3, 3)),
    _text("REVERSE", ty.signature(STRING, result=STRING), "From back to front.", lambda a: a[::-1], (1, 1)),
    _text("REPEAT", ty.signature(STRING, INT32, result=STRING), "So many times.", x.repeat, (2, 2)),
    _text("LPAD", ty.signature(STRING, INT32, STRING, result=STRING), "Filled from the left, or cut, to a length.", x.pad_left, (3, 3)),
    _text("RPAD", ty.signature(STRING, INT32, STRING, result=STRING), "Filled from the right, or cut, to a length.", x.pad_right, (3, 3)),
    _text(
        "TRIM BOTH",
        ty.signature(STRING, STRING, result=STRING),
        "Without the characters at both ends. Also TRIM(a).",
        x.trimmer("BOTH"),
        (2, 2),
        render="TRIM(BOTH {1} FROM {0})",
    ),
    _text(
        "TRIM LEADING",
        ty.signature(STRING, STRING, result=STRING),
        "Without the characters at the beginning. Also LTRIM(a).",
        x.trimmer("LEADING"),
        (2, 2),
        render="TRIM(LEADING {1} FROM {0})",
    ),
    _text(
        "TRIM TRAILING",
        ty.signature(STRING, STRING, result=STRING),
        "Without the characters at the end. Also RTRIM(a).",
        x.trimmer("TRAILING"),
        (2, 2),
        render="TRIM(TRAILING {1} FROM {0})",
    ),
    _text(
        "CONCAT",
        ty.signature(STRING, result=STRING, rest=STRING),
        "One after the other; also a || b.",
        lambda *parts: "".join(parts),
        (1, MANY),
    ),
    _text(
        "LIKE",
        ty.signature(STRING, STRING, STRING, result=BOOLEAN),
        "Whether the text matches; % is any text, _ any character.",
        x.like,
        (2, 2),
        render="({0} LIKE {1})",
        constants=(1,),
    ),
    _text(
        "LIKE ESCAPE",
        ty.signature(STRING, STRING, STRING, result=BOOLEAN),
        "The same with an escape character.",
        x.like,
        (3, 3),
        render="({0} LIKE {1} ESCAPE {2})",
        constants=(1, 2),
        check=lambda call: _check_escape(_constant(call, 2)),
    ),
    _text(
        "REGEXP_EXTRACT",
        ty.signature(STRING, STRING, INT32, result=STRING),
        "A group of the first match.",
        x.regexp_extract,
        (2, 3),
        constants=(1, 2),
        check=lambda call: _check_pattern(_constant(call, 1)),
    ),
    _text(
        "REGEXP_REPLACE",
        ty.signature(STRING, STRING, STRING, result=STRING),
        "Every match replaced.",
        x.regexp_replace,
        (3, 3),
        constants=(1,),
        check=lambda call: _check_pattern(_constant(call, 1)),
    ),
    _text("SPLIT_INDEX", ty.signature(STRING, STRING, INT32, result=STRING), "The piece of this number, from 0.", x.split_index, (3, 3)),
    _text("MD5", ty.signature(STRING, result=STRING), "The MD5 of the text in UTF-8, in hex.", x.md5, (1, 1)),
    _text("SHA256", ty.signature(STRING, result=STRING), "The SHA-256 of the text in UTF-8, in hex.", x.sha256, (1, 1)),
    _text(
        "JSON_VALUE",
        ty.signature(STRING, STRING, result=STRING),
        "The scalar at a path such as $.a[0].b, as text.",
        x.json_value,
        (2, 2),
        constants=(1,),
        check=lambda call: _check_path(_constant(call, 1)),
    ),
    Function(
        "+ INTERVAL",
        ty.type_shift,
        "time",
        "A timestamp or date moved forward.",
        render="({0} + {1})",
        value=lambda call: _shift(call, 1),
        constants=(1,),
    ),
    Function(
        "- INTERVAL",
        ty.type_shift,
        "time",
        "A timestamp or date moved back.",
        render="({0} - {1})",
        value=lambda call: _shift(call, -1),
        constants=(1,),
    ),
    Function(
        "DATE_FORMAT",
        ty.signature(TIMESTAMP, STRING, result=STRING),
        "time",
        "The timestamp as a pattern such as yyyy-MM-dd HH:mm:ss writes it.",
        (2, 2),
        value=_simple(t.date_format),
        constants=(1,),
        check=lambda call: _check_format(_constant(call, 1)),
    ),
    *_time_rows(),
)


def _check_escape(escape: Any) -> None:
    if not isinstance(escape, str) or len(escape) != 1:
        raise ValueError("ESCAPE takes one character")


def _check_pattern(pattern: Any) -> None:
    if isinstance(pattern, str):
        x.portable_pattern(pattern)


def _check_path(path: Any) -> None:
    if isinstance(path, str):
        x.json_path(path)


def _check_format(pattern: Any) -> None:
    if isinstance(pattern, str):
        t.format_parts(pattern)


FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}

ALIASES: dict[str, str] = {
    "MOD": "%",
    "IFNULL": "COALESCE",
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "SUBSTR": "SUBSTRING",
    "CEILING": "CEIL",
    "YEAR": "EXTRACT YEAR",
    "QUARTER": "EXTRACT QUARTER",
    "MONTH": "EXTRACT MONTH",
    "WEEK": "EXTRACT WEEK",
    "DAYOFMONTH": "EXTRACT DAY",
    "DAYOFYEAR": "EXTRACT DOY",
    "DAYOFWEEK": "EXTRACT DOW",
    "HOUR": "EXTRACT HOUR",
    "MINUTE": "EXTRACT MINUTE",
    "SECOND": "EXTRACT SECOND",
}
"""Other names that functions are called by."""

OPERATOR_NODES: dict[str, str] = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "EQ": "=",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "And": "AND",
    "Or": "OR",
    "DPipe": "CONCAT",
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
}
"""The parser's class for each binary operator."""

CALLABLE_NAMES = frozenset(
    {name for name in FUNCTIONS if name.replace("_", "").isalnum()}
    | set(ALIASES)
    | {"IF", "NULLIF", "LTRIM", "RTRIM", "TIMESTAMPADD", "TIMESTAMPDIFF"}
) - {"IN", "CASE", "LIKE", "NOT", "AND", "OR"}
"""Names that a query calls as NAME(..)."""
