"""A model as temporary views: one SELECT a projection or aggregate, nested as the plan's nodes are.

A query block's input is always called `i`, which is the name that retention's hint refers to.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamform.backends.flink.expression import emit_aggregate, emit_expression, emit_output
from streamform.backends.flink.text import identifier, interval_sql, names, quoted
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
from streamform.sql.expressions import ColumnRef, Output

INPUT = "`i`"


@dataclass(frozen=True, slots=True)
class Block:
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
        sink = self.plan.by_id[self.model.output]
        select = self.select(self.plan.by_id[sink.inputs[0]])
        return [*self.views, view(self.model.name, select)]

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
            return Block(f"{identifier(node.spec.source.name)} AS {INPUT}")
        if node.model != self.model.name:
            return Block(f"{identifier(node.model)} AS {INPUT}")
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
            bounds = [identifier(name) for name in ("window_start", "window_end")]
            windowed = windows_sql(spec.window, self.narrowed(node, below), keys)
            return _select([*keys, *bounds, *calls], Block(f"{windowed} AS {INPUT}"), (*keys, *bounds))
        hint = "" if spec.retention_ms is None else f"/*+ STATE_TTL('i' = {quoted(f'{spec.retention_ms} ms')}) */ "
        return _select([*keys, *calls], self.block(below), tuple(keys), hint)

    def narrowed(self, node: Node, below: Node) -> str:
        """The name of a view of a window's input, because a window reads a table by name."""
        name = f"{self.model.name}/{node.id.removeprefix(node.model + '::').replace('::', '.')}"
        self.views.append(view(name, _select([identifier(column.name) for column in below.schema], self.block(below))))
        return identifier(name)


def windows_sql(window: WindowContract, table: str, keys: list[str]) -> str:
    """The table function that puts each row of a table into its windows."""
    time, size, step = f"DESCRIPTOR({identifier(window.time)})", interval_sql(window.size_ms), interval_sql(window.step_ms)
    if window.type == "session":
        partition = f" PARTITION BY ({', '.join(keys)})" if keys else ""
        return f"TABLE(SESSION(TABLE {table}{partition}, {time}, {size}))"
    function = {"tumbling": "TUMBLE", "hopping": "HOP", "cumulating": "CUMULATE"}[window.type]
    lengths = [size] if window.type == "tumbling" else [step, size]
    return f"TABLE({function}(TABLE {table}, {time}, {', '.join(lengths)}))"


def view(name: str, select: str) -> str:
    """The statement that makes a temporary view."""
    return f"CREATE TEMPORARY VIEW {identifier(name)} AS\n{select}"


def insert(table: str, columns: list[str], query: str) -> str:
    """The statement that fills a table."""
    return f"INSERT INTO {identifier(table)} ({names(columns)})\n{query}"


def _select(items: list[str], block: Block, group: tuple[str, ...] = (), hint: str = "") -> str:
    columns = ",\n  ".join(items)
    grouped = f"\nGROUP BY {', '.join(group)}" if group else ""
    return f"SELECT {hint}\n  {columns}\n{block.text()}{grouped}".replace("SELECT \n", "SELECT\n")


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
