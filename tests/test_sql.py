"""SQL to typed relations: what is accepted, which type it has, how it is written canonically, and what is refused by name."""

from __future__ import annotations

import pytest

from streamform.sql.unsupported import CLAUSES, EXPRESSIONS, FUNCTIONS_REFUSED
from tests.conftest import ProjectBuilder, ProjectFolder, play

COLUMNS = {
    "i": "int32",
    "n": "int64",
    "f": "float64",
    "d": "decimal(12,2)",
    "w": "decimal(38,9)",
    "s": "string",
    "o": "boolean",
    "t": "timestamp",
    "Mixed": "string",
    "select": "int64",
}
SOURCES = {"sources": {"e": {"connector": "file", "path": "e.jsonl", "schema": COLUMNS}}}


def one(project: ProjectBuilder, sql: str, **config: object) -> ProjectFolder:
    """A project of one model over the source `e`."""
    return project(sql, {"m": config} if config else None, sources=SOURCES)


def types(folder: ProjectFolder) -> list[str]:
    """The types of the model's outputs."""
    compiled = folder.compiled()
    assert not compiled.has_errors, [d.message for d in compiled.diagnostics]
    return [str(column.type) for column in compiled.plan.nodes[-1].schema]


def definition(folder: ProjectFolder, kind: str) -> str:
    """The canonical text of the only node of a kind."""
    compiled = folder.compiled()
    assert not compiled.has_errors, [d.message for d in compiled.diagnostics]
    return next(node.definition for node in compiled.plan.nodes if node.kind == kind)


def messages(folder: ProjectFolder) -> list[str]:
    """`code: message; help` of every problem."""
    return [f"{d.code}: {d.message}; {d.help}" for d in folder.check()]


# types


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("i + i", "int32"),
        ("i + 1", "int64"),
        ("i + n", "int64"),
        ("n / n", "int64"),
        ("i * 2", "int64"),
        ("f + n", "float64"),
        ("f / d", "float64"),
        ("d + 1", "decimal(23,2)"),
        ("d + i", "decimal(13,2)"),
        ("d - i", "decimal(13,2)"),
        ("d * i", "decimal(23,2)"),
        ("d * d", "decimal(25,4)"),
        ("d / i", "decimal(16,6)"),
        ("d / d", "decimal(18,6)"),
        ("d + 1.5", "float64"),
        ("d * 1.5", "float64"),
        ("w + w", "decimal(38,9)"),
        ("w * w", "decimal(38,18)"),
        ("CAST(n AS DECIMAL)", "decimal(38,10)"),
        ("CAST(n AS DECIMAL(5))", "decimal(5,0)"),
        ("CAST(d AS DECIMAL(20, 4))", "decimal(20,4)"),
        ("d::int", "int32"),
        ("CAST(s AS BIGINT)", "int64"),
        ("CAST(s AS DOUBLE)", "float64"),
        ("CAST(s AS BOOLEAN)", "boolean"),
        ("CAST(s AS TIMESTAMP)", "timestamp(millisecond)"),
        ("CAST(s AS TIMESTAMP(3))", "timestamp(millisecond)"),
        ("CAST(n AS VARCHAR)", "string"),
        ("CAST(t AS DATE)", "date"),
        ("1", "int64"),
        ("1.5", "float64"),
        ("'x'", "string"),
        ("TRUE", "boolean"),
        ("9223372036854775807", "int64"),
        ("9223372036854775808", "float64"),
        ("n > 1", "boolean"),
        ("o AND n > 1", "boolean"),
        ("s IS NULL", "boolean"),
        ("-5", "int64"),
    ],
)
def test_an_expression_has_the_published_type(project: ProjectBuilder, expression: str, type_: str) -> None:
    assert types(one(project, f"SELECT {expression} AS x FROM source('e')")) == [type_]


@pytest.mark.parametrize(
    ("aggregate", "type_"),
    [
        ("SUM(i)", "int64"),
        ("SUM(n)", "int64"),
        ("SUM(d)", "decimal(38,2)"),
        ("SUM(w)", "decimal(38,9)"),
        ("SUM(f)", "float64"),
        ("MIN(s)", "string"),
        ("MAX(o)", "boolean"),
        ("MAX(t)", "timestamp(millisecond)"),
        ("MIN(d)", "decimal(12,2)"),
        ("COUNT(*)", "int64"),
        ("COUNT(1)", "int64"),
        ("COUNT(d)", "int64"),
        ("SUM(d) / COUNT(*)", "decimal(26,6)"),
        ("SUM(d) + 1", "decimal(38,2)"),
        ("SUM(d * d)", "decimal(38,4)"),
        ("CAST(SUM(d) AS DECIMAL(12, 2))", "decimal(12,2)"),
        ("SUM(n) * 2", "int64"),
    ],
)
def test_an_aggregate_has_the_published_type(project: ProjectBuilder, aggregate: str, type_: str) -> None:
    assert types(one(project, f"SELECT {aggregate} AS x FROM source('e')", materialized="upsert")) == [type_]


# canonical text


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("n > 1", "(n > 1)"),
        ("N>1", "(n > 1)"),
        ("((n)) > (1)", "(n > 1)"),
        ("n <> 1", "(n != 1)"),
        ("n > 1 AND n < 9 OR o", "(((n > 1) AND (n < 9)) OR o)"),
        ("n > 1 AND (n < 9 OR o)", "((n > 1) AND ((n < 9) OR o))"),
        ("NOT n = 1", "(NOT (n = 1))"),
        ("NOT (o AND o)", "(NOT (o AND o))"),
        ("s IS NOT NULL", "(s IS NOT NULL)"),
        ("s is null", "(s IS NULL)"),
        ("s = 'it''s'", "(s = 'it''s')"),
        ("d > 1.50", "(d > 1.5)"),
        ("d > 100.00", "(d > 100)"),
        ("f > 1e2", "(f > 100)"),
        ("n > -5", "(n > -5)"),
        ("n + 1 * 2 > 3", "((n + (1 * 2)) > 3)"),
        ("CAST(s AS bigint) > 1", "(CAST(s AS int64) > 1)"),
        ("s::bigint > 1", "(CAST(s AS int64) > 1)"),
        ("o = true", "(o = true)"),
        ("x.n > 1", "(n > 1)"),
        ("o", "o"),
        ("\"Mixed\" = 'a'", "(Mixed = 'a')"),
        ("n /* one */ > 1 -- more", "(n > 1)"),
    ],
)
def test_a_condition_has_one_canonical_text(project: ProjectBuilder, condition: str, text: str) -> None:
    assert definition(one(project, f"SELECT n FROM source('e') x WHERE {condition}"), "filter") == text


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ("n", "n"),
        ("n AS n", "n"),
        ("N AS Total", "n AS total"),
        ('n AS "Total"', "n AS Total"),
        ("n + 1 AS m", "(n + 1) AS m"),
        ("e.n", "n"),
        ("n m", "n AS m"),
        ('"select"', "select"),
    ],
)
def test_a_projection_has_one_canonical_text(project: ProjectBuilder, items: str, text: str) -> None:
    assert definition(one(project, f"SELECT {items} FROM source('e')"), "project") == text


def test_a_star_is_every_column_in_the_order_of_the_schema(project: ProjectBuilder) -> None:
    assert definition(one(project, "SELECT * FROM source('e')"), "project") == "Mixed, d, f, i, n, o, s, select, t, w"


def test_equal_aggregates_share_one_accumulator(project: ProjectBuilder) -> None:
    sql = "SELECT s, SUM(d) AS a, SUM(d) + 1 AS b, COUNT(1) AS c, COUNT(*) AS e2 FROM source('e') GROUP BY s HAVING MAX(n) > 1"
    folder = one(project, sql, materialized="upsert", key=["s"])
    assert definition(folder, "aggregate") == "key=[s] aggregates=[sum(d), count(*), max(n)]"


@pytest.mark.parametrize("group", ["s", "1", "ALL", "S", "x.s"])
def test_every_way_to_name_a_grouping_column_is_the_same_group(project: ProjectBuilder, group: str) -> None:
    folder = one(project, f"SELECT s, COUNT(*) AS c FROM source('e') x GROUP BY {group}", materialized="upsert", key=["s"])
    assert definition(folder, "aggregate") == "key=[s] aggregates=[count(*)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM (SELECT n, s FROM source('e')) WHERE s = 'a'",
        "WITH c AS (SELECT n, s FROM source('e')) SELECT n FROM c WHERE s = 'a'",
        "WITH b AS (SELECT n, s FROM source('e')), c AS (SELECT n, s FROM b WHERE s = 'a') SELECT n FROM c",
        "SELECT n FROM SOURCE('e') AS q WHERE q.s = 'a';",
        "select N from source('e') where S = 'a' -- the end",
        "SELECT n FROM source('e') WHERE s = 'a'; -- the end",
        "(SELECT n FROM source('e') WHERE s = 'a')",
    ],
)
def test_subqueries_and_ctes_filter_as_they_read(project: ProjectBuilder, sql: str) -> None:
    folder = one(project, sql)
    assert types(folder) == ["int64"]
    assert definition(folder, "filter") == "(s = 'a')"


def test_having_sees_outputs_by_name(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT s, SUM(d) AS total FROM source('e') GROUP BY s HAVING total > 5", materialized="upsert", key=["s"])
    assert definition(folder, "filter") == "(sum(d) > 5)"


def test_a_name_that_reads_like_an_expression_is_quoted(project: ProjectBuilder) -> None:
    folder = one(project, 'SELECT n AS "sum(d)" FROM (SELECT n AS "a + b", n FROM source(\'e\')) WHERE "a + b" > 1')
    assert definition(folder, "filter") == '("a + b" > 1)'


def test_text_in_a_string_is_no_input(project: ProjectBuilder) -> None:
    assert one(project, "SELECT n FROM source('e') WHERE s = 'ref(''x'') source(''y'')'").codes() == []


# refusals


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT n FROM source('e') LIMIT 5", "LIMIT"),
        ("SELECT n FROM source('e') OFFSET 5", "OFFSET"),
        ("SELECT n FROM source('e') ORDER BY n", "ORDER BY"),
        ("SELECT a.n FROM source('e') a JOIN source('e') b ON a.n = b.n", "a join"),
        ("SELECT a.n FROM source('e') a, source('e') b", "a join"),
        ("SELECT n FROM source('e') QUALIFY n > 1", "QUALIFY"),
        ("SELECT n FROM source('e') UNION SELECT n FROM source('e')", "UNION without ALL"),
        ("SELECT n FROM source('e') INTERSECT SELECT n FROM source('e')", "INTERSECT"),
        ("SELECT n FROM source('e') UNION ALL SELECT n FROM source('e') LIMIT 3", "LIMIT"),
        ("SELECT 1 AS x", "SELECT without FROM"),
        ("WITH RECURSIVE c AS (SELECT n FROM source('e')) SELECT n FROM c", "WITH RECURSIVE"),
        ("WITH c (a) AS (SELECT n FROM source('e')) SELECT a FROM c", "column names after a CTE's name"),
        ("SELECT a FROM source('e') AS q (a)", "column names after a table alias"),
        ("SELECT SUM(n) OVER () AS x FROM source('e')", "a window function"),
        ("SELECT (SELECT MAX(n) FROM source('e')) AS x FROM source('e')", "a subquery as a value"),
        ("SELECT n FROM source('e') WHERE EXISTS (SELECT n FROM source('e'))", "EXISTS"),
        ("SELECT n FROM source('e') WHERE n IN (SELECT n FROM source('e'))", "IN over a query"),
        ("SELECT n FROM source('e') HAVING n > 1", "HAVING without GROUP BY or an aggregate"),
        ("SELECT s, COUNT(*) AS c FROM source('e') GROUP BY ROLLUP (s)", "ROLLUP"),
        ("SELECT *, COUNT(*) AS c FROM source('e') GROUP BY s", "* in a grouped query"),
        ("SELECT COUNT(*) AS c FROM source('e') GROUP BY 5", "GROUP BY 5"),
        ("SELECT MAX(SUM(n)) AS x FROM source('e')", "an aggregate inside an aggregate"),
        ("SELECT COUNT(n, d) AS x FROM source('e')", "COUNT of several columns"),
        ("SELECT SUM(*) AS x FROM source('e')", "SUM(*)"),
        ("SELECT n FROM source('e') WHERE SUM(n) > 1", "SUM here"),
        ("SELECT DISTINCT ON (n) n FROM source('e')", "DISTINCT ON"),
        ("SELECT CAST(n AS JSON) AS x FROM source('e')", "CAST AS JSON"),
        ("SELECT n FROM source('e') WHERE s ILIKE 'a'", "ILIKE"),
        ("SELECT {{ n }} AS x FROM source('e')", "braces"),
        ("SELECT * EXCEPT (n) FROM source('e')", "* EXCEPT"),
        ("SELECT n FROM source('e') TABLESAMPLE (5)", "TABLESAMPLE"),
        ("SELECT n FROM source('e') PIVOT (SUM(n) FOR s IN ('x'))", "PIVOT"),
        ("SELECT n FROM source('e') FOR SYSTEM_TIME AS OF t", "FOR SYSTEM_TIME"),
        ("SELECT n FROM source('e') WITH (NOLOCK)", "a table hint"),
        ("SELECT n FROM (SELECT n FROM source('e') LIMIT 2)", "LIMIT"),
        ("(SELECT n FROM source('e')) LIMIT 2", "LIMIT"),
        ("SELECT n FROM source('e') UNION ALL BY NAME SELECT n FROM source('e')", "BY NAME"),
        ("SELECT n FROM source('e') WHERE n BETWEEN SYMMETRIC 5 AND 1", "BETWEEN SYMMETRIC"),
        ("SELECT CAST(n AS INT FORMAT 'x') AS x FROM source('e')", "FORMAT in CAST"),
        ("SELECT FLOOR(d, 1) AS x FROM source('e')", "a second operand here"),
        ("SELECT n FROM source('e') WHERE x.y.n = 1", "a column's name of more than two parts"),
        ("SELECT s, COUNT(*) AS c FROM source('e') GROUP BY s WITH ROLLUP", "ROLLUP"),
    ],
)
def test_what_is_not_supported_is_named_with_what_to_write_instead(project: ProjectBuilder, sql: str, construct: str) -> None:
    found = [d for d in one(project, sql, materialized="upsert").check() if d.code == "SF112"]
    assert [d.message for d in found] == [f"model `m` uses {construct}, which is not supported"]
    assert found[0].help
    assert found[0].where is not None
    assert found[0].where.file == "models/m.sql"


@pytest.mark.parametrize("function", FUNCTIONS_REFUSED)
def test_a_refused_function_says_why(project: ProjectBuilder, function: str) -> None:
    found = [d for d in one(project, f"SELECT {function}(s) AS x FROM source('e')").check() if d.code == "SF117"]
    assert [d.help for d in found] == [FUNCTIONS_REFUSED[function]]


@pytest.mark.parametrize("name", ["CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP"])
def test_the_clock_is_refused_without_parentheses_too(project: ProjectBuilder, name: str) -> None:
    assert [d.code for d in one(project, f"SELECT {name} AS x FROM source('e')").check() if d.severity == "error"] == ["SF117"]


def test_every_refusal_has_an_alternative() -> None:
    assert all(instead for _, instead in (*CLAUSES.values(), *EXPRESSIONS.values()))
    assert all(FUNCTIONS_REFUSED.values())


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("SELECT n FROM source('e') WHERE s > 1", "string can't be compared with int64"),
        ("SELECT n FROM source('e') WHERE t = 's'", "timestamp(millisecond) can't be compared with string"),
        ("SELECT n FROM source('e') WHERE o = 1", "boolean can't be compared with int64"),
        ("SELECT n FROM source('e') WHERE n", "WHERE is int64, not a condition"),
        ("SELECT n FROM source('e') WHERE NULL", "WHERE is NULL, not a condition"),
        ("SELECT n FROM source('e') WHERE n = NULL", "a comparison with NULL is never true; use IS NULL or IS NOT NULL"),
        ("SELECT n FROM source('e') WHERE n AND o", "AND needs a condition, not int64"),
        ("SELECT s + 1 AS x FROM source('e')", "string + int64 is not defined"),
        ("SELECT NULL AS x FROM source('e')", "`x` is NULL and has no type"),
        ("SELECT SUM(s) AS x FROM source('e')", "SUM needs a number, not string"),
        ("SELECT SUM(t) AS x FROM source('e')", "SUM needs a number, not timestamp(millisecond)"),
        ("SELECT CAST(o AS TIMESTAMP) AS x FROM source('e')", "boolean can't be cast to timestamp(millisecond)"),
        ("SELECT CAST(n AS DECIMAL(40, 2)) AS x FROM source('e')", "decimal(40,2) needs 1 <= precision <= 38 and 0 <= scale <= precision"),
        ("SELECT s FROM source('e') UNION ALL SELECT n FROM source('e')", "the sides of UNION ALL have the columns (string) and (int64)"),
    ],
)
def test_types_that_do_not_meet_are_an_error_that_names_both(project: ProjectBuilder, sql: str, cause: str) -> None:
    found = [d.message for d in one(project, sql, materialized="upsert").check() if d.code == "SF114"]
    assert found == [f"model `m`: {cause}"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT Nn FROM source('e')", "model `m` names the column `nn`, which its input does not have; did you mean `n`?"),
        ("SELECT Mixed FROM source('e')", "model `m` names the column `mixed`, which its input does not have; did you mean `Mixed`?"),
        ("SELECT x.n FROM source('e') y", "model `m` names the column `x.n`, which its input does not have; did you mean `n`?"),
        ("SELECT y.* FROM source('e')", "model `m` names the column `y.*`, which its input does not have"),
        ("SELECT s AS a FROM source('e') WHERE a = 'x'", "model `m` names the column `a`, which its input does not have"),
    ],
)
def test_an_unknown_column_is_named(project: ProjectBuilder, sql: str, message: str) -> None:
    assert [d.message for d in one(project, sql).check() if d.code == "SF113"] == [message]


def test_several_problems_of_one_model_are_reported_in_one_run(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT\n  nope,\n  s + 1 AS a,\n  NOW() AS b,\n  n\nFROM source('e')")
    assert [(d.code, d.where.line if d.where else 0) for d in folder.check()] == [("SF113", 2), ("SF114", 3), ("SF117", 4)]


def test_problems_of_several_models_are_reported_in_one_run(project: ProjectBuilder) -> None:
    models = {"a": "SELECT nope FROM source('e')", "b": "SELECT FROM", "c": "SELECT n FROM source('x')", "d": "SELECT n FROM source('e')"}
    assert project(models, sources=SOURCES).codes() == ["SF110", "SF106", "SF113", "SF118"]


def test_a_reader_of_a_broken_model_says_only_that(project: ProjectBuilder) -> None:
    models = {"a": "SELECT nope FROM source('e')", "b": "SELECT nope FROM ref('a')"}
    assert [(d.code, d.path) for d in project(models, sources=SOURCES).check()] == [("SF113", "models/a.sql"), ("SF118", "models/b.sql")]


def test_a_caret_stands_below_the_place(project: ProjectBuilder) -> None:
    run = one(project, "SELECT n,\n  amout\nFROM source('e')").run("check")
    assert run.code == 1
    assert "  --> models/m.sql:2:3\n    |\n  2 |   amout\n    |   ^^^^^\n" in run.stdout


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("SELECT n FROM source('e') WHERE (n > 1", "1:38"),
        ("SELECT n FROM source('e') WHERE s = 'open", "0:0"),
        ("SELEC n FROM source('e')", "1:9"),
    ],
)
def test_sql_that_does_not_parse_has_a_place(project: ProjectBuilder, sql: str, where: str) -> None:
    found = [d for d in one(project, sql).check() if d.code in ("SF110", "SF109")]
    assert len(found) == 1
    assert found[0].where is not None
    assert f"{found[0].where.line}:{found[0].where.column}" == where
    assert "sqlglot" not in found[0].message.lower()


# bounds


@pytest.mark.parametrize("terms", [2, 50, 190])
def test_a_long_condition_is_computed(project: ProjectBuilder, terms: int) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE " + " AND ".join(f"n + {k} > {k}" for k in range(terms)))
    assert play(folder, "- {n: 1}\n- {n: 0}\n").records == ["insert n=1"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM source('e') WHERE " + " AND ".join(["n > 1"] * 300),
        "SELECT " + "+".join(["n"] * 300) + " AS x FROM source('e')",
        "SELECT n FROM source('e') WHERE " + "NOT " * 300 + "o",
        "SELECT n FROM " + "(SELECT n FROM " * 150 + "source('e')" + ")" * 150,
        "SELECT n FROM source('e') WHERE n IN (" + ", ".join(f"n + {k}" for k in range(300)) + ")",
        "SELECT " + "CASE WHEN o THEN 1 ELSE " * 300 + "0" + " END" * 300 + " AS x FROM source('e')",
    ],
    ids=["and", "plus", "not", "subquery", "in", "case"],
)
def test_a_query_that_is_nested_without_end_is_refused(project: ProjectBuilder, sql: str) -> None:
    assert one(project, sql).codes() == ["SF120"]


def test_many_branches_are_no_nesting(project: ProjectBuilder) -> None:
    branches = " ".join(f"WHEN n = {k} THEN {k * 2}" for k in range(120))
    items = f"CASE {branches} ELSE -1 END AS a, COALESCE({', '.join(['i'] * 200)}, 7) AS b, n IN ({', '.join(map(str, range(250)))}) AS c"
    records = play(one(project, f"SELECT {items} FROM source('e')"), "- {n: 100}\n- {n: 1000, i: 3}\n").records
    assert records == ["insert a=200 b=7 c=true", "insert a=-1 b=3 c=false"]
