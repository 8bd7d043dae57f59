"""Runs a fixture through a plan and compares what came out, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from streamform.errors import DataError
from streamform.plan.nodes import Node, Plan, SourceSpec
from streamform.runtime.dataflow import Dataflow, Drained
from streamform.runtime.operators import Rejected
from streamform.runtime.records import OPERATION_NAMES, Change
from streamform.simulator.fixture import ExpectedRecord, Fixture, FixtureError, GivenEvent, event_row, expected_row
from streamform.values.rows import Row, Schema, document_value, render_value

BATCH = 4096
"""Events handed over at once. Units: rows."""

Record = dict[str, Any]
"""Shape: {op, columns, before?} as test reports hold it."""


@dataclass(frozen=True, slots=True)
class RowReport:
    """One expected record beside the one that was emitted at its place."""

    index: int
    expected: Record | None
    actual: Record | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class ListedReport:
    """One listed late or quarantined event beside the one that was."""

    index: int
    expected: dict[str, Any] | None
    actual: dict[str, Any] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class FixtureReport:
    """The outcome of one fixture."""

    model: str
    path: str
    passed: bool
    error: str | None = None
    events_processed: int = 0
    changes_emitted: int = 0
    rows: tuple[RowReport, ...] = ()
    late_dropped: int = 0
    late: tuple[ListedReport, ...] = ()
    quarantined_events: int = 0
    quarantined: tuple[ListedReport, ...] = ()
    columns: tuple[str, ...] = field(default=())
    """Output columns in order, for tables."""


def run_fixture(fixture: Fixture, plan: Plan, *, emit_unchanged: bool = True) -> FixtureReport:
    """Run one fixture; an event that can't be delivered or computed makes it fail with an error."""
    part = upstream_part(plan, fixture.model)
    sources = sorted({n.spec.source.name for n in part.nodes if isinstance(n.spec, SourceSpec)})
    if len(sources) != 1:
        named = " and ".join(f"`{name}`" for name in sources) or "none"
        return _failed(fixture, f"model `{fixture.model}` reads {named}; a fixture gives events to exactly one source")
    try:
        simulation = _Simulation(part, fixture, sources[0], emit_unchanged=emit_unchanged)
        simulation.run()
        return simulation.report()
    except (FixtureError, DataError) as error:
        return _failed(fixture, str(error))


def _failed(fixture: Fixture, error: str) -> FixtureReport:
    return FixtureReport(fixture.model, fixture.path, passed=False, error=error)


def upstream_part(plan: Plan, model: str) -> Plan:
    """The plan of a model and everything that it reads."""
    output = next(m.output for m in plan.models if m.name == model)
    sink = plan.by_id[output]
    return plan.part({model} | {node.model for node in plan.upstream(sink)})


class _Simulation:
    def __init__(self, part: Plan, fixture: Fixture, source: str, *, emit_unchanged: bool) -> None:
        self.fixture = fixture
        self.sink = part.by_id[next(m.output for m in part.models if m.name == fixture.model)]
        self.dataflow = Dataflow(part, emit_unchanged=emit_unchanged)
        self.nodes = self.dataflow.source_nodes(source)
        self.source: Node = part.by_id[self.nodes[0]]
        self.source_name = source
        self.delivered = 0
        self.out = Drained()

    def run(self) -> None:
        """Push every item. Batches never cross a watermark item; models that share the source see each event in turn."""
        size = BATCH if len(self.nodes) == 1 else 1
        pending: list[Row] = []
        for item in self.fixture.given:
            if isinstance(item, GivenEvent):
                number = self.delivered + len(pending) + 1
                pending.append(event_row(item.columns, self.source.schema, self.source_name, f"event {number}"))
                if len(pending) >= size:
                    pending = self.push(pending)
                continue
            pending = self.push(pending)
            for node in self.nodes:
                self.dataflow.watermark(node, item.watermark_ms)
        self.push(pending)
        self.out = self.dataflow.drain()

    def push(self, rows: list[Row]) -> list[Row]:
        for node in self.nodes:
            self.dataflow.push(node, rows, self.delivered + 1)
        self.delivered += len(rows)
        return []

    def report(self) -> FixtureReport:
        changes = self.out.changes.get(self.sink.id, [])
        rows = compare_records(self.fixture.expect, changes, self.sink.schema)
        late = self.listed(self.fixture.late, [(row, None) for row in self.out.late.get(self.source.id, [])], LATE)
        rejected: list[Rejected] = self.out.quarantined.get(self.source.id, [])
        quarantined = self.listed(self.fixture.quarantined, [(r.row, r.contract) for r in rejected], QUARANTINED)
        passed = not any(row.problem for row in rows) and not any(item.problem for item in (*late, *quarantined))
        return FixtureReport(
            self.fixture.model,
            self.fixture.path,
            passed,
            None,
            self.dataflow.counts[self.source.id].delivered,
            len(changes),
            tuple(rows),
            len(self.out.late.get(self.source.id, [])),
            tuple(late),
            len(rejected),
            tuple(quarantined),
            tuple(column.name for column in self.sink.schema),
        )

    def listed(self, expected: Sequence[dict[str, Any]], actual: Sequence[tuple[Row, str | None]], words: _Words) -> list[ListedReport]:
        """Compare a list of late or quarantined events, in order, each as a whole row."""
        reports: list[ListedReport] = []
        for index, (listed, happened) in enumerate(zip_longest(expected, actual)):
            shown = None if happened is None else self.shown(*happened)
            problem = words.missing if happened is None else words.unlisted if listed is None else None
            if problem is None and not self.same(listed, *happened):
                problem = words.different
            reports.append(ListedReport(index, None if listed is None else _plain(listed), shown, problem))
        return reports

    def shown(self, row: Row, contract: str | None) -> dict[str, Any]:
        columns = {c.name: document_value(v, c.type) for c, v in zip(self.source.schema, row, strict=True) if v is not None}
        return columns if contract is None else {"_contract": contract, **columns}

    def same(self, listed: dict[str, Any], row: Row, contract: str | None) -> bool:
        columns = {name: value for name, value in listed.items() if contract is None or name != "_contract"}
        if contract is not None and listed.get("_contract") != contract:
            return False
        try:
            return event_row(columns, self.source.schema, self.source_name, "it") == row
        except FixtureError:
            return False


@dataclass(frozen=True, slots=True)
class _Words:
    unlisted: str
    missing: str
    different: str


LATE = _Words(
    "dropped as late but not acknowledged; list it under `late:`, or set `late_events: keep` on the source",
    "listed as late, but it was delivered",
    "the event that was dropped here is another one",
)
QUARANTINED = _Words(
    "quarantined but not acknowledged; list it under `quarantined:` with its _contract",
    "listed as quarantined, but it was delivered",
    "the event that was quarantined here, or the contract it broke, is another one",
)


def compare_records(expected: Sequence[ExpectedRecord], actual: Sequence[Change], schema: Schema) -> list[RowReport]:
    """Expected and emitted records side by side; a problem where they differ."""
    reports: list[RowReport] = []
    for index, (wanted, change) in enumerate(zip_longest(expected, actual)):
        row = None if wanted is None else expected_row(wanted.columns, schema, f"expect[{index}]")
        problem = _difference(wanted, row, change, schema)
        shown = None if wanted is None or row is None else record(wanted.op, row, None, schema)
        reports.append(RowReport(index, shown, None if change is None else record(change[0], change[1], change[2], schema), problem))
    return reports


def record(op: int, row: Row, before: Row | None, schema: Schema) -> Record:
    """A record as test reports hold it."""
    result: Record = {"op": OPERATION_NAMES[op], "columns": _columns(row, schema)}
    if before is not None:
        result["before"] = _columns(before, schema)
    return result


def _columns(row: Row, schema: Schema) -> dict[str, Any]:
    return {c.name: document_value(v, c.type) for c, v in sorted(zip(schema, row, strict=True), key=lambda pair: pair[0].name)}


def _plain(listed: dict[str, Any]) -> dict[str, Any]:
    """A listed row as it was written, in JSON's types."""
    return {name: value if isinstance(value, (str, int, bool, type(None))) else float(value) for name, value in listed.items()}


def _difference(wanted: ExpectedRecord | None, row: Row | None, change: Change | None, schema: Schema) -> str | None:
    if wanted is None or row is None:
        return "unexpected: the fixture ends before this record"
    if change is None:
        return "missing: the model emitted nothing here"
    if wanted.op != change[0]:
        return f"op: expected {OPERATION_NAMES[wanted.op]}, got {OPERATION_NAMES[change[0]]}"
    for column, left, right in zip(schema, row, change[1], strict=True):
        if left != right and not (left != left and right != right):
            return f"{column.name}: expected {render_value(left)}, got {render_value(right)}"
    return None
