"""Rows: schemas, and how values written in documents and files become the values operators compute with.

A row is a tuple of Python values in schema order: int for int32, int64 and timestamp (milliseconds), Decimal for
decimal, float, str, bool, and None for NULL. Nothing turns a decimal into a float on its way in or out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from msgspec import Struct

from streamform.values.instants import parse_date, parse_file_instant, parse_instant, render_date, render_file_instant, render_instant
from streamform.values.types import DataType

Value = int | float | Decimal | str | bool | None
Row = tuple[Value, ...]

INTEGER_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

EXACT = Context(prec=120)
"""Wide enough that no sum or product of two 38-digit decimals is rounded."""

_NUMBER_TEXT = re.compile(r" *[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,9})? *", re.ASCII)
"""A number as text: Python would also take underscores, other scripts' digits, and words for what is no number."""

_QUANTA = tuple(Decimal(1).scaleb(-scale) for scale in range(39))
_LIMITS = tuple(Decimal(10) ** digits for digits in range(39))


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """One column of a schema."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


Schema = tuple[Column, ...]


def render_schema(schema: Schema) -> str:
    """`[name: type, ..]`, the text whose SHA-256 is the schema digest."""
    return "[" + ", ".join(map(str, schema)) + "]"


def fits_decimal(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a value that already has this scale has no more than `precision` digits."""
    return value.copy_abs() < _LIMITS[precision - scale]


def round_decimal(value: Decimal, scale: int) -> Decimal:
    """The value with exactly this scale, half away from zero, as Flink rounds; zero has no sign."""
    rounded = value.quantize(_QUANTA[scale], rounding=ROUND_HALF_UP, context=EXACT)
    return rounded or rounded.copy_abs()


def render_value(value: Value) -> str:
    """The value as text in tables and messages: NULL, true, 1.5, and strings as they are."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return render_decimal(value) if isinstance(value, Decimal) else str(value)


def render_decimal(value: Decimal) -> str:
    """Plain digits without trailing zeros: 1.50 is `1.5`, 1E+2 is `100`, 0.00 is `0`."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def document_value(value: Value, type_: DataType) -> object:
    """The value as test reports hold it: decimals and instants as text, everything else as it is."""
    if value is None:
        return None
    if type_.kind == "decimal":
        return render_decimal(value) if isinstance(value, Decimal) else value
    if type_.kind == "timestamp" and isinstance(value, int):
        return render_instant(value)
    if type_.kind == "date" and isinstance(value, int):
        return render_date(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def parse_document_value(raw: object, type_: DataType) -> Value:
    """The value that a fixture gives a column of this type; the fixture's numbers kept their text as Decimal.

    Raises: ValueError without a message when it is not one; the caller names the column and the type.
    """
    if raw is None:
        return None
    kind = type_.kind
    if kind == "string" and isinstance(raw, str):
        return raw
    if kind == "boolean" and isinstance(raw, bool):
        return raw
    if isinstance(raw, bool):
        raise ValueError
    if type_.is_integer and isinstance(raw, (int, Decimal)):
        return _integer(raw, kind)
    if kind == "float64" and isinstance(raw, (int, Decimal, float)):
        return _float(raw)
    if kind == "decimal" and isinstance(raw, (int, Decimal, str)):
        return _exact_decimal(raw, type_)
    if kind == "timestamp" and isinstance(raw, str):
        return parse_instant(raw)
    if kind == "timestamp" and isinstance(raw, int):
        return _integer(raw, "int64")
    if kind == "date" and isinstance(raw, str):
        return parse_date(raw)
    raise ValueError


def _integer(raw: int | Decimal, kind: str) -> int:
    if isinstance(raw, Decimal) and (not raw.is_finite() or raw.adjusted() > 20 or raw != raw.to_integral_value()):
        raise ValueError
    low, high = INTEGER_RANGES[kind]
    value = int(raw)
    if not low <= value <= high:
        raise ValueError
    return value


def _float(raw: int | Decimal | float) -> float:
    value = float(raw)
    if math.isinf(value) and not isinstance(raw, float):
        raise ValueError
    return value


def _decimal(raw: int | Decimal | str) -> Decimal:
    if isinstance(raw, str) and not _NUMBER_TEXT.fullmatch(raw):
        raise ValueError
    return Decimal(raw)


def _exact_decimal(raw: int | Decimal | str, type_: DataType) -> Decimal:
    try:
        value = _decimal(raw)
        rounded = round_decimal(value, type_.scale)
    except InvalidOperation:
        raise ValueError from None
    if not value.is_finite() or rounded != value or not fits_decimal(rounded, type_.precision, type_.scale):
        raise ValueError
    return rounded


def file_parser(type_: DataType) -> Callable[[object], Value]:
    """A function from a decoded JSON value to a value of this type, as Flink's JSON format reads it or loud.

    Where Flink would lose the value without a word (a decimal that does not fit becomes NULL, a fraction in an integer
    column is cut off) the function raises ValueError.
    """
    kind = type_.kind
    if type_.is_integer:
        low, high = INTEGER_RANGES[kind]
        return lambda raw: _file_integer(raw, low, high)
    if kind == "decimal":
        return lambda raw: _file_decimal(raw, type_)
    return _FILE_PARSERS[kind]


def _file_integer(raw: object, low: int, high: int) -> int | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        raw = int(raw.strip()) if raw.strip().lstrip("+-").isdecimal() else raw
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= high:
        raise ValueError
    return raw


def _file_decimal(raw: object, type_: DataType) -> Decimal | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, (int, Decimal, str)):
        raise ValueError
    try:
        value = round_decimal(_decimal(raw), type_.scale)
    except InvalidOperation:
        raise ValueError from None
    if not fits_decimal(value, type_.precision, type_.scale):
        raise ValueError
    return value


def _file_float(raw: object) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, (int, Decimal, float, str)):
        raise ValueError
    return _float(_decimal(raw) if isinstance(raw, str) else raw)


def _file_string(raw: object) -> str | None:
    if raw is None or isinstance(raw, str):
        return raw
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, (int, Decimal)):
        return str(raw)
    raise ValueError


def _file_boolean(raw: object) -> bool | None:
    if raw is None or isinstance(raw, bool):
        return raw
    raise ValueError


def _file_timestamp(raw: object) -> int | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        raise ValueError
    return parse_file_instant(raw)


_FILE_PARSERS: dict[str, Callable[[object], Value]] = {
    "float64": _file_float,
    "string": _file_string,
    "boolean": _file_boolean,
    "timestamp": _file_timestamp,
}


def file_value(value: Value, type_: DataType) -> object:
    """The value as sinks write it: instants in Flink's zone-less form, decimals exact (the writer keeps their digits)."""
    if type_.kind == "timestamp" and isinstance(value, int):
        return render_file_instant(value)
    return render_date(value) if type_.kind == "date" and isinstance(value, int) else value
