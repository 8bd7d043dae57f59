"""Expressions in Flink SQL, with the casts that make Flink compute exactly the declared types."""

from __future__ import annotations

from streamform.backends.flink.text import identifier, literal_sql, type_sql
from streamform.runtime.codegen import converted_literal
from streamform.sql.casts import cast_in_flink
from streamform.sql.expressions import AggregateCall, Call, Cast, ColumnRef, Expression, Literal
from streamform.sql.numeric import ValueLost
from streamform.values.types import DataType

_RAW_NUMBERS = frozenset({"text", "time"})
"""Groups of functions whose whole numbers are lengths, positions or counts."""

_NATIVE = frozenset("+-*/")
"""Operators whose result over two equal integer or float types has that type in Flink."""


def emit_expression(expression: Expression) -> str:
    """The expression in Flink SQL, of exactly its type. Raises: Refused for a name that can't be written."""
    if isinstance(expression, ColumnRef):
        return identifier(expression.name)
    if isinstance(expression, Literal):
        return literal_sql(expression)
    if isinstance(expression, Cast):
        return _emit_cast(expression)
    return _emit_call(expression)


def emit_output(expression: Expression) -> str:
    """The expression as a column: text that is constant becomes text of any length."""
    text = emit_expression(expression)
    is_text = isinstance(expression, Literal) and isinstance(expression.value, str) and expression.type.kind == "string"
    return f"CAST({text} AS STRING)" if is_text else text


def _emit_cast(cast: Cast) -> str:
    if isinstance(cast.operand, Literal) and cast.operand.exact is not None and cast.type.kind == "decimal":
        return emit_operand(cast.operand, cast.type)
    operand = emit_expression(cast.operand)
    return cast_in_flink(operand, cast.operand.type, cast.type, type_sql(cast.type), safe=cast.safe)


def emit_operand(operand: Expression, type_: DataType) -> str:
    """The operand, converted to the type in which its function computes."""
    if isinstance(operand, Literal):
        if type_.kind in ("interval", "months"):
            return literal_sql(operand)
        try:
            return literal_sql(Literal(converted_literal(operand, type_), type_))
        except ValueLost:
            pass
    text = emit_expression(operand)
    return text if operand.type == type_ else cast_in_flink(text, operand.type, type_, type_sql(type_))


def _emit_call(call: Call) -> str:
    function = call.function
    args = [emit_operand(arg, type_) for arg, type_ in zip(call.args, call.operands, strict=True)]
    for position, arg in enumerate(call.args):
        if isinstance(arg, Literal) and (position in function.constants or function.group in _RAW_NUMBERS):
            args[position] = _as_written(arg, args[position])
    if function.name == "CASE":
        branches = "".join(f" WHEN {c} THEN {v}" for c, v in zip(args[:-1:2], args[1:-1:2], strict=True))
        text = f"CASE{branches} ELSE {args[-1]} END"
    elif function.name == "IN":
        text = f"({args[0]} IN ({', '.join(args[1:])}))"
    else:
        text = function.in_flink(call, args)
    if call.type.kind == "boolean" or (function.name in _NATIVE and call.type.kind != "decimal"):
        return text
    return f"CAST({text} AS {type_sql(call.type)})"


def _as_written(literal: Literal, typed: str) -> str:
    """A whole number without a cast: lengths, positions and counts are of Flink's shorter type, and some must be constants."""
    value = literal.value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and literal.type.is_integer else typed


def emit_aggregate(call: AggregateCall) -> str:
    """An aggregate whose accumulator has the declared type."""
    if call.argument is None:
        text = "COUNT(*)"
    else:
        folded = call.type if call.function == "sum" else call.argument.type
        operand = emit_expression(call.argument)
        if call.function == "sum" and folded.is_integer and call.argument.type != folded:
            operand = cast_in_flink(operand, call.argument.type, folded, type_sql(folded))
        text = f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{operand})"
    if call.condition is not None:
        text = f"{text} FILTER (WHERE {emit_expression(call.condition)})"
    return f"CAST({text} AS {type_sql(call.type)})" if call.function == "avg" else text
