"""The embedded engine: reads sources, runs a unit's dataflow, and commits state, positions and output together.

One step is one transaction: a batch of events, the state after it, the positions behind it, and what goes to the sinks
(the outbox). Then the sinks receive it under a number, so that a step that was cut off is finished exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.file_source import Batch, FileSource, Position
from streamform.adapters.generation import node_numbers
from streamform.adapters.sink_ledger import SinkLedger
from streamform.adapters.state_database import StateDatabase
from streamform.adapters.state_store import SqliteStore
from streamform.backends.embedded.encoding import encode_key, encode_row
from streamform.backends.embedded.output import LineWriter, compact, key_of
from streamform.errors import DataError
from streamform.plan.nodes import Node, Plan, SinkSpec, SourceSpec
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.operators import Rejected, memory_store
from streamform.runtime.records import INSERT, Change
from streamform.runtime.state import StateStore
from streamform.runtime.windows import node_deadline
from streamform.values.rows import Row

STEP = 5_000
"""Events of one transaction."""


class Consumed(Struct):
    """What a run read and wrote."""

    events: int = 0
    late: int = 0
    quarantined: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    """Changes by model with a sink."""

    def text(self) -> str:
        """One line for people."""
        parts = [f"{self.events:,} event{'' if self.events == 1 else 's'} read" if self.events else "nothing new"]
        parts += [f"{self.late:,} late"] if self.late else []
        parts += [f"{self.quarantined:,} quarantined (table quarantined of the state database)"] if self.quarantined else []
        parts += [f"{count:,} change{'' if count == 1 else 's'} of {model}" for model, count in sorted(self.changes.items()) if count]
        return ", ".join(parts)


class Engine:
    """One generation of a unit, open. A failure inside leaves what is committed."""

    def __init__(self, database: StateDatabase, project_dir: Path, plan: Plan, generation: int, ledger: SinkLedger | None) -> None:
        self.database, self.plan, self.generation = database, plan, generation
        self.ledger = ledger
        """None while a generation is rebuilt: output is kept beside until it is compared with the sinks."""
        self.numbers = node_numbers(database, generation)
        declared = {n.spec.source.name: n.spec.source for n in plan.nodes if isinstance(n.spec, SourceSpec)}
        self.sources = {name: FileSource(project_dir, declared[name]) for name in sorted(declared)}
        self.shown = {node.id: node.model for node in plan.nodes if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None}
        """Models by sink node, of those with a sink outside."""
        self.positions = self._load_positions()
        self.stores: list[SqliteStore] = []
        self._load()

    def _load(self) -> None:
        """Begin where the last step ended."""
        self.stores.clear()
        self.dataflow = Dataflow(self.plan, self._store)
        self.nodes = {name: self.dataflow.source_nodes(name) for name in self.sources}
        self.one_by_one = self._needs_turns()
        self._load_clocks()

    def _store(self, node: Node) -> StateStore:
        if node.state is None:
            return memory_store(node)
        store = SqliteStore(self.database, self.numbers[node.id], node_deadline(node))
        self.stores.append(store)
        return store

    def _load_clocks(self) -> None:
        for node_id, source in self.dataflow.sources.items():
            for watermark, delivered, late, quarantined in self.database.all(
                "SELECT watermark, delivered, late, quarantined FROM clock WHERE node = ?", self.numbers[node_id]
            ):
                counts = self.dataflow.counts[node_id]
                counts.delivered, counts.late, counts.quarantined = delivered, late, quarantined
                if source.clock is not None:
                    source.clock.watermark_ms = watermark

    def _load_positions(self) -> dict[str, dict[str, Position]]:
        found: dict[str, dict[str, Position]] = {name: {} for name in self.sources}
        for source, file, offset, line, tail in self.database.all(
            "SELECT source, file, offset, line, tail FROM position WHERE generation = ?", self.generation
        ):
            if source in found:
                found[source][file] = Position(offset, line, tail)
        return found

    def _needs_turns(self) -> bool:
        """Whether models that share a source meet again at an operator that depends on the order of time."""
        feeders = [self.dataflow.feeders[name] for timed in self.dataflow.timed.values() for name in timed]
        shared = [set(nodes) for nodes in self.nodes.values() if len(nodes) > 1]
        return any(len(nodes & set(feeder)) > 1 for nodes in shared for feeder in feeders)

    def consume(self, told: Callable[[int, float], None] = lambda events, share: None, should_stop: Callable[[], bool] = bool) -> Consumed:
        """Read every source up to its end as of now.

        Raises: DataError naming file and line of an event that can't be read or computed; the events before it count.
        """
        ends = {name: source.ends() for name, source in self.sources.items()}
        total = sum(max(0, end - self._offset(name, file)) for name, files in ends.items() for file, end in files.items())
        consumed, done = Consumed(), 0
        for batch in self._batches(ends):
            try:
                self._step(batch, consumed)
            except DataError:
                self._narrow(batch, consumed)
            done += batch.read_bytes
            told(consumed.events, done / total if total else 1.0)
            if should_stop():
                break
        self.settle()
        return consumed

    def _narrow(self, failed: Batch, consumed: Consumed) -> NoReturn:
        """Halve a batch that failed until it is one event, whose error is raised; what comes before it is committed."""
        source, size = self.sources[failed.source], len(failed.rows)
        while True:
            size = max(1, size // 2)
            self._load()
            batch = next(source.batches(self.positions[failed.source], {failed.file: failed.position.offset}, size))
            try:
                self._step(batch, consumed)
            except DataError as error:
                if len(batch.rows) == 1:
                    raise DataError(f"{batch.file}, line {batch.last_line}: {error.message}", error.help) from None

    def _offset(self, source: str, file: str) -> int:
        return self.positions[source].get(file, Position()).offset

    def _batches(self, ends: Mapping[str, Mapping[str, int]]) -> Iterator[Batch]:
        """A batch of each source in turn."""
        reading = [source.batches(self.positions[name], ends[name], STEP) for name, source in self.sources.items()]
        while reading:
            for batches in list(reading):
                batch = next(batches, None)
                if batch is None:
                    reading.remove(batches)
                else:
                    yield batch

    def _step(self, batch: Batch, consumed: Consumed) -> None:
        """One transaction, then the deliveries that it announced."""
        before = self._totals()
        deliveries: dict[str, list[Change]] = {}
        with self.database.transaction():
            if self.ledger is not None:
                self.ledger.forget_delivered()
            self._push(batch)
            drained = self.dataflow.drain()
            for store in self.stores:
                store.save()
            self._save_clocks()
            self._save_position(batch)
            self._quarantine(batch.source, drained.quarantined.get(self.nodes[batch.source][0], []))
            by_model = {self.shown[sink]: changes for sink, changes in drained.changes.items() if changes and sink in self.shown}
            if self.ledger is None:
                self._keep_aside(by_model)
            else:
                deliveries = self.ledger.announce(by_model)
            self.database.run("UPDATE generation SET events = events + ? WHERE id = ?", len(batch.rows), self.generation)
        crash_point("embedded-committed")
        if self.ledger is not None:
            self.ledger.deliver(deliveries)
        self.positions[batch.source][batch.file] = batch.position
        after = self._totals()
        consumed.events += len(batch.rows)
        consumed.late += after[0] - before[0]
        consumed.quarantined += after[1] - before[1]
        for model, changes in by_model.items() if self.ledger is not None else ():
            consumed.changes[model] = consumed.changes.get(model, 0) + len(changes)

    def _push(self, batch: Batch) -> None:
        nodes = self.nodes[batch.source]
        groups: Sequence[list[Row]] = [[row] for row in batch.rows] if self.one_by_one else [batch.rows]
        first = batch.last_line - len(batch.rows) + 1
        for offset, rows in enumerate(groups):
            for node in nodes:
                self.dataflow.push(node, rows, first + offset)

    def _totals(self) -> tuple[int, int]:
        """Late and quarantined events; each model that reads a source judges the same events."""
        counts = self.dataflow.counts
        late = sum(max(counts[node].late for node in nodes) for nodes in self.nodes.values())
        return late, sum(max(counts[node].quarantined for node in nodes) for nodes in self.nodes.values())

    def _save_clocks(self) -> None:
        rows = []
        for node_id, source in self.dataflow.sources.items():
            counts = self.dataflow.counts[node_id]
            rows.append((self.numbers[node_id], source.watermark_ms, counts.delivered, counts.late, counts.quarantined))
        self.database.many("INSERT OR REPLACE INTO clock VALUES (?, ?, ?, ?, ?)", rows)

    def _save_position(self, batch: Batch) -> None:
        at = batch.position
        self.database.run(
            "INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?, ?, ?)",
            self.generation,
            batch.source,
            batch.file,
            at.offset,
            at.line,
            at.tail,
        )

    def _quarantine(self, source: str, rejected: Sequence[Rejected]) -> None:
        """Keep events that broke a contract, each under the first contract that it broke."""
        writer = LineWriter(self.sources[source].source.schema, (), upserts=False)
        rows = [(self.generation, source, r.contract, writer.line((INSERT, r.row, None)).rstrip("\n")) for r in rejected]
        self.database.many("INSERT INTO quarantined (generation, source, contract, event) VALUES (?, ?, ?, ?)", rows)

    def _keep_aside(self, by_model: Mapping[str, Sequence[Change]]) -> None:
        """The output of a rebuild: current rows by key, or every row."""
        models = {m.name: m for m in self.plan.models}
        for model, changes in by_model.items():
            if models[model].materialized != "upsert":
                rows = [(self.generation, model, encode_row(row)) for _, row, _ in changes]
                self.database.many("INSERT INTO spool (generation, model, row) VALUES (?, ?, ?)", rows)
                continue
            schema = self.plan.by_id[models[model].output].schema
            last = compact(changes, key_of(schema, models[model].key))
            kept = [(self.generation, model, encode_key(key), encode_row(row)) for key, row in last.items() if row is not None]
            gone = [(self.generation, model, encode_key(key)) for key, row in last.items() if row is None]
            self.database.many("INSERT OR REPLACE INTO fresh VALUES (?, ?, ?, ?)", kept)
            self.database.many("DELETE FROM fresh WHERE generation = ? AND model = ? AND key = ?", gone)

    def settle(self) -> None:
        """Write down that everything announced has arrived."""
        if self.ledger is not None and self.ledger.arrived:
            with self.database.transaction():
                self.ledger.forget_delivered()
