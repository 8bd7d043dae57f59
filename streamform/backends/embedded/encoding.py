"""Rows, keys and state entries as JSON text, and back: exact, and the same text for the same value.

A decimal is {"d": "1.50"}; a slot that counts values is {"m": [[value, count], ..]}. Every event passes here several times,
so texts are put together by type, which is several times as fast as a general encoder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from json.encoder import encode_basestring_ascii
from types import NoneType
from typing import Any

from streamform.runtime.records import Change, Key
from streamform.runtime.state import Entry
from streamform.values.rows import Row


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else json.dumps(value)


def _decimal(value: Decimal) -> str:
    return f'{{"d":"{value}"}}'


def _list(values: Iterable[Any]) -> str:
    return "[" + ",".join([_TEXT[type(value)](value) for value in values]) + "]"


def _counts(counts: dict[Any, int]) -> str:
    return f'{{"m":{_list(counts.items())}}}'


_TEXT: dict[type, Callable[[Any], str]] = {
    int: int.__repr__,
    str: encode_basestring_ascii,
    float: _float,
    Decimal: _decimal,
    bool: lambda value: "true" if value else "false",
    NoneType: lambda value: "null",
    tuple: _list,
    list: _list,
    dict: _counts,
}


def _value(found: dict[str, Any]) -> Any:
    if "d" in found:
        return Decimal(found["d"])
    return dict(found["m"])


_read = json.JSONDecoder(object_hook=_value).decode


def encode_key(key: Key) -> str:
    """A key as text; zero has one form, as it is one key in memory."""
    return _list([part if part or type(part) not in (float, Decimal) else abs(part) for part in key])  # type: ignore[arg-type]


def decode_key(text: str) -> Key:
    """The key of a text."""
    return tuple(_read(text))


def encode_entry(entry: Entry) -> str:
    """A state entry as text; the sessions of a window are lists of slots themselves."""
    return _list(entry)


def decode_entry(text: str) -> Entry:
    """The entry of a text."""
    entry: Entry = _read(text)
    return entry


def encode_row(row: Iterable[object]) -> str:
    """A row as text."""
    return _list(row)


def decode_row(text: str) -> Row:
    """The row of a text."""
    return tuple(_read(text))


def encode_changes(changes: Iterable[Change]) -> str:
    """Changes as one text, without the rows before an update."""
    return "[" + ",".join([f"[{op},{_list(row)}]" for op, row, _ in changes]) + "]"


def decode_changes(text: str) -> list[Change]:
    """The changes of a text."""
    return [(op, tuple(row), None) for op, row in _read(text)]
