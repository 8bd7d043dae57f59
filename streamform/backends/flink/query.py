"""A model as a temporary view: one SELECT a projection or aggregate, nested as the plan's nodes are.

A query block's input is always called `i`, which is the name that retention's hint refers to.
"""

from __future__ import annotations

from msgspec import Struct

from streamform.backends.flink.expression import emit_aggregate, emit_expression, emit_output
from streamform.backends.flink.text import MAX_INTERVAL_MS, identifier, interval_literal, names, quoted, relation
from streamform.errors import Refused
from streamform.plan.nodes import (
    AggregateSpec,
    FilterSpec,
    Node,
    Plan,
    PlannedModel,
    ProjectSpec,
    SourceSpec,
    UnionSpec,
    WindowContract,
)
from streamform.sql.expressions import ColumnRef, Output, columns_of
from streamform.values.instants import render_duration

INPUT = "`i`"


class Block(Struct, frozen=True):
    """What a query block reads: a table, view or nested query, and the conditions on it."""

    source: str
    conditions: tuple[str, ...] = ()

    def text(self) -> str:
        """FROM and WHERE."""
        where = "\nWHERE " + "\n  AND ".join(self.conditions) if self.conditions else ""
        return f"FROM {self.source}{where}"


class ModelQuery:
    """The views of one model; helper views come before the model's own."""

    def __init__(self, plan: Plan, model: PlannedModel) -> None:
        self.plan, self.model = plan, model
        self.views: list[str] = []

    def statements(self) -> list[str]:
        """CREATE TEMPORARY VIEW statements in the order in which they must run."""
        query = self.query()
        return self.views if is_inlined(self.plan, self.sink) else [*self.views, view(relation(self.model.name), query)]

    @property
    def sink(self) -> Node:
        return self.plan.by_id[self.model.output]

    def query(self) -> str:
        """The SELECT whose rows are the model's."""
        return self.select(self.plan.by_id[self.sink.inputs[0]])

    def select(self, node: Node) -> str:
        """A SELECT that gives a node's rows."""
        if isinstance(node.spec, ProjectSpec):
            below = self.plan.by_id[node.inputs[0]]
            return _select([_output(output, below, node) for output in node.spec.outputs], self.block(below))
        if isinstance(node.spec, AggregateSpec):
            return self.aggregate(node, node.spec)
        if isinstance(node.spec, UnionSpec):
            return "\nUNION ALL\n".join(self.branch(self.plan.by_id[name], node) for name in node.inputs)
        return _select([identifier(column.name) for column in node.schema], self.block(node))

    def block(self, node: Node) -> Block:
        """What a query over a node's rows reads."""
        if isinstance(node.spec, SourceSpec):
            return Block(f"{relation(node.spec.source.name)} AS {INPUT}")
        if node.model != self.model.name:
            return Block(f"{model_source(self.plan, node)} AS {INPUT}")
        if isinstance(node.spec, FilterSpec):
            below = self.block(self.plan.by_id[node.inputs[0]])
            return Block(below.source, (*below.conditions, emit_expression(node.spec.predicate)))
        return Block(f"(\n{_indented(self.select(node))}\n) AS {INPUT}")

    def branch(self, below: Node, union: Node) -> str:
        """One input of a union, under the union's names; a clock that the union does not have is taken away."""
        items: list[str] = []
        for column, named in zip(below.schema, union.schema, strict=True):
            text = identifier(column.name)
            lost = column.name == below.time and named.name != union.time
            items.append(f"{f'CAST({text} AS TIMESTAMP(3))' if lost else text} AS {identifier(named.name)}")
        return _select(items, self.block(below))

    def aggregate(self, node: Node, spec: AggregateSpec) -> str:
        """A grouped SELECT, over windows where they are declared."""
        below = self.plan.by_id[node.inputs[0]]
        keys = [identifier(key.name) for key in spec.keys]
        calls = [f"{emit_aggregate(call)} AS {identifier(call.name)}" for call in spec.calls]
        if spec.window is not None:
            _refuse_window_time(node, spec)
            bounds = [identifier(name) for name in ("window_start", "window_end")]
            windowed = windows_sql(spec.window, self.narrowed(node, below), keys)
            return _select([*keys, *bounds, *calls], Block(f"{windowed} AS {INPUT}"), (*keys, *bounds))
        hint = "" if spec.retention_ms is None else f"/*+ STATE_TTL('i' = {quoted(f'{spec.retention_ms} ms')}) */"
        return _select([*keys, *calls], self.block(below), tuple(keys), hint)

    def narrowed(self, node: Node, below: Node) -> str:
        """The name of a view of a window's input, because a window reads a table by name."""
        name = relation(self.model.name, node.id.removeprefix(node.model + "::").replace("::", "."))
        self.views.append(view(name, _select([identifier(column.name) for column in below.schema], self.block(below))))
        return name


def model_source(plan: Plan, sink: Node) -> str:
    """What stands in FROM for a model, by its sink: the name of its view, or its query."""
    if not is_inlined(plan, sink):
        return relation(sink.model)
    model = next(model for model in plan.models if model.name == sink.model)
    return f"(\n{_indented(ModelQuery(plan, model).query())}\n)"


def is_inlined(plan: Plan, sink: Node) -> bool:
    """Whether a model can't be a view: Flink keeps a view's text without the parentheses around several PARTITION BY columns."""
    windows = [node.spec for node in plan.upstream(sink) if isinstance(node.spec, AggregateSpec) and len(node.spec.keys) > 1]
    return any(spec.window is not None and spec.window.type == "session" for spec in windows)


def windows_sql(window: WindowContract, table: str, keys: list[str]) -> str:
    """The table function that puts each row of a table into its windows. Raises: Refused for one that is too long."""
    if max(window.size_ms, window.step_ms) >= MAX_INTERVAL_MS:
        raise Refused(f"Flink has no windows of {render_duration(window.size_ms)}; the longest are 999 days", "make the window shorter")
    time, size, step = (f"DESCRIPTOR({identifier(window.time)})", *map(interval_literal, (window.size_ms, window.step_ms)))
    if window.type == "session":
        partition = f" PARTITION BY ({', '.join(keys)})" if keys else ""
        return f"TABLE(SESSION(TABLE {table}{partition}, {time}, {size}))"
    function = {"tumbling": "TUMBLE", "hopping": "HOP", "cumulating": "CUMULATE"}[window.type]
    lengths = [size] if window.type == "tumbling" else [step, size]
    return f"TABLE({function}(TABLE {table}, {time}, {', '.join(lengths)}))"


def _refuse_window_time(node: Node, spec: AggregateSpec) -> None:
    operands = [part for call in spec.calls for part in (call.argument, call.condition) if part is not None]
    if "window_time" in {key.name for key in spec.keys}.union(*map(columns_of, operands)):
        raise Refused(
            f"model `{node.model}` aggregates a column `window_time` over windows, and Flink gives windows a column of that name",
            "rename it in a model below",
        )


def view(name: str, select: str) -> str:
    """The statement that makes a temporary view; `name` is an identifier."""
    return f"CREATE TEMPORARY VIEW {name} AS\n{select}"


def insert(table: str, columns: list[str], query: str) -> str:
    """The statement that fills a table; `table` is an identifier."""
    return f"INSERT INTO {table} ({names(columns)})\n{query}"


def _select(items: list[str], block: Block, group: tuple[str, ...] = (), hint: str = "") -> str:
    columns = ",\n  ".join(items)
    grouped = f"\nGROUP BY {', '.join(group)}" if group else ""
    return f"SELECT{' ' + hint if hint else ''}\n  {columns}\n{block.text()}{grouped}"


def _output(output: Output, below: Node, node: Node) -> str:
    expression = output.expression
    text = emit_output(expression)
    if isinstance(expression, ColumnRef):
        if expression.name == below.time and output.name != node.time:
            text = f"CAST({text} AS TIMESTAMP(3))"
        elif expression.name == output.name:
            return text
    return f"{text} AS {identifier(output.name)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
