"""Runs a fixture through a plan and compares what came out, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct, field

from streamform.errors import DataError
from streamform.plan.nodes import Plan, SourceSpec
from streamform.project.model import Source
from streamform.runtime.dataflow import Dataflow, Drained
from streamform.runtime.operators import FilterOperator
from streamform.simulator.compare import RowReport, compare_final, compare_records, final_rows, same_listed
from streamform.simulator.fixture import Fixture, FixtureError, Given, GivenEvent, GivenRows, GivenWatermark, event_row
from streamform.values.rows import Row, document_value

BATCH = 4096
"""Events handed over at once. Units: rows."""

Listed = dict[str, list[tuple[Row, str | None]]]
"""Events by source, each with the contract that it broke, if one kept it out."""

RowsOf = Callable[[Source, str], Iterable[Row]]
"""The rows of a file, as its source's format reads them. Raises: DataError."""


class ListedReport(Struct, frozen=True):
    """One listed late or quarantined event beside the one that was."""

    index: int
    expected: dict[str, Any] | None
    actual: dict[str, Any] | None
    problem: str | None


class Reached(Struct, frozen=True):
    """What the events of a fixture went through, for coverage."""

    models: frozenset[str]
    filters: Mapping[str, tuple[int, int]]
    """Rows that each filter node let through and kept out."""
    late: frozenset[str]
    """Sources of which an event was late."""


class FixtureReport(Struct, frozen=True):
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
    final: tuple[RowReport, ...] = ()
    """The rows at the end beside the expected ones, in any order."""
    verdict: str | None = None
    """Of an upgrade: what the plan says about the change."""
    reached: Reached | None = None


def no_files(source: Source, file: str) -> Iterable[Row]:
    """Where nothing can be read."""
    raise FixtureError(f"rows of {file} can't be read here")


def run_fixture(fixture: Fixture, plan: Plan, *, emit_unchanged: bool = True, rows_of: RowsOf = no_files) -> FixtureReport:
    """Run one fixture; an event that can't be delivered or computed makes it fail with an error."""
    part = upstream_part(plan, fixture.model)
    simulation = Simulation(part, fixture, emit_unchanged=emit_unchanged, rows_of=rows_of)
    try:
        simulation.deliver(fixture.given)
        report = simulation.report()
    except (FixtureError, DataError) as error:
        return judge_error(fixture, str(error))
    return (
        report if fixture.expect_error is None else failed(fixture, f"expected an error with `{fixture.expect_error}`, and there was none")
    )


def judge_error(fixture: Fixture, error: str) -> FixtureReport:
    """The report of a fixture that ended with an error, which it may expect."""
    if fixture.expect_error is not None and fixture.expect_error in error:
        return FixtureReport(fixture.model, fixture.path, passed=True)
    return failed(fixture, error if fixture.expect_error is None else f"expected an error with `{fixture.expect_error}`, got: {error}")


def failed(fixture: Fixture, error: str) -> FixtureReport:
    """The report of a fixture that could not be compared."""
    return FixtureReport(fixture.model, fixture.path, passed=False, error=error)


def upstream_part(plan: Plan, model: str) -> Plan:
    """The plan of a model and everything that it reads."""
    output = next(m.output for m in plan.models if m.name == model)
    sink = plan.by_id[output]
    return plan.part({model} | {node.model for node in plan.upstream(sink)})


class Simulation:
    """A model's dataflow with the events that a fixture gives."""

    def __init__(
        self, part: Plan, fixture: Fixture, *, emit_unchanged: bool, rows_of: RowsOf = no_files, dataflow: Dataflow | None = None
    ) -> None:
        self.fixture, self.rows_of = fixture, rows_of
        self.model = next(m for m in part.models if m.name == fixture.model)
        self.sink = part.by_id[self.model.output]
        self.dataflow = Dataflow(part, emit_unchanged=emit_unchanged) if dataflow is None else dataflow
        declared = [n.spec.source for n in part.nodes if isinstance(n.spec, SourceSpec)]
        self.sources = {source.name: source for source in sorted(declared, key=lambda source: source.name)}
        self.nodes = {name: self.dataflow.source_nodes(name) for name in self.sources}
        self.pending: tuple[str, list[Row]] = ("", [])
        self.delivered = dict.fromkeys(self.sources, 0)
        self.out = Drained()

    def deliver(self, items: Sequence[Given]) -> None:
        """Push every item. Batches never cross a watermark item or another source."""
        for item in items:
            if isinstance(item, GivenEvent):
                source = self.source(item.source)
                columns = item.columns
                self.take(source.name, event_row(columns, source.schema, source.name, f"event {self.number(source.name)}"))
            elif isinstance(item, GivenRows):
                source = self.source(item.source)
                for row in self.rows_of(source, item.file):
                    self.take(source.name, row)
            else:
                self.watermark(item)
        self.flush()
        self.out = merged(self.out, self.dataflow.drain())

    def source(self, name: str | None) -> Source:
        """The source that an item is for. Raises: FixtureError."""
        names = " and ".join(f"`{known}`" for known in self.sources) or "none"
        if name is None and len(self.sources) != 1:
            raise FixtureError(
                f"model `{self.fixture.model}` reads {names}; each event must say its source: {{source: NAME, event: {{..}}}}"
            )
        if name is not None and name not in self.sources:
            raise FixtureError(f"model `{self.fixture.model}` does not read source `{name}`; it reads {names}")
        return self.sources[name] if name is not None else next(iter(self.sources.values()))

    def number(self, source: str) -> int:
        """The number of a source's next event, from 1."""
        waiting, rows = self.pending
        return self.delivered[source] + (len(rows) if waiting == source else 0) + 1

    def take(self, source: str, row: Row) -> None:
        """One more event; models that share a source see each event in turn."""
        if self.pending[0] != source:
            self.flush()
            self.pending = (source, [])
        rows = self.pending[1]
        rows.append(row)
        if len(rows) >= (BATCH if len(self.nodes[source]) == 1 else 1):
            self.flush()

    def flush(self) -> None:
        """Hand over what waits."""
        source, rows = self.pending
        self.pending = ("", [])
        if rows:
            for node in self.nodes[source]:
                self.dataflow.push(node, rows, self.delivered[source] + 1)
            self.delivered[source] += len(rows)

    def watermark(self, item: GivenWatermark) -> None:
        """An explicit watermark, of one source or of all."""
        self.flush()
        for name in self.sources if item.source is None else [self.source(item.source).name]:
            for node in self.nodes[name]:
                self.dataflow.watermark(node, item.watermark_ms)

    # comparison

    def report(self) -> FixtureReport:
        """What came out beside what is expected."""
        fixture, changes = self.fixture, self.out.changes.get(self.sink.id, [])
        schema, match = self.sink.schema, fixture.match
        rows = [] if fixture.expect is None else compare_records(fixture.expect, changes, schema, match)
        final: list[RowReport] = []
        if fixture.expect_final is not None:
            left = final_rows(changes, self.model.key, schema, upserts=self.model.materialized == "upsert")
            final = compare_final(fixture.expect_final, left, schema, match)
        late = self.listed(fixture.late, {name: [(row, None) for row in self.dropped(name)] for name in self.sources}, LATE)
        rejected: Listed = {name: [(r.row, r.contract) for r in self.out.quarantined.get(self.nodes[name][0], [])] for name in self.sources}
        quarantined = self.listed(fixture.quarantined, rejected, QUARANTINED)
        problems = [item.problem for item in (*rows, *final) if item.problem] + [x.problem for x in (*late, *quarantined) if x.problem]
        return FixtureReport(
            fixture.model,
            fixture.path,
            not problems,
            None,
            sum(self.dataflow.counts[nodes[0]].delivered for nodes in self.nodes.values()),
            len(changes),
            tuple(rows),
            sum(len(self.dropped(name)) for name in self.sources),
            tuple(late),
            sum(map(len, rejected.values())),
            tuple(quarantined),
            tuple(column.name for column in schema),
            tuple(final),
            None,
            self.reached(),
        )

    def reached(self) -> Reached:
        """What the events went through."""
        operators = self.dataflow.operators.items()
        filters = {node: (op.kept, op.dropped) for node, op in operators if isinstance(op, FilterOperator)}
        models = frozenset(node.model for node in self.dataflow.plan.nodes)
        return Reached(models, filters, frozenset(name for name in self.sources if self.dropped(name)))

    def dropped(self, source: str) -> list[Row]:
        """A source's late events; models that share it drop the same ones."""
        return self.out.late.get(self.nodes[source][0], [])

    def listed(self, expected: Sequence[dict[str, Any]], actual: Listed, words: _Words) -> list[ListedReport]:
        """Compare the late or quarantined events of each source, in order, each as a whole row."""
        reports: list[ListedReport] = []
        only = next(iter(self.sources)) if len(self.sources) == 1 else None
        for name, source in self.sources.items():
            mine = [item for item in expected if item.get("_source", only) == name]
            for listed, happened in zip_longest(mine, actual[name]):
                shown = None if happened is None else _shown(source, *happened)
                problem = words.missing if happened is None else words.unlisted if listed is None else None
                if listed is not None and happened is not None and not same_listed(listed, happened[0], happened[1], source.schema, name):
                    problem = words.different
                reports.append(ListedReport(len(reports), None if listed is None else _plain(listed), shown, problem))
        return reports


def merged(first: Drained, second: Drained) -> Drained:
    """What came out, one after the other."""
    result = Drained()
    for part in (first, second):
        for name in ("changes", "late", "quarantined"):
            for node, items in getattr(part, name).items():
                getattr(result, name).setdefault(node, []).extend(items)
    return result


def _shown(source: Source, row: Row, contract: str | None) -> dict[str, Any]:
    columns = {c.name: document_value(v, c.type) for c, v in zip(source.schema, row, strict=True) if v is not None}
    return columns if contract is None else {"_contract": contract, **columns}


def _plain(listed: dict[str, Any]) -> dict[str, Any]:
    """A listed row as it was written, in JSON's types."""
    return {name: value if isinstance(value, (str, int, bool, type(None))) else float(value) for name, value in listed.items()}


class _Words(Struct, frozen=True):
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
