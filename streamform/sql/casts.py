"""CAST: which conversions exist, and their values as Flink computes them or an error."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

from streamform.sql.numeric import ValueLost, decimal_checker, integer_checker
from streamform.sql.time import DAY_MS
from streamform.values.instants import render_date, render_file_instant
from streamform.values.rows import Value
from streamform.values.types import DataType

Converter = Callable[[Any], Value]

_EPOCH_DAY = date(1970, 1, 1).toordinal()

_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's trim() takes away."""
_INTEGER_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d*)", re.ASCII)
_FLOAT_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
_FLOAT_LOST = re.compile(r"[+-]?(NaN|Infinity|0[xX][0-9a-fA-F.]+[pP][+-]?\d+[dDfF]?)", re.ASCII)
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?")
_TRUE_TEXT, _FALSE_TEXT = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_TIMESTAMP_TEXT = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"( (?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(\.(?P<fraction>\d{0,9}))?)?",
    re.ASCII,
)
_DIGITS = re.compile(r"\d{1,9}", re.ASCII)


class NoValue(ValueLost):
    """A text that is no value of the type, for which TRY_CAST is NULL."""

    def __init__(self, value: str, target: DataType) -> None:
        super().__init__(f"'{value}' is not {target}; Flink would fail")


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
        text = value.strip(" ")
        if not _INTEGER_TEXT.fullmatch(text):
            raise NoValue(value, target)
        try:
            return check(int(text.split(".", 1)[0].removeprefix("+").removeprefix("-") or "0") * (-1 if text.startswith("-") else 1))
        except ValueLost:
            raise NoValue(value, target) from None

    return convert


def _text_to_decimal(source: DataType, target: DataType) -> Converter:
    check = decimal_checker(target)

    def convert(value: str) -> Decimal:
        text = value.strip(_BLANKS)
        if not _DECIMAL_TEXT.fullmatch(text):
            raise NoValue(value, target)
        number = Decimal(text)
        return Decimal((0, (0,), -target.scale)) if number.adjusted() < -target.scale - 1 else check(number)

    return convert


def _text_to_float(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> float:
        text = value.strip(_BLANKS)
        if _FLOAT_LOST.fullmatch(text):
            raise ValueLost(f"'{value}' is not a finite decimal number; Flink would take it")
        if not _FLOAT_TEXT.fullmatch(text):
            raise NoValue(value, target)
        number = float(text.rstrip("dDfF"))
        if number in (float("inf"), float("-inf")):
            raise ValueLost(f"'{value}' does not fit {target}; Flink would make it Infinity")
        return number

    return convert


def _text_to_boolean(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> bool:
        text = value.lower()
        if text not in _TRUE_TEXT | _FALSE_TEXT:
            raise NoValue(value, target)
        return text in _TRUE_TEXT

    return convert


def _text_to_timestamp(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> int:
        match = _TIMESTAMP_TEXT.fullmatch(value)
        if match is None:
            if value.startswith("+"):
                raise ValueLost(f"'{value}' is not {target}; Flink would read another year")
            raise NoValue(value, target)
        year, month, day, hour, minute, second = (int(match[part] or 0) for part in ("year", "month", "day", "hour", "minute", "second"))
        if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute <= 59 and second <= 59 and year):
            raise NoValue(value, target)
        if hour == 24 or day > calendar.monthrange(year, month)[1]:
            raise ValueLost(f"'{value}' is no day and time; Flink would take the nearest")
        ms = int((match["fraction"] or "").ljust(3, "0")[:3])
        return (date(year, month, day).toordinal() - _EPOCH_DAY) * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + ms

    return convert


def _boolean_to_text(source: DataType, target: DataType) -> Converter:
    return lambda value: "TRUE" if value else "FALSE"


def _integer_to_text(source: DataType, target: DataType) -> Converter:
    return str


def _decimal_to_text(source: DataType, target: DataType) -> Converter:
    return lambda value: format(value, "f")


def _timestamp_to_text(source: DataType, target: DataType) -> Converter:
    def convert(value: int) -> str:
        text = render_file_instant(value).replace("T", " ")
        return text + ".000" if len(text) == 19 else text.ljust(23, "0")

    return convert


def _text_to_date(source: DataType, target: DataType) -> Converter:
    def convert(value: str) -> int:
        text = value[: value.find(" ")] if value.find(" ") > 0 else value
        parts = [part.strip(_BLANKS) for part in text.split("-", 2)]
        if not all(_DIGITS.fullmatch(part) for part in parts):
            raise NoValue(value, target)
        year, month, day = (int(part) for part in (*parts, "1", "1")[:3])
        if not (year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31) or (year and day > calendar.monthrange(year, month)[1]):
            raise NoValue(value, target)
        if not year:
            raise ValueLost(f"'{value}' is before the year 1")
        return date(year, month, day).toordinal() - _EPOCH_DAY

    return convert


def _timestamp_to_date(source: DataType, target: DataType) -> Converter:
    return lambda value: value // DAY_MS


def _date_to_timestamp(source: DataType, target: DataType) -> Converter:
    return lambda value: value * DAY_MS


def _date_to_text(source: DataType, target: DataType) -> Converter:
    return render_date


_EPOCH_MILLISECONDS = (
    "(CAST(TIMESTAMPDIFF(DAY, TIMESTAMP '1970-01-01 00:00:00', FLOOR({0} TO DAY)) AS BIGINT) * 86400000"
    " + TIMESTAMPDIFF(SECOND, FLOOR({0} TO DAY), FLOOR({0} TO SECOND)) * 1000 + CAST(SUBSTRING(CAST({0} AS STRING), 21, 3) AS INT))"
)


class Conversion(NamedTuple):
    """One row: how values are converted, and what Flink is asked to compute over {0}, the operand's SQL."""

    make: Callable[[DataType, DataType], Converter]
    flink: str = "{cast}({0} AS {type})"


CASTS: dict[tuple[str, str], Conversion] = {
    ("int32", "int32"): Conversion(_identity),
    ("int32", "int64"): Conversion(_identity),
    ("int64", "int64"): Conversion(_identity),
    ("int64", "int32"): Conversion(_integer_to_integer),
    ("int32", "decimal"): Conversion(_integer_to_decimal),
    ("int64", "decimal"): Conversion(_integer_to_decimal),
    ("int32", "float64"): Conversion(_number_to_float),
    ("int64", "float64"): Conversion(_number_to_float),
    ("int32", "boolean"): Conversion(_number_to_boolean),
    ("int64", "boolean"): Conversion(_number_to_boolean),
    ("int32", "string"): Conversion(_integer_to_text),
    ("int64", "string"): Conversion(_integer_to_text),
    ("decimal", "int32"): Conversion(_number_to_integer),
    ("decimal", "int64"): Conversion(_number_to_integer),
    ("decimal", "decimal"): Conversion(_decimal_to_decimal),
    ("decimal", "float64"): Conversion(_number_to_float),
    ("decimal", "boolean"): Conversion(_number_to_boolean),
    ("decimal", "string"): Conversion(_decimal_to_text),
    ("float64", "int32"): Conversion(_number_to_integer),
    ("float64", "int64"): Conversion(_number_to_integer),
    ("float64", "decimal"): Conversion(_float_to_decimal),
    ("float64", "float64"): Conversion(_identity),
    ("float64", "boolean"): Conversion(_number_to_boolean),
    ("boolean", "int32"): Conversion(_boolean_to_number),
    ("boolean", "int64"): Conversion(_boolean_to_number),
    ("boolean", "decimal"): Conversion(_boolean_to_number),
    ("boolean", "float64"): Conversion(_boolean_to_number),
    ("boolean", "boolean"): Conversion(_identity),
    ("boolean", "string"): Conversion(_boolean_to_text),
    ("string", "int32"): Conversion(_text_to_integer),
    ("string", "int64"): Conversion(_text_to_integer),
    # for few digits Flink parses text in another way, which takes a letter for 0
    ("string", "decimal"): Conversion(_text_to_decimal, "CAST({cast}({0} AS DECIMAL(38, {scale})) AS {type})"),
    ("string", "float64"): Conversion(_text_to_float),
    ("string", "boolean"): Conversion(_text_to_boolean),
    ("string", "string"): Conversion(_identity),
    ("string", "timestamp"): Conversion(_text_to_timestamp),
    ("timestamp", "timestamp"): Conversion(_identity),
    ("timestamp", "string"): Conversion(_timestamp_to_text),
    ("timestamp", "int64"): Conversion(_identity, _EPOCH_MILLISECONDS),
    # without FLOOR Flink takes the next day for times of the day before 1970
    ("timestamp", "date"): Conversion(_timestamp_to_date, "CAST(FLOOR({0} TO DAY) AS DATE)"),
    ("date", "timestamp"): Conversion(_date_to_timestamp),
    ("date", "date"): Conversion(_identity),
    ("date", "string"): Conversion(_date_to_text),
    ("string", "date"): Conversion(_text_to_date),
}
"""Every conversion that exists, by kind of operand and kind of result. NULL becomes NULL of any type."""


def is_castable(source: DataType, target: DataType) -> bool:
    """Whether CAST from one type to the other exists."""
    return source.kind == "null" or (source.kind, target.kind) in CASTS


def converter(source: DataType, target: DataType) -> Converter | None:
    """The function that converts values that are not NULL, or None where nothing has to be done."""
    if source == target or source.kind == "null":
        return None
    make = CASTS[source.kind, target.kind].make
    return None if make is _identity else make(source, target)


def cast_in_flink(operand: str, source: DataType, target: DataType, type_sql: str, *, safe: bool = False) -> str:
    """The conversion in Flink SQL; `type_sql` is the target's name there."""
    row = CASTS.get((source.kind, target.kind)) or Conversion(_identity)
    return row.flink.format(operand, cast="TRY_CAST" if safe else "CAST", type=type_sql, scale=target.scale)


def safely(convert: Converter) -> Converter:
    """TRY_CAST's conversion: text that is no value, and a decimal that does not fit, become NULL; what Flink would wrap is an error."""

    def attempt(value: Any) -> Value:
        try:
            return convert(value)
        except NoValue:
            return None
        except ValueLost as lost:
            if "NULL" in str(lost):
                return None
            raise

    return attempt
