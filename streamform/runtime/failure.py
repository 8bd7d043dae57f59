"""Which expression failed on which row: the slow second look after a batch raised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamform.errors import DataError
from streamform.runtime.codegen import evaluator
from streamform.sql.expressions import Cast, Expression, children, render_expression
from streamform.sql.numeric import ValueLost
from streamform.values.rows import Row, render_value


def explain_failure(node: str, expressions: Iterable[Expression], columns: Sequence[str], rows: Iterable[Row]) -> DataError:
    """The error that names the innermost expression that fails, and the row on which it does."""
    for row in rows:
        for expression in expressions:
            failure = _first_failure(expression, columns, row)
            if failure is not None:
                shown = ", ".join(f"{c}={render_value(v)}" for c, v in zip(columns, row, strict=False))
                return DataError(f"{failure[1]}, in {render_expression(failure[0])} of {node}", f"the row is {shown}")
    return DataError(f"a value was lost in {node}", None)


def _first_failure(expression: Expression, columns: Sequence[str], row: Row) -> tuple[Expression, str] | None:
    try:
        evaluator(expression, columns)(row)
    except (ValueLost, ArithmeticError) as error:
        for part in children(expression):
            inner = _first_failure(part, columns, row)
            if inner is not None:
                return inner
        kind = "type error: " if isinstance(expression, Cast) else ""
        return expression, f"{kind}{error}"
    return None
