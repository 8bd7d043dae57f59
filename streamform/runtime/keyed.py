"""Operators with keyed state: aggregates, and aggregates over windows.

The loop over append input is generated, because every event passes it; changes are taken in and out one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamform.errors import DataError
from streamform.plan.nodes import AggregateSpec, Node
from streamform.runtime.accumulate import Accumulator, accumulators, indented
from streamform.runtime.codegen import Code, expression_code, positions
from streamform.runtime.failure import explain_failure
from streamform.runtime.records import DELETE, INSERT, UPDATE, Change, Key
from streamform.runtime.state import Entry, StateStore
from streamform.sql.expressions import Expression
from streamform.values.rows import Row


def evaluated(spec: AggregateSpec) -> list[Expression]:
    """Everything that is computed from a row."""
    parts = [part for call in spec.calls for part in (call.condition, call.argument) if part is not None]
    return [*spec.keys, *parts]


def key_code(spec: AggregateSpec, code: Code) -> list[str]:
    """Python for each part of a row's key."""
    return [expression_code(key, code) for key in spec.keys]


def _key_code(spec: AggregateSpec, code: Code) -> str:
    return f"({''.join(f'{part}, ' for part in key_code(spec, code))})"


def _row_code(values: list[Accumulator], *, lane: bool) -> str:
    """The output row, from the key, the entry, and the event time of the row at hand."""
    parts = ["*k", *(value.result for value in values), *(["r[-1]"] if lane else [])]
    return f"({', '.join(parts)},)"


def _initial(values: list[Accumulator], *more: str) -> str:
    return f"[{', '.join([slot for value in values for slot in value.initial] + list(more))}]"


class AggregateOperator:
    """Folds rows into one row a key, and emits each change of it."""

    def __init__(self, node: Node, below: Node, store: StateStore, *, lane: bool, emit_unchanged: bool) -> None:
        assert isinstance(node.spec, AggregateSpec)
        self.node, self.store = node, store
        self.columns = [column.name for column in below.schema]
        self.expressions = evaluated(node.spec)
        self.retention_ms = node.spec.retention_ms
        self.updating = below.changelog.is_updating
        self.lane, self.emit_unchanged = lane, emit_unchanged
        self.deletes_expired = node.spec.deletes_expired
        code = Code(positions(self.columns))
        values = accumulators(node.spec.calls, code, updating=self.updating)
        key = _key_code(node.spec, code)
        self.keys: Callable[[list[Row]], set[Key]] = code.compile(f"def keys(rows):\n    return {{{key} for r in rows}}\n", "keys")
        row = _row_code(values, lane=lane)
        self.shown: Callable[[Key, Entry, Row], Row] = code.compile(f"def shown(k, e, r):\n    return {row}\n", "shown")
        if self.updating:
            self._compile_changes(code, key, values)
        else:
            source = _fold_source(node.spec, key, values, lane=lane, emit_unchanged=emit_unchanged)
            self.fold = code.compile(source, "fold")

    def _compile_changes(self, code: Code, key: str, values: list[Accumulator]) -> None:
        timed = ["0", "r[-1]"] if self.retention_ms is not None else ["0"]
        self.counter = sum(len(value.initial) for value in values)
        self.key = code.compile(f"def key(r):\n    return {key}\n", "key")
        self.fresh = code.compile(f"def fresh(r):\n    return {_initial(values, *timed)}\n", "fresh")
        self.add = code.compile(_step_source("add", [value.add for value in values]), "add")
        self.subtract = code.compile(_step_source("subtract", [value.subtract for value in values]), "subtract")

    def process(self, batch: list[Any]) -> list[Change]:
        """The changes that these rows or changes make, in their order."""
        rows = [row for change in batch for row in change[1:] if row is not None] if self.updating else batch
        self.store.load(self.keys(rows))
        try:
            if self.updating:
                return self.changes(batch)
            changes: list[Change] = self.fold(batch, self.store.live, self.store.schedule)
            return changes
        except ArithmeticError as error:
            raise self.failure(rows, error) from None

    def failure(self, rows: list[Row], error: ArithmeticError) -> DataError:
        """The error that names the expression, or the accumulator that no longer fits its type."""
        failure = explain_failure(self.node.id, self.expressions, self.columns, rows)
        return failure if failure.help is not None else DataError(f"{error}, in {self.node.id}", None)

    def changes(self, batch: list[Change]) -> list[Change]:
        """Rows that come in, go out, or change. A change within one key is one change of that key's row."""
        out: list[Change] = []
        for op, row, before in batch:
            if op == UPDATE:
                assert before is not None
                if self.key(before) == self.key(row):
                    self.replace(before, row, out)
                    continue
                self.take_out(before, out)
            if op == DELETE:
                self.take_out(row, out)
            else:
                self.take_in(row, out)
        return out

    def take_in(self, row: Row, out: list[Change]) -> None:
        """One more row of its key."""
        key = self.key(row)
        entry = self.store.live.get(key)
        if entry is None:
            entry = self.store.live[key] = self.fresh(row)
            if self.retention_ms is not None:
                self.store.schedule(key, _event_ms(row) + self.retention_ms)
            before = None
        else:
            before = self.shown(key, entry, row)
            self.note_time(entry, row)
        entry[self.counter] += 1
        self.add(entry, row)
        self.emit(before, self.shown(key, entry, row), out)

    def take_out(self, row: Row, out: list[Change]) -> None:
        """One row less; a key without rows disappears. A row of a key whose state has expired changes nothing."""
        key = self.key(row)
        entry = self.store.live.get(key)
        if entry is None:
            return
        before = self.shown(key, entry, row)
        entry[self.counter] -= 1
        self.subtract(entry, row)
        self.note_time(entry, row)
        if entry[self.counter] > 0:
            self.emit(before, self.shown(key, entry, row), out)
        else:
            del self.store.live[key]
            out.append((DELETE, before, None))

    def replace(self, before: Row, row: Row, out: list[Change]) -> None:
        """A row of a key becomes another row of the same key."""
        key = self.key(row)
        entry = self.store.live.get(key)
        if entry is None:
            self.take_in(row, out)
            return
        shown = self.shown(key, entry, row)
        self.subtract(entry, before)
        self.add(entry, row)
        self.note_time(entry, row)
        self.emit(shown, self.shown(key, entry, row), out)

    def note_time(self, entry: Entry, row: Row) -> None:
        """An entry lives on from its latest event."""
        if self.retention_ms is not None:
            entry[-1] = max(entry[-1], _event_ms(row))

    def emit(self, before: Row | None, after: Row, out: list[Change]) -> None:
        """The key's row, new or changed."""
        if before is None:
            out.append((INSERT, after, None))
        elif self.emit_unchanged or (before[:-1] != after[:-1] if self.lane else before != after):
            out.append((UPDATE, after, before))

    def advance(self, watermark_ms: int) -> list[Change]:
        """Drop the keys whose retention the watermark has reached; what is emitted for that is nothing, or their deletes."""
        if self.retention_ms is None:
            return []
        expired = self.store.due(watermark_ms)
        if not self.deletes_expired:
            return []
        expired.sort(key=lambda item: ordered(item[0]))
        return [(DELETE, self.shown(key, entry, (entry[-1],)), None) for key, entry in expired]

    def next_deadline(self) -> int | None:
        """When the watermark next makes a difference."""
        return None if self.retention_ms is None else self.store.next_deadline()

    def earliest(self, event_ms: int) -> int | None:
        """The earliest deadline that an event of this time can set."""
        return None if self.retention_ms is None else event_ms + self.retention_ms


def _event_ms(row: Row) -> int:
    """The hidden event time of a row, in milliseconds."""
    event_ms = row[-1]
    assert isinstance(event_ms, int)
    return event_ms


def ordered(key: Key) -> list[tuple[bool, object]]:
    """A key as it sorts: NULL first."""
    return [(value is not None, value) for value in key]


def _step_source(name: str, parts: list[list[str]]) -> str:
    lines = [line for part in parts for line in part] or ["pass"]
    return "\n".join([f"def {name}(e, r):", *indented(lines, 1), ""])


def _fold_source(spec: AggregateSpec, key: str, values: list[Accumulator], *, lane: bool, emit_unchanged: bool) -> str:
    """The loop of an aggregate over append input: find the entry, keep the row before, fold, emit."""
    timed = spec.retention_ms is not None
    row = _row_code(values, lane=lane)
    schedule = [f"schedule(k, r[-1] + {spec.retention_ms})"] if timed else []
    later = ["if r[-1] > e[-1]:", "    e[-1] = r[-1]"] if timed else []
    same = "before[:-1] != after[:-1]" if lane else "before != after"
    emit = "push((0, after, None) if before is None else (1, after, before))"
    body = [
        f"k = {key}",
        "e = get(k)",
        "if e is None:",
        f"    e = live[k] = {_initial(values, *(['r[-1]'] if timed else []))}",
        "    before = None",
        *indented(schedule, 1),
        "else:",
        f"    before = {row}",
        *indented(later, 1),
        *(line for value in values for line in value.add),
        f"after = {row}",
        *([emit] if emit_unchanged else [f"if before is None or {same}:", f"    {emit}"]),
    ]
    head = ["def fold(rows, live, schedule):", "    out = []", "    push = out.append", "    get = live.get", "    for r in rows:"]
    return "\n".join([*head, *indented(body, 2), "    return out", ""])


def empty_entry(node: Node, below: Node) -> Entry:
    """An entry into which no row was taken. Sessions have none."""
    spec = node.spec
    assert isinstance(spec, AggregateSpec)
    code = Code(positions([column.name for column in below.schema]))
    values = accumulators(spec.calls, code, updating=below.changelog.is_updating and spec.window is None)
    slots = sum(count for _, count in entry_layout(node, below))
    source = f"def empty():\n    return {_initial(values)}\n"
    entry: Entry = code.compile(source, "empty")()
    return entry + [0] * (slots - len(entry))


def entry_layout(node: Node, below: Node) -> tuple[tuple[str, int], ...]:
    """What an entry of a keyed node holds, in order: each accumulator with its number of slots, then what the node adds."""
    spec = node.spec
    assert isinstance(spec, AggregateSpec)
    code = Code(positions([column.name for column in below.schema]))
    updating = below.changelog.is_updating and spec.window is None
    values = accumulators(spec.calls, code, updating=updating)
    parts = [(call.name, len(value.initial)) for call, value in zip(spec.calls, values, strict=True)]
    if spec.window is not None and spec.window.type == "session":
        return ((f"sessions of {', '.join(sorted(name for name, _ in parts))}", 1),)
    parts += [("(rows)", 1)] if updating else []
    parts += [("(latest event time)", 1)] if spec.retention_ms is not None and spec.window is None else []
    return tuple(parts)
