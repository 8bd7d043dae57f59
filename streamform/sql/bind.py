"""A syntax tree to a typed relation: every name resolved, every type known, everything unsupported refused by name.

Problems are collected: each output, condition and clause reports its own, so one run of check shows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlglot import exp

from streamform.codes import listed, problem, suggest
from streamform.diagnostics import Diagnostic
from streamform.sql.casts import is_castable
from streamform.sql.expressions import (
    AggregateCall,
    Call,
    Cast,
    ColumnRef,
    Expression,
    Grouping,
    Literal,
    ModelScan,
    Output,
    Projection,
    Relation,
    Selection,
    SourceScan,
)
from streamform.sql.functions import AGGREGATE_BY_NODE, BY_NODE, FUNCTIONS, Function, sum_digits
from streamform.sql.numeric import TypeMismatch
from streamform.sql.parse import INPUT_FUNCTIONS, MAX_NESTING, SqlProblem, Statement, input_name
from streamform.sql.unnamed import unnamed
from streamform.sql.unsupported import CLAUSES, EXPRESSIONS, FUNCTIONS_REFUSED
from streamform.values.rows import Column, Schema
from streamform.values.types import BOOLEAN, FLOAT64, INT32, INT64, NULL, STRING, TIMESTAMP, DataType, decimal

WINDOW_COLUMNS = ("window_start", "window_end")
MAX_DEPTH = 200

_CAST_TYPES = {
    "INT": INT32,
    "BIGINT": INT64,
    "DOUBLE": FLOAT64,
    "BOOLEAN": BOOLEAN,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "VARCHAR": STRING,
    "TEXT": STRING,
}
_TYPE_NAMES = {"int32": INT32, "int64": INT64, "float64": FLOAT64}


class _Found(Exception):
    """A problem was recorded; the part being bound is given up."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What source() and ref() can name: schemas by name."""

    sources: Mapping[str, Schema]
    models: Mapping[str, Schema]


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that a name can lead to."""

    qualifier: str
    ref: ColumnRef


@dataclass(slots=True)
class Scope:
    """The columns that names in one SELECT resolve against."""

    columns: list[ScopeColumn]
    window: bool = False

    @property
    def names(self) -> list[str]:
        return [c.ref.name for c in self.columns]

    def find(self, name: str, qualifier: str = "") -> list[ColumnRef]:
        """The columns that a name leads to."""
        return [c.ref for c in self.columns if c.ref.name == name and (not qualifier or c.qualifier == qualifier)]


@dataclass(slots=True)
class Binder:
    """Binds one model's statement."""

    statement: Statement
    catalog: Catalog
    windowed: bool = False
    problems: list[Diagnostic] = field(default_factory=list)

    def found(self, code: str, node: exp.Expression, **facts: Any) -> _Found:
        """Record a problem at a node; the caller raises what this returns."""
        st = self.statement
        self.problems.append(problem(code, path=st.path, where=st.place(node), model=st.model, **facts))
        return _Found()

    def unsupported(self, node: exp.Expression, construct: str, instead: str) -> _Found:
        """Record that a construct is not supported."""
        return self.found("SF112", node, construct=construct, instead=instead)

    def relation(self, node: exp.Expression, ctes: Mapping[str, Relation]) -> Relation:
        """The relation of a query or subquery."""
        if isinstance(node, exp.Subquery) and not node.args.get("joins"):
            return self.relation(node.this, ctes)
        if isinstance(node, exp.SetOperation):
            name = "DISTINCT (in UNION)" if isinstance(node, exp.Union) and node.args.get("distinct") else type(node).__name__.upper()
            raise self.unsupported(node, name, "write one model for each side and read them separately")
        if not isinstance(node, exp.Select):
            raise self.unsupported(node, type(node).__name__.upper(), "write a SELECT")
        return self.select(node, ctes)

    def select(self, node: exp.Select, outer: Mapping[str, Relation]) -> Relation:
        """The relation of one SELECT."""
        self.refuse_clauses(node)
        ctes = self.ctes(node, outer)
        source, alias = self.input(node, ctes)
        scope = _scope(source, alias)
        where = node.args.get("where")
        if where is not None:
            source = Selection(source, self.condition(where.this, scope, "WHERE"))
        if _is_grouped(node):
            return _GroupedSelect(self, node, source, scope).bind()
        outputs = self.outputs(node, scope)
        if node.args.get("having") is not None:
            raise self.unsupported(node.args["having"], "HAVING without GROUP BY or an aggregate", "use WHERE")
        return Projection(source, self.named(node, outputs))

    def refuse_clauses(self, node: exp.Select) -> None:
        """Refuse every clause that has no meaning over a changelog."""
        for clause, (construct, instead) in CLAUSES.items():
            value = node.args.get(clause)
            if value:
                raise self.unsupported(
                    value[0] if isinstance(value, list) else value if isinstance(value, exp.Expression) else node, construct, instead
                )

    def ctes(self, node: exp.Select, outer: Mapping[str, Relation]) -> dict[str, Relation]:
        """The relations that names in FROM may lead to."""
        bound = dict(outer)
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return bound
        if clause.args.get("recursive"):
            raise self.unsupported(node, "WITH RECURSIVE", "write the steps as models")
        for cte in clause.expressions:
            if cte.args["alias"].args.get("columns"):
                raise self.unsupported(cte, "column names after a CTE's name", "name them with AS inside")
            bound[_identifier(cte.args["alias"].this)] = self.relation(cte.this, bound)
        return bound

    def input(self, node: exp.Select, ctes: Mapping[str, Relation]) -> tuple[Relation, str]:
        """What FROM names, and the alias its columns have."""
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            raise self.unsupported(node, "SELECT without FROM", "read source('..') or ref('..')")
        item = clause.this
        alias_node = item.args.get("alias")
        alias = _identifier(alias_node.this) if alias_node is not None and alias_node.this is not None else ""
        if alias_node is not None and alias_node.args.get("columns"):
            raise self.unsupported(item, "column names after a table alias", "name them with AS inside")
        if isinstance(item, exp.Subquery):
            return self.relation(item.this, ctes), alias
        if not isinstance(item, exp.Table):
            raise self.unsupported(item, f"{type(item).__name__.upper()} in FROM", "read source('..') or ref('..')")
        return self.table(item, ctes, alias)

    def table(self, item: exp.Table, ctes: Mapping[str, Relation], alias: str) -> tuple[Relation, str]:
        """A source, a model or a CTE in FROM."""
        function = item.this
        if isinstance(function, exp.Anonymous) and str(function.this).lower() in INPUT_FUNCTIONS:
            name = input_name(self.statement, function)
            known = self.catalog.sources if str(function.this).lower() == "source" else self.catalog.models
            if name not in known:
                raise self.not_planned(name)
            scan = SourceScan(name, known[name]) if known is self.catalog.sources else ModelScan(name, known[name])
            return scan, alias or name
        if isinstance(function, exp.Identifier) and not item.args.get("db"):
            name = _identifier(function)
            if name in ctes:
                return ctes[name], alias or name
            raise self.found("SF107", item, name=name)
        name = function.sql() if isinstance(function, exp.Expression) else str(function)
        raise self.found("SF107", item, name=name)

    def not_planned(self, name: str) -> _Found:
        """Record that an input has no schema; why was reported where it is declared."""
        st = self.statement
        self.problems.append(problem("SF118", path=st.path, model=st.model, cause=f"it reads `{name}`, which is not planned"))
        return _Found()

    def outputs(self, node: exp.Select, scope: Scope) -> list[tuple[Expression, str, exp.Expression]]:
        """The select list: expression, name ('' when unnamed), and node; problems of all items are collected."""
        bound: list[tuple[Expression, str, exp.Expression]] = []
        failed = False
        for item in node.expressions:
            try:
                bound.extend(self.item(item, scope))
            except _Found:
                failed = True
        if failed:
            raise _Found
        return bound

    def item(self, item: exp.Expression, scope: Scope) -> Iterator[tuple[Expression, str, exp.Expression]]:
        """One select item; a star is several."""
        star = _star(item)
        if star is not None:
            matching = [c for c in scope.columns if not star or c.qualifier == star]
            if not matching:
                raise self.found("SF113", item, column=f"{star}.*", suggestion="", known=listed(scope.names))
            yield from ((c.ref, c.ref.name, item) for c in matching)
        elif isinstance(item, exp.Alias):
            yield self.expression(item.this, scope), _identifier(item.args["alias"]), item
        else:
            expression = self.expression(item, scope)
            yield expression, expression.name if isinstance(expression, ColumnRef) else "", item

    def named(self, node: exp.Select, outputs: Sequence[tuple[Expression, str, exp.Expression]]) -> tuple[Output, ...]:
        """The outputs under their names. Refuses a name used twice and a value without a type."""
        result: list[Output] = []
        for expression, name, item in outputs:
            name = name or unnamed(expression)
            if any(o.name == name for o in result):
                raise self.found("SF115", item, column=name)
            if expression.type is NULL:
                raise self.found("SF114", item, cause=f"`{name}` is NULL and has no type", expected="write CAST(NULL AS type)")
            result.append(Output(expression, name))
        return tuple(result)

    def condition(self, node: exp.Expression, scope: Scope, clause: str) -> Expression:
        """A boolean expression."""
        expression = self.expression(node, scope)
        if expression.type != BOOLEAN:
            type_ = "NULL" if expression.type is NULL else expression.type
            raise self.found("SF114", node, cause=f"{clause} is {type_}, not a condition", expected="compare it with something")
        return expression

    def expression(self, node: exp.Expression, scope: Scope, depth: int = 0) -> Expression:
        """A typed expression."""
        if depth > MAX_DEPTH:
            raise self.found("SF120", node, limit=MAX_DEPTH)
        name = type(node).__name__
        special = _SPECIAL.get(name)
        if special is not None:
            bind: Callable[[exp.Expression, Scope, int], Expression] = getattr(self, special)
            return bind(node, scope, depth)
        if name in BY_NODE:
            operands = [node.this, *([node.expression] if node.args.get("expression") is not None else [])]
            return self.call(BY_NODE[name], node, operands, scope, depth)
        if name in AGGREGATE_BY_NODE:
            raise self.unsupported(node, f"{name.upper()} here", "use aggregates in SELECT and HAVING only")
        if name in EXPRESSIONS:
            raise self.unsupported(node, *EXPRESSIONS[name])
        if isinstance(node, exp.Func):
            raise self.unknown_function(node)
        raise self.unsupported(node, f"the expression {_construct(name)}", "write it with the operators and functions of docs/sql.md")

    def unknown_function(self, node: Any) -> _Found:
        """Record that a function is not supported."""
        called = str(node.this).upper() if isinstance(node, exp.Anonymous) else node.sql_name()
        instead = FUNCTIONS_REFUSED.get(called, "docs/sql.md lists the functions")
        return self.found("SF117", node, function=called, suggestion="", instead=instead)

    def call(self, function: Function, node: exp.Expression, nodes: Sequence[exp.Expression], scope: Scope, depth: int) -> Call:
        """A typed call."""
        args = tuple(self.expression(arg, scope, depth + 1) for arg in nodes)
        try:
            operands, type_ = function.typing(function.name, args)
        except TypeMismatch as mismatch:
            expected = "CAST one side so that both have the same type" if len(args) > 1 else "write a condition such as x > 0"
            raise self.found("SF114", node, cause=str(mismatch), expected=expected) from None
        return Call(function, args, operands, type_)

    def column(self, node: exp.Column, scope: Scope, depth: int) -> Expression:
        """A column by name."""
        name = _identifier(node.this)
        qualifier = _identifier(node.args["table"]) if node.args.get("table") else ""
        matches = scope.find(name, qualifier)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise self.found("SF119", node, column=name, example=f"{scope.columns[0].qualifier}.{name}")
        if self.windowed and name in WINDOW_COLUMNS and not qualifier:
            raise self.found("SF405", node, column=name)
        shown = f"{qualifier}.{name}" if qualifier else name
        raise self.found("SF113", node, column=shown, suggestion=suggest(name, scope.names), known=listed(scope.names))

    def literal(self, node: exp.Literal, scope: Scope, depth: int) -> Expression:
        """A constant. Numbers with a point or an exponent are float64; their exact text is kept."""
        text = str(node.this)
        if node.is_string:
            return Literal(text, STRING)
        try:
            return number_literal(text)
        except (ValueError, ArithmeticError):
            raise self.unsupported(node, f"the number {text[:40]}", "write plain digits") from None

    def constant(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """TRUE, FALSE or NULL."""
        return Literal(None, NULL) if isinstance(node, exp.Null) else Literal(bool(node.this), BOOLEAN)

    def negation(self, node: exp.Neg, scope: Scope, depth: int) -> Expression:
        """A negative number; minus before anything else is refused for now."""
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number_literal("-" + str(inner.this))
        raise self.unsupported(node, "minus before an expression", "write 0 - x")

    def cast(self, node: exp.Cast, scope: Scope, depth: int) -> Expression:
        """An explicit conversion."""
        operand = self.expression(node.this, scope, depth + 1)
        type_ = self.cast_type(node, node.args["to"])
        if not is_castable(operand.type, type_):
            raise self.found("SF114", node, cause=f"{operand.type} can't be cast to {type_}", expected="cast to another type")
        return Cast(operand, type_)

    def cast_type(self, node: exp.Expression, to: exp.Expression) -> DataType:
        """The type that a CAST names."""
        name = to.this.name if isinstance(to, exp.DataType) and hasattr(to.this, "name") else str(to)
        arguments = [int(p.name) for p in to.expressions if p.name.isdigit()] if isinstance(to, exp.DataType) else []
        if name == "DECIMAL":
            try:
                return decimal(arguments[0], arguments[1] if len(arguments) > 1 else 0) if arguments else decimal(38, 10)
            except ValueError as error:
                raise self.found("SF114", node, cause=str(error), expected="write DECIMAL(p, s)") from None
        type_ = _CAST_TYPES.get(name) or _TYPE_NAMES.get(str(to).lower())
        if type_ is None:
            raise self.unsupported(node, f"CAST AS {name}", "cast to INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, BOOLEAN or TIMESTAMP")
        return type_

    def null_test(self, node: exp.Is, scope: Scope, depth: int) -> Expression:
        """IS NULL; other tests with IS are refused by name."""
        if isinstance(node.expression, exp.Null):
            return self.call(FUNCTIONS["IS NULL"], node, [node.this], scope, depth)
        raise self.unsupported(node, "IS with something other than NULL", "compare with =")

    def negated(self, node: exp.Not, scope: Scope, depth: int) -> Expression:
        """NOT, of which `x IS NOT NULL` is one spelling."""
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return self.call(FUNCTIONS["IS NOT NULL"], node, [inner.this], scope, depth)
        return self.call(FUNCTIONS["NOT"], node, [inner], scope, depth)

    def parenthesised(self, node: exp.Paren, scope: Scope, depth: int) -> Expression:
        """What the parentheses hold."""
        return self.expression(node.this, scope, depth + 1)


_SPECIAL = {
    "Column": "column",
    "Literal": "literal",
    "Boolean": "constant",
    "Null": "constant",
    "Neg": "negation",
    "Cast": "cast",
    "Is": "null_test",
    "Not": "negated",
    "Paren": "parenthesised",
}
"""Methods for syntax that is not a plain call."""


class _GroupedSelect:
    """A SELECT with GROUP BY or aggregates: binds keys first, then everything above in terms of keys and accumulators."""

    def __init__(self, binder: Binder, node: exp.Select, source: Relation, scope: Scope) -> None:
        self.binder, self.node, self.source, self.scope = binder, node, source, scope
        self.calls: dict[str, ColumnRef] = {}
        self.aggregates: list[AggregateCall] = []
        self.windows: set[str] = set()
        self.keys: list[ColumnRef] = []

    def bind(self) -> Relation:
        """Filter and projection over the grouping."""
        binder, node = self.binder, self.node
        self.keys = self.group_keys()
        if binder.windowed and self.windows != set(WINDOW_COLUMNS):
            raise binder.found("SF404", node.args.get("group") or node)
        outputs = self.outputs()
        having = node.args.get("having")
        predicate = self.having(having.this, outputs) if having is not None else None
        grouping: Relation = self.grouping()
        if predicate is not None:
            grouping = Selection(grouping, predicate)
        return Projection(grouping, binder.named(node, outputs))

    def grouping(self) -> Grouping:
        bounds = [Column(name, TIMESTAMP) for name in WINDOW_COLUMNS] if self.windows else []
        schema = (*(Column(k.name, k.type) for k in self.keys), *bounds, *(Column(a.name, a.type) for a in self.aggregates))
        return Grouping(self.source, tuple(self.keys), tuple(self.aggregates), bool(self.windows), schema)

    def group_keys(self) -> list[ColumnRef]:
        group = self.node.args.get("group")
        if group is None:
            return []
        for kind in ("rollup", "cube", "grouping_sets", "totals"):
            if group.args.get(kind):
                raise self.binder.unsupported(self.node, kind.upper().replace("_", " "), "write one model for each grouping")
        items = self.ungrouped_items() if group.args.get("all") else group.expressions
        keys: list[ColumnRef] = []
        for item in items:
            key = self.group_key(item)
            if key is not None and key not in keys:
                keys.append(key)
        return keys

    def ungrouped_items(self) -> list[exp.Expression]:
        """GROUP BY ALL: every select item without an aggregate."""
        items = [i.this if isinstance(i, exp.Alias) else i for i in self.node.expressions]
        return [i for i in items if not any(_is_aggregate(part) for part in i.walk())]

    def group_key(self, item: exp.Expression) -> ColumnRef | None:
        """A grouping column, or None for a bound of the window."""
        target = self.resolve_group_item(item)
        if isinstance(target, exp.Column) and not target.args.get("table") and self.binder.windowed:
            name = _identifier(target.this)
            if name in WINDOW_COLUMNS and not self.scope.find(name):
                self.windows.add(name)
                return None
        if not isinstance(target, exp.Column):
            raise self.binder.unsupported(item, "GROUP BY over an expression", "name it in a subquery and group by the name")
        key = self.binder.column(target, self.scope, 0)
        assert isinstance(key, ColumnRef)
        return key

    def resolve_group_item(self, item: Any) -> Any:
        """What an ordinal or an output's name in GROUP BY stands for."""
        if isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit():
            position = int(item.this)
            if not 1 <= position <= len(self.node.expressions):
                raise self.binder.unsupported(item, f"GROUP BY {position}", "give the position of a select item")
            chosen = self.node.expressions[position - 1]
            return chosen.this if isinstance(chosen, exp.Alias) else chosen
        if isinstance(item, exp.Column) and not item.args.get("table") and not self.scope.find(_identifier(item.this)):
            for output in self.node.expressions:
                if isinstance(output, exp.Alias) and _identifier(output.args["alias"]) == _identifier(item.this):
                    return output.this
        return item

    def above(self) -> Scope:
        """The columns that exist above the grouping."""
        bounds = [ScopeColumn("", ColumnRef(name, TIMESTAMP)) for name in WINDOW_COLUMNS if name in self.windows]
        return Scope([ScopeColumn(key.qualifier, key) for key in self.keys] + bounds)

    def outputs(self) -> list[tuple[Expression, str, exp.Expression]]:
        scope = self.above()
        bound: list[tuple[Expression, str, exp.Expression]] = []
        failed = False
        for item in self.node.expressions:
            try:
                if _star(item) is not None:
                    raise self.binder.unsupported(item, "* in a grouped query", "name the grouping columns and aggregates")
                expression = self.expression(item.this if isinstance(item, exp.Alias) else item, scope)
                name = _identifier(item.args["alias"]) if isinstance(item, exp.Alias) else ""
                bound.append((expression, name or (expression.name if isinstance(expression, ColumnRef) else ""), item))
            except _Found:
                failed = True
        if failed:
            raise _Found
        return bound

    def having(self, node: exp.Expression, outputs: list[tuple[Expression, str, exp.Expression]]) -> Expression:
        aliases = {name: expression for expression, name, item in outputs if isinstance(item, exp.Alias) and not self.scope.find(name)}
        expression = self.expression(node, self.above(), aliases)
        if expression.type != BOOLEAN:
            raise self.binder.found(
                "SF114", node, cause=f"HAVING is {expression.type}, not a condition", expected="compare it with something"
            )
        return expression

    def expression(self, node: exp.Expression, scope: Scope, aliases: Mapping[str, Expression] | None = None) -> Expression:
        """An expression above the grouping: aggregates become accumulator columns, other columns must be keys."""
        return _AboveGrouping(self, aliases or {}).expression(node, scope)

    def accumulator(self, node: exp.Expression) -> ColumnRef:
        """The column of this aggregate; equal aggregates share one."""
        binder = self.binder
        function = AGGREGATE_BY_NODE[type(node).__name__]
        argument = self.argument(node)
        if argument is not None and argument.type is NULL:
            raise binder.found("SF114", node, cause=f"{function.name.upper()} over NULL has no type", expected="write CAST(NULL AS type)")
        try:
            type_ = function.typing(argument.type if argument is not None else INT64)
        except TypeMismatch as mismatch:
            raise binder.found("SF114", node, cause=str(mismatch), expected="aggregate a number") from None
        call = AggregateCall(function.name, argument, type_)
        if call.name not in self.calls:
            digits = sum_digits(type_, argument.type) if function.name == "sum" and argument is not None else 0
            self.calls[call.name] = ColumnRef(call.name, type_, sum_digits=digits)
            self.aggregates.append(call)
        return self.calls[call.name]

    def argument(self, node: exp.Expression) -> Expression | None:
        """The aggregate's operand; None counts rows, as COUNT(*) and COUNT(1) do."""
        binder, inner = self.binder, node.this
        function = type(node).__name__.upper()
        if isinstance(inner, exp.Distinct):
            raise binder.unsupported(node, f"DISTINCT inside {function}", "count or sum an upsert model keyed by the column")
        if node.expressions:
            raise binder.unsupported(node, f"{function} of several columns", "name one column, or add up several aggregates")
        if isinstance(inner, exp.Star) or inner is None:
            return None
        if any(_is_aggregate(part) for part in inner.walk()):
            raise binder.unsupported(node, "an aggregate inside an aggregate", "write the inner one as a model")
        argument = binder.expression(inner, self.scope)
        constant = isinstance(argument, Literal) and argument.value is not None
        return None if constant and type(node).__name__ == "Count" else argument


class _AboveGrouping(Binder):
    """Binds expressions above a grouping."""

    def __init__(self, grouped: _GroupedSelect, aliases: Mapping[str, Expression]) -> None:
        outer = grouped.binder
        super().__init__(outer.statement, outer.catalog, outer.windowed, outer.problems)
        self.grouped, self.aliases = grouped, aliases

    def expression(self, node: exp.Expression, scope: Scope, depth: int = 0) -> Expression:
        if isinstance(node, exp.Filter):
            raise self.unsupported(node, "FILTER inside an aggregate", "filter in WHERE, or in a model of its own")
        if type(node).__name__ in AGGREGATE_BY_NODE:
            return self.grouped.accumulator(node)
        return super().expression(node, scope, depth)

    def column(self, node: exp.Column, scope: Scope, depth: int) -> Expression:
        name = _identifier(node.this)
        qualifier = _identifier(node.args["table"]) if node.args.get("table") else ""
        if not qualifier and name in self.aliases:
            return self.aliases[name]
        if not scope.find(name, qualifier) and self.grouped.scope.find(name, qualifier):
            raise self.found("SF116", node, column=name)
        return super().column(node, scope, depth)


def _is_grouped(node: exp.Select) -> bool:
    if node.args.get("group") is not None:
        return True
    having = node.args.get("having")
    parts = [*node.expressions, *([having] if having is not None else [])]
    return any(_is_aggregate(part) for item in parts for part in item.walk())


def _is_aggregate(node: exp.Expression) -> bool:
    return type(node).__name__ in AGGREGATE_BY_NODE


def _star(item: exp.Expression) -> str | None:
    """The qualifier of a star ('' for a bare one), or None for anything else."""
    if isinstance(item, exp.Star):
        return ""
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return _identifier(item.args["table"]) if item.args.get("table") else ""
    return None


def _identifier(node: exp.Expression | str) -> str:
    """A name as it resolves: unquoted names fold to lower case."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    return str(node.name if isinstance(node, exp.Expression) else node).lower()


def _construct(name: str) -> str:
    return "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def _scope(relation: Relation, alias: str) -> Scope:
    return Scope([ScopeColumn(alias, ColumnRef(c.name, c.type, alias)) for c in relation.schema])


def number_literal(text: str) -> Literal:
    """A numeric constant: int64 when it is whole and fits, else float64 with its exact text."""
    if text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63:
        return Literal(int(text), INT64)
    value = Decimal(text)
    if not value.is_finite() or value.adjusted() > 308:
        raise ValueError(text)
    return Literal(float(value), FLOAT64, value)


def bind_statement(statement: Statement, catalog: Catalog, *, windowed: bool) -> Relation | list[Diagnostic]:
    """The statement's relation, or every problem found in it."""
    binder = Binder(statement, catalog, windowed)
    try:
        return binder.relation(statement.select, {})
    except _Found:
        return binder.problems
    except SqlProblem as found:
        return [*binder.problems, found.diagnostic]
    except RecursionError:
        return [problem("SF120", path=statement.path, model=statement.model, limit=MAX_NESTING)]


def bind_condition(statement: Statement, schema: Schema, alias: str) -> Expression | list[Diagnostic]:
    """A condition over one schema, or every problem found in it."""
    binder = Binder(statement, Catalog({}, {}))
    scope = Scope([ScopeColumn(alias, ColumnRef(c.name, c.type, alias)) for c in schema])
    try:
        return binder.condition(statement.select, scope, "it")
    except _Found:
        return binder.problems


def bound_inputs(relation: Relation) -> Iterator[SourceScan | ModelScan]:
    """The sources and models that a relation reads."""
    while not isinstance(relation, (SourceScan, ModelScan)):
        relation = relation.input
    yield relation
