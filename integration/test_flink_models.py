"""Whole models on the real Flink: what their topics hold at the end is what the simulator computes from the same events."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import requests

from integration.conftest import NewTopic, ReadTopic
from integration.stack import Stack
from integration.stack.process import until
from integration.stack.topics import TopicRecord, compacted, produce, to_json
from streamform import api
from streamform.adapters.gateway import Gateway
from streamform.adapters.http import HttpService
from streamform.backends.flink.script import definitions_of, emit_unit, settings_of
from streamform.plan.nodes import Node, Plan, SourceSpec
from streamform.plan.units import plan_components
from streamform.project.model import Target
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import DELETE
from streamform.values.instants import MAX_INSTANT_MS, parse_date, parse_file_instant, render_file_instant
from streamform.values.rows import Column, Row
from streamform.values.types import STRING, DataType
from tests.conftest import ProjectFolder

SCHEMA = {"k": "int64", "i": "int32", "v": "decimal(12,2)", "f": "float64", "s": "string", "b": "boolean", "at": "timestamp", "n": "int64"}
EVENTS, START_MS = 500, 1_788_000_000_000
FINISHED_S = 120.0
GROUPED = "FROM source('e') WHERE k IS NOT NULL GROUP BY k"


def upsert(*key: str, **more: Any) -> dict[str, Any]:
    """The declaration of an upsert model."""
    return {"materialized": "upsert", "key": list(key), **more}


def windowed(sql: str, source: str = "e", **window: str) -> tuple[str, dict[str, Any]]:
    """A model over windows."""
    return sql.format(source=f"source('{source}')", group="window_start, window_end"), {"window": window}


IN_WINDOWS = (
    "SELECT k, window_start, window_end, COUNT(*) AS c, SUM(v) AS t, MAX(s) AS x, COUNT(DISTINCT i) AS d FROM {source} GROUP BY k, {group}"
)

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "sums": (f"SELECT k, SUM(i) AS a, SUM(n) AS b, SUM(v) AS c, SUM(f) AS d, SUM(v) / COUNT(*) AS e {GROUPED}", upsert("k")),
    "averages": (f"SELECT k, AVG(i) AS a, AVG(n) AS b, AVG(v) AS c, AVG(f) AS d, AVG(v) * 2 AS e {GROUPED}", upsert("k")),
    "extremes": (
        f"SELECT k, MIN(i) AS a, MAX(n) AS b, MIN(v) AS c, MAX(f) AS d, MIN(s) AS e, MAX(b) AS g, MIN(at) AS h, MAX(CAST(at AS DATE)) AS j {GROUPED}",
        upsert("k"),
    ),
    "counts": (
        f"SELECT k, COUNT(*) AS a, COUNT(v) AS b, COUNT(DISTINCT s) AS c, SUM(DISTINCT i) AS d, AVG(DISTINCT v) AS e {GROUPED}",
        upsert("k"),
    ),
    "filtered": (
        f"SELECT k, COUNT(*) FILTER (WHERE b) AS a, SUM(v) FILTER (WHERE i > 0) AS c, COUNT(DISTINCT s) FILTER (WHERE v < 0) AS d {GROUPED}",
        upsert("k"),
    ),
    "having_sums": (f"SELECT k, SUM(v) AS c {GROUPED} HAVING SUM(v) > 0 AND COUNT(*) > 3", upsert("k")),
    "expression_keys": (
        "SELECT MOD(k, 3) AS m, FLOOR(at TO HOUR) AS h, UPPER(s) AS u, COUNT(*) AS c FROM source('e')"
        " WHERE k IS NOT NULL AND s IS NOT NULL GROUP BY MOD(k, 3), FLOOR(at TO HOUR), UPPER(s)",
        upsert("m", "h", "u"),
    ),
    "conditional_sums": (f"SELECT k, SUM(CASE WHEN b THEN v WHEN i IN (1, 2, 3) THEN -v ELSE 0 END) AS c {GROUPED}", upsert("k")),
    "distinct_rows": ("SELECT DISTINCT k, b FROM source('e') WHERE k IS NOT NULL AND b IS NOT NULL", upsert("k", "b")),
    "big": ("SELECT k, c FROM ref('sums') WHERE c > 0", upsert("k")),
    "of_groups": (
        "SELECT a AS g, COUNT(*) AS c, SUM(c) AS d, MAX(b) AS m, MIN(e) AS x, COUNT(DISTINCT b) AS y, AVG(c) AS z FROM ref('counts_of_s') GROUP BY a",
        upsert("g"),
    ),
    "counts_of_s": (
        "SELECT s, COUNT(*) AS a, MAX(v) AS b, SUM(v) AS c, MIN(at) AS e FROM source('e') WHERE s IS NOT NULL GROUP BY s",
        upsert("s"),
    ),
    "last_of_key": ("SELECT n, k, s, v, at FROM source('e') WHERE n IS NOT NULL", upsert("n")),
    "united": (
        "SELECT k, s, at FROM source('e') WHERE b UNION ALL SELECT n AS k, 'it''s; ''x''' AS s, at FROM source('e') WHERE v > 5",
        {},
    ),
    "of_united": (
        "SELECT k, COUNT(*) AS c FROM (SELECT k, c FROM ref('sums') UNION ALL SELECT n AS k, CAST(v AS DECIMAL(38, 2)) AS c FROM source('e')) WHERE c < 50 AND k IS NOT NULL GROUP BY k",
        upsert("k"),
    ),
    "computed": (
        "SELECT k, v * 2 AS w, i / 3 AS q, COALESCE(s, '-') || '/' || CAST(v AS STRING) AS x, at + INTERVAL '1000' SECOND AS y, CAST(at AS DATE) AS d"
        " FROM source('e') WHERE s IN ('a', 'it''s', 'ä😀') OR at > TIMESTAMP '2026-08-29 12:00:00'",
        {},
    ),
    "tumbling": windowed(IN_WINDOWS, type="tumbling", size="10m"),
    "hopping": windowed(IN_WINDOWS, type="hopping", size="30m", slide="10m"),
    "cumulating": windowed(IN_WINDOWS, type="cumulating", size="30m", step="10m"),
    "sessions": windowed(IN_WINDOWS, type="session", gap="90s"),
    "sessions_of_two": windowed(
        "SELECT k, b, window_start, window_end, AVG(v) AS a FROM {source} GROUP BY k, b, {group}", type="session", gap="200s"
    ),
    "checked": ("SELECT k, at, v FROM source('guarded')", {}),
    "checked_windows": windowed(
        "SELECT k, window_start, window_end, SUM(v) AS t FROM {source} GROUP BY k, {group}",
        source="guarded",
        type="tumbling",
        size="10m",
    ),
    "of_windows": ("SELECT k, MAX(c) AS m, COUNT(*) AS w FROM ref('sessions_of_two_counts') WHERE k IS NOT NULL GROUP BY k", upsert("k")),
    "sessions_of_two_counts": windowed(
        "SELECT k, b, window_start, window_end, COUNT(*) AS c FROM {source} GROUP BY k, b, {group}", type="session", gap="100s"
    ),
}


def events() -> list[dict[str, Any]]:
    """Seeded events in the order of their times, so that none is late anywhere."""
    chosen = random.Random(8)
    made: list[dict[str, Any]] = []
    at_ms = START_MS
    for _ in range(EVENTS):
        at_ms += chosen.choice((0, 1, 999, 20_000, 60_000, 150_000))
        event = {
            "k": chosen.choice((None, 0, 1, 2, 3, 4, 5, -(2**63))),
            "n": chosen.choice((None, *range(-8, 9))),
            "i": chosen.choice((None, *range(-50, 50))),
            "v": chosen.choice((None, *(Decimal(chosen.randint(-5_000, 5_000)).scaleb(-2) for _ in range(6)))),
            "f": chosen.choice((None, *(chosen.randint(-100, 100) / 4 for _ in range(6)))),
            "s": chosen.choice((None, "", "a", "b", "it's", "ä😀", "a\nb", "A", "zz")),
            "b": chosen.choice((None, True, False)),
            "at": at_ms,
        }
        made.append(event)
    return made


class Finished:
    """Every model as one finished job: its topics, and what the simulator computes."""

    def __init__(self, plan: Plan, given: Mapping[str, list[dict[str, Any]]], topics: Mapping[str, list[TopicRecord]]) -> None:
        self.plan, self.topics = plan, topics
        flow = Dataflow(plan)
        sources = [node for node in plan.nodes if isinstance(node.spec, SourceSpec)]
        for node in sources:
            assert isinstance(node.spec, SourceSpec)
            flow.push(node.id, [tuple(event[column.name] for column in node.schema) for event in given[node.spec.source.name]])
            flow.watermark(node.id, MAX_INSTANT_MS)
        drained = flow.drain()
        self.changes = drained.changes
        self.quarantined = Counter((*rejected.row, rejected.contract) for rejected in drained.quarantined["checked::source::0"])

    def sink(self, model: str) -> Node:
        return self.plan.by_id[next(m.output for m in self.plan.models if m.name == model)]

    def expected_rows(self, model: str) -> Counter[Row]:
        """The rows at the end, as the simulator has them."""
        node = self.sink(model)
        if not MODELS[model][1].get("key"):
            return Counter(row for _, row, _ in self.changes[node.id])
        places = [[c.name for c in node.schema].index(name) for name in MODELS[model][1]["key"]]
        table: dict[Row, Row] = {}
        for operation, row, _ in self.changes[node.id]:
            key = tuple(row[place] for place in places)
            table.pop(key, None)
            if operation != DELETE:
                table[key] = row
        return Counter(table.values())

    def rows(self, model: str) -> Counter[Row]:
        """The rows that the topic holds at the end."""
        records, schema = self.topics[model], self.sink(model).schema
        values = compacted(records).values() if MODELS[model][1].get("key") else [record.value for record in records]
        return Counter(tuple(read(value[column.name], column) for column in schema) for value in values)


def read(value: Any, column: Column) -> Any:
    """A value of a JSON document, as rows hold it."""
    kind = column.type.kind
    if value is None:
        return None
    if kind == "timestamp":
        return parse_file_instant(value)
    if kind == "date":
        return parse_date(value)
    if kind == "decimal":
        assert -Decimal(value).as_tuple().exponent == column.type.scale, (value, column)  # type: ignore[operator]
        return Decimal(value)
    return float(value) if kind == "float64" else value


@pytest.fixture(scope="module")
def finished(stack: Stack, new_topic: NewTopic, read_topic: ReadTopic, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    given = {"e": events(), "guarded": [{**event, "at": event["at"] if number % 9 else None} for number, event in enumerate(events())]}
    topics = {name: new_topic(name.replace("_", "-")) for name in (*given, "quarantine", *MODELS)}
    for source, rows in given.items():
        written = [{**row, "at": row["at"] and render_file_instant(row["at"])} for row in rows]
        produce(stack.bootstrap_servers, topics[source], [(None, to_json(row)) for row in written])
    plan, target = write(tmp_path_factory.mktemp("models"), stack, topics)
    http = HttpService("the SQL Gateway", stack.gateway_url, "gateway")
    jobs = [run(Gateway(http), emit_unit("models", target, names[0], plan.part(names))) for names in plan_components(plan)]
    http.close()
    until(lambda: all(state(stack, job) in ("FINISHED", "FAILED") for job in jobs), FINISHED_S)
    assert [state(stack, job) for job in jobs] == ["FINISHED"] * len(jobs)
    return Finished(plan, given, {name: read_topic(topics[name]) for name in ("quarantine", *MODELS)})


def write(folder: Path, stack: Stack, topics: Mapping[str, str]) -> tuple[Plan, Target]:
    """The project, compiled for its target."""
    project = ProjectFolder(folder)
    config = {name: {**row, "sink": {"connector": "kafka", "topic": topics[name]}} for name, (_, row) in MODELS.items()}
    target = {"backend": "flink", "flink": {"gateway": stack.gateway_url}, "kafka": {"bootstrap_servers": stack.bootstrap_servers}}
    source = {"connector": "kafka", "topic": topics["e"], "schema": SCHEMA, "event_time": "at", "watermark": "0s"}
    contracts = [{"name": "it's; timed", "not_null": ["at", "k"]}, {"name": "small", "check": "v < 20 AND s <> 'a'"}]
    guarded = {**source, "topic": topics["guarded"], "contracts": contracts, "quarantine": {"topic": topics["quarantine"]}}
    project.write("streamform.yml", {"name": "models", "version": 1, "models": config, "targets": {"prod": target}})
    project.write("sources.yml", {"sources": {"e": source, "guarded": guarded}})
    for name, (sql, _) in MODELS.items():
        project.write(f"models/{name}.sql", sql)
    compiled, chosen = api.compile_for_target(folder, "prod")
    return compiled.plan, chosen


def run(gateway: Gateway, statements: tuple[str, ...]) -> str:
    """Start a unit that ends with what its topic holds now. Returns: the job's id."""
    session = gateway.session(settings_of(statements))
    bounded = "'scan.startup.mode' = 'earliest-offset',\n  'scan.bounded.mode' = 'latest-offset'"
    for statement in definitions_of(statements):
        session.define(statement.replace("'scan.startup.mode' = 'earliest-offset'", bounded))
    job = session.start(statements[-1], {}, sent=lambda: None).job_id
    session.close()
    assert job is not None
    return job


def state(stack: Stack, job: str) -> str:
    return str(json.loads(requests.get(f"{stack.rest_url}/jobs/{job}", timeout=30).text)["state"])


@pytest.mark.parametrize("model", list(MODELS))
def test_the_topic_holds_what_the_simulator_computes(finished: Finished, model: str) -> None:
    expected = finished.expected_rows(model)
    assert len(expected) > 1
    assert finished.rows(model) == expected


def test_every_type_reaches_a_topic(finished: Finished) -> None:
    kinds: set[DataType] = {column.type for model in MODELS for column in finished.sink(model).schema}
    assert {type_.kind for type_ in kinds} == {"int32", "int64", "decimal", "float64", "string", "boolean", "timestamp", "date"}


def test_events_that_break_a_contract_are_quarantined_with_its_name(finished: Finished) -> None:
    schema = (*finished.plan.by_id["checked::source::0"].schema, Column("contract", STRING))
    found = Counter(tuple(read(record.value[column.name], column) for column in schema) for record in finished.topics["quarantine"])
    assert len(finished.quarantined) > 50
    assert found == finished.quarantined + finished.quarantined, "two units read the source, and each one writes what it kept out"
