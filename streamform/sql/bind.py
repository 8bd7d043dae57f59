"""A syntax tree to a typed relation: every name resolved, every type known, everything unsupported refused by name.

Problems are collected: each output, condition and clause reports its own, so one run of check shows them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlglot import exp

from streamform.codes import listed, problem
from streamform.diagnostics import Diagnostic
from streamform.sql.expressions import (
    ColumnRef,
    Expression,
    Grouping,
    ModelScan,
    Output,
    Projection,
    Relation,
    Selection,
    SourceScan,
    Union,
    inputs_of,
)
from streamform.sql.group import GroupedSelect, is_grouped
from streamform.sql.parse import INPUT_FUNCTIONS, MAX_NESTING, SqlProblem, Statement, input_name
from streamform.sql.scalar import ScalarBinder
from streamform.sql.scope import Catalog, Found, Problems, Scope, identifier, relation_scope, schema_scope
from streamform.sql.unnamed import unnamed
from streamform.sql.unread import refuse_unread
from streamform.values.rows import Schema
from streamform.values.types import NULL

Item = tuple[Expression, str, exp.Expression]
"""A select item: expression, name ('' when unnamed) and node."""

Ctes = Mapping[str, Relation]


class QueryBinder:
    """Binds one model's statement."""

    def __init__(self, statement: Statement, catalog: Catalog, *, windowed: bool = False) -> None:
        self.catalog, self.windowed = catalog, windowed
        self.problems = Problems(statement)
        self.scalar = ScalarBinder(self.problems, windowed=windowed)

    def relation(self, node: exp.Expression, ctes: Ctes) -> Relation:
        """The relation of a query or subquery."""
        if isinstance(node, exp.Subquery) and not node.args.get("joins"):
            return self.relation(node.this, ctes)
        if isinstance(node, exp.SetOperation):
            return self.union(node, ctes)
        if not isinstance(node, exp.Select):
            raise self.problems.unsupported(node, type(node).__name__.upper(), "write a SELECT")
        return self.select(node, ctes)

    def union(self, node: exp.SetOperation, outer: Ctes) -> Relation:
        """UNION ALL of two or more queries with the same types."""
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            name = "UNION without ALL" if isinstance(node, exp.Union) else type(node).__name__.upper()
            raise self.problems.unsupported(node, name, "write UNION ALL, and SELECT DISTINCT above it where equal rows count once")
        ctes = self.ctes(node, outer)
        inputs = [self.relation(part, ctes) for part in _union_parts(node)]
        first = inputs[0].schema
        for other in inputs[1:]:
            if [c.type for c in other.schema] != [c.type for c in first]:
                cause = f"the sides of UNION ALL have the columns {_types(first)} and {_types(other.schema)}"
                raise self.problems.found(
                    "SF114", node, cause=cause, expected="select the same number of columns, and CAST them to the same types"
                )
        return Union(tuple(inputs), first)

    def select(self, node: exp.Select, outer: Ctes) -> Relation:
        """The relation of one SELECT."""
        self.refuse_distinct_on(node)
        ctes = self.ctes(node, outer)
        source, alias = self.input(node, ctes)
        scope = relation_scope(source, alias)
        where = node.args.get("where")
        if where is not None:
            source = Selection(source, self.scalar.condition(where.this, scope, "WHERE"))
        if is_grouped(node):
            relation = GroupedSelect(self, node, source, scope).bind()
        else:
            if node.args.get("having") is not None:
                raise self.problems.unsupported(node.args["having"], "HAVING without GROUP BY or an aggregate", "use WHERE")
            relation = Projection(source, self.named(self.outputs(node, scope)))
        return distinct(relation) if node.args.get("distinct") is not None else relation

    def refuse_distinct_on(self, node: exp.Select) -> None:
        """Refuse what DISTINCT ON would keep."""
        on = node.args.get("distinct")
        if on is not None and on.args.get("on") is not None:
            raise self.problems.unsupported(node, "DISTINCT ON", "group by the columns and aggregate the others")

    def ctes(self, node: exp.Expression, outer: Ctes) -> dict[str, Relation]:
        """The relations that names in FROM may lead to."""
        bound = dict(outer)
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return bound
        if clause.args.get("recursive"):
            raise self.problems.unsupported(node, "WITH RECURSIVE", "write the steps as models")
        for cte in clause.expressions:
            if cte.args["alias"].args.get("columns"):
                raise self.problems.unsupported(cte, "column names after a CTE's name", "name them with AS inside")
            bound[identifier(cte.args["alias"].this)] = self.relation(cte.this, bound)
        return bound

    def input(self, node: exp.Select, ctes: Ctes) -> tuple[Relation, str]:
        """What FROM names, and the alias its columns have."""
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            raise self.problems.unsupported(node, "SELECT without FROM", "read source('..') or ref('..')")
        item = clause.this
        alias_node = item.args.get("alias")
        alias = identifier(alias_node.this) if alias_node is not None and alias_node.this is not None else ""
        if alias_node is not None and alias_node.args.get("columns"):
            raise self.problems.unsupported(item, "column names after a table alias", "name them with AS inside")
        if isinstance(item, exp.Subquery):
            return self.relation(item.this, ctes), alias
        if not isinstance(item, exp.Table):
            raise self.problems.unsupported(item, f"{type(item).__name__.upper()} in FROM", "read source('..') or ref('..')")
        return self.table(item, ctes, alias)

    def table(self, item: exp.Table, ctes: Ctes, alias: str) -> tuple[Relation, str]:
        """A source, a model or a CTE in FROM."""
        function: Any = item.this
        if isinstance(function, exp.Anonymous) and str(function.this).lower() in INPUT_FUNCTIONS and not item.args.get("db"):
            name = input_name(self.problems.statement, function)
            known = self.catalog.sources if str(function.this).lower() == "source" else self.catalog.models
            if name not in known:
                raise self.not_planned(name)
            scan = SourceScan(name, known[name]) if known is self.catalog.sources else ModelScan(name, known[name])
            return scan, alias or name
        if isinstance(function, exp.Identifier) and not item.args.get("db"):
            name = identifier(function)
            if name in ctes:
                return ctes[name], alias or name
            raise self.problems.found("SF107", item, name=name)
        name = function.sql() if isinstance(function, exp.Expression) else str(function)
        raise self.problems.found("SF107", item, name=name)

    def not_planned(self, name: str) -> Found:
        """Record that an input has no schema; why was reported where it is declared."""
        st = self.problems.statement
        self.problems.items.append(problem("SF118", path=st.path, model=st.model, cause=f"it reads `{name}`, which is not planned"))
        return Found()

    def outputs(self, node: exp.Select, scope: Scope) -> list[Item]:
        """The select list; problems of all items are collected."""
        bound: list[Item] = []
        failed = False
        for item in node.expressions:
            try:
                bound.extend(self.item(item, scope))
            except Found:
                failed = True
        if failed:
            raise Found
        return bound

    def item(self, item: exp.Expression, scope: Scope) -> Iterator[Item]:
        """One select item; a star is several."""
        star = _star(item)
        if star is not None:
            matching = [c for c in scope.columns if not star or c.qualifier == star]
            if not matching:
                raise self.problems.found("SF113", item, column=f"{star}.*", suggestion="", known=listed(scope.names))
            yield from ((c.ref, c.ref.name, item) for c in matching)
        elif isinstance(item, exp.Alias):
            yield self.scalar.expression(item.this, scope), identifier(item.args["alias"]), item
        else:
            expression = self.scalar.expression(item, scope)
            yield expression, expression.name if isinstance(expression, ColumnRef) else "", item

    def named(self, items: Sequence[Item]) -> tuple[Output, ...]:
        """The outputs under their names. Refuses a name used twice and a value without a type."""
        result: dict[str, Output] = {}
        for expression, given, item in items:
            name = given or unnamed(expression)
            if name in result:
                raise self.problems.found("SF115", item, column=name)
            if expression.type is NULL:
                raise self.problems.found("SF114", item, cause=f"`{name}` is NULL and has no type", expected="write CAST(NULL AS type)")
            if expression.type.kind in ("interval", "months"):
                raise self.problems.found("SF114", item, cause=f"`{name}` is an interval", expected="add it to a timestamp")
            result[name] = Output(expression, name, is_unnamed=not given)
        return tuple(result.values())


def distinct(relation: Relation) -> Relation:
    """The relation with equal rows once: grouped by every column."""
    keys = tuple(ColumnRef(c.name, c.type) for c in relation.schema)
    grouping = Grouping(relation, keys, (), windowed=False, schema=relation.schema)
    return Projection(grouping, tuple(Output(key, key.name) for key in keys))


def _union_parts(node: exp.Expression) -> list[exp.Expression]:
    """The queries of a chain of UNION ALL, from left to right."""
    parts: list[exp.Expression] = []
    current: Any = node
    while isinstance(current, exp.Union) and not current.args.get("distinct"):
        parts.append(current.expression)
        current = current.this
    return [current, *reversed(parts)]


def _types(schema: Schema) -> str:
    return f"({', '.join(str(c.type) for c in schema)})"


def _star(item: exp.Expression) -> str | None:
    """The qualifier of a star ('' for a bare one), or None for anything else."""
    if isinstance(item, exp.Star):
        return ""
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return identifier(item.args["table"]) if item.args.get("table") else ""
    return None


def bind_statement(statement: Statement, catalog: Catalog, *, windowed: bool) -> Relation | list[Diagnostic]:
    """The statement's relation, or every problem found in it."""
    binder = QueryBinder(statement, catalog, windowed=windowed)
    try:
        refuse_unread(binder.problems, statement.select)
        relation = binder.relation(statement.select, {})
    except Found:
        return binder.problems.items
    except SqlProblem as found:
        return [*binder.problems.items, found.diagnostic]
    except RecursionError:
        return [problem("SF120", path=statement.path, model=statement.model, limit=MAX_NESTING)]
    if windowed and not any(isinstance(part, Grouping) and part.windowed for part in walk_relation(relation)):
        return [problem("SF411", path=statement.path, where=statement.place(statement.select), model=statement.model)]
    return relation


def bind_condition(statement: Statement, schema: Schema, alias: str) -> Expression | list[Diagnostic]:
    """A condition over one schema, or every problem found in it."""
    problems = Problems(statement)
    try:
        refuse_unread(problems, statement.select)
        return ScalarBinder(problems).condition(statement.select, schema_scope(schema, alias), "it")
    except Found:
        return problems.items


def walk_relation(relation: Relation) -> Iterator[Relation]:
    """The relation and everything below it."""
    pending = [relation]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(inputs_of(current))


__all__ = ["Catalog", "bind_condition", "bind_statement", "walk_relation"]
