"""Expressions to Python code: one function a node over a whole batch, so that no tree is walked for each row.

NULL is None. A strict function is guarded by tests of its operands; AND and OR follow three-valued logic and evaluate
the right side only when the left does not decide, as Flink's generated code does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from streamform.sql.casts import converter, safely
from streamform.sql.expressions import Call, Cast, ColumnRef, Expression, Literal
from streamform.sql.numeric import ValueLost
from streamform.values.types import FLOAT64, DataType

MAX_INLINE = 20
"""Levels of calls in one Python expression. Deeper ones are functions of their own: Python nests 200 parentheses at most."""

NEVER_NULL = frozenset(
    {"IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)


class Code(Struct):
    """Code under construction: the positions of columns in `r`, and the objects that generated names stand for."""

    columns: dict[str, int]
    names: dict[str, Any] = field(default_factory=dict)
    temporaries: int = 0
    depth: int = 0
    """Calls and casts around the one at hand."""

    def bind(self, value: object, prefix: str = "f") -> str:
        """A name for an object."""
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def temporary(self) -> str:
        """A fresh local variable."""
        self.temporaries += 1
        return f"v{self.temporaries}"

    def compile(self, source: str, function: str) -> Callable[..., Any]:
        """The function that the source defines."""
        exec(compile(source, f"<{function}>", "exec"), self.names)  # noqa: S102 - source is generated from typed plans only
        result: Callable[..., Any] = self.names[function]
        return result


def expression_code(expression: Expression, code: Code) -> str:
    """A Python expression for the value; None for NULL."""
    if isinstance(expression, ColumnRef):
        return f"r[{code.columns[expression.name]}]"
    if isinstance(expression, Literal):
        return constant_code(expression, code)
    if code.depth == MAX_INLINE:
        return f"{code.bind(_evaluator(expression, code.columns))}(r)"
    code.depth += 1
    result = _nested_code(expression, code)
    code.depth -= 1
    return result


def _nested_code(expression: Call | Cast, code: Code) -> str:
    if isinstance(expression, Cast):
        return _safe_code(expression, code) if expression.safe else converted_code(expression.operand, expression.type, code)
    if expression.function.emit is not None:
        args = [converted_code(arg, type_, code) for arg, type_ in zip(expression.args, expression.operands, strict=True)]
        return expression.function.emit(expression, args, code.temporary)
    return _strict_code(expression, code)


def constant_code(literal: Literal, code: Code) -> str:
    """A constant; everything but small integers, booleans and NULL is bound by name."""
    if literal.value is None or isinstance(literal.value, (bool, int)):
        return repr(literal.value)
    return code.bind(literal.value, "c")


def converted_code(operand: Expression, type_: DataType, code: Code) -> str:
    """The operand as another type."""
    if isinstance(operand, Literal):
        try:
            return constant_code(Literal(converted_literal(operand, type_), type_), code)
        except ValueLost as lost:
            return f"{code.bind(partial(_raise, lost))}()"
    convert = converter(operand.type, type_)
    inner = expression_code(operand, code)
    if convert is None:
        return inner
    name = code.temporary()
    return f"(None if ({name} := {inner}) is None else {code.bind(convert)}({name}))"


def _safe_code(cast: Cast, code: Code) -> str:
    """TRY_CAST: NULL where the text is no such value."""
    convert = converter(cast.operand.type, cast.type)
    inner = expression_code(cast.operand, code)
    if convert is None:
        return inner
    name = code.temporary()
    return f"(None if ({name} := {inner}) is None else {code.bind(safely(convert))}({name}))"


def _raise(error: ValueLost) -> None:
    raise error


def converted_literal(literal: Literal, type_: DataType) -> Any:
    """A constant as another type; a number written with a point becomes a decimal from its text, not from a float."""
    if literal.value is None or literal.type == type_:
        return literal.value
    if literal.exact is not None and type_.kind == "decimal":
        convert = converter(DataType("decimal", 38, 0), type_)
        return literal.exact if convert is None else convert(literal.exact)
    convert = converter(literal.type, type_)
    return literal.value if convert is None else convert(literal.value)


def _strict_code(call: Call, code: Code) -> str:
    tests: list[str] = []
    names: list[str] = []
    for arg, type_ in zip(call.args, call.operands, strict=True):
        inner = converted_code(arg, type_, code)
        if _is_never_null(arg):
            names.append(inner)
            continue
        name = code.temporary()
        tests.append(f"({name} := {inner}) is None")
        names.append(name)
    template = call.function.float_code if FLOAT64 in call.operands and call.function.float_code else call.function.code
    if template is not None:
        result = template.format(*names)
    else:
        assert call.function.value is not None, f"{call.function.name} has neither code nor value"
        result = f"{code.bind(call.function.value(call))}({', '.join(names)})"
    return f"(None if {' or '.join(tests)} else {result})" if tests else result


def _is_never_null(expression: Expression) -> bool:
    if isinstance(expression, Literal):
        return expression.value is not None
    return isinstance(expression, Call) and expression.function.name in NEVER_NULL


def can_fail(expression: Expression) -> bool:
    """Whether evaluating the expression may raise."""
    if isinstance(expression, Cast):
        return True
    if isinstance(expression, Call):
        return expression.function.value is not None or any(map(can_fail, expression.args)) or _converts(expression)
    return False


def _converts(call: Call) -> bool:
    return any(arg.type != type_ and not isinstance(arg, Literal) for arg, type_ in zip(call.args, call.operands, strict=True))


def condition_code(expression: Expression, code: Code) -> str:
    """A Python condition that holds exactly when the expression is true.

    NULL counts as not true. Where the right side of an AND can't fail, plain `and` gives the same answer.
    """
    if isinstance(expression, Call) and expression.function.name == "AND" and not can_fail(expression.args[1]):
        left, right = (condition_code(arg, code) for arg in expression.args)
        return f"({left} and {right})"
    return expression_code(expression, code)


def positions(columns: Sequence[str]) -> dict[str, int]:
    """Column positions by name."""
    return {name: position for position, name in enumerate(columns)}


def evaluator(expression: Expression, columns: Sequence[str]) -> Callable[[Sequence[object]], object]:
    """A function from a row to the expression's value."""
    return _evaluator(expression, positions(columns))


def _evaluator(expression: Expression, columns: dict[str, int]) -> Callable[[Sequence[object]], object]:
    code = Code(columns)
    return code.compile(f"def evaluate(r):\n    return {expression_code(expression, code)}\n", "evaluate")
