"""What check accepts, the real planner accepts: every feature, and names and literals that were chosen to break out."""

from __future__ import annotations

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
from streamform.backends.flink.script import definitions_of, emit_unit, settings_of
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
    (plan,) = explained(write(tmp_path / "p", {"e": SOURCE}, FEATURES[feature]), session_of)
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
