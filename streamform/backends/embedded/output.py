"""Changes on their way to a sink: compacted by key, as lines of a file, and as the difference of two outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from operator import itemgetter

from streamform.runtime.records import DELETE, INSERT, OPERATION_NAMES, UPDATE, Change
from streamform.values.rows import Row, Schema, Value, file_value

Keyed = tuple[str, Row]
"""A row under the text of its key."""


def key_of(schema: Schema, key: Sequence[str]) -> Callable[[Row], tuple[object, ...]]:
    """A function from a row to its key, in the declared order."""
    names = [column.name for column in schema]
    positions = [names.index(name) for name in key]
    if len(positions) == 1:
        (only,) = positions
        return lambda row: (row[only],)
    return itemgetter(*positions) if positions else lambda row: ()


def compact(changes: Iterable[Change], key: Callable[[Row], tuple[object, ...]]) -> dict[tuple[object, ...], Row | None]:
    """The last row of each key, None for one that is gone."""
    last: dict[tuple[object, ...], Row | None] = {}
    for op, row, before in changes:
        if before is not None and (old := key(before)) != key(row):
            last[old] = None
        last[key(row)] = None if op == DELETE else row
    return last


def difference(present: Iterator[Keyed], wanted: Iterator[Keyed], row_of: Callable[[str], Row]) -> Iterator[Change]:
    """The changes that turn one output into another; both are sorted by key text.

    Rows that are present may have other columns, so a delete shows the row that `row_of` makes of the key.
    """
    left, right = next(present, None), next(wanted, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield (DELETE, row_of(left[0]), None)
            left = next(present, None)
        elif left is None or right[0] < left[0]:
            yield (INSERT, right[1], None)
            right = next(wanted, None)
        else:
            if left[1] != right[1]:
                yield (UPDATE, right[1], None)
            left, right = next(present, None), next(wanted, None)


class LineWriter:
    """Changes as JSON lines: rows of an append model, {op, key, row} of an upsert model."""

    def __init__(self, schema: Schema, key: Sequence[str], *, upserts: bool) -> None:
        self.schema, self.upserts = schema, upserts
        self.names = [column.name for column in schema]
        self.key_positions = [self.names.index(name) for name in key]

    def lines(self, changes: Iterable[Change]) -> bytes:
        """The changes as lines."""
        return "".join(self.line(change) for change in changes).encode("utf-8")

    def line(self, change: Change) -> str:
        """One change."""
        op, row, _ = change
        if not self.upserts:
            return f"{self._object(row, range(len(row)))}\n"
        key = self._object(row, self.key_positions)
        shown = "null" if op == DELETE else self._object(row, range(len(row)))
        return f'{{"op": "{OPERATION_NAMES[op]}", "key": {key}, "row": {shown}}}\n'

    def _object(self, row: Row, positions: Iterable[int]) -> str:
        parts = [f"{json.dumps(self.names[p], ensure_ascii=False)}: {_json(file_value(row[p], self.schema[p].type))}" for p in positions]
        return "{" + ", ".join(parts) + "}"


def _json(value: object) -> str:
    """A JSON value; a decimal keeps its digits."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
    return json.dumps(value, ensure_ascii=False)


def column_value(value: Value) -> object:
    """A value as a SQLite column holds it: a decimal as its digits, a boolean as 0 or 1."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return int(value) if isinstance(value, bool) else value
