"""Scalar expressions: syntax to typed calls, names and types resolved, everything unknown refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from streamform.codes import listed, suggest
from streamform.sql import time
from streamform.sql.aggregates import AGGREGATES
from streamform.sql.casts import is_castable
from streamform.sql.expressions import Call, Cast, Expression, Literal
from streamform.sql.functions import ALIASES, CALLABLE_NAMES, FUNCTIONS, OPERATOR_NODES, Function
from streamform.sql.numeric import TypeMismatch
from streamform.sql.parse import called_name
from streamform.sql.scope import WINDOW_COLUMNS, Found, Problems, Scope, identifier
from streamform.sql.unsupported import EXPRESSIONS, FUNCTIONS_REFUSED
from streamform.values.instants import parse_date, parse_file_instant
from streamform.values.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    MONTHS,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)

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
    "DATE": DATE,
}
_TYPE_NAMES = {"int32": INT32, "int64": INT64, "float64": FLOAT64}
_CAST_HELP = "cast to INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, BOOLEAN, TIMESTAMP or DATE"

Bind = Callable[[exp.Expression, Scope, int], Expression]


class ScalarBinder:
    """Binds the expressions of one statement."""

    def __init__(self, problems: Problems, *, windowed: bool = False) -> None:
        self.problems, self.windowed = problems, windowed

    def condition(self, node: exp.Expression, scope: Scope, clause: str) -> Expression:
        """A boolean expression."""
        expression = self.expression(node, scope)
        if expression.type != BOOLEAN:
            type_ = "NULL" if expression.type is NULL else expression.type
            raise self.problems.found("SF114", node, cause=f"{clause} is {type_}, not a condition", expected="compare it with something")
        return expression

    def expression(self, node: exp.Expression, scope: Scope, depth: int = 0) -> Expression:
        """A typed expression."""
        if depth > MAX_DEPTH:
            raise self.problems.found("SF120", node, limit=MAX_DEPTH)
        name = type(node).__name__
        if name in _SYNTAX:
            bind: Bind = getattr(self, _SYNTAX[name])
            return bind(node, scope, depth)
        if name in OPERATOR_NODES:
            return self.operator(OPERATOR_NODES[name], node, scope, depth)
        called = called_name(node)
        if called is not None:
            return self.named_call(called, node, scope, depth)
        if name in EXPRESSIONS:
            raise self.problems.unsupported(node, *EXPRESSIONS[name])
        if isinstance(node, exp.Func):
            raise self.unknown_function(node)
        raise self.problems.unsupported(
            node, f"the expression {_construct(name)}", "write it with the operators and functions of docs/sql.md"
        )

    def unknown_function(self, node: Any) -> Found:
        """Record that a function is not supported."""
        called = (called_name(node) or str(node.this)).upper() if isinstance(node, exp.Anonymous) else node.sql_name()
        if called in FUNCTIONS_REFUSED:
            return self.problems.found("SF117", node, function=called, suggestion="", instead=FUNCTIONS_REFUSED[called])
        known = sorted(CALLABLE_NAMES | {name.upper() for name in AGGREGATES})
        return self.problems.found(
            "SF117", node, function=called, suggestion=suggest(called, known), instead="docs/sql.md lists the functions"
        )

    def named_call(self, name: str, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A call NAME(..)."""
        if name.lower() in AGGREGATES:
            raise self.problems.unsupported(node, f"{name} here", "use aggregates in SELECT and HAVING only")
        if name in FUNCTIONS_REFUSED:
            raise self.unknown_function(node)
        if name in _FORMS:
            bind: Bind = getattr(self, _FORMS[name])
            return bind(node, scope, depth)
        return self.call(FUNCTIONS[ALIASES.get(name, name)], node, node.expressions, scope, depth)

    def operator(self, name: str, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A binary operator; plus and minus with an interval are operators of their own."""
        left, right = (self.expression(part, scope, depth + 1) for part in (node.this, node.expression))
        if name in "+-" and right.type in (INTERVAL, MONTHS):
            name = f"{name} INTERVAL"
        return self.typed(FUNCTIONS[name], node, (left, right))

    def call(self, function: Function, node: exp.Expression, nodes: Sequence[exp.Expression], scope: Scope, depth: int) -> Expression:
        """A typed call over operands that are still to be bound."""
        low, high = function.arity
        if not low <= len(nodes) <= high:
            takes = str(low) if low == high else f"{low} to {high}" if high < 255 else f"at least {low}"
            cause = f"{function.name} takes {takes} operands, not {len(nodes)}"
            raise self.problems.found("SF114", node, cause=cause, expected=f"docs/sql.md shows how {function.name} is written")
        return self.typed(function, node, tuple(self.expression(arg, scope, depth + 1) for arg in nodes))

    def typed(self, function: Function, node: exp.Expression, args: tuple[Expression, ...]) -> Expression:
        """A typed call over bound operands."""
        for position in function.constants:
            if position < len(args) and not isinstance(args[position], Literal):
                cause = f"operand {position + 1} of {function.name} must be a constant"
                raise self.problems.found("SF114", node, cause=cause, expected="write the value itself")
        try:
            operands, type_ = function.typing(function.name, args)
            call = Call(function, args, operands, type_)
            if function.check is not None:
                function.check(call)
        except TypeMismatch as mismatch:
            expected = "CAST one side so that both have the same type" if len(args) > 1 else "write a condition such as x > 0"
            raise self.problems.found("SF114", node, cause=str(mismatch), expected=expected) from None
        except ValueError as refused:
            raise self.problems.found("SF114", node, cause=str(refused), expected="docs/sql.md shows what is supported") from None
        return call

    # names and constants

    def column(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A column by name."""
        name = identifier(node.this)
        qualifier = identifier(node.args["table"]) if node.args.get("table") else ""
        matches = scope.find(name, qualifier)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise self.problems.found("SF119", node, column=name, example=f"{scope.columns[0].qualifier}.{name}")
        if self.windowed and name in WINDOW_COLUMNS and not qualifier:
            raise self.problems.found("SF405", node, column=name)
        if not qualifier and name.upper() in FUNCTIONS_REFUSED:
            raise self.problems.found("SF117", node, function=name.upper(), suggestion="", instead=FUNCTIONS_REFUSED[name.upper()])
        shown = f"{qualifier}.{name}" if qualifier else name
        raise self.problems.found("SF113", node, column=shown, suggestion=suggest(name, scope.names), known=listed(scope.names))

    def literal(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A constant. Numbers with a point or an exponent are float64; the exact text of those with a point is kept."""
        text = str(node.this)
        if node.args.get("is_string"):
            return Literal(text, STRING)
        try:
            return number_literal(text)
        except (ValueError, ArithmeticError):
            raise self.problems.unsupported(node, f"the number {text[:40]}", "write plain digits") from None

    def constant(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """TRUE, FALSE or NULL."""
        return Literal(None, NULL) if isinstance(node, exp.Null) else Literal(bool(node.this), BOOLEAN)

    def negation(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """A negative number, or a number with the other sign."""
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number_literal("-" + str(node.this.this))
        return self.call(FUNCTIONS["NEGATE"], node, [node.this], scope, depth)

    def parenthesised(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """What the parentheses hold."""
        return self.expression(node.this, scope, depth + 1)

    def interval(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """INTERVAL '5' MINUTE."""
        unit = node.args.get("unit")
        text = node.this.name if isinstance(node.this, exp.Literal) else ""
        try:
            kind, length = time.interval(text, unit.name if unit is not None else "")
        except ValueError as error:
            raise self.problems.unsupported(
                node, str(error), "write INTERVAL 'n' and one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR"
            ) from None
        return Literal(length, INTERVAL if kind == "interval" else MONTHS)

    # conversions

    def cast(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """CAST and TRY_CAST; DATE '..' and TIMESTAMP '..' are constants."""
        type_ = self.cast_type(node, node.args["to"])
        safe = isinstance(node, exp.TryCast)
        if isinstance(node.this, exp.Literal) and node.this.is_string and type_ in (DATE, TIMESTAMP) and not safe:
            return self.moment(node, str(node.this.this), type_)
        operand = self.expression(node.this, scope, depth + 1)
        if not is_castable(operand.type, type_):
            cause = f"{operand.type} can't be cast to {type_}"
            raise self.problems.found("SF114", node, cause=cause, expected="cast to another type")
        return Cast(operand, type_, safe)

    def moment(self, node: exp.Expression, text: str, type_: DataType) -> Expression:
        """A constant timestamp or date."""
        try:
            value = parse_date(text.strip()) if type_ == DATE else parse_file_instant(_with_time(text.strip()))
        except ValueError as error:
            raise self.problems.found(
                "SF114", node, cause=str(error), expected=f"write it as {'2026-08-30' if type_ == DATE else '2026-08-30 10:00:00'}"
            ) from None
        return Literal(value, type_)

    def cast_type(self, node: exp.Expression, to: Any) -> DataType:
        """The type that a CAST names."""
        name = getattr(getattr(to, "this", None), "name", None) or str(to)
        parameters = to.expressions if isinstance(to, exp.DataType) else []
        arguments = [int(p.name) for p in parameters if p.name.isdigit()]
        if name == "DECIMAL":
            try:
                return decimal(arguments[0], arguments[1] if len(arguments) > 1 else 0) if arguments else decimal(38, 10)
            except ValueError as error:
                raise self.problems.found("SF114", node, cause=str(error), expected="write DECIMAL(p, s)") from None
        type_ = _CAST_TYPES.get(name) or _TYPE_NAMES.get(str(to).lower())
        if type_ is None or (arguments and not (type_ == TIMESTAMP and arguments == [3])):
            raise self.problems.unsupported(node, f"CAST AS {str(to).upper()}", _CAST_HELP)
        return type_

    # logic with syntax of its own

    def null_test(self, node: exp.Expression, scope: Scope, depth: int, *, negated: bool = False) -> Expression:
        """IS NULL, IS TRUE, IS FALSE, IS UNKNOWN and their opposites."""
        right = node.expression
        word = "NULL" if isinstance(right, exp.Null) else str(bool(right.this)).upper() if isinstance(right, exp.Boolean) else None
        if word is None:
            raise self.problems.unsupported(node, "IS with something other than NULL, TRUE, FALSE and UNKNOWN", "compare with =")
        return self.call(FUNCTIONS[f"IS {'NOT ' if negated else ''}{word}"], node, [node.this], scope, depth)

    def negated(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """NOT, of which `x IS NOT NULL` is one spelling."""
        if isinstance(node.this, exp.Is):
            return self.null_test(node.this, scope, depth, negated=True)
        return self.call(FUNCTIONS["NOT"], node, [node.this], scope, depth)

    def membership(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """IN over a list; constants stay together, anything else is compared one by one."""
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise self.problems.unsupported(node, "IN over a query", "list the values, or write the subquery as a model")
        items = [self.expression(item, scope, depth + 1) for item in node.expressions]
        tested = self.expression(node.this, scope, depth + 1)
        if not items:
            raise self.problems.unsupported(node, "IN over nothing", "list at least one value")
        if all(isinstance(item, Literal) for item in items):
            return self.typed(FUNCTIONS["IN"], node, (tested, *items))
        if len(items) > MAX_DEPTH:
            raise self.problems.found("SF120", node, limit=MAX_DEPTH)
        tests = [self.typed(FUNCTIONS["="], node, (tested, item)) for item in items]
        combined = tests[0]
        for test in tests[1:]:
            combined = self.typed(FUNCTIONS["OR"], node, (combined, test))
        return combined

    def between(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """BETWEEN: not below the first and not above the second bound."""
        tested = self.expression(node.this, scope, depth + 1)
        low, high = (self.expression(node.args[bound], scope, depth + 1) for bound in ("low", "high"))
        lower = self.typed(FUNCTIONS[">="], node, (tested, low))
        return self.typed(FUNCTIONS["AND"], node, (lower, self.typed(FUNCTIONS["<="], node, (tested, high))))

    def like(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """LIKE, with an escape character where one is given."""
        inner = node.this if isinstance(node, exp.Escape) else node
        if not isinstance(inner, exp.Like):
            raise self.problems.unsupported(node, "ESCAPE here", "write x LIKE 'pattern' ESCAPE '!'")
        operands = [inner.this, inner.expression, *([node.expression] if isinstance(node, exp.Escape) else [])]
        matched = self.call(FUNCTIONS["LIKE ESCAPE" if len(operands) == 3 else "LIKE"], node, operands, scope, depth)
        return self.typed(FUNCTIONS["NOT"], node, (matched,)) if inner.args.get("negate") else matched

    def case(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """CASE, searched or over a value."""
        over = None if node.this is None else self.expression(node.this, scope, depth + 1)
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            condition = self.expression(branch.this, scope, depth + 1)
            args.append(condition if over is None else self.typed(FUNCTIONS["="], branch, (over, condition)))
            args.append(self.expression(branch.args["true"], scope, depth + 1))
        default = node.args.get("default")
        args.append(Literal(None, NULL) if default is None else self.expression(default, scope, depth + 1))
        return self.typed(FUNCTIONS["CASE"], node, tuple(args))

    def if_form(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """IF(condition, value, otherwise)."""
        self.exactly(node, "IF", 3)
        return self.call(FUNCTIONS["CASE"], node, node.expressions, scope, depth)

    def nullif(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """NULLIF(a, b): NULL where both are equal, else the first."""
        self.exactly(node, "NULLIF", 2)
        first, second = (self.expression(arg, scope, depth + 1) for arg in node.expressions)
        equal = self.typed(FUNCTIONS["="], node, (first, second))
        return self.typed(FUNCTIONS["CASE"], node, (equal, Literal(None, NULL), first))

    def exactly(self, node: exp.Expression, name: str, count: int) -> None:
        """Refuse another number of operands."""
        if len(node.expressions) != count:
            cause = f"{name} takes {count} operands, not {len(node.expressions)}"
            raise self.problems.found("SF114", node, cause=cause, expected=f"docs/sql.md shows how {name} is written")

    # functions with syntax of their own

    def trim(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """TRIM([BOTH|LEADING|TRAILING] [characters FROM] text)."""
        side = str(node.args.get("position") or "BOTH").upper()
        text = self.expression(node.this, scope, depth + 1)
        characters = node.args.get("expression")
        taken = Literal(" ", STRING) if characters is None else self.expression(characters, scope, depth + 1)
        return self.typed(FUNCTIONS[f"TRIM {side}"], node, (text, taken))

    def one_sided_trim(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """LTRIM(text) and RTRIM(text)."""
        name = called_name(node) or ""
        self.exactly(node, name, 1)
        text = self.expression(node.expressions[0], scope, depth + 1)
        return self.typed(FUNCTIONS[f"TRIM {'LEADING' if name == 'LTRIM' else 'TRAILING'}"], node, (text, Literal(" ", STRING)))

    def substring(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """SUBSTRING(text FROM start FOR length)."""
        operands = [node.this, node.args.get("start"), node.args.get("length")]
        return self.call(FUNCTIONS["SUBSTRING"], node, [o for o in operands if o is not None], scope, depth)

    def position(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """POSITION(part IN text)."""
        return self.call(FUNCTIONS["POSITION"], node, [node.args["substr"], node.this], scope, depth)

    def extract(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """EXTRACT(unit FROM moment)."""
        unit = _EXTRACT_UNITS.get(node.this.name.upper(), node.this.name.upper())
        if f"EXTRACT {unit}" not in FUNCTIONS:
            raise self.problems.unsupported(node, f"EXTRACT({unit})", f"extract one of {', '.join(time.PARTS)}")
        return self.call(FUNCTIONS[f"EXTRACT {unit}"], node, [node.expression], scope, depth)

    def rounded(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """FLOOR and CEIL of a number, or of a timestamp to a unit."""
        name = type(node).__name__.upper()
        to = node.args.get("to")
        if to is None:
            return self.call(FUNCTIONS[name], node, [node.this], scope, depth)
        return self.call(self.unit_row(f"{name} TO", to.name, node), node, [node.this], scope, depth)

    def unit_form(self, node: exp.Expression, scope: Scope, depth: int) -> Expression:
        """TIMESTAMPADD(unit, number, moment) and TIMESTAMPDIFF(unit, from, to)."""
        name = called_name(node) or ""
        self.exactly(node, name, 3)
        return self.call(self.unit_row(name, node.expressions[0].name, node), node, node.expressions[1:], scope, depth)

    def unit_row(self, name: str, unit: str, node: exp.Expression) -> Function:
        """The row of a function for a unit of time."""
        row = FUNCTIONS.get(f"{name} {unit.upper()}")
        if row is None:
            units = ", ".join(n.removeprefix(f"{name} ") for n in FUNCTIONS if n.startswith(f"{name} "))
            raise self.problems.unsupported(node, f"{name} {unit.upper()}", f"use one of {units}")
        return row


_SYNTAX = {
    "Column": "column",
    "Literal": "literal",
    "Boolean": "constant",
    "Null": "constant",
    "Neg": "negation",
    "Paren": "parenthesised",
    "Interval": "interval",
    "Cast": "cast",
    "TryCast": "cast",
    "Is": "null_test",
    "Not": "negated",
    "In": "membership",
    "Between": "between",
    "Like": "like",
    "Escape": "like",
    "Case": "case",
    "Trim": "trim",
    "Substring": "substring",
    "StrPosition": "position",
    "Extract": "extract",
    "Floor": "rounded",
    "Ceil": "rounded",
}
"""Methods for syntax that is not a plain call or a binary operator, by the parser's class."""

_FORMS = {
    "IF": "if_form",
    "NULLIF": "nullif",
    "LTRIM": "one_sided_trim",
    "RTRIM": "one_sided_trim",
    "TIMESTAMPADD": "unit_form",
    "TIMESTAMPDIFF": "unit_form",
}
"""Methods for calls that stand for something else."""

_EXTRACT_UNITS = {"DAYOFWEEK": "DOW", "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY"}


def _with_time(text: str) -> str:
    """A timestamp constant may be a day alone."""
    return text if len(text) > 10 else f"{text} 00:00:00"


def _construct(name: str) -> str:
    return "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def number_literal(text: str) -> Literal:
    """A numeric constant: int64 when it is whole and fits, else float64; with a point and no exponent its text is kept."""
    if text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63:
        return Literal(int(text), INT64)
    value = Decimal(text)
    if not value.is_finite() or value.adjusted() > 308:
        raise ValueError(text)
    return Literal(float(value), FLOAT64, value if "e" not in text.lower() and "." in text else None)
