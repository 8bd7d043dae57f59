"""Rows, keys and state entries as JSON text, and back: exact, and the same text for the same value.

A decimal is {"d": "1.50"}; a slot that counts values is {"m": [[value, count], ..]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from streamform.runtime.records import Change, Key
from streamform.runtime.state import Entry
from streamform.values.rows import Row


def _plain(value: object) -> dict[str, str]:
    if isinstance(value, Decimal):
        return {"d": str(value)}
    raise TypeError(f"{type(value).__name__} is no value of a row")


def _value(found: dict[str, Any]) -> Any:
    if "d" in found:
        return Decimal(found["d"])
    return dict(found["m"])


_write = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
_read = json.JSONDecoder(object_hook=_value).decode


def encode_key(key: Key) -> str:
    """A key as text; zero has one form, as it is one key in memory."""
    return _write([0.0 if isinstance(part, float) and part == 0 else part for part in key])


def decode_key(text: str) -> Key:
    """The key of a text."""
    return tuple(_read(text))


def encode_entry(entry: Entry) -> str:
    """A state entry as text."""
    return _write([_slot(slot) for slot in entry])


def _slot(slot: object) -> object:
    """A slot in JSON's types; the sessions of a window are lists of slots themselves."""
    if type(slot) is dict:
        return {"m": list(slot.items())}
    return [_slot(part) for part in slot] if type(slot) is list else slot


def decode_entry(text: str) -> Entry:
    """The entry of a text."""
    entry: Entry = _read(text)
    return entry


def encode_row(row: Iterable[object]) -> str:
    """A row as text."""
    return _write(list(row))


def decode_row(text: str) -> Row:
    """The row of a text."""
    return tuple(_read(text))


def encode_changes(changes: Iterable[Change]) -> str:
    """Changes as one text."""
    return _write([list(change) for change in changes])


def decode_changes(text: str) -> list[Change]:
    """The changes of a text."""
    return [(op, tuple(row), None if before is None else tuple(before)) for op, row, before in _read(text)]
