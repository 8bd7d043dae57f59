"""A bound relation to plan nodes: ids, definitions, changelog, clock and state of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from streamform.codes import problem
from streamform.diagnostics import Diagnostic
from streamform.plan.changelog import check_materialization, derive_aggregated, derive_projected, derive_united
from streamform.plan.clock import SourceClock, projected_time, source_clock, united_time
from streamform.plan.nodes import (
    APPEND,
    DELETE_EXPIRED,
    UNBOUNDED_RETENTION,
    UNTIL_CLOSE,
    AggregateSpec,
    BoundContract,
    Changelog,
    FilterSpec,
    KeyedState,
    Node,
    NodeKind,
    PlannedModel,
    ProjectSpec,
    SinkSpec,
    SourceSpec,
    Spec,
    UnionSpec,
    WindowContract,
    node_id,
)
from streamform.project.model import Endpoint, Model, Source
from streamform.sql.expressions import (
    Grouping,
    ModelScan,
    Projection,
    Relation,
    Selection,
    SourceScan,
    Union,
    render_expression,
)
from streamform.values.instants import render_duration
from streamform.values.rows import Column, Schema


class BuiltModel(Struct, frozen=True):
    """A model's nodes, or what is wrong with its contract."""

    model: PlannedModel
    nodes: tuple[Node, ...]
    clocked: bool
    """Whether a source with event time is upstream."""
    expiring: bool
    """Whether it shows rows of keyed state that has a retention."""
    diagnostics: tuple[Diagnostic, ...] = ()


class Upstream(Struct, frozen=True):
    """What a model reads: declared sources with their contracts, and the models planned so far."""

    sources: Mapping[str, Source]
    contracts: Mapping[str, tuple[BoundContract, ...]]
    built: Mapping[str, BuiltModel]


def build_model(model: Model, relation: Relation, upstream: Upstream) -> BuiltModel:
    """The nodes of one model, from its sources to its sink."""
    builder = _Builder(model, upstream)
    node = builder.lower(relation)
    sink = builder.sink(node)
    planned = PlannedModel(model.name, model.materialized, model.key, sink.id)
    found = [*builder.diagnostics]
    if not any(d.severity == "error" for d in found):
        found += check_materialization(model, node.changelog, [c.name for c in node.schema], builder.dropped)
    return BuiltModel(planned, tuple(builder.nodes), builder.clocked, builder.expiring, tuple(found))


class _Builder:
    """Lowers a relation from the inside out, so that inputs come before the nodes that read them."""

    def __init__(self, model: Model, upstream: Upstream) -> None:
        self.model, self.upstream = model, upstream
        self.nodes: list[Node] = []
        self.counts: Counter[str] = Counter()
        self.diagnostics: list[Diagnostic] = []
        self.dropped: str | None = None
        self.clocked = self.expiring = False

    def lower(self, relation: Relation) -> Node:
        """The node whose output is the relation's."""
        if isinstance(relation, SourceScan):
            return self.source(relation)
        if isinstance(relation, ModelScan):
            read = self.upstream.built[relation.model]
            sink = read.nodes[-1]
            self.clocked |= read.clocked
            self.expiring |= read.expiring
            return sink
        if isinstance(relation, Union):
            return self.union(relation)
        below = self.lower(relation.input)
        if isinstance(relation, Selection):
            definition = render_expression(relation.predicate)
            return self.over((below,), "filter", definition, below.schema, below.changelog, below.time, FilterSpec(relation.predicate))
        if isinstance(relation, Projection):
            return self.projection(relation, below)
        return self.aggregate(relation, below)

    def source(self, scan: SourceScan) -> Node:
        source = self.upstream.sources[scan.source]
        contracts = self.upstream.contracts.get(scan.source, ())
        clock = source_clock(source)
        self.clocked |= clock is not None
        bounded: Literal["bounded", "unbounded"] = "bounded" if source.endpoint.connector == "file" else "unbounded"
        definition = source_definition(source, clock, contracts)
        node = Node(
            self.next_id("source"),
            self.model.name,
            "source",
            (),
            definition,
            source.schema,
            bounded,
            APPEND,
            None,
            clock.column if clock else None,
            SourceSpec(source, contracts),
        )
        self.nodes.append(node)
        return node

    def union(self, relation: Union) -> Node:
        inputs = tuple(map(self.lower, relation.inputs))
        self.dropped = None
        time = united_time([node.time for node in inputs], [node.schema for node in inputs])
        changelog = derive_united([node.changelog for node in inputs])
        return self.over(inputs, "union", "union all", relation.schema, changelog, time, UnionSpec())

    def refuse_expiring(self, below: Node) -> None:
        described = f"ref('{below.model}')" if below.model != self.model.name else "a grouped subquery"
        self.diagnostics.append(problem("SF206", path=self.model.path, model=self.model.name, input=described))

    def projection(self, relation: Projection, below: Node) -> Node:
        changelog, dropped = derive_projected(below.changelog, relation.outputs)
        self.dropped = self.dropped or dropped
        definition = ", ".join(map(str, relation.outputs))
        time = projected_time(below.time, relation.outputs)
        return self.over((below,), "project", definition, relation.schema, changelog, time, ProjectSpec(relation.outputs))

    def aggregate(self, relation: Grouping, below: Node) -> Node:
        if below.changelog.is_updating and self.expiring:
            self.refuse_expiring(below)
        self.dropped = None
        keys = tuple(key.name for key in relation.keys)
        window = self.window(relation, below)
        retention = UNTIL_CLOSE if window else self.retention()
        state = KeyedState(keys, tuple(Column(c.name, c.type) for c in relation.calls), retention, window)
        definition = f"key=[{', '.join(keys)}] aggregates=[{', '.join(c.name for c in relation.calls)}]"
        changelog = derive_aggregated(keys, windowed=window is not None)
        self.expiring |= window is None and self.model.retention_ms is not None and self.model.on_expiry == "keep"
        deletes = self.model.on_expiry == "delete"
        spec = AggregateSpec(relation.keys, relation.calls, window, None if window else self.model.retention_ms, deletes)
        return self.over((below,), "aggregate", definition, relation.schema, changelog, None, spec, state)

    def window(self, relation: Grouping, below: Node) -> WindowContract | None:
        if not relation.windowed or self.model.window is None:
            return None
        window = self.model.window
        if window.size_ms == 0 or (window.type in ("hopping", "cumulating") and window.step_ms == 0):
            self.diagnostics.append(problem("SF118", path=self.model.path, model=self.model.name, cause="its window has no length"))
        if below.time is None:
            self.diagnostics.append(problem("SF402", path=self.model.path, model=self.model.name, sources="the source, and select it"))
        return WindowContract(below.time or "", window.size_ms, window.type, window.step_ms)

    def retention(self) -> str:
        if self.model.retention_ms is None:
            return UNBOUNDED_RETENTION
        kept = render_duration(self.model.retention_ms)
        return kept if self.model.on_expiry == "keep" else f"{kept} {DELETE_EXPIRED}"

    def sink(self, below: Node) -> Node:
        definition = sink_definition(self.model.materialized, self.model.sink)
        spec = SinkSpec(self.model.materialized, self.model.key, self.model.sink)
        return self.over((below,), "sink", definition, below.schema, below.changelog, below.time, spec)

    def over(
        self,
        inputs: tuple[Node, ...],
        kind: NodeKind,
        definition: str,
        schema: Schema,
        changelog: Changelog,
        time: str | None,
        spec: Spec,
        state: KeyedState | None = None,
    ) -> Node:
        """A node over inputs; it ends when all of them end."""
        bounded: Literal["bounded", "unbounded"] = "bounded" if all(node.boundedness == "bounded" for node in inputs) else "unbounded"
        ids = tuple(node.id for node in inputs)
        node = Node(self.next_id(kind), self.model.name, kind, ids, definition, schema, bounded, changelog, state, time, spec)
        self.nodes.append(node)
        return node

    def next_id(self, kind: str) -> str:
        self.counts[kind] += 1
        return node_id(self.model.name, kind, self.counts[kind] - 1)


def source_definition(source: Source, clock: SourceClock | None, contracts: tuple[BoundContract, ...]) -> str:
    """The source as definitions show it: where it is read from, its clock and its contracts."""
    text = f"{source.name} ({source.endpoint.connector} {source.endpoint.address})"
    if clock is not None:
        text += f" event_time={clock.column} watermark={render_duration(clock.delay_ms)} late={clock.late}"
    if clock is not None and clock.late == "quarantine" and not contracts:
        text += f" quarantine={source.quarantine_topic or ''}"
    if contracts:
        rules = ", ".join(f"{c.name}: {render_expression(c.condition)}" for c in contracts)
        text += f" contracts=[{rules}] quarantine={source.quarantine_topic or ''}"
    return text


def sink_definition(materialized: str, endpoint: Endpoint | None) -> str:
    """The sink as definitions show it."""
    return materialized if endpoint is None else f"{materialized} {endpoint.connector} {endpoint.address}"
