"""Every function row held against the real Flink: the same expressions over the same rows, computed here and there.

Equal or loud: a value is exactly Flink's, or an error that names the expression. Differences: none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from integration.stack import Stack
from streamform.adapters.gateway import Gateway
from streamform.adapters.http import HttpService
from streamform.backends.flink.expression import emit_output
from streamform.backends.flink.script import SETTINGS
from streamform.backends.flink.text import identifier, quoted, type_sql
from streamform.plan.nodes import ProjectSpec, SourceSpec
from streamform.runtime.codegen import evaluator
from streamform.sql.expressions import Call, Cast, Expression
from streamform.sql.functions import FUNCTIONS
from streamform.sql.numeric import ValueLost
from streamform.values.instants import parse_date, parse_file_instant, render_file_instant
from streamform.values.rows import EXACT, Row, Schema
from streamform.values.types import DataType
from tests.conftest import ProjectFolder

COLUMNS = {
    "b": "boolean",
    "c": "boolean",
    "d": "decimal(12,2)",
    "e": "decimal(10,4)",
    "f": "float64",
    "g": "float64",
    "i": "int32",
    "j": "int32",
    "l": "int64",
    "m": "int64",
    "s": "string",
    "t": "timestamp",
    "u": "string",
    "w": "timestamp",
}
ROWS = 24
BATCH = {
    "execution.runtime-mode": "batch",
    "parallelism.default": "1",
    "execution.batch.adaptive.auto-parallelism.enabled": "false",
}
TOGETHER = 25
"""Expressions of one query."""

NUMBERS = ("i", "l", "d", "e", "f", "7", "2.5")
TEXTS = ("s", "u")
UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
FIELDS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE", "SECOND")


def written() -> Iterator[str]:
    """The expressions, as somebody writes them in a model."""
    for left, right in itertools.product(NUMBERS, NUMBERS):
        for operator in ("+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">="):
            yield f"{left} {operator} {right}"
    yield from (f"MOD({a}, {b})" for a, b in (("i", "j"), ("l", "m"), ("l", "7"), ("d", "e"), ("i", "l")))
    yield from (f"{a} % {b}" for a, b in (("i", "3"), ("l", "j")))
    yield from (f"{function}({a})" for function in ("ABS", "SIGN", "FLOOR", "CEIL", "-") for a in ("i", "l", "d", "e", "f"))
    yield from (f"ROUND({a}, {n})" for a in ("d", "e", "l", "f") for n in (0, 1, 3, -1))
    yield from (f"POWER({a}, {n})" for a in ("f", "g") for n in (2, 3, -1))
    for operator in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
        yield from (f"{a} {operator} {b}" for a, b in (("s", "u"), ("t", "w"), ("b", "c"), ("s", "'b'"), ("d", "e")))
    yield from ("b AND c", "b OR c", "NOT b", "b AND i > 0", "b OR d < 0", "NOT (b AND c)", "i <> 0 AND l / i > 1")
    for test in ("IS NULL", "IS NOT NULL"):
        yield from (f"{a} {test}" for a in COLUMNS)
    yield from (f"{a} {test}" for a in ("b", "(i > j)") for test in ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"))
    yield from ("i IN (1, 2, 100)", "s IN ('a', 'b', '')", "d NOT IN (1.50, 2)", "l IN (1, NULL)", "i BETWEEN 1 AND 100", "s LIKE 'a%'")
    yield from ("CASE WHEN i > 0 THEN l WHEN b THEN d END", "CASE i WHEN 1 THEN 'one' ELSE s END", "IF(b, f, g)", "NULLIF(i, j)")
    yield from ("COALESCE(i, j, 0)", "COALESCE(s, u)", "COALESCE(d, l)", "COALESCE(t, w)", "IFNULL(f, 0.5)")
    yield from ("GREATEST(i, j)", "LEAST(d, e)", "GREATEST(l, i, 3)", "LEAST(s, u)", "GREATEST(t, w)")
    for text in TEXTS:
        yield from (f"{function}({text})" for function in ("UPPER", "LOWER", "INITCAP", "CHAR_LENGTH", "REVERSE", "TRIM", "LTRIM", "RTRIM"))
        yield from (f"SUBSTRING({text} FROM {start} FOR {length})" for start, length in ((1, 2), (2, 1), (0, 2), (-2, 2), (3, 9)))
        yield from (f"{function}({text}, {n})" for function in ("LEFT", "RIGHT", "REPEAT") for n in (0, 1, 3))
        yield from (f"POSITION('b' IN {text})", f"REPLACE({text}, 'a', 'xy')", f"LPAD({text}, 4, '*')", f"RPAD({text}, 3, 'ab')")
        yield from (f"TRIM({where} 'a' FROM {text})" for where in ("BOTH", "LEADING", "TRAILING"))
        yield from (f"{text} || '-' || s", f"CONCAT({text}, u, 'z')", f"{text} LIKE '%b_'", f"{text} LIKE 'a!%%' ESCAPE '!'")
        yield from (f"REGEXP_EXTRACT({text}, '([a-c]+)', 1)", f"REGEXP_REPLACE({text}, '[0-9]+', '#')", f"SPLIT_INDEX({text}, ' ', 0)")
        yield from (f"MD5({text})", f"SHA256({text})", f"JSON_VALUE({text}, '$.a')")
    for time in ("t", "w"):
        yield from (f"EXTRACT({field} FROM {time})" for field in FIELDS)
        yield from (f"{function}({time} TO {unit})" for function in ("FLOOR", "CEIL") for unit in UNITS)
        yield from (f"TIMESTAMPADD({unit}, i, {time})" for unit in UNITS)
        yield from (f"{time} {sign} INTERVAL '{n}' {unit}" for sign in "+-" for n, unit in ((1, "DAY"), (90, "MINUTE"), (5, "MONTH")))
        yield from (f"DATE_FORMAT({time}, '{pattern}')" for pattern in ("yyyy-MM-dd", "HH:mm", "yyyyMMdd HHmmss"))
        yield from (f"HOUR({time})", f"MINUTE({time})", f"DAYOFWEEK({time})", f"DAYOFYEAR({time})")
    yield from (f"TIMESTAMPDIFF({unit}, t, w)" for unit in UNITS)
    kinds = ("INT", "BIGINT", "DECIMAL(8, 1)", "DOUBLE", "STRING", "BOOLEAN", "TIMESTAMP(3)")
    for column, kind in itertools.product(("i", "l", "d", "f", "s", "b", "t"), kinds):
        yield f"CAST({column} AS {kind})"
        if column == "s":
            yield f"TRY_CAST({column} AS {kind})"


def values_of(kind: str, chosen: random.Random) -> list[Any]:
    """Values of a type: edges first, then others."""
    numbers = [0, 1, -1, 2, 7, 100, -100, 2**31 - 1, -(2**31), *(chosen.randint(-(10**6), 10**6) for _ in range(12))]
    if kind == "int32":
        return [None, *numbers]
    if kind == "int64":
        return [None, *numbers, 2**63 - 1, -(2**63), 10**15]
    if kind == "float64":
        return [None, 0.0, 1.5, -2.25, 1e10, -1e-7, 3.0, 0.1, *(chosen.uniform(-1e4, 1e4) for _ in range(12))]
    if kind.startswith("decimal"):
        scale = 2 if "12" in kind else 4
        return [
            None,
            *(Decimal(n).scaleb(-scale) for n in (0, 1, -1, 5, 150, -150, 99999999, *(chosen.randint(-(10**7), 10**7) for _ in range(14)))),
        ]
    if kind == "boolean":
        return [None, True, False]
    if kind == "timestamp":
        instants = (
            "2026-08-30T10:00:00",
            "2024-02-29T23:59:59.999",
            "1999-12-31T00:00:00.001",
            "2026-01-01T00:00:00",
            "1970-01-01T00:00:00",
        )
        return [None, *map(parse_file_instant, instants), *(chosen.randint(10**11, 2 * 10**12) for _ in range(15))]
    texts = [
        "",
        "a",
        "b",
        "ab",
        "Abc",
        "a b",
        " ab ",
        "12",
        "-3.5",
        "true",
        "x1y22",
        '{"a": "v"}',
        '{"a": 5}',
        "äöü",
        "a%",
        "aab",
        "2026-08-30 10:00:00",
    ]
    return [None, *texts]


def rows() -> list[Row]:
    """Seeded rows; the columns of each in alphabetical order."""
    chosen = random.Random(20260830)
    pools = [values_of(kind, chosen) for _, kind in sorted(COLUMNS.items())]
    edges: list[Row] = [tuple(pool[n % len(pool)] for pool in pools) for n in range(ROWS // 2)]
    return edges + [tuple(chosen.choice(pool) for pool in pools) for _ in range(ROWS - len(edges))]


@dataclass(frozen=True)
class Probe:
    """One expression: as written, as compiled, and what it is here for each row; a loud refusal is its message."""

    text: str
    expression: Expression
    here: tuple[Any, ...]


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Probe], list[str], Schema]:
    """Every expression that check accepts, and those that it refuses."""
    folder = ProjectFolder(tmp_path_factory.mktemp("differential"))
    columns = ", ".join(f'{name}: "{kind}"' for name, kind in COLUMNS.items())
    folder.write("streamform.yml", "name: differential\nversion: 1\n")
    folder.write("sources.yml", f"sources: {{e: {{connector: file, path: x, schema: {{{columns}}}}}}}\n")
    texts = list(dict.fromkeys(written()))
    for number, text in enumerate(texts):
        folder.write(f"models/m{number}.sql", f"SELECT {text} AS r FROM source('e')")
    plan = folder.compiled().plan
    schema = next(node.schema for node in plan.nodes if isinstance(node.spec, SourceSpec))
    names = [column.name for column in schema]
    data = rows()
    found: list[Probe] = []
    for node in plan.nodes:
        if isinstance(node.spec, ProjectSpec):
            expression = node.spec.outputs[0].expression
            found.append(Probe(texts[int(node.model[1:])], expression, tuple(computed(expression, names, row) for row in data)))
    refused = sorted(set(texts) - {probe.text for probe in found})
    return found, refused, schema


class Loud(str):
    """The message of an error that names what Flink would do."""


def computed(expression: Expression, names: list[str], row: Row) -> Any:
    from decimal import localcontext

    with localcontext(EXACT):
        try:
            return evaluator(expression, names)(row)
        except (ArithmeticError, ValueLost) as error:
            return Loud(error)


def functions_in(expression: Expression) -> set[str]:
    if isinstance(expression, Call):
        return {expression.function.name}.union(*(functions_in(arg) for arg in expression.args))
    return functions_in(expression.operand) if isinstance(expression, Cast) else set()


def test_every_function_row_has_a_probe(probes: tuple[list[Probe], list[str], Schema]) -> None:
    covered = set[str]().union(*(functions_in(probe.expression) for probe in probes[0]))
    assert set(FUNCTIONS) - covered == set()


def test_what_check_refuses_is_refused_for_a_reason(probes: tuple[list[Probe], list[str], Schema]) -> None:
    """Combinations that have no meaning or whose values could differ; a probe that is refused by accident shows here."""
    _, refused, _ = probes
    assert len(refused) < 90, refused


def table(schema: Schema, data: list[Row]) -> str:
    """The rows as a query: constants as text, and each made exactly its type above."""
    cells = [", ".join([str(number), *(cell(v, c.type) for c, v in zip(schema, row, strict=True))]) for number, row in enumerate(data)]
    names = [identifier(column.name) for column in schema]
    typed = ", ".join(f"CAST(NULLIF({name}, '~') AS {type_sql(column.type)}) AS {name}" for name, column in zip(names, schema, strict=True))
    values = f"(VALUES {', '.join(f'({row})' for row in cells)}) AS `v` (`id`, {', '.join(names)})"
    return f"(SELECT `id`, {typed} FROM {values}) AS `e`"


def cell(value: Any, type_: DataType) -> str:
    """A value as text."""
    if value is None:
        return "'~'"
    if type_.kind == "timestamp":
        return quoted(render_file_instant(value).replace("T", " "))
    return quoted(str(value).lower() if isinstance(value, bool) else format(value, "f") if isinstance(value, Decimal) else str(value))


def test_flink_computes_the_same(stack: Stack, probes: tuple[list[Probe], list[str], Schema]) -> None:
    found, _, schema = probes
    source = table(schema, rows())
    http = HttpService("the SQL Gateway", stack.gateway_url, "gateway")
    session = Gateway(http).session({**SETTINGS, **BATCH})
    wrong: list[str] = []
    cases = loud = 0
    for start in range(0, len(found), TOGETHER):
        group = found[start : start + TOGETHER]
        columns = [f"{guarded(probe)} AS `r{number}`" for number, probe in enumerate(group)]
        result = session.query(f"SELECT `id`, {', '.join(columns)} FROM {source}")
        by_id = {int(row[0]): row[1:] for row in result.rows}
        assert len(by_id) == ROWS
        for number, probe in enumerate(group):
            for row_id, here in enumerate(probe.here):
                if isinstance(here, Loud):
                    loud += 1
                    continue
                cases += 1
                there = by_id[row_id][number]
                if not same(here, there, probe.expression.type):
                    wrong.append(f"{probe.text} over row {row_id}: {here!r} here, {there!r} on Flink")
    session.close()
    http.close()
    print(f"{cases} cases equal but {len(wrong)}, {loud} refused loudly, {len(found)} expressions")
    assert wrong == []
    assert cases >= 1_500


def guarded(probe: Probe) -> str:
    """The expression as text, for the rows that are not refused here; a refusal is where Flink loses the value or fails."""
    accepted = [str(number) for number, here in enumerate(probe.here) if not isinstance(here, Loud)]
    if not accepted:
        return "CAST(NULL AS STRING)"
    return f"CASE WHEN `id` IN ({', '.join(accepted)}) THEN CAST({emit_output(probe.expression)} AS STRING) END"


def same(here: Any, there: Any, type_: DataType) -> bool:
    """Whether text from Flink is the value."""
    if here is None or there is None:
        return here is there
    if type_.kind == "boolean":
        return str(there).lower() == str(here).lower()
    if type_.kind == "timestamp":
        return parse_file_instant(str(there)) == here
    if type_.kind == "date":
        return parse_date(str(there)) == here
    if type_.kind == "decimal":
        return Decimal(str(there)) == here and -Decimal(str(there)).as_tuple().exponent == type_.scale  # type: ignore[operator]
    if type_.kind == "float64":
        return float(there) == here
    return str(there) == str(here)


def test_the_probes_are_many_and_seeded() -> None:
    assert rows() == rows()
    assert len(list(written())) > 800
