"""Aggregates over windows: fixed windows, which any number of rows share, and sessions, which grow and merge.

A window's result is emitted once, when the watermark reaches its last millisecond. Fixed windows are entries under
(key.., window end); the sessions of a key are one entry, because an event may join two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamform.errors import DataError
from streamform.plan.nodes import AggregateSpec, Node, WindowContract
from streamform.runtime.accumulate import Accumulator, accumulators, indented
from streamform.runtime.clock import NEVER
from streamform.runtime.codegen import Code, positions
from streamform.runtime.failure import explain_failure
from streamform.runtime.keyed import evaluated, key_code, ordered
from streamform.runtime.records import Key
from streamform.runtime.state import Entry, StateStore
from streamform.values.rows import Row


class WindowOperator:
    """Folds rows into one row a key and fixed window."""

    def __init__(self, node: Node, below: Node, store: StateStore, *, lane: bool) -> None:
        assert isinstance(node.spec, AggregateSpec)
        assert node.spec.window is not None
        self.node, self.store, self.window = node, store, node.spec.window
        self.columns = [column.name for column in below.schema]
        self.expressions = evaluated(node.spec)
        self.closed_ms = NEVER
        """Windows that end at most one millisecond after this have been emitted."""
        code = Code(positions(self.columns))
        ends = ends_code(self.window, f"r[{self.columns.index(self.window.time)}]")
        key = f"({''.join(f'{part}, ' for part in key_code(node.spec, code))}w,)"
        values = accumulators(node.spec.calls, code, updating=False)
        source = f"def keys(rows):\n    return {{{key} for r in rows for w in {ends}}}\n"
        self.keys: Callable[[list[Row]], set[Key]] = code.compile(source, "keys")
        self.fold = code.compile(_window_source(key, ends, values), "fold")
        row = ", ".join(["*k[:-1]", start_code(self.window), "k[-1]", *(v.result for v in values), *(["k[-1] - 1"] if lane else [])])
        self.result: Callable[[Key, Entry], Row] = code.compile(f"def result(k, e):\n    return ({row},)\n", "result")

    def process(self, batch: list[Row]) -> list[Row]:
        """Nothing is emitted before a window closes."""
        self.store.load(self.keys(batch))
        with told_failure(self, batch):
            self.fold(batch, self.store.live, self.store.schedule, self.closed_ms)
        return []

    def advance(self, watermark_ms: int) -> list[Row]:
        """The results of the windows that close, windows ascending, then keys ascending."""
        self.closed_ms = max(self.closed_ms, watermark_ms)
        closed = self.store.due(watermark_ms)
        closed.sort(key=lambda item: (item[0][-1], ordered(item[0][:-1])))
        return [self.result(key, entry) for key, entry in closed]

    def next_deadline(self) -> int | None:
        """When the next window closes."""
        return self.store.next_deadline()

    def earliest(self, event_ms: int) -> int | None:
        """When the first window of an event of this time closes."""
        step_ms = self.window.step_ms or self.window.size_ms
        return event_ms - event_ms % step_ms + step_ms - 1

    def latest(self, event_ms: int) -> int:
        """When the last window of an event of this time closes; from then on the event is late for all of them."""
        if self.window.type == "hopping":
            return event_ms - event_ms % self.window.step_ms + self.window.size_ms - 1
        return event_ms - event_ms % self.window.size_ms + self.window.size_ms - 1


def ends_code(window: WindowContract, time: str) -> str:
    """Python for the ends of every window that holds an instant, ascending."""
    size, step = window.size_ms, window.step_ms
    if window.type == "tumbling":
        return f"({time} - {time} % {size} + {size},)"
    past = f"{time} - {time} % {step if window.type == 'hopping' else size} + {size + 1}"
    return f"range({time} - {time} % {step} + {step}, {past}, {step})"


def start_code(window: WindowContract) -> str:
    """Python for the start of the window of a key."""
    size = window.size_ms
    return f"k[-1] - 1 - (k[-1] - 1) % {size}" if window.type == "cumulating" else f"k[-1] - {size}"


def _window_source(key: str, ends: str, values: list[Accumulator]) -> str:
    initial = f"[{', '.join(slot for value in values for slot in value.initial)}]"
    body = [
        f"k = {key}",
        "e = get(k)",
        "if e is None:",
        "    if w - 1 <= closed:",
        "        continue",
        f"    e = live[k] = {initial}",
        "    schedule(k, w - 1)",
        *(line for value in values for line in value.add),
    ]
    head = ["def fold(rows, live, schedule, closed):", "    get = live.get", "    for r in rows:", f"        for w in {ends}:"]
    return "\n".join([*head, *indented(body, 3), ""])


class SessionOperator:
    """Folds rows into one row a key and session: events of a key no further apart than the gap.

    An entry is a list of sessions, each [first event, last event, slots..].
    """

    def __init__(self, node: Node, below: Node, store: StateStore, *, lane: bool) -> None:
        assert isinstance(node.spec, AggregateSpec)
        assert node.spec.window is not None
        self.node, self.store, self.gap_ms = node, store, node.spec.window.size_ms
        self.columns = [column.name for column in below.schema]
        self.expressions = evaluated(node.spec)
        self.time, self.lane = self.columns.index(node.spec.window.time), lane
        self.closed_ms = NEVER
        code = Code(positions(self.columns))
        calls = sorted(node.spec.calls, key=lambda call: call.name)
        values = accumulators(tuple(calls), code, updating=False)
        shown = [values[calls.index(call)].result for call in node.spec.calls]
        self.key: Callable[[Row], Key] = code.compile(
            f"def key(r):\n    return ({''.join(f'{p}, ' for p in key_code(node.spec, code))})\n", "key"
        )
        self.initial: Callable[[], Entry] = code.compile(
            f"def initial():\n    return [{', '.join(s for v in values for s in v.initial)}]\n", "initial"
        )
        self.add = code.compile(_lines("add(e, r)", [line for v in values for line in v.add]), "add")
        self.join = code.compile(_lines("join(e, o)", [line for v in values for line in v.merge]), "join")
        self.values: Callable[[Entry], Row] = code.compile(f"def values(e):\n    return ({''.join(f'{s}, ' for s in shown)})\n", "values")

    def process(self, batch: list[Row]) -> list[Row]:
        """Nothing is emitted before a session closes."""
        self.store.load({self.key(row) for row in batch})
        with told_failure(self, batch):
            for row in batch:
                self.take(row)
        return []

    def take(self, row: Row) -> None:
        """A session of its own for the event, joined with those that it touches."""
        event_ms = row[self.time]
        assert isinstance(event_ms, int)
        if event_ms + self.gap_ms - 1 <= self.closed_ms:
            return
        slots = self.initial()
        self.add(slots, row)
        joined: list[Any] = [event_ms, event_ms, *slots]
        key = self.key(row)
        apart: list[list[Any]] = []
        for session in self.store.live.get(key, ()):
            if session[0] <= joined[1] + self.gap_ms and joined[0] <= session[1] + self.gap_ms:
                joined = self.joined(session, joined)
            else:
                apart.append(session)
        self.store.live[key] = [*apart, joined]
        self.store.schedule(key, joined[1] + self.gap_ms - 1)

    def joined(self, first: list[Any], second: list[Any]) -> list[Any]:
        """Two sessions as one."""
        slots = first[2:]
        self.join(slots, second[2:])
        return [min(first[0], second[0]), max(first[1], second[1]), *slots]

    def advance(self, watermark_ms: int) -> list[Row]:
        """The results of the sessions that close, in the order of their ends, then of their keys."""
        self.closed_ms = max(self.closed_ms, watermark_ms)
        closed: list[tuple[Key, list[Any]]] = []
        for key, sessions in self.store.due(watermark_ms):
            left = [session for session in sessions if session[1] + self.gap_ms - 1 > watermark_ms]
            closed += [(key, session) for session in sessions if session[1] + self.gap_ms - 1 <= watermark_ms]
            if left:
                self.store.load([key])
                self.store.live[key] = left
                self.store.schedule(key, min(session[1] for session in left) + self.gap_ms - 1)
        closed.sort(key=lambda item: (item[1][1], item[1][0], ordered(item[0])))
        return [self.result(key, session) for key, session in closed]

    def result(self, key: Key, session: list[Any]) -> Row:
        """The row of a session."""
        end_ms = session[1] + self.gap_ms
        return (*key, session[0], end_ms, *self.values(session[2:]), *((end_ms - 1,) if self.lane else ()))

    def next_deadline(self) -> int | None:
        """When the next session closes, unless an event extends it."""
        return self.store.next_deadline()

    def earliest(self, event_ms: int) -> int | None:
        """When a session of this event alone closes."""
        return event_ms + self.gap_ms - 1

    def latest(self, event_ms: int) -> int:
        """From when on the event is late."""
        return event_ms + self.gap_ms - 1


Windowed = WindowOperator | SessionOperator


class told_failure:
    """Names the expression that failed, or the accumulator that no longer fits its type."""

    def __init__(self, operator: Windowed, batch: list[Row]) -> None:
        self.operator, self.batch = operator, batch

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ArithmeticError):
            operator = self.operator
            failure = explain_failure(operator.node.id, operator.expressions, operator.columns, self.batch)
            raise (failure if failure.help is not None else DataError(f"{error}, in {operator.node.id}", None)) from None


def _lines(signature: str, lines: Iterable[str]) -> str:
    return "\n".join([f"def {signature}:", *indented([*lines, "return"], 1), ""])


def node_deadline(node: Node) -> Callable[[Key, Entry], int] | None:
    """When entries of a keyed node expire or close, in milliseconds, or None where they never do."""
    spec = node.spec
    assert isinstance(spec, AggregateSpec)
    if spec.window is not None and spec.window.type == "session":
        gap_ms = spec.window.size_ms
        return lambda _, sessions: int(min(session[1] for session in sessions)) + gap_ms - 1
    if spec.window is not None:
        return lambda key, _: int(key[-1]) - 1  # type: ignore[call-overload]
    if spec.retention_ms is None:
        return None
    retention_ms = spec.retention_ms
    return lambda _, entry: int(entry[-1]) + retention_ms
