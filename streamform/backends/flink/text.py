"""Words of Flink SQL: identifiers, constants, types and options, each quoted in one place.

A text of the project that looks like a reference (${NAME}) is written with an escape, so that only what a target
declares is ever replaced from the environment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

from streamform.errors import Refused
from streamform.sql.expressions import Literal
from streamform.sql.time import UNIT_MONTHS, UNIT_MS
from streamform.values.instants import render_date, render_file_instant
from streamform.values.types import DataType

TYPES = {
    "int32": "INT",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP(3)",
    "date": "DATE",
}

MAX_NAME = 256
_REFERENCE_START = "${"
_MAX_FIELD = 99
"""The largest number in an interval without a declared precision."""
_MAX_MONTHS = 9_999
"""The largest number in an interval with the largest precision of months."""
MAX_INTERVAL_MS = 1_000 * UNIT_MS["DAY"]
"""Constants are shorter: Flink takes no more than three digits of days."""
_MAX_NUMBER_DIGITS = 18
"""Digits that a number may have where it is not written as text."""


class Reference(str):
    """Text of a target: a ${NAME} in it stands for a value of the environment."""


@lru_cache(maxsize=20_000)
def identifier(name: str) -> str:
    """A name in backticks. One that Flink can't take is replaced by its digest, so it must be a name that nobody sees."""
    shown = name if unwritable(name) is None else f"name {hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return "`" + shown.replace("`", "``") + "`"


def visible_identifier(name: str, owner: str) -> str:
    """A column of a topic, file or table in backticks. Raises: Refused for a name that Flink can't take."""
    cause = unwritable(name)
    if cause is not None:
        raise Refused(f"column `{name}` of {owner} can't be written in Flink SQL: {cause}", "rename it")
    return identifier(name)


def relation(name: str, part: str = "") -> str:
    """A model or source in backticks, or a part of it: no two are alike, whatever models and sources are called."""
    plain = name if "/" not in name else f"name {hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return identifier(f"{plain}/{part}" if part else plain)


def unwritable(name: str) -> str | None:
    """Why a name can't be an identifier, or None."""
    if re.search(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", name):
        return "it holds a ${..} reference, which is for targets only"
    if "\n" in name or "\r" in name:
        return "it has a line break"
    if not name or len(name) > MAX_NAME:
        return f"a name has 1 to {MAX_NAME} characters"
    return None


def names(columns: list[str]) -> str:
    """Names in backticks with commas between."""
    return ", ".join(map(identifier, columns))


def quoted(text: str) -> str:
    """Text in quotes, as it is; references in it are resolved when it is sent."""
    return "'" + text.replace("'", "''") + "'"


def constant(text: str) -> str:
    """Text of the project in quotes; a reference in it stays what it is."""
    if _REFERENCE_START not in text:
        return quoted(text)
    escaped = text.replace("\\", "\\\\").replace("$", "\\0024")
    return "U&" + quoted(escaped)


def type_sql(type_: DataType) -> str:
    """The type's name in Flink."""
    return f"DECIMAL({type_.precision}, {type_.scale})" if type_.kind == "decimal" else TYPES[type_.kind]


def literal_sql(literal: Literal) -> str:
    """A constant of exactly its type."""
    value, kind = literal.value, literal.type.kind
    if value is None:
        return "NULL" if kind == "null" else f"CAST(NULL AS {type_sql(literal.type)})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return constant(value)
    if kind in ("interval", "months"):
        return months_sql(int(value)) if kind == "months" else interval_sql(int(value))
    if kind == "date":
        return f"DATE '{render_date(int(value))}'"
    if kind == "timestamp":
        return f"CAST(TIMESTAMP '{render_file_instant(int(value)).replace('T', ' ')}' AS TIMESTAMP(3))"
    return _number_sql(value, literal.type)


def _number_sql(value: int | float | Decimal, type_: DataType) -> str:
    if isinstance(value, float) or type_.kind == "float64":
        return f"CAST({float(value)!r} AS DOUBLE)"
    if type_.kind == "int32" and value >= 0:
        return str(value)
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    shown = quoted(text) if type_.kind == "decimal" and len(text) > _MAX_NUMBER_DIGITS else text
    return f"CAST({shown} AS {type_sql(type_)})"


def interval_sql(length_ms: int) -> str:
    """A length of time of any size."""
    if abs(length_ms) < MAX_INTERVAL_MS:
        return interval_literal(length_ms)
    days, rest = divmod(abs(length_ms), UNIT_MS["DAY"])
    sign = "-" if length_ms < 0 else ""
    whole = f"INTERVAL '{sign}1' DAY * {days}"
    return f"({whole} + {interval_literal(-rest if length_ms < 0 else rest)})" if rest else f"({whole})"


def interval_literal(length_ms: int) -> str:
    """A length below MAX_INTERVAL_MS as one constant: in its largest unit where the number is short, else in days to seconds."""
    assert abs(length_ms) < MAX_INTERVAL_MS, "Flink's constants end at 999 days"
    sign = "-" if length_ms < 0 else ""
    for unit in ("DAY", "HOUR", "MINUTE", "SECOND"):
        number, rest = divmod(abs(length_ms), UNIT_MS[unit])
        if not rest and number <= _MAX_FIELD:
            return f"INTERVAL '{sign}{number}' {unit}"
    seconds, ms = divmod(abs(length_ms), 1_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"INTERVAL '{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{ms:03d}' DAY(3) TO SECOND(3)"


def months_sql(months: int) -> str:
    """A length in calendar months."""
    years, rest = divmod(abs(months), UNIT_MONTHS["YEAR"])
    sign = "-" if months < 0 else ""
    if years and not rest:
        return f"INTERVAL '{sign}{years}' YEAR(4)"
    if abs(months) <= _MAX_MONTHS:
        return f"INTERVAL '{months}' MONTH(4)"
    return f"INTERVAL '{sign}{years}-{rest}' YEAR(4) TO MONTH"


def options_sql(options: Mapping[str, str]) -> str:
    """The WITH clause of a table, one option a line; only a Reference is resolved when it is sent."""
    shown = {key: quoted(value) if isinstance(value, Reference) else constant(value) for key, value in options.items()}
    return "WITH (\n" + ",\n".join(f"  {quoted(key)} = {value}" for key, value in shown.items()) + "\n)"
