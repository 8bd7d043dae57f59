"""What check accepts, the real planner accepts: every feature, and names and literals that were chosen to break out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.stack import Stack
from streamform import api
from streamform.adapters.gateway import Gateway, GatewaySession
from streamform.adapters.http import HttpService
from streamform.backends.flink.script import compile_statement, definitions_of, emit_application, emit_unit, settings_of
from streamform.plan.nodes import Plan
from streamform.plan.units import plan_components

SCHEMA = {"k": "int64", "i": "int32", "v": "decimal(12,2)", "f": "float64", "s": "string", "b": "boolean", "at": "timestamp"}
SOURCE = {"connector": "kafka", "topic": "events", "schema": SCHEMA, "event_time": "at", "watermark": "5s"}
WINDOW = "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS t FROM source('e') GROUP BY k, window_start, window_end"
TOTALS = "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') WHERE k IS NOT NULL GROUP BY k"

Models = dict[str, tuple[str, dict[str, Any]]]
UPSERT = {"materialized": "upsert", "key": ["k"]}


def windowed(window: dict[str, str]) -> Models:
    return {"m": (WINDOW, {"window": window})}


FEATURES: dict[str, Models] = {
    "projection": {"m": ("SELECT k, CASE WHEN b THEN s ELSE 'x' END AS c, v * 2 AS w, at FROM source('e') WHERE s LIKE 'a%'", {})},
    "text and time": {
        "m": (
            "SELECT UPPER(s) AS u, SUBSTRING(s FROM 2 FOR 3) AS p, EXTRACT(HOUR FROM at) AS h, FLOOR(at TO DAY) AS d FROM source('e')",
            {},
        )
    },
    "grouped": {"m": (TOTALS, UPSERT)},
    "having": {"m": (TOTALS + " HAVING SUM(v) > 10", UPSERT)},
    "average": {"m": ("SELECT k, AVG(v) AS a, MIN(f) AS l, MAX(at) AS h FROM source('e') WHERE k > 0 GROUP BY k", UPSERT)},
    "distinct values": {"m": ("SELECT k, COUNT(DISTINCT s) AS n, SUM(DISTINCT i) AS t FROM source('e') WHERE k > 0 GROUP BY k", UPSERT)},
    "filtered values": {"m": ("SELECT k, COUNT(*) FILTER (WHERE b) AS n FROM source('e') WHERE k > 0 GROUP BY k", UPSERT)},
    "distinct rows": {"m": ("SELECT DISTINCT k FROM source('e') WHERE k IS NOT NULL", UPSERT)},
    "expression as key": {"m": ("SELECT MOD(k, 10) AS k, COUNT(*) AS n FROM source('e') WHERE k IS NOT NULL GROUP BY MOD(k, 10)", UPSERT)},
    "union": {"m": ("SELECT k, s FROM source('e') UNION ALL SELECT k + 1 AS k, 'y' AS s FROM source('e')", {})},
    "retention": {"m": (TOTALS, {**UPSERT, "retention": "1d"})},
    "filter over updates": {"t": (TOTALS, {**UPSERT}), "m": ("SELECT k, t FROM ref('t') WHERE t > 5", UPSERT)},
    "aggregate over updates": {
        "t": (TOTALS, {**UPSERT}),
        "m": ("SELECT n AS k, COUNT(*) AS c, SUM(t) AS s, MAX(t) AS x FROM ref('t') GROUP BY n", {"materialized": "upsert", "key": ["k"]}),
    },
    "union of updates": {
        "t": (TOTALS, {**UPSERT}),
        "m": ("SELECT k, COUNT(*) AS c FROM (SELECT k FROM ref('t') UNION ALL SELECT k FROM source('e') WHERE k > 0) GROUP BY k", UPSERT),
    },
    "tumbling": windowed({"type": "tumbling", "size": "5m"}),
    "hopping": windowed({"type": "hopping", "size": "10m", "slide": "5m"}),
    "cumulating": windowed({"type": "cumulating", "size": "1h", "step": "10m"}),
    "session": windowed({"type": "session", "gap": "30s"}),
    "session of two columns": {
        "w": (
            "SELECT k, s, window_start, window_end, COUNT(*) AS n FROM source('e') GROUP BY k, s, window_start, window_end",
            {"window": {"type": "session", "gap": "90s"}},
        ),
        "m": ("SELECT k, MAX(n) AS t FROM ref('w') WHERE k IS NOT NULL GROUP BY k", UPSERT),
        "x": ("SELECT k, t FROM ref('m') WHERE t > 1", UPSERT),
    },
    "window of 999 days": windowed({"type": "tumbling", "size": "999d"}),
    "window of milliseconds": windowed({"type": "tumbling", "size": "1500ms"}),
    "window over a column that windows have": {
        "m": (
            WINDOW.replace("SELECT k,", "SELECT k, MAX(w) AS w,").replace("'e'", "'timed'"),
            {"window": {"type": "tumbling", "size": "5m"}},
        )
    },
    "membership": {"m": ("SELECT k FROM source('e') WHERE s IN ('a', 'it''s', '😀') AND i NOT IN (1, 2) AND v IN (1.5, 2)", {})},
    "long intervals": {
        "m": (
            "SELECT at + INTERVAL '1000' SECOND AS a, at - INTERVAL '2000' DAY AS b, at + INTERVAL '20001' MONTH AS c,"
            " CAST(at AS DATE) + INTERVAL '400' DAY AS d FROM source('e') WHERE at > TIMESTAMP '2026-01-01 00:00:00.5'",
            {},
        )
    },
    "casts": {
        "m": (
            "SELECT CAST(i AS STRING) AS a, CAST(s AS INT) AS b, TRY_CAST(s AS DECIMAL(10, 2)) AS c, CAST(at AS STRING) AS d,"
            " CAST(s AS TIMESTAMP(3)) AS e, CAST(at AS DATE) AS g, CAST(at AS BIGINT) AS h, CAST(NULL AS INT) AS j FROM source('e')",
            {},
        )
    },
    "long and broken accumulators": {
        "m": (
            f"SELECT k, SUM(CASE {' '.join(f'WHEN i = {n} THEN v' for n in range(60))} ELSE 0 END) AS t,"
            " COUNT(*) FILTER (WHERE s = 'a\nb') AS n, MAX(s || '${HOME}') AS h FROM source('e') WHERE k > 0 GROUP BY k",
            UPSERT,
        )
    },
    "time twice": {"m": ("SELECT at, at AS again, COALESCE(at, at) AS third, MOD(k, 2) AS i FROM source('e')", {})},
    "united windows": {
        **windowed({"type": "tumbling", "size": "5m"}),
        "u": ("SELECT k, window_start FROM ref('m') UNION ALL SELECT k, at FROM source('e')", {}),
    },
    "nested": {
        "m": (
            "WITH c AS (SELECT k, v FROM source('e') WHERE v > 1) SELECT k, t FROM (SELECT k, SUM(v) AS t FROM c WHERE k > 0 GROUP BY k) WHERE t > 3",
            UPSERT,
        )
    },
}

HOSTILE = (
    "we`ird",
    "a;b",
    "select",
    "ünïcode 漢字",
    "quo'te",
    'dou"ble',
    "back\\slash",
    "--comment",
    "/*x*/",
    "i",
    "window_start2",
    "a.b",
    "END",
    "tab\there",
    "%s{0}",
)
TEXTS = ("it''s", "semi; DROP TABLE x", "back`tick", "\\n", "--", "$", "${{HOME}}", "''", "ä😀", "%", "{0}")


@pytest.fixture(scope="module")
def session_of(stack: Stack) -> Iterator[Callable[[tuple[str, ...]], GatewaySession]]:
    http = HttpService("the SQL Gateway", stack.gateway_url, "gateway")
    gateway = Gateway(http)
    yield lambda statements: gateway.session(settings_of(statements))
    http.close()


def write(folder: Path, sources: dict[str, Any], models: Models) -> Path:
    (folder / "models").mkdir(parents=True)
    config = {name: {**row, "sink": {"connector": "kafka", "topic": f"out-{n}"}} for n, (name, (_, row)) in enumerate(models.items())}
    target = {"backend": "flink", "flink": {"gateway": "http://localhost:1"}, "kafka": {"bootstrap_servers": "localhost:1"}}
    document = {"name": "emit", "version": 1, "models": config, "targets": {"prod": target}}
    (folder / "streamform.yml").write_text(yaml.safe_dump(document, allow_unicode=True))
    (folder / "sources.yml").write_text(yaml.safe_dump({"sources": sources}, allow_unicode=True))
    for name, (sql, _) in models.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
    return folder


def explained(folder: Path, session_of: Callable[[tuple[str, ...]], GatewaySession]) -> list[str]:
    """What the planner makes of each unit; it raises where it refuses one."""
    compiled = api.compile(folder, "prod")
    target = compiled.project.targets[0]
    plans: list[str] = []
    for models in plan_components(compiled.plan):
        statements = emit_unit(compiled.project.name, target, models[0], compiled.plan.part(models))
        session = session_of(statements)
        for statement in definitions_of(statements):
            session.define(statement)
        result = session.query(f"EXPLAIN {statements[-1].removeprefix('EXECUTE ')}")
        plans.append(str(result.rows[0][0]))
        session.close()
    return plans


@pytest.mark.parametrize("feature", list(FEATURES))
def test_the_planner_accepts_every_feature(tmp_path: Path, feature: str, session_of: Callable[..., GatewaySession]) -> None:
    timed = {**SOURCE, "schema": {**SCHEMA, "window_time": "timestamp", "w": "int64"}}
    (plan,) = explained(write(tmp_path / "p", {"e": SOURCE, "timed": timed}, FEATURES[feature]), session_of)
    assert "Sink" in plan
    assert "SinkUpsertMaterializer" not in plan


def hostile_projects() -> Iterator[tuple[dict[str, Any], Models]]:
    """Projects in which sources, columns, aliases and constants are hostile."""
    chosen = random.Random(7)
    for number in range(12):
        columns = chosen.sample(HOSTILE, 3)
        source = f"s {number} {chosen.choice(HOSTILE)}".replace("\n", " ")
        schema = dict(zip(columns, ("int64", "string", "decimal(9,2)"), strict=True))
        first, second, third = ('"' + column.replace('"', '""') + '"' for column in columns)
        alias = '"' + chosen.choice(HOSTILE).replace('"', '""') + ' x"'
        text = chosen.choice(TEXTS)
        quoted = source.replace("'", "''")
        sql = f"SELECT {first}, {second} AS {alias}, '{text}' AS c, {third} FROM source('{quoted}') WHERE {second} <> '{chosen.choice(TEXTS)}'"
        yield {source: {"connector": "kafka", "topic": "events", "schema": schema}}, {f"m{number}": (sql, {})}


def test_a_name_with_a_line_break_is_refused_by_check(tmp_path: Path) -> None:
    source = {"connector": "kafka", "topic": "events", "schema": {"a\nb": "int64"}}
    folder = write(tmp_path / "p", {"e": source}, {"m": ("SELECT * FROM source('e')", {})})
    assert "SF509" in [diagnostic.code for diagnostic in api.check(folder).diagnostics]


@pytest.mark.parametrize("number", range(12))
def test_hostile_names_and_constants_stay_names_and_constants(
    tmp_path: Path, number: int, session_of: Callable[..., GatewaySession]
) -> None:
    sources, models = list(hostile_projects())[number]
    folder = write(tmp_path / "p", sources, models)
    report = api.check(folder)
    assert report.passed, [d.message for d in report.diagnostics]
    (plan,) = explained(folder, session_of)
    assert "Sink" in plan


def test_retention_reaches_the_state_of_its_model_alone(tmp_path: Path, session_of: Callable[[tuple[str, ...]], GatewaySession]) -> None:
    sources = {"e": {**SOURCE, "late_events": "drop"}}
    models: Models = {
        "c": ("SELECT k, v, s FROM source('e') WHERE v > 1", {}),
        "kept": ("SELECT k, SUM(v) AS t FROM ref('c') GROUP BY k", {**UPSERT, "retention": "7d"}),
        "short": (
            "SELECT k, COUNT(DISTINCT s) AS t FROM (SELECT k, UPPER(s) AS s FROM ref('c')) GROUP BY k",
            {**UPSERT, "retention": "90m"},
        ),
        "always": ("SELECT k, MAX(v) AS t FROM ref('c') GROUP BY k", UPSERT),
    }
    compiled = api.compile(write(tmp_path / "p", sources, models), "prod")
    statements = emit_unit("emit", compiled.project.targets[0], "c", compiled.plan)
    place = tmp_path / "plan.json"
    session = session_of(statements)
    for statement in definitions_of(statements):
        session.define(statement)
    session.query(compile_statement(place.as_uri(), statements))
    session.close()
    nodes = json.loads(place.read_text())["nodes"]
    kept = sorted(state["ttl"] for node in nodes for state in node.get("state", ()))
    assert kept == ["0 ms", "7 d", "90 min"]
    assert [node["type"] for node in nodes].count("stream-exec-table-source-scan_1") == 1, "models of a unit read a source once"


def test_the_script_of_several_units_runs_in_one_session(tmp_path: Path, session_of: Callable[[tuple[str, ...]], GatewaySession]) -> None:
    contracts = [{"name": "keyed; `x`", "not_null": ["k"]}]
    name = "e `x` (y"
    quoted = name.replace("'", "''")
    sources = {name: {**SOURCE, "contracts": contracts, "quarantine": {"topic": "bad"}}, f"{name}/raw": SOURCE}
    models: Models = {
        "a": (f"SELECT k, COUNT(*) AS n FROM source('{quoted}') GROUP BY k", UPSERT),
        "b": (f"SELECT k, at FROM source('{quoted}') UNION ALL SELECT k, at FROM source('{quoted}/raw')", {}),
        "c": (f"SELECT k FROM source('{quoted}')", {}),
    }
    script = emit_application(
        "emit", api.compile(write(tmp_path / "p", sources, models), "prod").project.targets[0], plan_of(tmp_path / "p")
    )
    assert len(script.warnings) == 1
    session = session_of(script.statements[:1])
    sets = 0
    for statement in script.statements:
        if statement.startswith("EXECUTE"):
            sets += 1
            session.query(f"EXPLAIN {statement.removeprefix('EXECUTE ')}")
        else:
            session.define(statement)
    session.close()
    assert sets == 3


def plan_of(folder: Path) -> Plan:
    return api.compile(folder, "prod").plan


def test_the_example_is_accepted(tmp_path: Path, session_of: Callable[..., GatewaySession]) -> None:
    api.init(tmp_path / "shop")
    compiled, target = api.compile_for_target(tmp_path / "shop", "cluster")
    (models,) = plan_components(compiled.plan)
    statements = emit_unit(compiled.project.name, target, models[0], compiled.plan)
    session = session_of(statements)
    for statement in definitions_of(statements):
        session.define(statement)
    result = session.query(f"EXPLAIN {statements[-1].removeprefix('EXECUTE ')}")
    session.close()
    assert "Sink(table=[default_catalog.default_database.customer_metrics/sink]" in str(result.rows[0][0])
