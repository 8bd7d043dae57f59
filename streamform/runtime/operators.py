"""One operator for each kind of node: batches in, batches out.

Append edges carry rows, updating edges carry changes. An operator holds no state but its store's, so a store that is
saved and loaded again continues as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from streamform.plan.clock import source_clock
from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, ProjectSpec, SourceSpec
from streamform.runtime.clock import NEVER, RunningClock
from streamform.runtime.codegen import Code, condition_code, evaluator, expression_code, positions
from streamform.runtime.failure import explain_failure
from streamform.runtime.keyed import AggregateOperator
from streamform.runtime.records import DELETE, INSERT, UPDATE, Change
from streamform.runtime.state import MemoryStore, StateStore
from streamform.runtime.windows import SessionOperator, Windowed, WindowOperator, node_deadline
from streamform.values.rows import Row

Batch = list[Any]
"""Rows on an append edge, changes on an updating one."""


def column_names(node: Node) -> list[str]:
    """The names of a node's output columns."""
    return [column.name for column in node.schema]


class Rejected(Struct):
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
        self.kept = self.dropped = 0
        """How many rows the predicate let through and kept out."""

    def process(self, batch: Batch) -> Batch:
        """The rows or changes that readers see."""
        try:
            if self.updating:
                return self.changes(batch)
            kept: Batch = self.rows(batch)
            self.kept += len(kept)
            self.dropped += len(batch) - len(kept)
            return kept
        except ArithmeticError:
            raise explain_failure(self.node.id, [self.predicate], self.columns, _rows_of(batch, updating=self.updating)) from None

    def changes(self, batch: list[Change]) -> list[Change]:
        """The changes that readers see."""
        out: list[Change] = []
        test = self.test
        for op, row, before in batch:
            shown = test(row) is True
            self.kept += shown
            self.dropped += not shown
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
        """The changes of the outputs."""
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


def memory_store(node: Node) -> StateStore:
    """A store in memory for a keyed node."""
    return MemoryStore(node_deadline(node))


Keyed = AggregateOperator | Windowed
Operator = FilterOperator | ProjectOperator | Keyed


def build_operator(
    node: Node, below: Sequence[Node], store: Callable[[Node], StateStore], *, lane: bool, emit_unchanged: bool
) -> Operator | None:
    """The operator of a node; a sink and a union have none, they only hand on."""
    if isinstance(node.spec, FilterSpec):
        return FilterOperator(node, below[0])
    if isinstance(node.spec, ProjectSpec):
        return ProjectOperator(node, below[0], lane=lane, emit_unchanged=emit_unchanged)
    if isinstance(node.spec, AggregateSpec) and node.spec.window is not None:
        windowed = SessionOperator if node.spec.window.type == "session" else WindowOperator
        return windowed(node, below[0], store(node), lane=lane)
    if isinstance(node.spec, AggregateSpec):
        return AggregateOperator(node, below[0], store(node), lane=lane, emit_unchanged=emit_unchanged)
    return None
