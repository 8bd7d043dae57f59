"""A dataflow: the operators of a plan, wired, with their clocks. Push events in, take changelog records out.

A batch and the same events one by one give the same changelog: a batch is cut exactly where the watermark reaches a
deadline of some keyed node downstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from decimal import localcontext

from msgspec import Struct, field

from streamform.errors import DataError
from streamform.plan.nodes import AggregateSpec, Node, Plan, SinkSpec, SourceSpec
from streamform.runtime.keyed import AggregateOperator
from streamform.runtime.operators import Batch, Operator, Rejected, SourceOperator, build_operator, memory_store
from streamform.runtime.records import INSERT, Change, Key
from streamform.runtime.state import Entry, StateStore
from streamform.runtime.windows import SessionOperator, Windowed, WindowOperator
from streamform.values.rows import EXACT, Row

LATE = "late"
"""What quarantine says about a late event, in the place of a contract's name."""


class SourceCounts(Struct):
    """What happened to a source's events."""

    delivered: int = 0
    late: int = 0
    quarantined: int = 0


class Drained(Struct):
    """What came out since the last drain."""

    changes: dict[str, list[Change]] = field(default_factory=dict)
    """Records by sink node."""
    late: dict[str, list[Row]] = field(default_factory=dict)
    """Dropped late events by source node, in delivery order."""
    quarantined: dict[str, list[Rejected]] = field(default_factory=dict)
    """Events that broke a contract, by source node, in delivery order."""


class Dataflow:
    """The running form of a plan. Not safe for use by several threads."""

    def __init__(self, plan: Plan, store: Callable[[Node], StateStore] = memory_store, *, emit_unchanged: bool = False) -> None:
        self.plan = plan
        self.lane = any(isinstance(n.spec, AggregateSpec) and n.spec.retention_ms is not None for n in plan.nodes)
        self.sources: dict[str, SourceOperator] = {}
        self.operators: dict[str, Operator | None] = {}
        self.readers: dict[str, list[str]] = {node.id: [] for node in plan.nodes}
        self.counts: dict[str, SourceCounts] = {}
        self.sinks = {node.id for node in plan.nodes if isinstance(node.spec, SinkSpec)}
        self.drained = Drained()
        for node in plan.nodes:
            for name in node.inputs:
                self.readers[name].append(node.id)
            if isinstance(node.spec, SourceSpec):
                self.sources[node.id] = SourceOperator(node)
                self.counts[node.id] = SourceCounts()
            else:
                operator = build_operator(node, plan.inputs_of(node), store, lane=self.lane, emit_unchanged=emit_unchanged)
                self.operators[node.id] = operator
        self.windowed_only = {name for name in self.sources if not self._reaches_output(name)}
        """Sources whose events go nowhere but into windows."""
        self.timed = {name: self._timed_below(name) for name in self.sources}
        self.feeders = {node.id: [u.id for u in plan.upstream(node) if u.id in self.sources] for node in plan.nodes}

    def _timed_below(self, source: str) -> list[str]:
        """Keyed nodes downstream of a source that the watermark concerns, in plan order."""
        below = {source}
        for node in self.plan.nodes:
            if below & set(node.inputs):
                below.add(node.id)
        operators = [(n.id, self.operators.get(n.id)) for n in self.plan.nodes if n.id in below]
        return [
            name
            for name, op in operators
            if isinstance(op, Windowed) or (isinstance(op, AggregateOperator) and op.retention_ms is not None)
        ]

    def _reaches_output(self, source: str) -> bool:
        """Whether rows of a source arrive at state without windows, or at an output, other than through a window."""
        pending, seen = [source], {source}
        while pending:
            for reader in self.readers[pending.pop()]:
                operator, spec = self.operators[reader], self.plan.by_id[reader].spec
                if isinstance(operator, AggregateOperator):
                    return True
                if isinstance(spec, SinkSpec) and (spec.endpoint is not None or not self.readers[reader]):
                    return True
                if not isinstance(operator, Windowed) and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return False

    def source_nodes(self, source: str) -> list[str]:
        """The source nodes that read a declared source; each model that reads it has its own."""
        return [n.id for n in self.plan.nodes if isinstance(n.spec, SourceSpec) and n.spec.source.name == source]

    def push(self, node_id: str, rows: list[Row], first: int = 1) -> None:
        """Deliver events to a source node, in order. `first` numbers the first of them in messages."""
        source = self.sources[node_id]
        with localcontext(EXACT):
            if source.clock is None and not source.contracts:
                self.counts[node_id].delivered += len(rows)
                self._deliver(node_id, [(*row, None) for row in rows] if self.lane else rows)
            else:
                self._push_checked(source, rows, first)

    def _push_checked(self, source: SourceOperator, rows: list[Row], first: int) -> None:
        """Events of a source with a clock or contracts: judge each, and cut the batch where a deadline is reached."""
        node_id, clock, time = source.node.id, source.clock, source.time
        counts, pending = self.counts[node_id], []
        deadline = self._deadline(node_id)
        keyed = [self._timed(name) for name in self.timed[node_id]]
        windows = [name for name in self.timed[node_id] if isinstance(self.operators[name], Windowed)]
        for number, row in enumerate(rows, first):
            contract = source.broken(row) if source.contracts else None
            event_ms = None if time is None else row[time]
            if contract is not None:
                counts.quarantined += 1
                self.drained.quarantined.setdefault(node_id, []).append(Rejected(row, contract))
            if clock is None:
                if contract is None:
                    pending.append((*row, None) if self.lane else row)
                continue
            if event_ms is None:
                if contract is None:
                    raise self._timeless(source, number)
                continue
            assert isinstance(event_ms, int)
            before = clock.watermark_ms
            late = clock.observe(event_ms)
            touched = [] if late or contract is not None else self._closed_windows(windows, node_id, event_ms, before)
            if touched:
                counts.delivered += len(pending)
                self._deliver(node_id, pending)
                pending = []
                closed = self._close(touched, event_ms)
                late = node_id in self.windowed_only and closed == len(windows)
                if closed and not late:
                    self._note_late(source, row)
            if contract is None and late and not clock.declared.keeps_late:
                self._turn_away(source, row)
            elif contract is None:
                pending.append((*row, event_ms) if self.lane else row)
                for operator in keyed:
                    earliest = operator.earliest(event_ms)
                    if earliest is not None and (deadline is None or earliest < deadline):
                        deadline = earliest
            if clock.watermark_ms > before and deadline is not None and clock.watermark_ms >= deadline:
                counts.delivered += len(pending)
                self._deliver(node_id, pending)
                pending = []
                self._advance(node_id)
                deadline = self._deadline(node_id)
        counts.delivered += len(pending)
        self._deliver(node_id, pending)

    def _turn_away(self, source: SourceOperator, row: Row) -> None:
        """A late event that models don't see: dropped and counted, or put into quarantine."""
        counts = self.counts[source.node.id]
        if source.clock is not None and source.clock.declared.late == "quarantine":
            counts.quarantined += 1
        else:
            counts.late += 1
        self._note_late(source, row)

    def _note_late(self, source: SourceOperator, row: Row) -> None:
        """Show a late event where late events of its source go."""
        if source.clock is not None and source.clock.declared.late == "quarantine":
            self.drained.quarantined.setdefault(source.node.id, []).append(Rejected(row, LATE))
        else:
            self.drained.late.setdefault(source.node.id, []).append(row)

    def _closed_windows(self, windows: list[str], source: str, event_ms: int, watermark_ms: int) -> list[str]:
        """Window operators that have emitted a window of this event already, though it is not behind the watermark."""
        found: list[str] = []
        for name in windows:
            others = [self.sources[other].watermark_ms for other in self.feeders[name] if other != source]
            earliest = self._timed(name).earliest(event_ms)
            if earliest is not None and earliest <= min([watermark_ms, *others]):
                found.append(name)
        return found

    def _close(self, windows: list[str], event_ms: int) -> int:
        """Make window operators turn away rows of windows that end with this event; for how many of them no window is left."""
        over = 0
        for name in windows:
            operator = self.operators[name]
            assert isinstance(operator, WindowOperator | SessionOperator)
            operator.closed_ms = max(operator.closed_ms, event_ms)
            over += operator.latest(event_ms) <= event_ms
        return over

    def _timeless(self, source: SourceOperator, number: int) -> DataError:
        spec = source.node.spec
        assert isinstance(spec, SourceSpec)
        column = spec.source.event_time
        return DataError(
            f"event {number} has no `{column}`; source `{spec.source.name}` orders events by it",
            f"give the event a time, or quarantine such events with a contract: not_null: [{column}]",
        )

    def limit_to(self, nodes: Collection[str]) -> None:
        """Hand rows to these nodes only, from now on."""
        self.readers = {name: [reader for reader in readers if reader in nodes] for name, readers in self.readers.items()}

    def show(self, node_id: str, entries: Iterable[tuple[Key, Entry]]) -> None:
        """Hand on what entries of a keyed node without windows show, as rows that have just come about."""
        operator = self.operators[node_id]
        assert isinstance(operator, AggregateOperator), f"{node_id} shows nothing by itself"
        with localcontext(EXACT):
            self._deliver(node_id, [(INSERT, operator.shown(key, entry, (None,)), None) for key, entry in entries])

    def watermark(self, node_id: str, watermark_ms: int) -> None:
        """Advance a source's watermark explicitly; one that is behind has no effect."""
        clock = self.sources[node_id].clock
        if clock is not None and clock.advance(watermark_ms):
            with localcontext(EXACT):
                self._advance(node_id)

    def watermark_of(self, node_id: str) -> int:
        """How far event time has come at a node: the slowest of the sources that feed it."""
        feeders = self.feeders[node_id] or [node_id]
        return min(self.sources[name].watermark_ms for name in feeders)

    def drain(self) -> Drained:
        """Everything that came out since the last call."""
        result, self.drained = self.drained, Drained()
        return result

    def _timed(self, name: str) -> AggregateOperator | Windowed:
        operator = self.operators[name]
        assert isinstance(operator, (AggregateOperator, WindowOperator, SessionOperator))
        return operator

    def _deadline(self, node_id: str) -> int | None:
        deadlines = [d for name in self.timed[node_id] if (d := self._timed(name).next_deadline()) is not None]
        return min(deadlines, default=None)

    def _advance(self, node_id: str) -> None:
        """Let every keyed node downstream see the new watermark, upstream ones first."""
        for name in self.timed[node_id]:
            emitted = self._timed(name).advance(self.watermark_of(name))
            if emitted:
                self._deliver(name, emitted)

    def _deliver(self, node_id: str, batch: Batch) -> None:
        """Hand a batch to every reader of a node, depth first."""
        pending = [(node_id, batch, reader) for reader in reversed(self.readers[node_id])]
        while pending:
            below, handed, reader = pending.pop()
            if not handed:
                continue
            operator = self.operators[reader]
            if operator is not None:
                handed = operator.process(handed)
            elif reader in self.sinks:
                self._collect(reader, below, handed)
            elif self._updates(reader) and not self._updates(below):
                handed = [(INSERT, row, None) for row in handed]
            pending += [(reader, handed, following) for following in reversed(self.readers[reader])]

    def _updates(self, node_id: str) -> bool:
        return self.plan.by_id[node_id].changelog.is_updating

    def _collect(self, sink: str, below: str, batch: Batch) -> None:
        """Keep what a sink shows, without the hidden event time."""
        out = self.drained.changes.setdefault(sink, [])
        if not self.plan.by_id[below].changelog.is_updating:
            out.extend([(INSERT, row[:-1], None) for row in batch] if self.lane else [(INSERT, row, None) for row in batch])
        elif self.lane:
            out.extend((op, row[:-1], None if before is None else before[:-1]) for op, row, before in batch)
        else:
            out.extend(batch)


def run_events(dataflow: Dataflow, node_id: str, events: Iterable[Row]) -> Drained:
    """Push events one by one and return what came out; for tests and small inputs."""
    for event in events:
        dataflow.push(node_id, [event])
    return dataflow.drain()
