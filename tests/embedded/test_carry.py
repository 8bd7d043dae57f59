"""State that goes on: moved, migrated and repaired, never computed again, and equal to a fresh run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamform import api

from .conftest import Shop

ORDER = {"order_id": 1, "customer_id": 1001, "amount": 5.25, "status": "paid", "ordered_at": "2026-09-30T10:00:00"}
SOURCES = "sources: {e: {connector: file, path: e.jsonl, schema: {k: int64, v: int64, at: timestamp}, event_time: at}}\n"
UPSERT = "materialized: upsert, key: [k]"
TABLE = f"models: {{{{m: {{{{{UPSERT}, sink: {{{{connector: sqlite, path: out/x.db, table: m}}}}}}}}}}}}\nidentity: {{}}"
TOTAL = "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') GROUP BY k"


def events(first: int, last: int) -> str:
    """Events of four keys, one a second."""
    return "".join(f'{{"k": {n % 4}, "v": {n}, "at": "2026-08-30T10:{n // 60:02d}:{n % 60:02d}"}}\n' for n in range(first, last))


def stages(made: Shop) -> list[str]:
    """The stages of the newest attempt."""
    _, entries = api.history(made.folder, target="local")
    return [stage.kind for stage in entries[-1].stages]


def test_a_condition_behind_the_state_repairs_its_sink_from_the_state(shop: Shop) -> None:
    shop.apply()
    before = set(shop.replayed())
    middle = sorted(float(total) for total, *_ in shop.table().values())[-len(before) // 2]
    shop.change("models/big_customers.sql", "1000", str(int(middle)))
    assert shop.verdict() == "COMPATIBLE"
    assert "repaired" in shop.run("plan").stdout
    shop.approve()
    shop.apply()
    assert stages(shop) == ["continue", "repair-sink", "write-record", "catch-up"]
    assert set(shop.replayed()) < before
    assert shop.equals_a_fresh_run()


def test_an_output_edit_with_a_retention_says_what_stays(make_project: Callable[..., Shop]) -> None:
    config = f"models: {{m: {{{UPSERT}, retention: 1h, sink: {{connector: sqlite, path: out/x.db, table: m}}}}}}"
    made = make_project(config, SOURCES, {"m": "SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k"}, {"e.jsonl": events(0, 8)})
    made.apply()
    made.change("models/m.sql", "AS n", "+ 1 AS n")
    said = made.run("plan").stdout
    assert "stay as they are until their keys change" in said
    made.apply()
    assert stages(made) == ["continue", "write-record", "catch-up"]
    assert made.contents()["m"] == [(k, 2) for k in range(4)], "what was written stands"
    made.write("e.jsonl", events(0, 9))
    made.apply()
    assert made.contents()["m"][0] == (0, 4)


BEHIND_NO_STATE = {
    "clock": ("event_time: at", "event_time: at, watermark: 1h"),
    "contract": ("event_time: at", "event_time: at, contracts: [{name: small, check: v < 4}], quarantine: {topic: broken}"),
}


@pytest.mark.parametrize("how", BEHIND_NO_STATE)
def test_a_source_that_shows_other_rows_says_that_those_written_stay(make_project: Callable[..., Shop], how: str) -> None:
    made = make_project(TABLE.format("conservative"), SOURCES, {"m": "SELECT k, v FROM source('e')"}, {"e.jsonl": events(0, 8)})
    made.apply()
    before = made.contents()["m"]
    made.change("sources.yml", *BEHIND_NO_STATE[how])
    assert made.verdict() == "COMPATIBLE"
    assert "rows of `m` that were written before the change stay as they are until their keys change" in made.run("plan").stdout
    made.apply()
    assert made.contents()["m"] == before


@pytest.mark.parametrize(
    "change", [("10s", "10s, on_expiry: delete"), ("10s, on_expiry: delete", "10s"), ("10s, on_expiry: delete", "1h, on_expiry: delete")]
)
def test_another_expiry_of_rows_says_that_those_written_stay(make_project: Callable[..., Shop], change: tuple[str, str]) -> None:
    config = f"models: {{m: {{{UPSERT}, retention: {change[0]}, sink: {{connector: sqlite, path: out/x.db, table: m}}}}}}"
    files = {"e.jsonl": events(0, 4) + events(40, 41)}
    made = make_project(config, SOURCES, {"m": "SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k"}, files)
    made.apply()
    before = made.contents()["m"]
    made.change("streamform.yml", f"retention: {change[0]}", f"retention: {change[1]}")
    assert made.verdict() == "STATE MIGRATION REQUIRED"
    assert "rows of `m` that were written before the change stay as they are until their keys change" in made.run("plan").stdout
    made.apply()
    assert made.contents()["m"] == before


@pytest.mark.parametrize("dropped", ["SUM(v) AS t, ", ", COUNT(*) AS n"])
def test_a_dropped_accumulator_is_dropped_from_the_state(make_project: Callable[..., Shop], dropped: str) -> None:
    made = make_project(TABLE.format("conservative"), SOURCES, {"m": TOTAL}, {"e.jsonl": events(0, 40)})
    made.apply()
    made.change("models/m.sql", dropped, "")
    assert made.verdict() == "STATE MIGRATION REQUIRED"
    assert "4 migrated" in made.apply()
    assert "rebuild" not in stages(made)
    assert made.equals_a_fresh_run()
    made.write("e.jsonl", events(0, 60))
    made.apply()
    assert made.equals_a_fresh_run()


REWRITTEN = {
    "conditions": ("WHERE v > 3 AND k < 3 GROUP", "WHERE 3 > k AND 3 < v GROUP"),
    "subquery": ("FROM source('e') WHERE v > 3 AND k < 3 GROUP", "FROM (SELECT v, k FROM source('e') WHERE k < 3) AS x WHERE v > 3 GROUP"),
}


@pytest.mark.parametrize("how", REWRITTEN)
def test_in_structural_identity_a_rewrite_keeps_everything(make_project: Callable[..., Shop], how: str) -> None:
    sql = TOTAL.replace("GROUP", "WHERE v > 3 AND k < 3 GROUP")
    made = make_project(TABLE.format("structural"), SOURCES, {"m": sql}, {"e.jsonl": events(0, 40)})
    made.apply()
    made.change("models/m.sql", *REWRITTEN[how])
    assert made.verdict() == "SAFE"
    assert "3 keys kept" in made.apply()
    assert stages(made) == ["continue", "write-record", "catch-up"]
    made.write("e.jsonl", events(0, 80))
    made.apply()
    assert made.equals_a_fresh_run()


def test_in_structural_identity_an_inlined_model_moves_no_state_and_keeps_the_clock(make_project: Callable[..., Shop]) -> None:
    config = f"{TABLE.format('structural')}\n"
    models = {"b": "SELECT k, v AS w FROM source('e') WHERE v > 3", "m": TOTAL.replace("source('e')", "ref('b')").replace("(v)", "(w)")}
    made = make_project(config, SOURCES, models, {"e.jsonl": events(0, 40)})
    made.apply()
    (made.folder / "models" / "b.sql").unlink()
    made.write("models/m.sql", TOTAL.replace("GROUP", "WHERE v > 3 GROUP"))
    assert made.verdict() == "SAFE"
    assert "4 keys kept" in made.apply()
    late = '{"k": 1, "v": 1000, "at": "2026-08-30T10:00:00"}\n'
    made.write("e.jsonl", events(0, 40) + late + events(40, 50))
    assert "1 late" in made.apply(), "the new reader of the source joined at its watermark"
    assert made.equals_a_fresh_run()


def test_conservative_identity_rebuilds_and_says_what_it_could_have_kept(make_project: Callable[..., Shop]) -> None:
    sql = TOTAL.replace("GROUP", "WHERE v > 3 AND k < 3 GROUP")
    made = make_project(TABLE.format("conservative"), SOURCES, {"m": sql}, {"e.jsonl": events(0, 40)})
    made.apply()
    made.change("models/m.sql", "v > 3 AND k < 3", "k < 3 AND v > 3")
    plan = made.run("plan")
    assert (plan.code, "verdict: BACKFILL REQUIRED" in plan.stdout) == (1, True)
    assert "`m::aggregate::0` computes what `m::aggregate::0` computes (W1 the order of conditions)" in plan.stdout
    assert made.run("plan", "--identity", "structural").code == 0


def test_a_new_reader_that_comes_first_joins_at_the_watermark(make_project: Callable[..., Shop]) -> None:
    config = f"models: {{m: {{{UPSERT}, sink: {{connector: sqlite, path: out/x.db, table: m}}}}}}"
    models = {"m": TOTAL.replace("source('e')", "ref('z')"), "z": "SELECT k, v FROM source('e') WHERE v > 3"}
    made = make_project(config, SOURCES, models, {"e.jsonl": events(0, 40)})
    made.apply()
    made.change("streamform.yml", "models: {", "models: {a: {sink: {connector: file, path: out/a.jsonl}}, ")
    made.write("models/a.sql", "SELECT k, v FROM source('e')")
    made.write("models/j.sql", "SELECT k, v FROM ref('a') UNION ALL SELECT k, v FROM ref('z')")
    late = '{"k": 1, "v": 1000, "at": "2026-08-30T10:00:00"}\n'
    made.write("e.jsonl", events(0, 40) + late)
    assert made.verdict() == "COMPATIBLE"
    assert "1 late" in made.apply()
    assert made.contents()["a"] == []
