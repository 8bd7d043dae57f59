"""Values of every type as keys, totals and rows: the same from one apply, from many, and after a rebuild."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamform.adapters import state_store

from .conftest import Shop

SOURCES = """sources:
  e: {connector: file, path: data/e.jsonl, schema: {k: int64, n: int32, v: "decimal(9,2)", f: float64, s: string, b: boolean, at: timestamp}}
"""
VALUES: dict[str, Sequence[Any]] = {
    "k": (0, -1, 2**63 - 1, -(2**63), None, 7),
    "n": (0, -5, 2**31 - 1, None),
    "v": ("0.00", "-0.00", "1.50", 1.5, "-9999999.99", None, "100"),
    "f": (0.0, 0.1, 1e300, -2.5, None, 3),
    "s": ("", "a", "é\u0000☃", "'\"\\\n", None, "NULL", '{"d": "1"}', "\U0001f600"),
    "b": (True, False, None),
    "at": ("2026-08-30T10:00:00", "1969-12-31 23:59:59.999", "2026-08-30T10:00:00.5Z", None),
}


def events(count: int) -> list[dict[str, Any]]:
    return [{name: found[n * (3 + i) % len(found)] for i, (name, found) in enumerate(VALUES.items())} for n in range(count)]


def in_parts(made: Shop, found: list[dict[str, Any]], parts: int) -> None:
    """Apply as events arrive."""
    size = -(-len(found) // parts)
    made.write("data/e.jsonl", "")
    for start in range(0, len(found), size):
        made.append("data/e.jsonl", *found[start : start + size]).apply()


KEYS = (*((name,) for name in VALUES), ("b", "v"), ("s", "f"), ("at", "n", "b"))


@pytest.mark.parametrize("sink", ["file, path: out/t.jsonl", "sqlite, path: out/x.db, table: t"])
@pytest.mark.parametrize("key", KEYS, ids=["-".join(key) for key in KEYS])
def test_keys_of_every_type(make_project: Callable[..., Shop], key: tuple[str, ...], sink: str) -> None:
    names = ", ".join(key)
    config = f"models: {{t: {{materialized: upsert, key: [{names}], sink: {{connector: {sink}}}}}}}"
    sql = f"SELECT {names}, COUNT(*) AS number, MIN(v) AS low, MAX(s) AS high FROM source('e') WHERE k > -10 OR k IS NULL GROUP BY {names}"
    made = make_project(config, SOURCES, {"t": sql}, {})
    in_parts(made, events(40), 4)
    assert made.contents() == made.simulated()
    made.change("models/t.sql", "k > -10", "k > 0")
    made.apply()
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


TOTALS = (
    "SUM(k % 1000) AS a, SUM(n % 1000) AS b, SUM(v) AS c, SUM(f) AS d",
    "AVG(k % 1000) AS a, AVG(v) AS b, AVG(f) AS c",
    "MIN(k) AS a, MIN(n) AS b, MIN(v) AS c, MIN(f) AS d, MIN(s) AS e, MIN(at) AS h",
    "MAX(k) AS a, MAX(n) AS b, MAX(v) AS c, MAX(f) AS d, MAX(s) AS e, MAX(at) AS h",
    "COUNT(DISTINCT k) AS a, COUNT(DISTINCT v) AS b, COUNT(DISTINCT f) AS c, COUNT(DISTINCT s) AS d, COUNT(DISTINCT b) AS e",
    "SUM(DISTINCT v) AS a, COUNT(DISTINCT at) AS b, COUNT(v) FILTER (WHERE b) AS c, COUNT(b) AS d",
)


@pytest.mark.parametrize("over", ["source", "changes"])
@pytest.mark.parametrize("totals", TOTALS, ids=[text.split(" AS")[0] for text in TOTALS])
def test_aggregates_of_every_type(make_project: Callable[..., Shop], totals: str, over: str) -> None:
    config = "models:\n  t: {materialized: upsert, key: [g], sink: {connector: sqlite, path: out/x.db, table: t}}\n"
    models = {"t": f"SELECT b AS g, {totals} FROM source('e') GROUP BY b"}
    if over == "changes":
        config += "  last: {materialized: upsert, key: [s]}\n"
        inner = "s, MAX(k) AS k, MAX(n) AS n, MAX(v) AS v, MIN(f) AS f, MAX(at) AS at, MAX(CAST(b AS INT)) = 1 AS b"
        models = {"last": f"SELECT {inner} FROM source('e') GROUP BY s", "t": models["t"].replace("source('e')", "ref('last')")}
    made = make_project(config, SOURCES, models, {})
    in_parts(made, events(60), 5)
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


def test_rows_of_every_type_arrive_unchanged(make_project: Callable[..., Shop]) -> None:
    names = ", ".join(VALUES)
    config = "models:\n  m: {sink: {connector: file, path: out/m.jsonl}}\n  o: {sink: {connector: sqlite, path: out/x.db, table: o}}"
    made = make_project(config, SOURCES, {"m": f"SELECT {names} FROM source('e')", "o": f"SELECT {names} FROM ref('m')"}, {})
    in_parts(made, events(30), 3)
    assert made.contents() == made.simulated()
    first = json.loads((made.folder / "out/m.jsonl").read_text().splitlines()[1])
    assert first["at"] == "1969-12-31T23:59:59.999" or first["at"] is None or first["at"].startswith("2026")
    made.change("models/m.sql", "source('e')", "source('e') WHERE n IS NOT NULL")
    made.write("models/m.sql", f"SELECT {names} FROM source('e') WHERE k IS NOT NULL UNION ALL SELECT {names} FROM source('e') WHERE b")
    made.apply()
    assert made.verdict() == "SAFE"


def test_zero_is_one_key_however_it_was_computed(make_project: Callable[..., Shop]) -> None:
    config = "models: {t: {materialized: upsert, key: [z, y], sink: {connector: sqlite, path: out/x.db, table: t}}}"
    sql = "SELECT v * -1 AS z, f * -1 AS y, COUNT(*) AS n FROM source('e') GROUP BY v * -1, f * -1"
    made = make_project(config, SOURCES, {"t": sql}, {})
    zeros = [{"v": v, "f": f} for v in ("0.00", "-0.00", 0) for f in (0.0, -0.0)]
    in_parts(made, zeros, 6)
    assert [row[2] for row in made.contents()["t"]] == [6]
    made.change("models/t.sql", "COUNT(*) AS n", "COUNT(*) AS n, COUNT(v) AS m")
    made.apply()
    assert [row[2:] for row in made.contents()["t"]] == [(6, 6)]


def test_more_keys_than_fit_into_memory(make_project: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "CACHED", 20)
    monkeypatch.setattr("streamform.adapters.engine.STEP", 50)
    config = """models:
  t: {materialized: upsert, key: [k], sink: {connector: file, path: out/t.jsonl}}
  u: {materialized: upsert, key: [n], sink: {connector: sqlite, path: out/x.db, table: u}}
"""
    models = {
        "t": "SELECT k, COUNT(*) AS n, SUM(v) AS v FROM source('e') GROUP BY k",
        "u": "SELECT n, COUNT(*) AS keys, MAX(v) AS most FROM ref('t') GROUP BY n",
    }
    made = make_project(config, SOURCES, models, {})
    found = [{"k": n * 7919 % 331, "v": f"{n % 17}.25"} for n in range(2_000)]
    in_parts(made, found, 3)
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()
