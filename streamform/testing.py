"""Models in tests that are written in Python: push events, read the records that come out.

    with open_model("path/to/project", "customer_metrics") as model:
        model.push(order_id=1, customer_id=42, amount="10.00", status="paid", ordered_at="2026-08-30T10:00:00Z")
        assert model.rows() == [{"customer_id": 42, "orders": 1, "total_spend": "10"}]

Values go in and come out as fixtures hold them: decimals and instants as text, NULL as None.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamform.api import chosen_models
from streamform.api import compile as compile_project
from streamform.plan.compiled import Compiled
from streamform.runtime.records import Change
from streamform.simulator.compare import Record, final_rows, record_document, row_document
from streamform.simulator.fixture import Fixture, Given, GivenEvent, GivenWatermark
from streamform.simulator.run import Simulation, upstream_part
from streamform.values.instants import parse_instant


class ModelUnderTest:
    """One model with everything that it reads."""

    def __init__(self, compiled: Compiled, model: str) -> None:
        emit_unchanged = compiled.project.emit_unchanged
        self.simulation = Simulation(upstream_part(compiled.plan, model), Fixture(model, "python"), emit_unchanged=emit_unchanged)
        self.changes: list[Change] = []

    def push(self, source: str | None = None, /, **columns: Any) -> list[Record]:
        """Deliver one event; the records that it makes, {op, columns, before?}. `source` is needed where there are several.

        Raises: FixtureError for a value that the source can't hold, DataError where a value can't be computed.
        """
        return self._deliver(GivenEvent(columns, source))

    def watermark(self, instant: str, source: str | None = None) -> list[Record]:
        """Move event time on; the records that it makes. Raises: ValueError for text that is no instant."""
        return self._deliver(GivenWatermark(parse_instant(instant), source))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are there now: by key for an upsert model, else every row so far."""
        planned, schema = self.simulation.model, self.simulation.sink.schema
        left = final_rows(self.changes, planned.key, schema, upserts=planned.materialized == "upsert")
        return [row_document(row, schema) for row in left]

    def late(self, source: str | None = None) -> list[dict[str, Any]]:
        """Events of a source that were dropped as late."""
        declared = self.simulation.source(source)
        return [row_document(row, declared.schema) for row in self.simulation.dropped(declared.name)]

    def _deliver(self, item: Given) -> list[Record]:
        simulation = self.simulation
        before = len(self.changes)
        simulation.deliver([item])
        self.changes = simulation.out.changes.get(simulation.sink.id, [])
        return [record_document(*change, simulation.sink.schema) for change in self.changes[before:]]


@contextmanager
def open_model(project_dir: str | Path, model: str) -> Iterator[ModelUnderTest]:
    """A model of a project, with no events yet. Raises: ProjectError, UsageError for an unknown model."""
    compiled = compile_project(Path(project_dir))
    chosen_models(compiled, model)
    yield ModelUnderTest(compiled, model)
