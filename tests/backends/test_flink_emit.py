"""The SQL for Flink, as text: golden scripts, names and constants, what is refused and what is warned of.

That Flink accepts it, and computes the same, is integration/test_flink_emit.py and test_flink_models.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamform import api
from streamform.backends.flink.script import Script, definitions_of, emit_application, emit_unit, settings_of
from streamform.backends.flink.text import constant, identifier, interval_sql, months_sql, options_sql, relation
from streamform.errors import Refused
from streamform.plan.units import plan_components
from streamform.sql.time import DAY_MS
from tests.conftest import REPOSITORY, ProjectBuilder, ProjectFolder

GOLDEN = REPOSITORY / "tests" / "golden" / "flink"
COLUMNS = {"k": "int64", "i": "int32", "v": "decimal(12,2)", "s": "string", "b": "boolean", "at": "timestamp"}
EVENTS: dict[str, Any] = {"connector": "kafka", "topic": "events", "schema": COLUMNS, "event_time": "at", "watermark": "10s"}
PLAIN: dict[str, Any] = {"connector": "kafka", "topic": "plain", "schema": COLUMNS}
TARGET = {"backend": "flink", "flink": {"gateway": "http://localhost:8083"}, "kafka": {"bootstrap_servers": "${BROKERS}"}}
UPSERT = {"materialized": "upsert", "key": ["k"]}
COUNTS = "SELECT k, COUNT(*) AS n FROM source('e') WHERE k IS NOT NULL GROUP BY k"
IN_WINDOWS = "SELECT k, window_start, window_end, COUNT(*) AS n FROM source('e') GROUP BY k, window_start, window_end"


@pytest.fixture
def flink(project: ProjectBuilder) -> ProjectBuilder:
    """Writes a project for a Flink target; models without a sink get a topic."""

    def build(models: dict[str, str], config: dict[str, Any] | None = None, *, target: Any = None, **sources: Any) -> ProjectFolder:
        declared = {name: {"sink": {"connector": "kafka", "topic": f"{name}-out"}, **(config or {}).get(name, {})} for name in models}
        found = {"e": EVENTS, "p": PLAIN, **sources}
        return project(models, declared, sources={"sources": found}, targets={"prod": {**TARGET, **(target or {})}})

    return build


def script_of(folder: ProjectFolder) -> Script:
    compiled, target = api.compile_for_target(folder.root, "prod")
    return emit_application(compiled.project.name, target, compiled.plan)


def view_of(folder: ProjectFolder, name: str) -> str:
    start = f"CREATE TEMPORARY VIEW `{name}` AS\n"
    return next(s.removeprefix(start) for s in script_of(folder).statements if s.startswith(start))


# golden scripts


def compare_golden(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """Compare with a file of tests/golden, or write it with --update-golden."""
    file = GOLDEN / name
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


def test_the_example_is_written_as_the_golden_file(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    api.init(tmp_path / "shop")
    compare_golden(request, "example.sql", api.build(tmp_path / "shop", to_folder=False).text)


FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "aggregates": (
        "SELECT k, SUM(i) AS a, AVG(v) AS b, COUNT(DISTINCT s) AS c, COUNT(*) FILTER (WHERE b) AS d, MAX(at) AS e"
        " FROM source('e') WHERE k IS NOT NULL GROUP BY k HAVING COUNT(*) > 2",
        {**UPSERT, "retention": "7d"},
    ),
    "conditions": ("SELECT k, CASE WHEN i IN (1, 2) THEN 'x' WHEN b THEN s END AS c FROM source('p') WHERE s LIKE 'a!%' ESCAPE '!'", {}),
    "keys": ("SELECT MOD(k, 10) AS k, COUNT(*) AS n FROM source('p') WHERE k IS NOT NULL GROUP BY MOD(k, 10)", UPSERT),
    "times": (
        "SELECT at + INTERVAL '1000' SECOND AS a, CAST(at AS DATE) AS d, FLOOR(at TO HOUR) AS h FROM source('e') WHERE at > TIMESTAMP '2026-01-01 00:00:00'",
        {},
    ),
    "united": ("SELECT k, s FROM source('p') WHERE b UNION ALL SELECT k, 'y' AS s FROM source('e')", {}),
    "windows": (IN_WINDOWS, {"window": {"type": "hopping", "size": "10m", "slide": "5m"}}),
    "sessions": (IN_WINDOWS.replace("k,", "k, s,", 1).replace("BY k,", "BY k, s,"), {"window": {"type": "session", "gap": "90s"}}),
}


@pytest.mark.parametrize("feature", list(FEATURES))
def test_each_feature_is_written_as_its_golden_file(request: pytest.FixtureRequest, flink: ProjectBuilder, feature: str) -> None:
    sql, row = FEATURES[feature]
    compare_golden(request, f"{feature}.sql", script_of(flink({"m": sql}, {"m": row})).text)


def test_a_source_with_contracts_is_written_as_the_golden_file(request: pytest.FixtureRequest, flink: ProjectBuilder) -> None:
    contracts = [{"name": "timed", "not_null": ["at"]}, {"name": "it's small", "check": "v < 100"}]
    source = {**EVENTS, "contracts": contracts, "quarantine": {"topic": "bad"}, "idle_timeout": "30s"}
    compare_golden(request, "contracts.sql", script_of(flink({"m": "SELECT k, at FROM source('e')"}, e=source)).text)


def test_the_same_project_gives_the_same_text(flink: ProjectBuilder) -> None:
    models = {name: sql for name, (sql, _) in FEATURES.items()}
    config = {name: row for name, (_, row) in FEATURES.items()}
    assert script_of(flink(models, config)).text == script_of(flink(dict(reversed(models.items())), config)).text


# units


def test_a_unit_is_settings_definitions_and_one_statement_set(flink: ProjectBuilder) -> None:
    compiled, target = api.compile_for_target(
        flink({"m": COUNTS, "x": "SELECT k, n FROM ref('m')"}, {"m": UPSERT, "x": UPSERT}).root, "prod"
    )
    (models,) = plan_components(compiled.plan)
    statements = emit_unit("shop", target, models[0], compiled.plan)
    assert settings_of(statements)["table.local-time-zone"] == "UTC"
    assert all(statement.startswith("CREATE TEMPORARY ") for statement in definitions_of(statements))
    assert statements[-1].startswith("EXECUTE STATEMENT SET\nBEGIN\nINSERT INTO `m/sink`")
    assert statements[-1].count("INSERT INTO") == 2


def test_a_unit_without_a_sink_has_nothing_to_run(flink: ProjectBuilder) -> None:
    compiled, target = api.compile_for_target(flink({"m": "SELECT k FROM source('p')"}, {"m": {"sink": None}}).root, "prod")
    assert emit_unit("shop", target, "m", compiled.plan) == ()


def test_a_source_of_two_units_is_made_anew_for_the_second(flink: ProjectBuilder) -> None:
    sql = "SELECT k FROM source('a `b` (c')"
    script = script_of(flink({"m": sql, "n": sql}, **{"a `b` (c": EVENTS}))
    drops = [statement for statement in script.statements if statement.startswith("DROP")]
    assert drops == ["DROP TEMPORARY VIEW `a ``b`` (c`", "DROP TEMPORARY TABLE `a ``b`` (c/raw`"]


def test_parts_of_a_source_never_take_the_name_of_another_one(flink: ProjectBuilder) -> None:
    script = script_of(flink({"m": "SELECT k FROM source('e') UNION ALL SELECT k FROM source('e/raw')"}, **{"e/raw": PLAIN}))
    made = [line for statement in script.statements for line in statement.split("\n")[:1] if line.startswith("CREATE")]
    assert len(made) == len(set(made))


def test_sessions_of_several_columns_are_no_view_and_neither_is_what_reads_them(flink: ProjectBuilder) -> None:
    models = {"w": FEATURES["sessions"][0], "m": "SELECT k, MAX(n) AS n FROM ref('w') WHERE k IS NOT NULL GROUP BY k"}
    script = script_of(flink(models, {"w": FEATURES["sessions"][1], "m": UPSERT}))
    assert "CREATE TEMPORARY VIEW `w` AS" not in script.text
    assert "CREATE TEMPORARY VIEW `m` AS" not in script.text
    assert script.statements[-1].count("PARTITION BY (`k`, `s`)") == 2


# names and constants


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("plain", "`plain`"),
        ("a`b", "`a``b`"),
        ("x; DROP TABLE y --", "`x; DROP TABLE y --`"),
        ("日本 😀", "`日本 😀`"),
        ("select", "`select`"),
        ("$ {A}", "`$ {A}`"),
    ],
)
def test_names_are_quoted(name: str, written: str) -> None:
    assert identifier(name) == written


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "x" * 257, "${HOME}", ""])
def test_an_inner_name_that_flink_cannot_take_is_replaced(name: str) -> None:
    written = identifier(name)
    assert written.startswith("`name ")
    assert len(written) < 50
    assert written != identifier(name + "x")
    assert written == identifier(name)


def test_long_and_broken_accumulators_have_names_that_flink_takes(flink: ProjectBuilder) -> None:
    branches = " ".join(f"WHEN i = {number} THEN v" for number in range(60))
    sql = f"SELECT k, SUM(CASE {branches} ELSE 0 END) AS t, MAX(s || '${{HOME}}\n') AS h FROM source('e') WHERE k IS NOT NULL GROUP BY k"
    view = view_of(flink({"m": sql}, {"m": UPSERT}), "m")
    assert view.count("`name ") == 4
    assert "${HOME}" not in view


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("it's", "'it''s'"),
        ("a;b\n--", "'a;b\n--'"),
        ("\\n", "'\\n'"),
        ("${HOME}", "U&'\\0024{HOME}'"),
        ("\\ ' ${X}", "U&'\\\\ '' \\0024{X}'"),
        ("$HOME", "'$HOME'"),
    ],
)
def test_constants_stay_what_they_are(text: str, written: str) -> None:
    assert constant(text) == written


def test_only_a_target_has_references(flink: ProjectBuilder) -> None:
    moved = {"sources": {"p": {"connector": "kafka", "topic": "${IN}"}}, "sinks": {"n": {"connector": "kafka", "topic": "${OUT}"}}}
    models = {"m": "SELECT k FROM source('e')", "n": "SELECT k FROM source('p')"}
    script = script_of(
        flink(models, {"m": {"sink": {"connector": "kafka", "topic": "${M}"}}}, target=moved, e={**EVENTS, "topic": "${HOME}"})
    )
    topics = [line.strip(" ,") for line in script.text.split("\n") if line.startswith("  'topic'")]
    assert sorted(topics) == ["'topic' = '${IN}'", "'topic' = '${OUT}'", "'topic' = U&'\\0024{HOME}'", "'topic' = U&'\\0024{M}'"]
    assert "'properties.bootstrap.servers' = '${BROKERS}'" in script.text


def test_options_are_escaped() -> None:
    assert options_sql({"a'b": "c'd"}) == "WITH (\n  'a''b' = 'c''d'\n)"


def test_parts_belong_to_relations() -> None:
    assert relation("a", "raw") == "`a/raw`"
    assert relation("a/raw") != relation("a", "raw")


@pytest.mark.parametrize(
    ("length_ms", "written"),
    [
        (0, "INTERVAL '0' DAY"),
        (90_000, "INTERVAL '90' SECOND"),
        (-3_600_000, "INTERVAL '-1' HOUR"),
        (1_000_000, "INTERVAL '0 00:16:40.000' DAY(3) TO SECOND(3)"),
        (-1_001, "INTERVAL '-0 00:00:01.001' DAY(3) TO SECOND(3)"),
        (999 * DAY_MS, "INTERVAL '999 00:00:00.000' DAY(3) TO SECOND(3)"),
        (2_000 * DAY_MS, "(INTERVAL '1' DAY * 2000)"),
        (-2_000 * DAY_MS - 5_000, "(INTERVAL '-1' DAY * 2000 + INTERVAL '-5' SECOND)"),
    ],
)
def test_lengths_of_time_have_the_precision_that_flink_takes(length_ms: int, written: str) -> None:
    assert interval_sql(length_ms) == written


@pytest.mark.parametrize(
    ("months", "written"),
    [
        (1, "INTERVAL '1' MONTH(4)"),
        (-24, "INTERVAL '-2' YEAR(4)"),
        (13, "INTERVAL '13' MONTH(4)"),
        (10_001, "INTERVAL '833-5' YEAR(4) TO MONTH"),
        (-10_001, "INTERVAL '-833-5' YEAR(4) TO MONTH"),
    ],
)
def test_months_have_the_precision_that_flink_takes(months: int, written: str) -> None:
    assert months_sql(months) == written


# what is refused


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an upsert without a key": ("SELECT COUNT(*) AS n FROM source('e')", {"materialized": "upsert"}, "has no key"),
    "an upsert file": (COUNTS, {**UPSERT, "sink": {"connector": "file", "path": "/x"}}, "Flink can only add rows to files"),
    "a long name of a column": (f"SELECT k AS \"{'x' * 300}\" FROM source('e')", {}, "a name has 1 to 256 characters"),
    "a reference as a name": ("SELECT k AS \"${HOME}\" FROM source('e')", {}, "which is for targets only"),
    "a window of years": (IN_WINDOWS, {"window": {"type": "tumbling", "size": "2000d"}}, "the longest are 999 days"),
    "a column that windows have": (
        IN_WINDOWS.replace("COUNT(*)", "MAX(window_time)").replace("'e'", "'w'"),
        {"window": {"type": "tumbling", "size": "5m"}},
        "Flink gives windows a column of that name",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_build_refuses(flink: ProjectBuilder, case: str) -> None:
    sql, row, message = REFUSED[case]
    folder = flink({"m": sql}, {"m": row}, w={**EVENTS, "schema": {**COLUMNS, "window_time": "timestamp"}})
    assert api.check(folder.root).passed
    with pytest.raises(Refused, match=message):
        script_of(folder)
    run = folder.run("build", "--backend", "flink")
    assert (run.code, run.stdout) == (1, "")
    assert message in run.stderr
    assert not (folder.root / "build").exists()


def test_build_refuses_a_quarantine_without_brokers(flink: ProjectBuilder) -> None:
    contracts = {"contracts": [{"name": "keyed", "not_null": ["k"]}], "quarantine": {"topic": "bad"}}
    source = {"connector": "file", "path": "/data/e", "schema": COLUMNS, **contracts}
    folder = flink({"m": "SELECT k FROM source('e')"}, {"m": {"sink": {"connector": "file", "path": "/out"}}}, e=source, p=source)
    document = (folder.root / "streamform.yml").read_text().replace("kafka:\n      bootstrap_servers: ${BROKERS}", "kafka: null")
    folder.write("streamform.yml", document)
    with pytest.raises(Refused, match="has no kafka section"):
        script_of(folder)


# what is warned of


def test_what_flink_does_differently_is_warned_of(flink: ProjectBuilder) -> None:
    contracts = {"contracts": [{"name": "small", "check": "v < 5"}], "quarantine": {"topic": "bad"}}
    models = {
        "kept": "SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k",
        "lost": "SELECT k FROM source('e')",
        "filed": "SELECT k FROM source('e')",
    }
    config = {"kept": {**UPSERT, "retention": "7d"}, "lost": {"sink": None}, "filed": {"sink": {"connector": "file", "path": "out"}}}
    warnings = script_of(flink(models, config, e={**EVENTS, **contracts})).warnings
    assert [warning.split("`")[1] for warning in warnings] == ["lost", "kept", "e", "filed", "kept"]
    assert any("retention of `kept` (7d) is approximate" in warning for warning in warnings)
    assert any("3 units read source `e`" in warning for warning in warnings)
    assert any("the relative path `out`" in warning for warning in warnings)
    assert any("a row of `kept` without `k` stops the job" in warning for warning in warnings)


def test_a_key_that_cannot_be_null_is_not_warned_of(flink: ProjectBuilder) -> None:
    assert script_of(flink({"m": COUNTS}, {"m": UPSERT})).warnings == ()


# the command


def test_build_writes_the_script_and_the_manifest(flink: ProjectBuilder) -> None:
    folder = flink({"m": COUNTS}, {"m": UPSERT})
    run = folder.run("build", "--backend", "flink")
    assert (run.code, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["wrote build/flink/application.sql", "wrote build/plan.json"]
    assert (folder.root / "build/flink/application.sql").read_text("utf-8") == script_of(folder).text
    assert (folder.root / "build/plan.json").read_text("utf-8").startswith("{")


def test_build_to_stdout_writes_nothing(flink: ProjectBuilder) -> None:
    folder = flink({"m": "SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k"}, {"m": UPSERT})
    run = folder.run("build", "--backend", "flink", "--stdout")
    assert run.code == 0
    assert run.stdout == script_of(folder).text
    assert run.stderr.startswith("warning: ")
    assert not (folder.root / "build").exists()


def test_build_needs_a_flink_target(project: ProjectBuilder) -> None:
    target = {"backend": "embedded", "embedded": {"state": "x.db"}}
    run = project("SELECT customer_id FROM source('orders')", targets={"local": target}).run("build", "--backend", "flink")
    assert run.code == 2
    assert "target `local` is embedded" in run.stderr


def test_build_of_a_broken_project_shows_its_problems(flink: ProjectBuilder) -> None:
    run = flink({"m": "SELECT nothing FROM source('e')"}).run("build", "--backend", "flink")
    assert run.code == 2
    assert "nothing" in run.stderr
