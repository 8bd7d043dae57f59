"""Grouped queries: keys first, then everything above them in terms of keys and accumulators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from streamform.sql.aggregates import AGGREGATES, sum_digits
from streamform.sql.expressions import (
    AggregateCall,
    ColumnRef,
    Expression,
    Grouping,
    Literal,
    Output,
    Projection,
    Relation,
    Selection,
    columns_of,
    render_expression,
)
from streamform.sql.numeric import TypeMismatch
from streamform.sql.parse import called_name
from streamform.sql.scalar import ScalarBinder
from streamform.sql.scope import WINDOW_COLUMNS, Found, Scope, ScopeColumn, identifier
from streamform.values.rows import Column
from streamform.values.types import INT64, NULL, TIMESTAMP

if TYPE_CHECKING:
    from streamform.sql.bind import Item, QueryBinder

AGGREGATE_NAMES = frozenset(name.upper() for name in AGGREGATES)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node calls an aggregate function."""
    return called_name(node) in AGGREGATE_NAMES


def is_grouped(node: exp.Select) -> bool:
    """Whether a SELECT groups: by GROUP BY, or by an aggregate in its list or HAVING."""
    if node.args.get("group") is not None:
        return True
    having = node.args.get("having")
    parts = [*node.expressions, *([having] if having is not None else [])]
    return any(is_aggregate(part) for item in parts for part in item.walk())


class GroupedSelect:
    """A SELECT with GROUP BY or aggregates."""

    def __init__(self, binder: QueryBinder, node: exp.Select, source: Relation, scope: Scope) -> None:
        self.binder, self.node, self.source, self.scope = binder, node, source, scope
        self.problems = binder.problems
        self.scalar = AboveGrouping(self)
        self.accumulators: dict[str, ColumnRef] = {}
        self.calls: list[AggregateCall] = []
        self.windows: set[str] = set()
        self.keys: list[ColumnRef] = []
        self.computed: dict[str, Expression] = {}
        """Keys that are expressions, by the name that a projection below the grouping gives them."""

    def bind(self) -> Relation:
        """Filter and projection over the grouping."""
        self.keys = self.group_keys()
        if self.binder.windowed and self.windows != set(WINDOW_COLUMNS):
            raise self.problems.found("SF404", self.node.args.get("group") or self.node)
        outputs = self.outputs()
        having = self.node.args.get("having")
        predicate = self.having(having.this, outputs) if having is not None else None
        grouping: Relation = self.grouping()
        if predicate is not None:
            grouping = Selection(grouping, predicate)
        return Projection(grouping, self.binder.named(outputs))

    def grouping(self) -> Grouping:
        """The grouping over its input, which computes keys that are expressions first."""
        bounds = [Column(name, TIMESTAMP) for name in WINDOW_COLUMNS] if self.windows else []
        schema = (*(Column(k.name, k.type) for k in self.keys), *bounds, *(Column(c.name, c.type) for c in self.calls))
        return Grouping(self.computed_input(), tuple(self.keys), tuple(self.calls), bool(self.windows), schema)

    def computed_input(self) -> Relation:
        """The input, with the keys that are expressions as columns."""
        if not self.computed:
            return self.source
        needed = {name for call in self.calls for part in (call.argument, call.condition) if part is not None for name in columns_of(part)}
        needed |= {key.name for key in self.keys if key.name not in self.computed}
        kept = [Output(c.ref, c.ref.name) for c in self.scope.columns if c.ref.name in needed or self.binder.windowed]
        return Projection(self.source, (*kept, *(Output(expression, name) for name, expression in self.computed.items())))

    # keys

    def group_keys(self) -> list[ColumnRef]:
        """The grouping columns in order, each once."""
        group = self.node.args.get("group")
        if group is None:
            return []
        for kind in ("rollup", "cube", "grouping_sets", "totals"):
            if group.args.get(kind):
                raise self.problems.unsupported(self.node, kind.upper().replace("_", " "), "write one model for each grouping")
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
        return [i for i in items if not any(is_aggregate(part) for part in i.walk())]

    def group_key(self, item: exp.Expression) -> ColumnRef | None:
        """A grouping column, or None for a bound of the window."""
        target, alias = self.resolve_group_item(item)
        if isinstance(target, exp.Column) and not target.args.get("table") and self.binder.windowed:
            name = identifier(target.this)
            if name in WINDOW_COLUMNS and not self.scope.find(name):
                self.windows.add(name)
                return None
        if any(is_aggregate(part) for part in target.walk()):
            raise self.problems.unsupported(item, "GROUP BY over an aggregate", "aggregate in a model of its own and group its output")
        key = self.binder.scalar.expression(target, self.scope)
        return key if isinstance(key, ColumnRef) else self.computed_key(item, key, alias)

    def computed_key(self, item: exp.Expression, key: Expression, alias: str) -> ColumnRef:
        """A key that is an expression: a projection below the grouping names it."""
        if key.type is NULL:
            raise self.problems.found("SF114", item, cause="GROUP BY over NULL has no type", expected="write CAST(NULL AS type)")
        name = alias or render_expression(key)
        if self.scope.find(name) or self.computed.get(name, key) != key:
            name = render_expression(key)
        self.computed[name] = key
        return ColumnRef(name, key.type)

    def resolve_group_item(self, item: Any) -> tuple[Any, str]:
        """What an ordinal or an output's name in GROUP BY stands for, and the output's name."""
        outputs = self.node.expressions
        if isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit():
            position = int(item.this)
            if not 1 <= position <= len(outputs):
                raise self.problems.unsupported(item, f"GROUP BY {position}", "give the position of a select item")
            return _unaliased(outputs[position - 1])
        if isinstance(item, exp.Column) and not item.args.get("table") and not self.scope.find(identifier(item.this)):
            for output in outputs:
                if isinstance(output, exp.Alias) and identifier(output.args["alias"]) == identifier(item.this):
                    return _unaliased(output)
        same = next((o for o in outputs if isinstance(o, exp.Alias) and o.this == item), None)
        return item, "" if same is None else identifier(same.args["alias"])

    # above the grouping

    def above(self) -> Scope:
        """The columns that exist above the grouping."""
        bounds = [ScopeColumn("", ColumnRef(name, TIMESTAMP)) for name in WINDOW_COLUMNS if name in self.windows]
        return Scope([ScopeColumn(key.qualifier, key) for key in self.keys] + bounds)

    def outputs(self) -> list[Item]:
        """The select list in terms of keys and accumulators."""
        scope = self.above()
        bound: list[Item] = []
        failed = False
        for item in self.node.expressions:
            try:
                bound.append(self.output(item, scope))
            except Found:
                failed = True
        if failed:
            raise Found
        return bound

    def output(self, item: exp.Expression, scope: Scope) -> Item:
        """One select item in terms of keys and accumulators."""
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise self.problems.unsupported(item, "* in a grouped query", "name the grouping columns and aggregates")
        expression = self.scalar.expression(item.this if isinstance(item, exp.Alias) else item, scope)
        name = identifier(item.args["alias"]) if isinstance(item, exp.Alias) else ""
        return expression, name or (expression.name if isinstance(expression, ColumnRef) else ""), item

    def having(self, node: exp.Expression, outputs: Sequence[Item]) -> Expression:
        """The condition over groups; names of outputs stand for what they are."""
        self.scalar.aliases = {name: e for e, name, item in outputs if isinstance(item, exp.Alias) and not self.scope.find(name)}
        return self.scalar.condition(node, self.above(), "HAVING")

    # accumulators

    def accumulator(self, node: exp.Expression, condition: exp.Expression | None = None) -> ColumnRef:
        """The column of this aggregate; equal aggregates share one."""
        function = AGGREGATES[(called_name(node) or "").lower()]
        argument, distinct = self.argument(node, function.name)
        where = None if condition is None else self.binder.scalar.condition(condition, self.scope, "FILTER")
        if argument is not None and argument.type is NULL:
            cause = f"{function.name.upper()} over NULL has no type"
            raise self.problems.found("SF114", node, cause=cause, expected="write CAST(NULL AS type)")
        try:
            type_ = function.typing(argument.type if argument is not None else INT64)
        except TypeMismatch as mismatch:
            raise self.problems.found("SF114", node, cause=str(mismatch), expected="aggregate a number") from None
        call = AggregateCall(function.name, argument, type_, distinct and not function.keeps_one, where)
        if call.name not in self.accumulators:
            if any(key.name == call.name for key in self.keys):
                raise self.problems.found("SF122", node, column=call.name)
            digits = sum_digits(type_, argument.type) if function.name == "sum" and argument is not None else 0
            self.accumulators[call.name] = ColumnRef(call.name, type_, sum_digits=digits, is_accumulator=True)
            self.calls.append(call)
        return self.accumulators[call.name]

    def argument(self, node: exp.Expression, name: str) -> tuple[Expression | None, bool]:
        """The aggregate's operand and whether equal values count once; None counts rows, as COUNT(*) and COUNT(1) do."""
        operands = node.expressions
        shown = name.upper()
        distinct = len(operands) == 1 and isinstance(operands[0], exp.Distinct)
        if distinct:
            operands = operands[0].expressions
        if len(operands) != 1:
            problem = f"{shown} of several columns" if operands else f"{shown} without an operand"
            raise self.problems.unsupported(node, problem, "name one column, or add up several aggregates")
        if isinstance(operands[0], exp.Star):
            if name != "count" or distinct:
                raise self.problems.unsupported(node, f"{shown}(*)", "name a column")
            return None, False
        if any(is_aggregate(part) for part in operands[0].walk()):
            raise self.problems.unsupported(node, "an aggregate inside an aggregate", "write the inner one as a model")
        argument = self.binder.scalar.expression(operands[0], self.scope)
        is_constant = isinstance(argument, Literal) and argument.value is not None
        return (None, False) if is_constant and name == "count" and not distinct else (argument, distinct)


def _unaliased(item: exp.Expression) -> tuple[exp.Expression, str]:
    return (item.this, identifier(item.args["alias"])) if isinstance(item, exp.Alias) else (item, "")


class AboveGrouping(ScalarBinder):
    """Binds expressions above a grouping: aggregates become accumulator columns, other columns must be keys."""

    def __init__(self, grouped: GroupedSelect) -> None:
        super().__init__(grouped.problems, windowed=grouped.binder.windowed)
        self.grouped = grouped
        self.aliases: Mapping[str, Expression] = {}

    def expression(self, node: exp.Expression, scope: Scope, depth: int = 0) -> Expression:
        """As below a grouping, and aggregates; an expression that is a key is that key."""
        if isinstance(node, exp.Filter) and is_aggregate(node.this):
            return self.grouped.accumulator(node.this, node.expression.this)
        if is_aggregate(node):
            return self.grouped.accumulator(node)
        return self.computed_key(node) or super().expression(node, scope, depth)

    def computed_key(self, node: exp.Expression) -> ColumnRef | None:
        """The key that this expression is, where keys are expressions."""
        grouped = self.grouped
        if not grouped.computed or isinstance(node, (exp.Column, exp.Literal)) or any(is_aggregate(part) for part in node.walk()):
            return None
        mark = len(self.problems.items)
        try:
            expression = grouped.binder.scalar.expression(node, grouped.scope)
        except Found:
            del self.problems.items[mark:]
            return None
        name = next((name for name, key in grouped.computed.items() if key == expression), None)
        return None if name is None else ColumnRef(name, expression.type)

    def column(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A key, an output's name in HAVING, or a column that is not grouped."""
        name = identifier(node.this)
        qualifier = identifier(node.args["table"]) if node.args.get("table") else ""
        if not qualifier and name in self.aliases:
            return self.aliases[name]
        if not scope.find(name, qualifier) and self.grouped.scope.find(name, qualifier):
            raise self.problems.found("SF116", node, column=name)
        return super().column(node, scope, depth)
