"""Values and changelogs: what operators compute, what they emit, and which error names what would be lost."""

from __future__ import annotations

import pytest

from tests.conftest import Played, ProjectBuilder, ProjectFolder, play

SOURCES = {
    "sources": {
        "e": {
            "connector": "file",
            "path": "e.jsonl",
            "schema": {
                "i": "int32",
                "n": "int64",
                "f": "float64",
                "d": "decimal(12,2)",
                "x": "decimal(38,0)",
                "s": "string",
                "o": "boolean",
                "p": "boolean",
                "t": "timestamp",
            },
        }
    }
}


def one(project: ProjectBuilder, sql: str, **config: object) -> ProjectFolder:
    """A project of one model over the source `e`."""
    return project(sql, {"m": config} if config else None, sources=SOURCES)


def value(project: ProjectBuilder, expression: str, event: str = "{n: 1}") -> str:
    """What an expression is for one event, or the error."""
    played = play(one(project, f"SELECT {expression} AS v FROM source('e')"), f"- {event}")
    return played.error or played.records[0].removeprefix("insert v=")


# NULL and three-valued logic


@pytest.mark.parametrize("left", ["true", "false", "null"])
@pytest.mark.parametrize("right", ["true", "false", "null"])
def test_and_and_or_are_three_valued(project: ProjectBuilder, left: str, right: str) -> None:
    def tri(text: str) -> bool | None:
        return {"true": True, "false": False, "null": None}[text]

    def shown(result: bool | None) -> str:
        return "NULL" if result is None else str(result).lower()

    a, b = tri(left), tri(right)
    both = False if a is False or b is False else None if a is None or b is None else True
    either = True if a is True or b is True else None if a is None or b is None else False
    event = f"{{o: {left}, p: {right}}}"
    assert value(project, "o AND p", event) == shown(both)
    assert value(project, "o OR p", event) == shown(either)
    assert value(project, "NOT o", event) == shown(None if a is None else not a)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("n + 1", "NULL"),
        ("n = n", "NULL"),
        ("n <> 1", "NULL"),
        ("n IS NULL", "true"),
        ("n IS NOT NULL", "false"),
        ("d * 2", "NULL"),
        ("CAST(n AS DECIMAL(5, 2))", "NULL"),
        ("CAST(s AS BIGINT)", "NULL"),
        ("o IS TRUE", "false"),
        ("o IS NOT TRUE", "true"),
        ("n IS DISTINCT FROM 1", "true"),
        ("COALESCE(n, 7)", "7"),
    ],
)
def test_null_makes_null_where_nothing_else_is_said(project: ProjectBuilder, expression: str, shown: str) -> None:
    assert value(project, expression, "{i: 1}") == shown


def test_where_keeps_only_what_is_true(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE n > 1")
    assert play(folder, "- {n: 1}\n- {n: 2}\n- {i: 1}").records == ["insert n=2"]


def test_where_on_a_boolean_column_keeps_true(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE o")
    assert play(folder, "- {n: 1, o: true}\n- {n: 2, o: false}\n- {n: 3}").records == ["insert n=1"]


def test_and_guards_what_stands_on_its_right(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE n <> 0 AND 10 / n > 1")
    assert play(folder, "- {n: 0}\n- {n: 2}").records == ["insert n=2"]


def test_or_guards_what_stands_on_its_right(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE n = 0 OR 10 / n > 1")
    assert play(folder, "- {n: 0}\n- {n: 20}").records == ["insert n=0"]


def test_a_null_group_is_one_group(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT s, COUNT(*) AS c FROM source('e') GROUP BY s", materialized="upsert", key=["s"])
    assert play(folder, "- {n: 1}\n- {s: a}\n- {n: 2}").records == ["insert s=NULL c=1", "insert s=a c=1", "update s=NULL c=2"]


def test_aggregates_pass_over_null(project: ProjectBuilder) -> None:
    items = "COUNT(*) AS c, COUNT(n) AS cn, SUM(n) AS s, MIN(n) AS a, MAX(n) AS b, AVG(n) AS m"
    folder = one(project, f"SELECT {items} FROM source('e')", materialized="upsert")
    assert play(folder, "- {i: 1}\n- {n: 4}\n- {n: 2}\n- {i: 2}").records == [
        "insert c=1 cn=0 s=NULL a=NULL b=NULL m=NULL",
        "update c=2 cn=1 s=4 a=4 b=4 m=4",
        "update c=3 cn=2 s=6 a=2 b=4 m=3",
        "update c=4 cn=2 s=6 a=2 b=4 m=3",
    ]


# arithmetic


@pytest.mark.parametrize(
    ("expression", "event", "shown"),
    [
        ("n / 2", "{n: 7}", "3"),
        ("n / 2", "{n: -7}", "-3"),
        ("d * d", "{d: 10.25}", "105.0625"),
        ("d / 3", "{d: 10.25}", "3.416667"),
        ("10.0 / 4", "{n: 1}", "2.5"),
        ("1.0 / 3", "{n: 1}", str(1.0 / 3)),
        ("1.5 * 1.5", "{n: 1}", "2.25"),
        ("d + 1", "{d: 0.1}", "1.1"),
        ("d - i", "{d: 0.1, i: 3}", "-2.9"),
        ("f + n", "{f: 0.5, n: 1}", "1.5"),
        ("n - 5 * 2", "{n: 1}", "-9"),
        ("n % 3", "{n: -7}", "-1"),
        ("-n", "{n: 5}", "-5"),
        ("n * 1000000007", "{n: 3}", "3000000021"),
    ],
)
def test_arithmetic_is_exact_in_the_declared_type(project: ProjectBuilder, expression: str, event: str, shown: str) -> None:
    assert value(project, expression, event) == shown


@pytest.mark.parametrize(
    ("expression", "event", "error"),
    [
        (
            "n + 1",
            "{n: 9223372036854775807}",
            "9223372036854775808 does not fit int64; Flink would wrap around, in (n + 1) of m::project::0",
        ),
        ("i + i", "{i: 2000000000}", "4000000000 does not fit int32; Flink would wrap around, in (i + i) of m::project::0"),
        ("n / n", "{n: 0}", "division by zero, in (n / n) of m::project::0"),
        ("d / 0", "{d: 1}", "division by zero, in (d / 0) of m::project::0"),
        ("f / f", "{f: 0.0}", "division by zero; Flink would make it Infinity or NaN, in (f / f) of m::project::0"),
        ("n / (n - 5)", "{n: 5}", "division by zero, in (n / (n - 5)) of m::project::0"),
        (
            "(n + 1) * 2",
            "{n: 9223372036854775807}",
            "9223372036854775808 does not fit int64; Flink would wrap around, in (n + 1) of m::project::0",
        ),
        (
            "d * x",
            "{d: 1, x: '99999999999999999999999999999999999999'}",
            "does not fit decimal(38,2); Flink would make it NULL, in (d * x)",
        ),
        ("-n", "{n: -9223372036854775808}", "9223372036854775808 does not fit int64; Flink would wrap around, in (- n)"),
    ],
)
def test_a_value_that_flink_would_lose_is_an_error_that_names_the_expression(
    project: ProjectBuilder, expression: str, event: str, error: str
) -> None:
    assert error in value(project, expression, event)


def test_the_innermost_expression_is_named(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE (n + 1) * 2 > 3 AND 1 / (n - 1) > 0")
    assert str(play(folder, "- {n: 1}").error) == "division by zero, in (1 / (n - 1)) of m::filter::0"


def test_a_sum_that_no_longer_fits_names_the_accumulator(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT SUM(n) AS v FROM source('e')", materialized="upsert")
    played = play(folder, "- {n: 9223372036854775807}\n- {n: 1}")
    assert played.error == "sum(n) no longer fits int64; Flink would lose the value, in m::aggregate::0"


def test_a_decimal_sum_that_no_longer_fits_names_the_accumulator(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT SUM(x) AS v FROM source('e')", materialized="upsert")
    played = play(folder, "- {x: '99999999999999999999999999999999999999'}\n- {x: 1}")
    assert played.error == "sum(x) no longer fits decimal(38,0); Flink would lose the value, in m::aggregate::0"


# comparisons and casts


@pytest.mark.parametrize(
    ("expression", "event", "shown"),
    [
        ("d = 1.10", "{d: 1.1}", "true"),
        ("d > 1.005", "{d: 1.01}", "true"),
        ("n = f", "{n: 1, f: 1.0}", "true"),
        ("n = 1.0", "{n: 1}", "true"),
        ("s < 'b'", "{s: a}", "true"),
        ("s = 'A'", "{s: a}", "false"),
        ("t < TIMESTAMP '2026-08-30 10:00:00'", '{t: "2026-08-30T09:59:59.999Z"}', "true"),
        ("o = TRUE", "{o: true}", "true"),
        ("f = f", "{f: .nan}", "NULL"),
        ("f = 0", "{f: -0.0}", "true"),
    ],
)
def test_comparisons_are_exact(project: ProjectBuilder, expression: str, event: str, shown: str) -> None:
    assert value(project, expression, event) == shown


@pytest.mark.parametrize(
    ("expression", "event", "shown"),
    [
        ("CAST(f AS BIGINT)", "{f: 2.9}", "2"),
        ("CAST(f AS BIGINT)", "{f: -2.9}", "-2"),
        ("CAST(d AS INT)", "{d: 2.99}", "2"),
        ("CAST(d AS DECIMAL(4, 1))", "{d: 2.25}", "2.3"),
        ("CAST(s AS DECIMAL(4, 1))", "{s: '2.25'}", "2.3"),
        ("CAST(s AS BIGINT)", "{s: ' 42 '}", "42"),
        ("CAST(s AS BOOLEAN)", "{s: 'TRUE'}", "true"),
        ("CAST(s AS TIMESTAMP)", "{s: '2026-08-30 10:00:00'}", "2026-08-30T10:00:00.000Z"),
        ("CAST(n AS STRING)", "{n: 42}", "42"),
        ("CAST(t AS STRING)", '{t: "2026-08-30T10:00:00Z"}', "2026-08-30 10:00:00.000"),
        ("CAST(o AS INT)", "{o: true}", "1"),
        ("CAST(n AS DOUBLE)", "{n: 3}", "3.0"),
        ("n::int", "{n: 3}", "3"),
    ],
)
def test_casts_convert_as_flink_does(project: ProjectBuilder, expression: str, event: str, shown: str) -> None:
    assert value(project, expression, event) == shown


@pytest.mark.parametrize(
    ("expression", "event", "error"),
    [
        ("CAST(s AS BIGINT)", "{s: '4x'}", "'4x' is not int64; Flink would fail, in CAST(s AS int64)"),
        ("CAST(n AS INT)", "{n: 2147483648}", "2147483648 does not fit int32; Flink would wrap around, in CAST(n AS int32)"),
        (
            "CAST(d AS DECIMAL(3, 2))",
            "{d: 123.45}",
            "123.45 does not fit decimal(3,2); Flink would make it NULL, in CAST(d AS decimal(3,2))",
        ),
        ("CAST(f AS BIGINT)", "{f: .nan}", "in CAST(f AS int64)"),
        ("CAST(f AS BIGINT)", "{f: 1e300}", "does not fit int64"),
        ("CAST(s AS TIMESTAMP)", "{s: 'soon'}", "'soon' is not timestamp(millisecond)"),
    ],
)
def test_a_cast_that_flink_would_lose_is_an_error(project: ProjectBuilder, expression: str, event: str, error: str) -> None:
    assert error in value(project, expression, event)


def test_try_cast_is_null_for_text_that_is_no_value(project: ProjectBuilder) -> None:
    assert value(project, "TRY_CAST(s AS BIGINT)", "{s: '4x'}") == "NULL"


# changelogs


def test_the_first_event_of_a_key_is_an_insert_and_later_ones_are_updates(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT s, SUM(n) AS v FROM source('e') GROUP BY s", materialized="upsert", key=["s"])
    assert play(folder, "- {s: a, n: 1}\n- {s: b, n: 5}\n- {s: a, n: 2}").records == ["insert s=a v=1", "insert s=b v=5", "update s=a v=3"]


def chain(project: ProjectBuilder) -> ProjectFolder:
    """The changelogs page's example: a model that filters an updating one."""
    models = {
        "customer_metrics": "SELECT s AS customer_id, SUM(n) AS total_spend FROM source('e') GROUP BY s",
        "big_customers": "SELECT customer_id, total_spend FROM ref('customer_metrics') WHERE total_spend > 100",
    }
    upsert = {"materialized": "upsert", "key": ["customer_id"]}
    return project(models, {"customer_metrics": upsert, "big_customers": upsert}, sources=SOURCES)


def test_a_filter_over_updates_inserts_updates_and_deletes(project: ProjectBuilder) -> None:
    given = "\n".join(f"- {{s: '42', n: {n}}}" for n in (60, 70, 10, -50, 30, 5))
    assert play(chain(project), given, model="big_customers").records == [
        "insert customer_id=42 total_spend=130",
        "update customer_id=42 total_spend=140",
        "delete customer_id=42 total_spend=140",
        "insert customer_id=42 total_spend=120",
        "update customer_id=42 total_spend=125",
    ]


def test_what_was_never_shown_is_not_deleted(project: ProjectBuilder) -> None:
    assert play(chain(project), "- {s: a, n: 60}\n- {s: a, n: -10}", model="big_customers").records == []


def test_a_global_aggregate_emits_nothing_before_the_first_event(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT COUNT(*) AS c FROM source('e')", materialized="upsert")
    assert play(folder, "").records == []
    assert play(folder, "- {n: 1}\n- {n: 1}").records == ["insert c=1", "update c=2"]


def test_upsert_over_append_inserts_each_event(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT s, n FROM source('e')", materialized="upsert", key=["s"])
    assert play(folder, "- {s: a, n: 1}\n- {s: a, n: 2}\n- {n: 3}").records == ["insert s=a n=1", "insert s=a n=2", "insert s=NULL n=3"]


@pytest.mark.parametrize(("emit_unchanged", "updates"), [(True, 2), (False, 1)])
def test_an_update_that_changes_nothing_is_emitted_on_request(project: ProjectBuilder, emit_unchanged: bool, updates: int) -> None:
    folder = one(project, "SELECT s, MAX(n) AS v FROM source('e') GROUP BY s", materialized="upsert", key=["s"])
    records = play(folder, "- {s: a, n: 1}\n- {s: a, n: 5}\n- {s: a, n: 2}", emit_unchanged=emit_unchanged).records
    assert sum(record.startswith("update") for record in records) == updates


def test_having_shows_groups_while_they_qualify(project: ProjectBuilder) -> None:
    sql = "SELECT s, SUM(n) AS v FROM source('e') GROUP BY s HAVING COUNT(*) > 1 AND SUM(n) > 0"
    folder = one(project, sql, materialized="upsert", key=["s"])
    assert play(folder, "- {s: a, n: 1}\n- {s: a, n: 1}\n- {s: a, n: -9}").records == ["insert s=a v=2", "delete s=a v=2"]


def test_distinct_shows_each_row_once(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT DISTINCT s FROM source('e')", materialized="upsert", key=["s"])
    assert play(folder, "- {s: a}\n- {s: b}\n- {s: a}").records == ["insert s=a", "insert s=b"]


def test_union_all_shows_the_rows_of_every_side_in_turn(project: ProjectBuilder) -> None:
    folder = one(project, "SELECT n FROM source('e') WHERE n > 1 UNION ALL SELECT n * 10 AS n FROM source('e')")
    assert play(folder, "- {n: 1}\n- {n: 2}").records == ["insert n=10", "insert n=2", "insert n=20"]


def test_distinct_and_filter_in_an_aggregate(project: ProjectBuilder) -> None:
    items = "COUNT(DISTINCT s) AS a, SUM(n) FILTER (WHERE n > 1) AS b, COUNT(*) FILTER (WHERE o) AS c"
    folder = one(project, f"SELECT {items} FROM source('e')", materialized="upsert")
    records = play(folder, "- {s: a, n: 1}\n- {s: a, n: 2, o: true}\n- {s: b, n: 3, o: false}").records
    assert records == ["insert a=1 b=NULL c=0", "update a=1 b=2 c=1", "update a=2 b=5 c=1"]


def test_a_chain_of_hundreds_of_models_is_walked(project: ProjectBuilder) -> None:
    models = {f"m{k:03d}": f"SELECT n FROM {f'''ref('m{k - 1:03d}')''' if k else '''source('e')'''} WHERE n > {k}" for k in range(400)}
    models["last"] = "SELECT n, COUNT(*) AS c FROM ref('m399') GROUP BY n"
    folder = project(models, {"last": {"materialized": "upsert", "key": ["n"]}}, sources=SOURCES)
    assert play(folder, "- {n: 5}\n- {n: 1000}", model="last").records == ["insert n=1000 c=1"]


# fixtures against what happened


def failing(project: ProjectBuilder, fixture: str) -> str:
    """What test prints for one fixture of a projection."""
    folder = project({"m": "SELECT n, s FROM source('e')"}, sources=SOURCES, tests={"f": f"model: m\n{fixture}"})
    run = folder.run("test")
    assert run.code == 1
    return run.stdout


@pytest.mark.parametrize(
    ("fixture", "words"),
    [
        ("given: [{n: 1}]\nexpect: []\n", "unexpected: the fixture ends before this record"),
        ("given: []\nexpect: [{op: insert, n: 1, s: a}]\n", "missing: the model emitted nothing here"),
        ("given: [{n: 1, s: a}]\nexpect: [{op: insert, n: 2, s: a}]\n", "n: expected 2, got 1"),
        ("given: [{n: 1, s: a}]\nexpect: [{op: update, n: 1, s: a}]\n", "op: expected update, got insert"),
        ("given: [{n: x}]\nexpect: []\n", 'event 1: column `n` expects int64, got "x"'),
        ("given: [{n: 1}, {nn: 1}]\nexpect: []\n", "event 2 has column `nn`, which source `e` does not declare"),
        ("given: [{n: 9223372036854775808}]\nexpect: []\n", "event 1: column `n` expects int64, got 9223372036854775808"),
        ('given: [{t: "2026-02-30T00:00:00Z"}]\nexpect: []\n', "is not a date and time that exists"),
        ('given: [{t: "10:00:00"}]\nexpect: []\n', "is not an RFC 3339 instant"),
        ("given: [{d: 12345678901.00}]\nexpect: []\n", "column `d` expects decimal(12,2)"),
        ("given: [{i: 4000000000}]\nexpect: []\n", "column `i` expects int32"),
    ],
)
def test_a_fixture_that_does_not_hold_says_where(project: ProjectBuilder, fixture: str, words: str) -> None:
    assert words in failing(project, fixture)


def test_a_failed_record_has_a_line_below_it(project: ProjectBuilder) -> None:
    text = failing(project, "given: [{n: 1, s: a}, {n: 2, s: b}]\nexpect:\n- {op: insert, n: 1, s: a}\n- {op: insert, n: 3, s: b}\n")
    assert '  2  insert n=3 s="b"  insert n=2 s="b"\n     ^ n: expected 3, got 2\n' in text


def test_events_for_a_model_over_two_sources_name_theirs(project: ProjectBuilder) -> None:
    sources = {"sources": {name: {"connector": "file", "path": name, "schema": {"n": "int64"}} for name in ("a", "b")}}
    folder = project({"m": "SELECT n FROM source('a') UNION ALL SELECT n FROM source('b')"}, sources=sources)
    played: Played = play(folder, "- {n: 1}")
    assert played.error == "model `m` reads `a` and `b`; each event must say its source: {source: NAME, event: {..}}"
    assert play(folder, "- {source: b, event: {n: 1}}\n- {source: a, event: {n: 2}}").records == ["insert n=1", "insert n=2"]
    assert play(folder, "- {source: c, event: {n: 1}}").error == "model `m` does not read source `c`; it reads `a` and `b`"


@pytest.mark.parametrize("ending", ["yml", "yaml"])
def test_fixtures_are_found_below_tests_whatever_their_ending(project: ProjectBuilder, ending: str) -> None:
    folder = project({"m": "SELECT n FROM source('e')"}, sources=SOURCES)
    folder.write(f"tests/deep/er/f.{ending}", "model: m\ngiven: [{n: 1}]\nexpect: [{op: insert, n: 1}]\n")
    assert "ok: 1 fixture passed" in folder.run("test").stdout
