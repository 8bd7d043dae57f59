"""Typed expressions and relations: what a query means once every name and type is resolved.

An expression renders to the canonical text that definitions and digests are made of: operators fully parenthesised,
names without qualifiers, literals in one spelling. Equal texts compute the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from streamform.sql.time import render_interval
from streamform.values.instants import render_date, render_file_instant
from streamform.values.rows import Column, Schema, Value, render_decimal
from streamform.values.types import DataType

if TYPE_CHECKING:
    from streamform.sql.functions import Function


class ColumnRef(Struct, frozen=True):
    """A column of the relation below."""

    name: str
    type: DataType
    qualifier: str = ""
    """The alias it was found under; only unnamed outputs show it."""
    sum_digits: int = 0
    """For the result of SUM over a decimal: the digits that a quotient's type counts; 0 elsewhere."""
    is_accumulator: bool = False
    """Whether the name is an aggregate's text, and not one that somebody chose."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ColumnRef and self.name == other.name and self.type == other.type

    def __hash__(self) -> int:
        return hash((self.name, self.type))


class Literal(Struct, frozen=True):
    """A constant. A number with a point or an exponent is float64 whose exact text is kept as a Decimal."""

    value: Value
    type: DataType
    exact: Decimal | None = None


class Call(Struct, frozen=True):
    """An operator or function applied to operands.

    `operands` are the types that the operands are converted to before the function computes; the conversion is part
    of the function's typing and is not shown.
    """

    function: Function
    args: tuple[Expression, ...]
    operands: tuple[DataType, ...]
    type: DataType


class Cast(Struct, frozen=True):
    """An explicit CAST."""

    operand: Expression
    type: DataType
    safe: bool = False
    """TRY_CAST: a value that can't be converted becomes NULL."""


Expression = ColumnRef | Literal | Call | Cast


class AggregateCall(Struct, frozen=True):
    """One accumulator: an aggregate function over an expression, or over whole rows when `argument` is None."""

    function: str
    argument: Expression | None
    type: DataType
    distinct: bool = False
    """Whether equal values count once."""
    condition: Expression | None = None
    """FILTER (WHERE ..): only rows for which it is true are taken in."""

    @property
    def name(self) -> str:
        """The accumulator's column name: `sum(amount)`, `count(*)`, `count(DISTINCT a)`."""
        operand = "*" if self.argument is None else render_expression(self.argument)
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{operand})"
        return text if self.condition is None else f"{text} FILTER (WHERE {render_expression(self.condition)})"


class Output(Struct, frozen=True):
    """One item of a projection."""

    expression: Expression
    name: str
    is_unnamed: bool = False
    """Whether the name was made from the expression."""

    def __str__(self) -> str:
        text = render_expression(self.expression)
        if isinstance(self.expression, ColumnRef) and self.expression.name == self.name:
            return text
        return f"{text} AS {self.name if self.is_unnamed else render_name(self.name)}"


class SourceScan(Struct, frozen=True):
    """Every event of a source."""

    source: str
    schema: Schema


class ModelScan(Struct, frozen=True):
    """The changelog of another model."""

    model: str
    schema: Schema


class Selection(Struct, frozen=True):
    """The rows for which the predicate is true."""

    input: Relation
    predicate: Expression

    @property
    def schema(self) -> Schema:
        return self.input.schema


class Projection(Struct, frozen=True):
    """Each row's outputs."""

    input: Relation
    outputs: tuple[Output, ...]

    @property
    def schema(self) -> Schema:
        return tuple(Column(o.name, o.expression.type) for o in self.outputs)


class Grouping(Struct, frozen=True):
    """One row a group: its key columns, the window's bounds when `windowed`, and its aggregates."""

    input: Relation
    keys: tuple[ColumnRef, ...]
    calls: tuple[AggregateCall, ...]
    windowed: bool
    schema: Schema


class Union(Struct, frozen=True):
    """The rows of all inputs, under the first one's names."""

    inputs: tuple[Relation, ...]
    schema: Schema


Relation = SourceScan | ModelScan | Selection | Projection | Grouping | Union


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    """The relations that a relation reads, none for a scan."""
    if isinstance(relation, (SourceScan, ModelScan)):
        return ()
    return relation.inputs if isinstance(relation, Union) else (relation.input,)


def render_expression(expression: Expression) -> str:
    """The canonical text."""
    if isinstance(expression, ColumnRef):
        return expression.name if expression.is_accumulator else render_name(expression.name)
    if isinstance(expression, Literal):
        return render_literal(expression)
    if isinstance(expression, Cast):
        return f"{'TRY_CAST' if expression.safe else 'CAST'}({render_expression(expression.operand)} AS {expression.type})"
    args = [_render_operand(expression, arg) for arg in expression.args]
    return (
        _render_case(args)
        if expression.function.name == "CASE"
        else _render_in(args)
        if expression.function.name == "IN"
        else expression.function.rendered(args)
    )


_PLAIN_NAME = re.compile(r"[^\W\d][\w$.-]*")
_CONSTANT_NAMES = frozenset({"true", "false", "NULL"})


def render_name(name: str) -> str:
    """A name as it stands in canonical text; quoted where it could be taken for something else."""
    if _PLAIN_NAME.fullmatch(name) and name not in _CONSTANT_NAMES:
        return name
    return '"' + name.replace('"', '""') + '"'


def _render_case(args: list[str]) -> str:
    branches = "".join(f" WHEN {condition} THEN {value}" for condition, value in zip(args[:-1:2], args[1:-1:2], strict=True))
    return f"CASE{branches} ELSE {args[-1]} END"


def _render_in(args: list[str]) -> str:
    return f"({args[0]} IN ({', '.join(args[1:])}))"


def _render_operand(call: Call, arg: Expression) -> str:
    """An operand's text. A whole number written as 2.0 keeps its point where it alone makes the operation float."""
    text = render_expression(arg)
    if not (isinstance(arg, Literal) and arg.type.kind == "float64" and text.lstrip("-").isdecimal()):
        return text
    if call.function.group == "comparison":
        return text
    others = [other for other in call.args if other is not arg]
    typed_by_it = not any(o.type.kind == "float64" and not _is_float_literal(o) for o in others)
    return f"{text}.0" if typed_by_it else text


def _is_float_literal(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.type.kind == "float64"


def render_literal(literal: Literal) -> str:
    """A constant's text: 'it''s', true, NULL, 1.5, and plain digits whatever exponent was written."""
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if literal.type.kind in ("interval", "months"):
        return render_interval(literal.type.kind, int(value))
    if literal.type.kind == "date":
        return f"DATE '{render_date(int(value))}'"
    if literal.type.kind == "timestamp":
        return f"TIMESTAMP '{render_file_instant(int(value)).replace('T', ' ')}'"
    return render_decimal(Decimal(repr(value)) if isinstance(value, float) else Decimal(value))


def children(expression: Expression) -> tuple[Expression, ...]:
    """The operands of an expression."""
    if isinstance(expression, Call):
        return expression.args
    return (expression.operand,) if isinstance(expression, Cast) else ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it, outermost first."""
    pending = [expression]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def columns_of(expression: Expression) -> set[str]:
    """The names of the columns that the expression reads."""
    return {part.name for part in walk(expression) if isinstance(part, ColumnRef)}
