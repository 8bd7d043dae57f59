"""`apply --adopt`: a first apply onto sinks that hold rows of somebody else keeps them, as a plan of its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from streamform import api

from .conftest import Shop
from .test_crash_points import dies_at
from .test_verdicts import CONFIG, MODELS, SOURCES, events, more


@pytest.fixture
def made(make_project: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Sinks of every kind: tables and files, with upserts and appends; somebody else has written into each."""
    monkeypatch.setattr("streamform.adapters.engine.STEP", 60)
    files = {"data/e.jsonl": events(90), "data/d.jsonl": ""}
    shop = make_project(CONFIG, SOURCES, MODELS, files)
    template = make_project(CONFIG, SOURCES, MODELS, files)
    template.apply()
    for path in ("out/rows.jsonl", "out/large.jsonl"):
        shop.write(path, '{"mine": 1}\n')
    with closing(sqlite3.connect(template.folder / "out/x.db")) as theirs, closing(sqlite3.connect(shop.folder / "out/x.db")) as ours, ours:
        for (statement,) in theirs.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\'"):
            ours.execute(statement)
        ours.execute("INSERT INTO totals (k) VALUES (-5)")
        ours.execute("INSERT INTO copies (k) VALUES (-6)")
    shop.change("streamform.yml", "{backend: embedded}", "{backend: embedded, approvals: {above: SAFE}}")
    return shop


def rows(shop: Shop, table: str) -> list[Any]:
    with closing(sqlite3.connect(shop.folder / "out/x.db")) as connection:
        return sorted(connection.execute(f'SELECT * FROM "{table}"').fetchall(), key=repr)


def everything(shop: Shop) -> dict[str, list[Any]]:
    """What each sink holds, as it is there."""
    found: dict[str, list[Any]] = {table: rows(shop, table) for table in ("totals", "copies")}
    return found | {path: (shop.folder / path).read_text().splitlines() for path in ("out/rows.jsonl", "out/large.jsonl")}


def plan_of(shop: Shop, *options: str) -> dict[str, Any]:
    """What a blocked apply says of its only unit."""
    done = shop.run("apply", "--json", *options)
    assert done.code == 1, done.stderr
    (unit,) = json.loads(done.stdout)["units"]
    assert unit["outcome"] == "blocked"
    found: dict[str, Any] = unit
    return found


def approve(shop: Shop, plan_id: str) -> None:
    done = shop.run("approve", plan_id, "--reason", "they know", "--acknowledge", "BACKFILL REQUIRED")
    assert done.code == 0, done.stderr


def test_a_first_apply_onto_rows_of_somebody_else_is_refused_and_names_the_option(made: Shop) -> None:
    before = everything(made)
    done = made.run("apply")
    assert done.code == 1
    assert "streamform apply --adopt" in done.stderr
    assert everything(made) == before


def test_adopting_is_a_plan_of_its_own_that_waits_and_says_what_it_costs(made: Shop) -> None:
    before, plain = everything(made), api.plan(made.folder).situation
    assert plain is not None
    unit = plan_of(made, "--adopt")
    assert unit["requires"] == "BACKFILL REQUIRED"
    assert unit["plan_id"] != plain.units[0].plan_id
    assert plan_of(made, "--adopt")["plan_id"] == unit["plan_id"]
    shown = made.run("apply", "--adopt").stdout
    for model in ("totals", "copies", "rows", "large"):
        assert f"the sink of `{model}` holds rows that this project did not write; they stay" in shown
    assert everything(made) == before


def test_an_approved_adoption_keeps_their_rows_and_adds_ours(made: Shop) -> None:
    before = everything(made)
    fresh = made.fresh()
    approve(made, plan_of(made, "--adopt")["plan_id"])
    done = made.run("apply", "--adopt")
    assert done.code == 0, done.stderr
    ours, after = everything(fresh), everything(made)
    assert after == {
        place: [*before[place], *ours[place]] if place.endswith("jsonl") else sorted([*before[place], *ours[place]], key=repr)
        for place in before
    }
    assert "unchanged" in made.run("apply").stdout
    assert "unchanged" in made.run("apply", "--adopt").stdout
    more(made)
    more(fresh)
    fresh.apply()
    made.apply()
    assert {place: len(found) for place, found in everything(made).items()} == {
        place: len(found) + 1 for place, found in everything(fresh).items()
    }


def test_a_row_with_a_key_of_ours_becomes_ours(made: Shop) -> None:
    fresh = made.fresh()
    key = next(row[0] for row in rows(fresh, "totals") if row[0] is not None)
    with closing(sqlite3.connect(made.folder / "out/x.db")) as connection, connection:
        connection.execute("INSERT INTO totals (k) VALUES (?)", (key,))
    approve(made, plan_of(made, "--adopt")["plan_id"])
    assert made.run("apply", "--adopt").code == 0
    assert [row for row in rows(made, "totals") if row[0] == key] == [row for row in rows(fresh, "totals") if row[0] == key]


def test_an_approval_of_adopting_some_sinks_does_not_cover_more(made: Shop) -> None:
    (made.folder / "out/rows.jsonl").rename(made.folder / "out/theirs")
    approve(made, plan_of(made, "--adopt")["plan_id"])
    (made.folder / "out/theirs").rename(made.folder / "out/rows.jsonl")
    assert plan_of(made, "--adopt")["requires"] == "BACKFILL REQUIRED"


def test_adopting_where_nothing_is_somebody_elses_is_the_plain_plan(shop: Shop) -> None:
    done = shop.run("apply", "--adopt")
    assert done.code == 0, done.stderr
    (entry,) = api.history(shop.folder, target="local")[1]
    assert entry.requires == "SAFE"
    assert shop.equals_a_fresh_run()


@pytest.mark.parametrize("number", range(1, 60, 4))
def test_an_adoption_that_is_killed_anywhere_is_finished_by_the_next_apply(made: Shop, number: int) -> None:
    before, fresh = everything(made), made.fresh()
    approve(made, plan_of(made, "--adopt")["plan_id"])
    dies_at(made, number, "apply", "--adopt")
    done = made.run("apply", "--adopt")
    if done.code == 1:
        approve(made, plan_of(made, "--adopt")["plan_id"])
        done = made.run("apply", "--adopt")
    assert done.code == 0, done.stdout + done.stderr
    ours, after = everything(fresh), everything(made)
    assert {place: len(found) for place, found in after.items()} == {
        place: len(found) + len(before[place]) for place, found in ours.items()
    }
    assert "unchanged" in made.run("apply").stdout


BROKEN: dict[str, Callable[[Shop], object]] = {
    "ends within a line": lambda made: made.write("out/rows.jsonl", '{"mine": 1'),
    "has other columns": lambda made: sqlite(made, "ALTER TABLE totals ADD COLUMN theirs"),
}


def sqlite(made: Shop, statement: str) -> None:
    with closing(sqlite3.connect(made.folder / "out/x.db")) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("cause", BROKEN)
def test_what_ours_do_not_fit_into_is_not_adopted(made: Shop, cause: str) -> None:
    BROKEN[cause](made)
    before = everything(made)
    approve(made, plan_of(made, "--adopt")["plan_id"])
    done = made.run("apply", "--adopt")
    assert done.code == 1
    assert cause in done.stderr
    assert everything(made) == before


def test_a_saved_plan_is_applied_without_adopting(made: Shop) -> None:
    done = made.run("apply", "--adopt", "--plan", "x.plan")
    assert done.code == 2
    assert "leave one of them out" in done.stderr


def test_adopted_rows_are_never_dropped_by_a_first_apply_after_the_models_were_gone(make_project: Callable[..., Shop]) -> None:
    sinks = "models:\n  kept: {sink: {connector: file, path: out/kept.jsonl}}\n"
    mine = "  mine: {sink: {connector: file, path: out/mine.jsonl}}\n"
    query = "SELECT k FROM source('e') WHERE k IS NOT NULL"
    files = {"data/e.jsonl": events(20), "data/d.jsonl": "", "out/mine.jsonl": '{"theirs": 1}\n'}
    made = make_project(sinks + mine, SOURCES, {"kept": query, "mine": query}, files)
    assert made.run("apply", "--adopt").code == 0
    held = (made.folder / "out/mine.jsonl").read_text()
    assert held.startswith('{"theirs": 1}\n')
    assert held.count("\n") > 10
    made.change("streamform.yml", mine, "")
    (made.folder / "models/mine.sql").rename(made.folder / "mine.sql")
    made.apply()
    (made.folder / "mine.sql").rename(made.folder / "models/mine.sql")
    made.change("streamform.yml", sinks, sinks + mine)
    done = made.run("apply")
    assert done.code == 1
    assert "streamform apply --adopt" in done.stderr
    assert (made.folder / "out/mine.jsonl").read_text() == held
    assert made.run("apply", "--adopt").code == 0
    assert (made.folder / "out/mine.jsonl").read_text().startswith(held)


def test_a_rebuild_says_that_it_replaces_the_adopted_rows_of_an_append_sink_and_keeps_those_of_a_table_by_key(made: Shop) -> None:
    approve(made, plan_of(made, "--adopt")["plan_id"])
    assert made.run("apply", "--adopt").code == 0
    made.change("models/rows.sql", "v IS NOT NULL", "v IS NOT NULL AND k > 2")
    situation = api.plan(made.folder).situation
    assert situation is not None
    said = {(consequence.kind, consequence.subject) for consequence in situation.units[0].staging.consequences}
    assert {("rewrites-rows", "rows"), ("rewrites-rows", "copies"), ("rewrites-keys", "totals")} <= said
    approve(made, plan_of(made)["plan_id"])
    made.apply()
    ours = everything(made.fresh())
    after = everything(made)
    assert after["totals"] == sorted([*ours["totals"], (-5, None, None, None)], key=repr)
    assert after["copies"] == ours["copies"]
    assert after["out/rows.jsonl"] == ours["out/rows.jsonl"]
