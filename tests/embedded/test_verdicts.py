"""Every verdict executed: what continues keeps its state, what is rebuilt ends as a fresh run would have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from streamform import api

from .conftest import Shop, read_lines

SOURCES = """sources:
  e: {connector: file, path: data/e.jsonl, schema: {k: int64, g: string, v: "decimal(9,2)", f: float64, at: timestamp}}
  d: {connector: file, path: data/d.jsonl, schema: {k: int64, g: string, v: "decimal(9,2)", f: float64, at: timestamp}}
"""
CONFIG = """models:
  rows: {sink: {connector: file, path: out/rows.jsonl}}
  copies: {sink: {connector: sqlite, path: out/x.db, table: copies}}
  totals: {materialized: upsert, key: [k], sink: {connector: sqlite, path: out/x.db, table: totals}}
  large: {materialized: upsert, key: [k], sink: {connector: file, path: out/large.jsonl}}
"""
MODELS = {
    "rows": "SELECT k, g, v, f, at FROM source('e') WHERE v IS NOT NULL",
    "copies": "SELECT k, g, v, at FROM ref('rows')",
    "totals": "SELECT k, SUM(v) AS total, COUNT(*) AS n, MIN(g) AS first FROM ref('rows') GROUP BY k",
    "large": "SELECT k, total FROM ref('totals') WHERE total > 20",
}


def events(count: int, start: int = 0) -> str:
    """Some events, with NULLs, few keys and refunds."""
    found = [
        {
            "k": n * 7 % 11 or None,
            "g": "abcdef"[n * 5 % 6],
            "v": None if n % 13 == 0 else f"{n * 37 % 900 / 100 - 2:.2f}",
            "f": n / 8,
            "at": f"2026-08-30T10:{n // 60 % 60:02d}:{n % 60:02d}",
        }
        for n in range(start, start + count)
    ]
    return "".join(json.dumps(event) + "\n" for event in found)


@pytest.fixture
def made(make_project: Callable[..., Shop]) -> Shop:
    made = make_project(CONFIG, SOURCES, MODELS, {"data/e.jsonl": events(200), "data/d.jsonl": events(50, 500)})
    made.apply()
    return made


def more(made: Shop) -> Shop:
    with (made.folder / "data/e.jsonl").open("a") as file:
        file.write(events(60, 1_000))
    return made


def table(made: Shop, name: str) -> dict[object, tuple[object, ...]]:
    with closing(sqlite3.connect(made.folder / "out" / "x.db")) as connection:
        return {row[0]: row[1:] for row in connection.execute(f'SELECT * FROM "{name}"')}


def nodes(made: Shop) -> dict[str, int]:
    """Keys kept by node in the newest entry."""
    entry = api.history(made.folder, target="local")[1][-1]
    return {n["id"]: n["keys_kept"] for stage in entry.stages for n in stage.result.get("nodes", [])}


def test_the_rows_of_every_sink_are_those_of_the_simulator(made: Shop) -> None:
    assert made.contents() == made.simulated()
    more(made).apply()
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


# SAFE and COMPATIBLE


def test_a_change_of_words_alone_touches_nothing(made: Shop) -> None:
    before = made.contents()
    made.change("models/totals.sql", "SUM(v) AS total", "SUM( v )   AS total")
    assert made.verdict() == "SAFE"
    made.apply()
    assert made.contents() == before
    more(made).apply()
    assert made.equals_a_fresh_run()


def test_a_filter_behind_the_state_keeps_it_and_what_was_written(made: Shop) -> None:
    before = {row[0] for row in made.contents()["large"]}
    made.change("models/large.sql", "total > 20", "total > 30")
    assert made.verdict() == "COMPATIBLE"
    made.apply()
    assert nodes(made) == {"totals::aggregate::0": len(table(made, "totals"))}
    assert {row[0] for row in made.contents()["large"]} == before
    more(made).apply()
    assert made.contents()["totals"] == made.simulated()["totals"]


def test_models_renamed_by_a_hint_keep_state_sinks_and_positions(made: Shop) -> None:
    (made.folder / "models/totals.sql").rename(made.folder / "models/sums.sql")
    made.change("models/large.sql", "ref('totals')", "ref('sums')")
    made.change("streamform.yml", "  totals: {materialized: upsert,", "  sums: {renamed_from: totals, materialized: upsert,")
    made.apply()
    assert nodes(made) == {"sums::aggregate::0": len(table(made, "totals"))}
    assert "nothing new" in made.apply()
    more(made).apply()
    assert made.equals_a_fresh_run()


def test_reordered_aggregates_keep_their_values(made: Shop) -> None:
    made.change("models/totals.sql", "SUM(v) AS total, COUNT(*) AS n, MIN(g) AS first", "MIN(g) AS first, SUM(v) AS total, COUNT(*) AS n")
    assert made.verdict() in ("SAFE", "COMPATIBLE")
    more(made).apply()
    assert made.contents() == made.simulated()


def test_a_stateless_model_that_is_added_sees_what_comes(made: Shop) -> None:
    made.write("models/small.sql", "SELECT k, v FROM ref('rows') WHERE v < 0")
    made.change("streamform.yml", "  rows:", "  small: {sink: {connector: file, path: out/small.jsonl}}\n  rows:")
    assert made.verdict() == "COMPATIBLE"
    made.apply()
    assert made.contents()["small"] == []
    known = len(made.simulated()["small"])
    more(made).apply()
    assert made.contents()["small"] == made.simulated()["small"][known:]
    assert made.contents()["totals"] == made.simulated()["totals"]


def test_a_model_that_is_removed_leaves_its_rows_and_costs_nobody_else(made: Shop) -> None:
    before = (made.folder / "out/large.jsonl").read_text()
    (made.folder / "models/large.sql").unlink()
    made.change("streamform.yml", "  large: {materialized: upsert, key: [k], sink: {connector: file, path: out/large.jsonl}}\n", "")
    assert made.verdict() == "COMPATIBLE"
    more(made).apply()
    assert (made.folder / "out/large.jsonl").read_text() == before
    assert made.equals_a_fresh_run()


def test_a_column_that_is_added_to_an_output_is_added_to_its_table(made: Shop) -> None:
    made.change("models/copies.sql", "SELECT k, g, v, at", "SELECT k, g, v, at, f")
    assert made.verdict() == "COMPATIBLE"
    made.apply()
    old = len(made.contents()["copies"])
    more(made).apply()
    found, fresh = made.contents()["copies"], made.simulated()["copies"]
    assert [row[:-1] for row in found] == [row[:-1] for row in fresh]
    assert {row[-1] for row in found[:old]} == {None}
    assert found[old:] == fresh[old:]


def test_a_column_that_changes_its_type_holds_the_new_values_as_they_are(made: Shop) -> None:
    made.change("models/copies.sql", "SELECT k, g", "SELECT '00' || CAST(k AS STRING) AS k, g")
    made.apply()
    old = len(made.contents()["copies"])
    more(made).apply()
    found, fresh = made.contents()["copies"], made.simulated()["copies"]
    assert found[old:] == fresh[old:]
    assert len(found) == len(fresh)


def test_a_column_that_is_removed_from_an_output_stays_in_its_table(made: Shop) -> None:
    made.change("models/copies.sql", "SELECT k, g, v, at", "SELECT k, v, at")
    made.apply()
    more(made).apply()
    assert made.contents() == made.simulated()
    made.change("models/copies.sql", "SELECT k, v, at", "SELECT k, g, v, at")
    made.apply()
    more(made).apply()
    assert [(row[0], *row[2:]) for row in made.contents()["copies"]] == [(row[0], *row[2:]) for row in made.simulated()["copies"]]


def test_a_table_that_moves_leaves_its_rows_behind(made: Shop) -> None:
    left = table(made, "totals")
    made.change("streamform.yml", "table: totals", "table: sums")
    assert made.verdict() == "COMPATIBLE"
    made.apply()
    assert made.contents()["totals"] == []
    more(made).apply()
    assert table(made, "totals") == left
    assert made.contents()["totals"] == [row for row in made.simulated()["totals"] if row[0] not in left or row[1:] != left[row[0]]]


def test_a_table_that_becomes_a_file_shows_the_changes_from_there_on(made: Shop) -> None:
    made.change("streamform.yml", "connector: sqlite, path: out/x.db, table: totals", "connector: file, path: out/totals.jsonl")
    made.apply()
    assert read_lines(made.folder / "out/totals.jsonl") == []
    more(made).apply()
    last = {line["key"]["k"]: tuple(line["row"].values()) for line in read_lines(made.folder / "out/totals.jsonl")}
    assert set(last.values()) <= set(made.simulated()["totals"])
    made.change("models/rows.sql", "v IS NOT NULL", "v > 0")
    made.apply()
    last = {line["key"]["k"]: tuple(line["row"].values()) for line in read_lines(made.folder / "out/totals.jsonl")}
    assert set(last.values()) == set(made.simulated()["totals"])


def test_a_sink_that_moves_onto_rows_of_somebody_else_is_refused(made: Shop) -> None:
    before = made.contents()
    made.write("out/other.jsonl", "{}\n").change("streamform.yml", "path: out/rows.jsonl", "path: out/other.jsonl")
    done = made.run("apply")
    assert (done.code, "did not write" in done.stderr) == (1, True)
    made.change("streamform.yml", "path: out/other.jsonl", "path: out/rows.jsonl")
    assert made.contents() == before
    more(made).apply()
    assert made.equals_a_fresh_run()


def test_a_sink_that_moved_away_is_no_longer_looked_at(made: Shop) -> None:
    made.change("streamform.yml", "path: out/rows.jsonl", "path: out/moved.jsonl")
    made.apply()
    (made.folder / "out/rows.jsonl").write_text("taken over by somebody else\n")
    made.change("models/rows.sql", "v IS NOT NULL", "v > 0")
    made.apply()
    assert made.equals_a_fresh_run()
    made.change("streamform.yml", "path: out/moved.jsonl", "path: out/rows.jsonl")
    done = made.run("apply")
    assert (done.code, "did not write" in done.stderr) == (1, True)
    assert (made.folder / "out/rows.jsonl").read_text() == "taken over by somebody else\n"


# what is rebuilt

EDITS = {
    "another filter before the state": ("models/rows.sql", "v IS NOT NULL", "v > 0", "BACKFILL REQUIRED"),
    "another argument": ("models/totals.sql", "SUM(v)", "SUM(v + 1)", "BACKFILL REQUIRED"),
    "an aggregate more": ("models/totals.sql", "MIN(g) AS first", "MIN(g) AS first, MAX(v) AS most", "BACKFILL REQUIRED"),
    "an aggregate less": ("models/totals.sql", ", COUNT(*) AS n", "", "STATE MIGRATION REQUIRED"),
    "another source": ("models/rows.sql", "source('e')", "source('d')", "BACKFILL REQUIRED"),
    "everything is filtered out": ("models/rows.sql", "v IS NOT NULL", "v > 1000", "BACKFILL REQUIRED"),
    "a column of another type": ("models/totals.sql", "SELECT k,", "SELECT '00' || CAST(k AS STRING) AS k,", None),
    "two sources": ("models/rows.sql", "IS NOT NULL", "IS NOT NULL UNION ALL SELECT k, g, v, f, at FROM source('d')", None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_can_not_continue_is_rebuilt_and_its_sinks_repaired(made: Shop, edit: str) -> None:
    file, before, after, verdict = EDITS[edit]
    more(made)
    made.change(file, before, after)
    if "'00'" in after:
        made.change(file, "GROUP BY k", "GROUP BY '00' || CAST(k AS STRING)")
    assert verdict is None or made.verdict() == verdict
    made.apply()
    assert made.contents() == made.simulated()
    assert "nothing new" in made.apply()
    more(made).apply()
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


def test_a_key_that_changes_is_state_incompatible_and_rebuilt(made: Shop) -> None:
    for text in ("models/totals.sql", "models/large.sql"):
        made.write(text, (made.folder / text).read_text().replace("SELECT k,", "SELECT g,").replace("BY k", "BY g"))
    made.change("models/totals.sql", "MIN(g) AS first", "MIN(k) AS first")
    made.change("streamform.yml", "key: [k], sink: {connector: sqlite", "key: [g], sink: {connector: sqlite")
    made.change("streamform.yml", "key: [k], sink: {connector: file", "key: [g], sink: {connector: file")
    assert made.verdict() == "STATE INCOMPATIBLE"
    made.apply()
    assert made.contents() == made.simulated()
    assert "nothing new" in made.apply()
    more(made).apply()
    assert made.contents() == made.simulated()


def test_a_file_of_facts_that_is_rebuilt_replaces_the_old_one_at_once(made: Shop) -> None:
    before = read_lines(made.folder / "out/rows.jsonl")
    with (made.folder / "out/rows.jsonl").open() as follower:
        made.change("models/rows.sql", "v IS NOT NULL", "v > 3")
        made.apply()
        assert [json.loads(line)["k"] for line in follower.read().splitlines()] == [line["k"] for line in before]
    assert len(read_lines(made.folder / "out/rows.jsonl")) < len(before)
    assert [p.name for p in (made.folder / "out").iterdir() if p.name.endswith(".new")] == []


def test_a_repair_touches_no_row_that_is_right_and_none_of_somebody_else(made: Shop) -> None:
    with closing(sqlite3.connect(made.folder / "out/x.db")) as connection, connection:
        connection.execute("INSERT INTO totals VALUES (-1, '1.00', 1, 'z')")
        connection.execute("CREATE TABLE touched (k)")
        for name, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
            connection.execute(f"CREATE TRIGGER t{name} AFTER {name} ON totals BEGIN INSERT INTO touched VALUES ({row}.k); END")
    before = table(made, "totals")
    made.change("models/rows.sql", "v IS NOT NULL", "v IS NOT NULL AND (k IS NULL OR k <> 3 OR v > 0)")
    made.apply()
    after = table(made, "totals")
    assert {key for key in after if after[key] != before.get(key)} == {3}
    assert table(made, "touched") == {3: ()}
    assert after[-1] == ("1.00", 1, "z")


def test_a_unit_that_is_new_beside_others_starts_from_the_beginning(made: Shop) -> None:
    made.write("models/by_group.sql", "SELECT g, COUNT(*) AS n FROM source('e') GROUP BY g")
    made.change(
        "streamform.yml", "  rows:", "  by_group: {materialized: upsert, key: [g], sink: {connector: file, path: out/g.jsonl}}\n  rows:"
    )
    done = made.run("apply")
    assert (done.code, "by_group: applied" in done.stdout, ": unchanged" in done.stdout) == (0, True, True), done
    assert made.contents() == made.simulated()


def test_a_unit_that_is_gone_can_come_back_from_the_beginning(made: Shop) -> None:
    config, texts = (made.folder / "streamform.yml").read_text(), {n: (made.folder / f"models/{n}.sql").read_text() for n in MODELS}
    made.write("models/other.sql", "SELECT k FROM source('d')")
    made.apply()
    for name in MODELS:
        (made.folder / f"models/{name}.sql").unlink()
    made.write("streamform.yml", config.replace(CONFIG, ""))
    assert made.run("apply").code == 0
    assert (made.folder / "out/rows.jsonl").exists(), "sinks are left as they are"
    made.write("streamform.yml", config)
    for name, text in texts.items():
        made.write(f"models/{name}.sql", text)
    assert made.run("apply").code == 0
    assert made.contents() == made.simulated()


def test_units_that_are_joined_and_parted_again_equal_a_fresh_run(made: Shop) -> None:
    made.write("models/others.sql", "SELECT k, g, v, f, at FROM source('d')")
    made.change("streamform.yml", "  rows:", "  others: {sink: {connector: file, path: out/others.jsonl}}\n  rows:")
    assert made.run("apply").code == 0
    apart = (made.folder / "models/rows.sql").read_text()
    made.write("models/rows.sql", f"{apart} UNION ALL SELECT k, g, v, f, at FROM ref('others')")
    assert made.run("apply").code == 0
    assert made.contents()["totals"] == made.simulated()["totals"]
    made.write("models/rows.sql", apart)
    done = made.run("apply")
    assert done.code == 0, done
    more(made)
    assert made.run("apply").code == 0
    assert made.contents() == made.simulated()
