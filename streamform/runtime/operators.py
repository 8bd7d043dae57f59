"""One operator for each kind of node: batches in, batches out.

Append edges carry rows, updating edges carry changes. An operator holds no state but its store's, so a store that is
saved and loaded again continues as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamform.plan.clock import source_clock
from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, ProjectSpec, SourceSpec
from streamform.runtime.clock import NEVER, RunningClock
from streamform.runtime.codegen import Code, condition_code, evaluator, expression_code, positions
from streamform.runtime.failure import explain_failure
from streamform.runtime.records import DELETE, INSERT, UPDATE, Change, Key
from streamform.runtime.state import Entry, MemoryStore, StateStore
from streamform.sql.expressions import AggregateCall, Expression
from streamform.sql.functions import AGGREGATES
from streamform.sql.numeric import ValueLost
from streamform.values.rows import Row

Batch = list[Any]
"""Rows on an append edge, changes on an updating one."""


def column_names(node: Node) -> list[str]:
    """The names of a node's output columns."""
    return [column.name for column in node.schema]


@dataclass(slots=True)
class Rejected:
    """An event that a contract kept out."""

    row: Row
    contract: str


class FilterOperator:
    """Keeps rows for which the predicate is true; over updates, turns crossings into inserts and deletes."""

    def __init__(self, node: Node, below: Node) -> None:
        assert isinstance(node.spec, FilterSpec)
        self.node, self.predicate, self.columns = node, node.spec.predicate, column_names(below)
        code = Code(positions(self.columns))
        keep = condition_code(self.predicate, code)
        self.rows = code.compile(_loop("rows", f"if {keep}:", "push(r)"), "rows")
        self.test: Callable[[Row], Any] = evaluator(self.predicate, self.columns)
        self.updating = below.changelog.is_updating

    def process(self, batch: Batch) -> Batch:
        """The rows or changes that readers see."""
        try:
            return self.changes(batch) if self.updating else self.rows(batch)
        except ArithmeticError:
            raise explain_failure(self.node.id, [self.predicate], self.columns, _rows_of(batch, updating=self.updating)) from None

    def changes(self, batch: list[Change]) -> list[Change]:
        out: list[Change] = []
        test = self.test
        for op, row, before in batch:
            shown = test(row) is True
            if op != UPDATE:
                if shown:
                    out.append((op, row, None))
                continue
            assert before is not None
            was_shown = test(before) is True
            if shown:
                out.append((UPDATE, row, before) if was_shown else (INSERT, row, None))
            elif was_shown:
                out.append((DELETE, before, None))
        return out


class ProjectOperator:
    """Computes outputs from each row; `lane` carries the hidden event time along."""

    def __init__(self, node: Node, below: Node, *, lane: bool, emit_unchanged: bool) -> None:
        assert isinstance(node.spec, ProjectSpec)
        self.node, self.columns = node, column_names(below)
        self.expressions = [output.expression for output in node.spec.outputs]
        code = Code(positions(self.columns))
        values = [expression_code(e, code) for e in self.expressions] + (["r[-1]"] if lane else [])
        self.rows = code.compile(_loop("rows", "", f"push(({', '.join(values)},))"), "rows")
        self.updating, self.emit_unchanged = below.changelog.is_updating, emit_unchanged
        self.visible = len(self.expressions)

    def process(self, batch: Batch) -> Batch:
        """The outputs of each row, before and after."""
        try:
            return self.changes(batch) if self.updating else self.rows(batch)
        except ArithmeticError:
            raise explain_failure(self.node.id, self.expressions, self.columns, _rows_of(batch, updating=self.updating)) from None

    def changes(self, batch: list[Change]) -> list[Change]:
        rows: list[Row] = self.rows([row for _, row, _ in batch])
        befores: list[Row] = self.rows([before for _, _, before in batch if before is not None])
        following = iter(befores)
        paired = [(op, row, None if before is None else next(following)) for (op, _, before), row in zip(batch, rows, strict=True)]
        if self.emit_unchanged:
            return paired
        visible = self.visible
        return [c for c in paired if c[2] is None or c[1][:visible] != c[2][:visible]]


def _rows_of(batch: Batch, *, updating: bool) -> list[Row]:
    return [row for change in batch for row in change[1:] if row is not None] if updating else batch


def _loop(name: str, condition: str, action: str) -> str:
    body = f"        {condition}\n            {action}\n" if condition else f"        {action}\n"
    return f"def {name}(rows):\n    out = []\n    push = out.append\n    for r in rows:\n{body}    return out\n"


class AggregateOperator:
    """Folds rows into one row a key, and emits each change of it."""

    def __init__(self, node: Node, below: Node, store: StateStore, *, lane: bool, emit_unchanged: bool) -> None:
        assert isinstance(node.spec, AggregateSpec)
        self.node, self.spec, self.store, self.columns = node, node.spec, store, column_names(below)
        self.lane, self.retention_ms = lane, node.spec.retention_ms
        arguments = [call.argument for call in node.spec.calls if call.argument is not None]
        self.expressions: list[Expression] = [*node.spec.keys, *arguments]
        code = Code(positions(self.columns))
        self.keys: Callable[[list[Row]], set[Key]] = code.compile(
            f"def keys(rows):\n    return {{{_key_code(self.spec, code)} for r in rows}}\n", "keys"
        )
        self.fold = code.compile(_fold_source(self.spec, code, lane=lane, emit_unchanged=emit_unchanged), "fold")

    def process(self, batch: list[Row]) -> list[Change]:
        """The changes that these rows make, in their order."""
        self.store.load(self.keys(batch))
        try:
            changes: list[Change] = self.fold(batch, self.store.live, self.store.schedule)
        except ArithmeticError as error:
            failure = explain_failure(self.node.id, self.expressions, self.columns, batch)
            if failure.help is None:
                failure.message = f"{error}, in {self.node.id}"
                failure.args = (failure.message,)
            raise failure from None
        return changes

    def advance(self, watermark_ms: int) -> Batch:
        """Drop the keys whose retention the watermark has reached; nothing is emitted for that."""
        if self.retention_ms is not None:
            self.store.due(watermark_ms)
        return []

    def next_deadline(self) -> int | None:
        """When the watermark next makes a difference."""
        return None if self.retention_ms is None else self.store.next_deadline()

    def earliest(self, event_ms: int) -> int | None:
        """The earliest deadline that an event of this time can set."""
        return None if self.retention_ms is None else event_ms + self.retention_ms


def retention_deadline(retention_ms: int) -> Callable[[Key, Entry], int]:
    """When an entry expires: its latest event time plus the retention."""
    return lambda key, entry: int(entry[-1]) + retention_ms


def _key_code(spec: AggregateSpec, code: Code) -> str:
    keys = [expression_code(key, code) for key in spec.keys]
    return f"({', '.join(keys)},)" if keys else "()"


def _fold_source(spec: AggregateSpec, code: Code, *, lane: bool, emit_unchanged: bool) -> str:
    """The loop of an aggregate over append input: find the entry, keep the row before, fold, emit."""
    initial = [repr(AGGREGATES[call.function].initial) for call in spec.calls]
    timed = spec.retention_ms is not None
    new_entry = ", ".join(initial + (["r[-1]"] if timed else []))
    values = "".join(f", e[{i}]" for i in range(len(spec.calls)))
    row = f"(*k{values}{', r[-1]' if lane else ''},)"
    lines = [
        "def fold(rows, live, schedule):",
        "    out = []",
        "    push = out.append",
        "    get = live.get",
        "    for r in rows:",
        f"        k = {_key_code(spec, code)}",
        "        e = get(k)",
        "        if e is None:",
        f"            e = live[k] = [{new_entry}]",
        "            before = None",
    ]
    if timed:
        lines.append(f"            schedule(k, r[-1] + {spec.retention_ms})")
    lines += ["        else:", f"            before = {row}"]
    if timed:
        lines += ["            if r[-1] > e[-1]:", "                e[-1] = r[-1]"]
    for position, call in enumerate(spec.calls):
        lines += _accumulate_lines(call, position, code)
    lines.append(f"        after = {row}")
    emit = "push((0, after, None) if before is None else (1, after, before))"
    if emit_unchanged:
        lines.append(f"        {emit}")
    else:
        same = "before[:-1] != after[:-1]" if lane else "before != after"
        lines += [f"        if before is None or {same}:", f"            {emit}"]
    return "\n".join([*lines, "    return out", ""])


def _accumulate_lines(call: AggregateCall, position: int, code: Code) -> list[str]:
    """Take one row into one accumulator."""
    function = AGGREGATES[call.function]
    if call.argument is None:
        return [f"        e[{position}] += 1"]
    fold = [f"a = e[{position}]", f"y = x if a is None else {function.code}"]
    bounds = function.bounds(call.type)
    if bounds is not None:
        low, high = (code.bind(bound, "c") for bound in bounds)
        lost = code.bind(ValueLost(f"{call.name} no longer fits {call.type}; Flink would lose the value"), "lost")
        fold.append(f"if not {low} <= y <= {high}: raise {lost}")
    fold.append(f"e[{position}] = y")
    return [f"        x = {expression_code(call.argument, code)}", "        if x is not None:", *(f"            {line}" for line in fold)]


class WindowOperator:
    """Folds rows into one row a key and window, and emits it when the window closes."""

    def __init__(self, node: Node, below: Node, store: StateStore, *, lane: bool) -> None:
        assert isinstance(node.spec, AggregateSpec) and node.spec.window is not None
        self.node, self.spec, self.store, self.columns = node, node.spec, store, column_names(below)
        self.size_ms, self.lane = node.spec.window.size_ms, lane
        self.time = self.columns.index(node.spec.window.time)
        arguments = [call.argument for call in node.spec.calls if call.argument is not None]
        self.expressions: list[Expression] = [*node.spec.keys, *arguments]
        code = Code(positions(self.columns))
        start = f"(r[{self.time}] - r[{self.time}] % {self.size_ms})"
        key = f"(*{_key_code(self.spec, code)}, {start})"
        self.keys: Callable[[list[Row]], set[Key]] = code.compile(f"def keys(rows):\n    return {{{key} for r in rows}}\n", "keys")
        self.fold = code.compile(_window_source(self.spec, code, key, self.size_ms), "fold")

    def process(self, batch: list[Row]) -> list[Row]:
        """Nothing is emitted before a window closes."""
        self.store.load(self.keys(batch))
        try:
            self.fold(batch, self.store.live, self.store.schedule)
        except ArithmeticError:
            raise explain_failure(self.node.id, self.expressions, self.columns, batch) from None
        return []

    def advance(self, watermark_ms: int) -> list[Row]:
        """The results of the windows that close, windows ascending, then keys ascending."""
        closed = self.store.due(watermark_ms)
        closed.sort(key=lambda item: (item[0][-1], [(value is not None, value) for value in item[0][:-1]]))
        return [self.result(key, entry) for key, entry in closed]

    def result(self, key: Key, entry: Entry) -> Row:
        start: Any = key[-1]
        end = start + self.size_ms
        keys: tuple[Any, ...] = key[:-1]
        return (*keys, start, end, *entry, *((end - 1,) if self.lane else ()))

    def next_deadline(self) -> int | None:
        """When the next window closes."""
        return self.store.next_deadline()

    def earliest(self, event_ms: int) -> int | None:
        """When the window of an event of this time closes."""
        return event_ms - event_ms % self.size_ms + self.size_ms - 1


def window_deadline(size_ms: int) -> Callable[[Key, Entry], int]:
    """When a window closes: at its last millisecond."""

    def deadline(key: Key, entry: Entry) -> int:
        start: Any = key[-1]
        return int(start) + size_ms - 1

    return deadline


def _window_source(spec: AggregateSpec, code: Code, key: str, size_ms: int) -> str:
    initial = ", ".join(repr(AGGREGATES[call.function].initial) for call in spec.calls)
    lines = [
        "def fold(rows, live, schedule):",
        "    get = live.get",
        "    for r in rows:",
        f"        k = {key}",
        "        e = get(k)",
        "        if e is None:",
        f"            e = live[k] = [{initial}]",
        f"            schedule(k, k[-1] + {size_ms - 1})",
    ]
    for position, call in enumerate(spec.calls):
        lines += _accumulate_lines(call, position, code)
    return "\n".join([*lines, ""])


class SourceOperator:
    """Checks contracts and lateness, and says how far an event moves the clock."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.spec, SourceSpec)
        self.node, self.columns = node, column_names(node)
        declared = source_clock(node.spec.source)
        self.clock = None if declared is None else RunningClock(declared)
        self.time = None if declared is None else self.columns.index(declared.column)
        self.contracts = [(c.name, evaluator(c.condition, self.columns)) for c in node.spec.contracts]

    def broken(self, row: Row) -> str | None:
        """The first contract that an event breaks."""
        return next((name for name, test in self.contracts if test(row) is not True), None)

    @property
    def watermark_ms(self) -> int:
        """How far this source's event time has come."""
        return NEVER if self.clock is None else self.clock.watermark_ms


def node_deadline(node: Node) -> Callable[[Key, Entry], int] | None:
    """When entries of a keyed node expire or close, or None where they never do."""
    spec = node.spec
    assert isinstance(spec, AggregateSpec)
    if spec.window is not None:
        return window_deadline(spec.window.size_ms)
    return None if spec.retention_ms is None else retention_deadline(spec.retention_ms)


def memory_store(node: Node) -> StateStore:
    """A store in memory for a keyed node."""
    return MemoryStore(node_deadline(node))


Keyed = AggregateOperator | WindowOperator
Operator = FilterOperator | ProjectOperator | Keyed


def build_operator(
    node: Node, below: Sequence[Node], store: Callable[[Node], StateStore], *, lane: bool, emit_unchanged: bool
) -> Operator | None:
    """The operator of a node; a sink has none, it only hands on."""
    if isinstance(node.spec, FilterSpec):
        return FilterOperator(node, below[0])
    if isinstance(node.spec, ProjectSpec):
        return ProjectOperator(node, below[0], lane=lane, emit_unchanged=emit_unchanged)
    if isinstance(node.spec, AggregateSpec) and node.spec.window is not None:
        return WindowOperator(node, below[0], store(node), lane=lane)
    if isinstance(node.spec, AggregateSpec):
        return AggregateOperator(node, below[0], store(node), lane=lane, emit_unchanged=emit_unchanged)
    return None
