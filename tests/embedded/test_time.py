"""Event time across applies: what is late, what expires and which windows are open is the same as in one run of the simulator."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from .conftest import Shop

SCHEMA = 'schema: {k: int64, v: "decimal(9,2)", at: timestamp}, event_time: at'
SOURCES = f"sources: {{e: {{connector: file, path: data/e.jsonl, {SCHEMA}, watermark: 2m}}}}\n"
BY_WINDOW = "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS v FROM source('e') GROUP BY k, window_start, window_end"
WINDOWS = {
    "tumbling": "{type: tumbling, size: 5m}",
    "hopping": "{type: hopping, size: 10m, slide: 5m}",
    "cumulating": "{type: cumulating, size: 20m, step: 5m}",
    "session": "{type: session, gap: 4m}",
}


def events(count: int, seed: int, spread: int = 6) -> list[str]:
    """Events half a minute apart, some of them out of order, some late."""
    chosen = random.Random(seed)
    found = []
    for n in range(count):
        minute = max(0, n // 2 - chosen.choice((0, 0, 0, 1, spread)))
        at = f"2026-08-30T{10 + minute // 60:02d}:{minute % 60:02d}:{chosen.choice((0, 30, 59)):02d}"
        found.append(json.dumps({"k": chosen.randint(1, 3), "v": chosen.randint(-5, 50), "at": at}) + "\n")
    return found


def in_parts(made: Shop, file: str, found: list[str], seed: int) -> None:
    """Apply as events arrive, a random number at a time."""
    chosen, start = random.Random(seed), 0
    while start < len(found):
        start += chosen.randint(1, 40)
        made.write(file, "".join(found[:start])).apply()


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_that_are_open_between_applies_close_as_if_there_had_been_one(make_project: Callable[..., Shop], window: str) -> None:
    config = f"models: {{m: {{window: {WINDOWS[window]}, sink: {{connector: file, path: out/m.jsonl}}}}}}"
    made = make_project(config, SOURCES, {"m": BY_WINDOW}, {})
    in_parts(made, "data/e.jsonl", events(160, 7), 8)
    found = made.contents()["m"]
    assert len(found) > 10
    assert found == made.simulated()["m"]
    assert made.equals_a_fresh_run()


@pytest.mark.parametrize("expiry", ["", ", on_expiry: delete"])
def test_state_expires_as_in_the_simulator(make_project: Callable[..., Shop], expiry: str) -> None:
    config = f"""models:
  t: {{materialized: upsert, key: [k], retention: 5m{expiry}, sink: {{connector: sqlite, path: out/x.db, table: t}}}}
  u: {{materialized: upsert, key: [k], sink: {{connector: sqlite, path: out/x.db, table: u}}}}
"""
    models = {
        "t": "SELECT k, COUNT(*) AS n, SUM(v) AS v FROM source('e') WHERE v > 20 GROUP BY k",
        "u": "SELECT k, n FROM ref('t') WHERE v > 60",
    }
    made = make_project(config, SOURCES, models, {})
    in_parts(made, "data/e.jsonl", events(300, 3), 4)
    assert made.contents() == made.simulated()
    made.change("models/t.sql", "v > 20", "v > 25")
    made.apply()
    assert made.contents() == made.simulated()


@pytest.mark.parametrize(("before", "after", "total"), [("5m", "1h", 2), ("1h", "5m", 1)])
def test_a_changed_retention_keeps_the_values_and_moves_the_deadlines(
    make_project: Callable[..., Shop], before: str, after: str, total: int
) -> None:
    config = (
        f"models: {{t: {{materialized: upsert, key: [k], retention: {before}, sink: {{connector: sqlite, path: out/x.db, table: t}}}}}}"
    )
    made = make_project(config, SOURCES, {"t": "SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k"}, {})
    made.write("data/e.jsonl", "").append("data/e.jsonl", {"k": 1, "v": 1, "at": "2026-08-30T10:00:00"}).apply()
    made.change("streamform.yml", f"retention: {before}", f"retention: {after}")
    assert made.verdict() == "STATE MIGRATION REQUIRED"
    assert "1 migrated" in made.apply()
    made.append("data/e.jsonl", {"k": 2, "v": 1, "at": "2026-08-30T10:30:00"}, {"k": 1, "v": 1, "at": "2026-08-30T10:31:00"})
    made.apply()
    assert made.contents()["t"] == [(1, total), (2, 1)]


def test_a_retention_where_none_was_is_computed_again(make_project: Callable[..., Shop]) -> None:
    config = "models: {t: {materialized: upsert, key: [k], sink: {connector: sqlite, path: out/x.db, table: t}}}"
    made = make_project(config, SOURCES, {"t": "SELECT k, COUNT(*) AS n FROM source('e') WHERE v > 20 GROUP BY k"}, {})
    in_parts(made, "data/e.jsonl", events(200, 3), 4)
    made.change("streamform.yml", "key: [k],", "key: [k], retention: 5m,")
    assert made.verdict() == "STATE MIGRATION REQUIRED"
    made.apply()
    assert made.contents() == made.simulated()


def test_aggregates_over_windows_and_windows_over_filters(make_project: Callable[..., Shop]) -> None:
    config = """models:
  w: {window: {type: tumbling, size: 5m}}
  t: {materialized: upsert, key: [k], sink: {connector: sqlite, path: out/x.db, table: t}}
"""
    models = {"w": BY_WINDOW, "t": "SELECT k, COUNT(*) AS windows, MAX(v) AS most, SUM(n) AS n FROM ref('w') GROUP BY k"}
    made = make_project(config, SOURCES, models, {})
    in_parts(made, "data/e.jsonl", events(200, 11), 5)
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


def test_two_sources_in_one_model(make_project: Callable[..., Shop]) -> None:
    sources = (
        f"sources:\n  d: {{connector: file, path: data/d.jsonl, {SCHEMA}, watermark: 2m}}\n" + SOURCES.replace("sources: {", "  ")[:-2]
    )
    config = """models:
  both: {}
  t: {materialized: upsert, key: [k], sink: {connector: sqlite, path: out/x.db, table: t}}
"""
    models = {
        "both": "SELECT k, v, at FROM source('e') UNION ALL SELECT k, v, at FROM source('d')",
        "t": "SELECT k, COUNT(*) AS n, SUM(v) AS v, MIN(at) AS first FROM ref('both') GROUP BY k",
    }
    made = make_project(config, sources + "\n", models, {"data/d.jsonl": "", "data/e.jsonl": ""})
    in_parts(made, "data/e.jsonl", events(100, 1), 2)
    in_parts(made, "data/d.jsonl", events(100, 2), 3)
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


def test_a_window_over_two_sources_closes_with_the_slower_one(make_project: Callable[..., Shop]) -> None:
    sources = f"sources:\n  d: {{connector: file, path: data/d.jsonl, {SCHEMA}}}\n  e: {{connector: file, path: data/e.jsonl, {SCHEMA}}}\n"
    config = "models:\n  both: {}\n  m: {window: {type: tumbling, size: 5m}, sink: {connector: file, path: out/m.jsonl}}\n"
    both = "SELECT k, v, at FROM source('e') UNION ALL SELECT k, v, at FROM source('d')"
    made = make_project(config, sources, {"both": both, "m": BY_WINDOW.replace("source('e')", "ref('both')")}, {"data/d.jsonl": ""})
    line = '{{"k": 1, "v": 1, "at": "2026-08-30T10:{:02d}:00"}}\n'
    made.write("data/e.jsonl", line.format(1) + line.format(30)).apply()
    assert made.contents()["m"] == []
    made.write("data/d.jsonl", line.format(2)).apply()
    assert made.contents()["m"] == []
    made.write("data/d.jsonl", line.format(2) + line.format(20)).apply()
    assert [row[3] for row in made.contents()["m"]] == [2]
    made.write("data/d.jsonl", line.format(2) + line.format(20) + line.format(21) + line.format(59)).apply()
    assert [row[3] for row in made.contents()["m"]] == [2, 2]
    assert made.equals_a_fresh_run()


def test_models_of_several_units_on_one_source_each_read_it_all(make_project: Callable[..., Shop]) -> None:
    config = "models:\n" + "".join(
        f"  t{n}: {{materialized: upsert, key: [k], sink: {{connector: sqlite, path: out/x.db, table: t{n}}}}}\n" for n in range(3)
    )
    models = {f"t{n}": f"SELECT k, COUNT(*) AS n FROM source('e') WHERE v > {n} GROUP BY k" for n in range(3)}
    made = make_project(config, SOURCES, models, {})
    in_parts(made, "data/e.jsonl", events(120, 5), 6)
    assert made.contents() == made.simulated()
    made.change("models/t1.sql", "v > 1", "v > 9")
    done = made.run("apply")
    assert done.code == 0
    assert [line.split(" (")[0] for line in done.stdout.splitlines()[-3:]] == ["t0: unchanged", "t1: applied", "t2: unchanged"]
    assert made.contents() == made.simulated()
