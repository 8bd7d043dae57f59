"""Names of outputs that the query does not name.

The published manifests name such an output after its expression with qualified columns and typed constants; the names
are kept, so that manifests stay equal.
"""

from __future__ import annotations

from streamform.sql.expressions import Call, Cast, ColumnRef, Expression, Literal, render_literal

_BINDS = {"OR": 1, "AND": 2, "NOT": 3, "=": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6}
_CONSTANT_TYPES = {"int64": "Int64", "float64": "Float64", "boolean": "Boolean"}


def unnamed(expression: Expression) -> str:
    """The name of an output without AS, such as `orders.amount + Int64(1)`."""
    if isinstance(expression, ColumnRef):
        return f"{expression.qualifier}.{expression.name}" if expression.qualifier else expression.name
    if isinstance(expression, Literal):
        return _constant(expression)
    if isinstance(expression, Cast):
        return unnamed(expression.operand)
    return _operation(expression)


def _constant(literal: Literal) -> str:
    if isinstance(literal.value, str):
        return f'Utf8("{literal.value}")'
    name = _CONSTANT_TYPES.get(literal.type.kind)
    return f"{name}({render_literal(literal)})" if name else render_literal(literal)


def _operation(call: Call) -> str:
    name = call.function.name
    if len(call.args) == 2 and name in _BINDS:
        left, right = call.args
        return f"{_operand(left, _BINDS[name], strict=False)} {name} {_operand(right, _BINDS[name], strict=True)}"
    inner = unnamed(call.args[0]) if call.args else ""
    if name == "NOT":
        return f"NOT {inner}"
    if name in ("IS NULL", "IS NOT NULL"):
        return f"{inner} {name}"
    return f"{name.lower()}({', '.join(map(unnamed, call.args))})"


def _operand(expression: Expression, binds: int, *, strict: bool) -> str:
    text = unnamed(expression)
    below = _BINDS.get(expression.function.name, 9) if isinstance(expression, Call) else 9
    return f"({text})" if below < binds or (strict and below == binds) else text
