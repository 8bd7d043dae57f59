"""The logical types of columns and expressions.

First stage of the pipeline: everything else talks about values in these types. A type renders to the text that
manifests hold, and is parsed from the text that documents hold; nothing here knows a file or a backend.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Kind = Literal["int32", "int64", "float64", "decimal", "string", "boolean", "timestamp", "date", "interval", "months", "null"]

MAX_PRECISION = 38
DEFAULT_PRECISION, DEFAULT_SCALE = 38, 9

_DOCUMENT_TYPE = re.compile(r"decimal(?:\( *([0-9]{1,2}) *, *([0-9]{1,2}) *\))?")


class DataType(Struct, frozen=True, forbid_unknown_fields=True):
    """A column's type. `precision` and `scale` are set for decimals only."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return "timestamp(millisecond)" if self.kind == "timestamp" else self.kind

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int32", "int64")

    @property
    def is_exact(self) -> bool:
        """Integers and decimals: arithmetic without rounding to binary fractions."""
        return self.kind in ("int32", "int64", "decimal")

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("int32", "int64", "float64", "decimal")


INT32 = DataType("int32")
INT64 = DataType("int64")
FLOAT64 = DataType("float64")
STRING = DataType("string")
BOOLEAN = DataType("boolean")
TIMESTAMP = DataType("timestamp")
DATE = DataType("date")
"""Days since the epoch; results of functions only, no source has such a column."""
INTERVAL = DataType("interval")
"""A length in milliseconds; only a constant in an expression."""
MONTHS = DataType("months")
"""A length in months; only a constant in an expression."""
NULL = DataType("null")

SIMPLE_TYPES: dict[str, DataType] = {t.kind: t for t in (INT32, INT64, FLOAT64, STRING, BOOLEAN, TIMESTAMP)}


def decimal(precision: int, scale: int) -> DataType:
    """The decimal type with this precision and scale.

    Raises: ValueError when it is not 1 <= precision <= 38 with 0 <= scale <= precision.
    """
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"decimal({precision},{scale}) needs 1 <= precision <= {MAX_PRECISION} and 0 <= scale <= precision")
    return DataType("decimal", precision, scale)


def as_decimal(type_: DataType) -> DataType:
    """The decimal type that holds every value of an exact type: int32 takes 10 digits, int64 takes 20."""
    if type_.kind == "decimal":
        return type_
    return DataType("decimal", 10 if type_.kind == "int32" else 20, 0)


def parse_type(text: str) -> DataType:
    """The type that a document names, such as `int64` or `decimal(12,2)`.

    Raises: ValueError naming the supported types.
    """
    simple = SIMPLE_TYPES.get(text)
    if simple is not None:
        return simple
    match = _DOCUMENT_TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a type; use int32, int64, float64, decimal(p,s), string, boolean or timestamp")
    if match.group(1) is None:
        return decimal(DEFAULT_PRECISION, DEFAULT_SCALE)
    return decimal(int(match.group(1)), int(match.group(2)))


def parse_rendered_type(text: str) -> DataType:
    """The type whose rendering in a manifest this is. Raises: ValueError for anything else."""
    rendered = {str(TIMESTAMP): TIMESTAMP, str(DATE): DATE}
    return rendered[text] if text in rendered else parse_type(text)
