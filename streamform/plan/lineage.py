"""Column lineage: which columns each column is made of, and which decide whether its rows exist.

An origin is a column of a source or of another model. Values flow through expressions and aggregates; conditions, grouping
columns and a window's time decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from streamform.plan.clock import source_clock
from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, Plan, ProjectSpec, SourceSpec, UnionSpec
from streamform.sql.expressions import AggregateCall, Expression, columns_of


class Origin(NamedTuple):
    """A column of a source or of a model."""

    kind: str
    """`source` or `model`."""
    name: str
    column: str

    def __str__(self) -> str:
        return f"{self.name}.{self.column}"


Origins = frozenset[Origin]
NONE: Origins = frozenset()


class ColumnLineage(Struct, frozen=True):
    """Where one column of a model comes from, one model back and, through all models, at the sources."""

    model: str
    column: str
    type: str
    inputs: tuple[Origin, ...]
    """What it is made of, in this model's own inputs."""
    sources: tuple[Origin, ...]
    decided_by: tuple[Origin, ...]
    """Source columns that decide which rows it is computed from."""


class _Traced(Struct):
    """What is known about a node's output."""

    columns: dict[str, Origins]
    decided_by: Origins = field(default=NONE)


def trace_lineage(plan: Plan, models: Iterable[str] | None = None) -> list[ColumnLineage]:
    """The lineage of every output column of these models, or of all, in plan order."""
    wanted = set(models) if models is not None else {model.name for model in plan.models}
    local, whole = _trace(plan, through_models=False), _trace(plan, through_models=True)
    result: list[ColumnLineage] = []
    for model in plan.models:
        if model.name not in wanted:
            continue
        near, far = local[model.output], whole[model.output]
        for column in plan.by_id[model.output].schema:
            near_origins, far_origins = near.columns[column.name], far.columns[column.name]
            decided = tuple(sorted(far.decided_by))
            lineage = ColumnLineage(
                model.name, column.name, str(column.type), tuple(sorted(near_origins)), tuple(sorted(far_origins)), decided
            )
            result.append(lineage)
    return result


def _trace(plan: Plan, *, through_models: bool) -> dict[str, _Traced]:
    traced: dict[str, _Traced] = {}
    for node in plan.nodes:
        inputs = [_seen(plan.by_id[name], node, traced[name], through_models=through_models) for name in node.inputs]
        traced[node.id] = _node(node, inputs, [plan.by_id[name] for name in node.inputs])
    return traced


def _seen(below: Node, reader: Node, traced: _Traced, *, through_models: bool) -> _Traced:
    """An input as its reader sees it: another model's columns are origins themselves unless asked to look through."""
    if through_models or below.model == reader.model:
        return traced
    return _Traced({column.name: frozenset({Origin("model", below.model, column.name)}) for column in below.schema})


def _node(node: Node, inputs: list[_Traced], below: list[Node]) -> _Traced:
    spec = node.spec
    if isinstance(spec, SourceSpec):
        return _source(node, spec)
    if isinstance(spec, UnionSpec):
        return _united(node, inputs, below)
    columns, decided = inputs[0].columns, inputs[0].decided_by
    if isinstance(spec, FilterSpec):
        return _Traced(columns, decided | _of(spec.predicate, columns))
    if isinstance(spec, ProjectSpec):
        return _Traced({output.name: _of(output.expression, columns) for output in spec.outputs}, decided)
    if isinstance(spec, AggregateSpec):
        return _aggregated(spec, inputs[0])
    return inputs[0]


def _source(node: Node, spec: SourceSpec) -> _Traced:
    """Late events are dropped by their time, and others by the columns of a contract."""
    columns = {c.name: frozenset({Origin("source", spec.source.name, c.name)}) for c in node.schema}
    clock = source_clock(spec.source)
    decided = columns[clock.column] if clock is not None and not clock.keeps_late else NONE
    return _Traced(columns, decided.union(*(_of(contract.condition, columns) for contract in spec.contracts)))


def _aggregated(spec: AggregateSpec, below: _Traced) -> _Traced:
    columns = below.columns
    result = {key.name: columns[key.name] for key in spec.keys}
    decided = below.decided_by.union(*result.values())
    if spec.window is not None:
        time = columns[spec.window.time]
        result |= {"window_start": time, "window_end": time}
        decided |= time
    return _Traced(result | {call.name: _call(call, columns) for call in spec.calls}, decided)


def _call(call: AggregateCall, columns: Mapping[str, Origins]) -> Origins:
    parts = [part for part in (call.argument, call.condition) if part is not None]
    return NONE.union(*(_of(part, columns) for part in parts))


def _united(node: Node, inputs: list[_Traced], below: list[Node]) -> _Traced:
    columns = {
        column.name: NONE.union(*(traced.columns[other.schema[i].name] for traced, other in zip(inputs, below, strict=True)))
        for i, column in enumerate(node.schema)
    }
    return _Traced(columns, NONE.union(*(traced.decided_by for traced in inputs)))


def _of(expression: Expression, columns: Mapping[str, Origins]) -> Origins:
    return NONE.union(*(columns[name] for name in columns_of(expression)))
