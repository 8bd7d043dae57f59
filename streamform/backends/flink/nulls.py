"""Whether a column can be NULL: what filters and contracts prove about it."""

from __future__ import annotations

from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, Plan, ProjectSpec, SourceSpec, UnionSpec
from streamform.sql.expressions import Call, Cast, ColumnRef, Expression, Literal
from streamform.sql.functions import FUNCTIONS

_STRICT = frozenset(name for name, row in FUNCTIONS.items() if row.emit is None)
"""Functions that are NULL where an operand is."""


def proves_value(condition: Expression, column: str) -> bool:
    """Whether a row for which the condition is true has a value in the column."""
    pending = [condition]
    while pending:
        part = pending.pop()
        if not isinstance(part, Call):
            continue
        if part.function.name == "AND":
            pending.extend(part.args)
        elif part.function.name in ("IS NOT NULL", "IS TRUE", "IS FALSE"):
            if _is_strict_in(part.args[0], column):
                return True
        elif _is_strict_in(part, column):
            return True
    return False


def _is_strict_in(expression: Expression, column: str) -> bool:
    """Whether the expression is NULL wherever the column is."""
    if isinstance(expression, ColumnRef):
        return expression.name == column
    if isinstance(expression, Call) and expression.function.name in _STRICT:
        return any(_is_strict_in(arg, column) for arg in expression.args)
    return False


def can_be_null(plan: Plan, node: Node, column: str) -> bool:
    """Whether a row of the node may have no value in the column, as far as the plan tells."""
    while True:
        if isinstance(node.spec, SourceSpec):
            return not any(proves_value(contract.condition, column) for contract in node.spec.contracts)
        if isinstance(node.spec, FilterSpec) and proves_value(node.spec.predicate, column):
            return False
        if isinstance(node.spec, UnionSpec):
            position = [c.name for c in node.schema].index(column)
            return any(can_be_null(plan, below, below.schema[position].name) for below in plan.inputs_of(node))
        if isinstance(node.spec, ProjectSpec):
            output = next(o for o in node.spec.outputs if o.name == column)
            if not isinstance(output.expression, ColumnRef):
                return _may_compute_null(plan, plan.by_id[node.inputs[0]], output.expression)
            column = output.expression.name
        if isinstance(node.spec, AggregateSpec) and column not in {key.name for key in node.spec.keys}:
            call = next((c for c in node.spec.calls if c.name == column), None)
            return call is not None and call.function != "count"
        node = plan.by_id[node.inputs[0]]


_TOTAL_TEXT = frozenset({"UPPER", "LOWER", "INITCAP", "CONCAT", "TRIM BOTH", "TRIM LEADING", "TRIM TRAILING"})
"""Functions over text that have a value wherever their operands have one; others may find nothing."""


def _may_compute_null(plan: Plan, below: Node, expression: Expression) -> bool:
    if isinstance(expression, Literal):
        return expression.value is None
    if isinstance(expression, ColumnRef):
        return can_be_null(plan, below, expression.name)
    if isinstance(expression, Cast):
        return expression.safe or _may_compute_null(plan, below, expression.operand)
    if expression.function.name == "COALESCE":
        return all(_may_compute_null(plan, below, arg) for arg in expression.args)
    is_total = expression.function.group in ("arithmetic", "time") or expression.function.name in _TOTAL_TEXT
    return not is_total or any(_may_compute_null(plan, below, arg) for arg in expression.args)
