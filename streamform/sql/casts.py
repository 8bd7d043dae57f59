"""CAST: which conversions exist, and their values as Flink computes them or an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from streamform.sql.numeric import ValueLost, decimal_checker, integer_checker
from streamform.sql.time import DAY_MS
from streamform.values.instants import parse_date, parse_file_instant, render_date, render_file_instant
from streamform.values.rows import Value
from streamform.values.types import DataType

Converter = Callable[[Any], Value]

_INTEGER_TEXT = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TRUE_TEXT, _FALSE_TEXT = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


def _identity(source: DataType, target: DataType) -> Converter:
    return lambda value: value


def _integer_to_integer(source: DataType, target: DataType) -> Converter:
    return integer_checker(target)


def _integer_to_decimal(source: DataType, target: DataType) -> Converter:
    check = decimal_checker(target)
    return lambda value: check(Decimal(value))


def _number_to_float(source: DataType, target: DataType) -> Converter:
    return float


def _number_to_boolean(source: DataType, target: DataType) -> Converter:
    return lambda value: value != 0


def _number_to_integer(source: DataType, target: DataType) -> Converter:
    check = integer_checker(target)

    def truncate(value: float | Decimal) -> int:
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueLost(f"{value} has no value as {target}; Flink would make it 0 or the largest integer")
        return check(int(value))

    return truncate


def _decimal_to_decimal(source: DataType, target: DataType) -> Converter:
    return decimal_checker(target)


def _float_to_decimal(source: DataType, target: DataType) -> Converter:
    check = decimal_checker(target)

    def convert(value: float) -> Decimal:
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueLost(f"{value} has no value as {target}; Flink would fail")
        return check(Decimal(repr(value)))

    return convert


def _boolean_to_number(source: DataType, target: DataType) -> Converter:
    if target.kind == "decimal":
        check = decimal_checker(target)
        return lambda value: check(Decimal(int(value)))
    return (lambda value: float(value)) if target.kind == "float64" else (lambda value: int(value))


def _text_to_integer(source: DataType, target: DataType) -> Converter:
    check = integer_checker(target)

    def convert(value: str) -> int:
        text = value.strip()
        if not _INTEGER_TEXT.fullmatch(text):
            raise ValueLost(f"'{value}' is not {target}; Flink would fail")
        return check(int(text.split(".", 1)[0]))

    return convert


def _text_to_decimal(source: DataType, target: DataType) -> Converter:
    check = decimal_checker(target)

    def convert(value: str) -> Decimal:
        text = value.strip()
        if not _DECIMAL_TEXT.fullmatch(text):
            raise ValueLost(f"'{value}' is not {target}; Flink would fail")
        return check(Decimal(text))

    return convert


def _text_to_float(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> float:
        if not _DECIMAL_TEXT.fullmatch(value.strip()):
            raise ValueLost(f"'{value}' is not {target}; Flink would fail")
        return float(value)

    return convert


def _text_to_boolean(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> bool:
        text = value.strip().lower()
        if text not in _TRUE_TEXT | _FALSE_TEXT:
            raise ValueLost(f"'{value}' is not {target}; Flink would fail")
        return text in _TRUE_TEXT

    return convert


def _text_to_timestamp(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> int:
        try:
            return parse_file_instant(value.strip())
        except ValueError:
            raise ValueLost(f"'{value}' is not {target}; Flink would fail") from None

    return convert


def _boolean_to_text(source: DataType, target: DataType) -> Converter:
    return lambda value: "TRUE" if value else "FALSE"


def _integer_to_text(source: DataType, target: DataType) -> Converter:
    return str


def _decimal_to_text(source: DataType, target: DataType) -> Converter:
    return lambda value: format(value, "f")


def _timestamp_to_text(source: DataType, target: DataType) -> Converter:
    return lambda value: render_file_instant(value).replace("T", " ").ljust(19, "0") + _fraction(value)


def _fraction(instant_ms: int) -> str:
    return "" if "." in render_file_instant(instant_ms) else ".000"


def _text_to_date(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> int:
        try:
            return parse_date(value.strip())
        except ValueError:
            raise ValueLost(f"'{value}' is not {target}; Flink would fail") from None

    return convert


def _timestamp_to_date(source: DataType, target: DataType) -> Converter:
    return lambda value: value // DAY_MS


def _date_to_timestamp(source: DataType, target: DataType) -> Converter:
    return lambda value: value * DAY_MS


def _date_to_text(source: DataType, target: DataType) -> Converter:
    return render_date


CASTS: dict[tuple[str, str], Callable[[DataType, DataType], Converter]] = {
    ("int32", "int32"): _identity,
    ("int32", "int64"): _identity,
    ("int64", "int64"): _identity,
    ("int64", "int32"): _integer_to_integer,
    ("int32", "decimal"): _integer_to_decimal,
    ("int64", "decimal"): _integer_to_decimal,
    ("int32", "float64"): _number_to_float,
    ("int64", "float64"): _number_to_float,
    ("int32", "boolean"): _number_to_boolean,
    ("int64", "boolean"): _number_to_boolean,
    ("int32", "string"): _integer_to_text,
    ("int64", "string"): _integer_to_text,
    ("decimal", "int32"): _number_to_integer,
    ("decimal", "int64"): _number_to_integer,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "float64"): _number_to_float,
    ("decimal", "boolean"): _number_to_boolean,
    ("decimal", "string"): _decimal_to_text,
    ("float64", "int32"): _number_to_integer,
    ("float64", "int64"): _number_to_integer,
    ("float64", "decimal"): _float_to_decimal,
    ("float64", "float64"): _identity,
    ("float64", "boolean"): _number_to_boolean,
    ("boolean", "int32"): _boolean_to_number,
    ("boolean", "int64"): _boolean_to_number,
    ("boolean", "decimal"): _boolean_to_number,
    ("boolean", "float64"): _boolean_to_number,
    ("boolean", "boolean"): _identity,
    ("boolean", "string"): _boolean_to_text,
    ("string", "int32"): _text_to_integer,
    ("string", "int64"): _text_to_integer,
    ("string", "decimal"): _text_to_decimal,
    ("string", "float64"): _text_to_float,
    ("string", "boolean"): _text_to_boolean,
    ("string", "string"): _identity,
    ("string", "timestamp"): _text_to_timestamp,
    ("timestamp", "timestamp"): _identity,
    ("timestamp", "string"): _timestamp_to_text,
    ("timestamp", "int64"): _identity,
    ("timestamp", "date"): _timestamp_to_date,
    ("date", "timestamp"): _date_to_timestamp,
    ("date", "date"): _identity,
    ("date", "string"): _date_to_text,
    ("string", "date"): _text_to_date,
}
"""Every conversion that exists, by kind of operand and kind of result. NULL becomes NULL of any type."""


def is_castable(source: DataType, target: DataType) -> bool:
    """Whether CAST from one type to the other exists."""
    return source.kind == "null" or (source.kind, target.kind) in CASTS


def converter(source: DataType, target: DataType) -> Converter | None:
    """The function that converts values that are not NULL, or None where nothing has to be done."""
    if source == target or source.kind == "null":
        return None
    make = CASTS[source.kind, target.kind]
    return None if make is _identity else make(source, target)


def safely(convert: Converter, source: DataType) -> Converter:
    """TRY_CAST's conversion: text that is no such value becomes NULL; a number that Flink would wrap stays an error."""

    def attempt(value: Any) -> Value:
        try:
            return convert(value)
        except ValueLost as lost:
            if source.kind == "string" or "NULL" in str(lost):
                return None
            raise

    return attempt
