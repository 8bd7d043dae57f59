"""Reading files: lines that are not finished, blank, foreign or broken, and files that are not what they were."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from streamform import api
from tests.conftest import Run

from .conftest import Shop

SOURCES = """sources:
  e:
    connector: file
    path: data/e.jsonl
    schema: {k: int64, n: int32, v: "decimal(9,2)", f: float64, s: string, b: boolean, at: timestamp}
    event_time: at
    watermark: 1m
"""
CONFIG = """models:
  m: {sink: {connector: file, path: out/m.jsonl}}
  t: {materialized: upsert, key: [s], sink: {connector: sqlite, path: out/x.db, table: t}}
"""
MODELS = {"m": "SELECT k, n, v, f, s, b, at FROM source('e')", "t": "SELECT s, COUNT(*) AS n, SUM(10 / k) AS q FROM ref('m') GROUP BY s"}
EVENT = {"k": 1, "n": 2, "v": "3.50", "f": 0.5, "s": "a", "b": True, "at": "2026-08-30T10:00:00"}


def lines(*events: dict[str, object]) -> str:
    return "".join(json.dumps({**EVENT, **event}) + "\n" for event in events)


@pytest.fixture
def made(make_project: Callable[..., Shop]) -> Shop:
    return make_project(CONFIG, SOURCES, MODELS, {"data/e.jsonl": lines({}, {"s": "b"})})


def failure(done: Run) -> str:
    """The one problem that a command reports."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert done.code in (1, 2), done
    return text


BROKEN = {
    "no JSON": (b"nonsense\n", "not a JSON object: nonsense"),
    "an array": (b"[1]\n", "not a JSON object"),
    "not UTF-8": (b'{"s": "\xff"}\n', "not UTF-8 text"),
    "half a surrogate pair": (b'{"s": "\\ud800"}\n', "not UTF-8 text"),
    "an int64 out of range": (b'{"k": 9223372036854775808}\n', "k is 9223372036854775808, which is no int64"),
    "an int32 out of range": (b'{"n": -2147483649}\n', "n is -2147483649, which is no int32"),
    "a decimal out of range": (b'{"v": 12345678.00}\n', "which is no decimal(9,2)"),
    "a float out of range": (b'{"f": 1e400}\n', "f is"),
    "a fraction in an integer": (b'{"k": 1.5}\n', "which is no int64"),
    "a time that is none": (b'{"at": "yesterday"}\n', 'at is "yesterday", which is no timestamp'),
    "a boolean that is none": (b'{"b": 1}\n', "b is 1, which is no boolean"),
    "an event without its time": (b'{"k": 1}\n', "has no `at`; source `e` orders events by it"),
    "an event that can't be computed": (lines({"k": 0}).encode(), "in (10 / k) of t::aggregate::0"),
    "NaN": (b'{"f": NaN}\n', "not a JSON object"),
    "deep": (b'{"s": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "not a JSON object"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named_and_what_comes_before_it_counts(made: Shop, name: str) -> None:
    line, words = BROKEN[name]
    made.apply()
    file = made.folder / "data/e.jsonl"
    good = file.read_bytes() + b"\n" + lines({"s": "c"}, {"s": "d"}, {"s": "c"}).encode()
    file.write_bytes(good + line + lines({"s": "after"}).encode())
    text = failure(made.run("apply"))
    assert "data/e.jsonl, line 7: " in text
    assert words in text
    assert text.count("error: ") == 1
    assert [row[4] for row in made.contents()["m"]] == ["a", "b", "c", "d", "c"]
    assert "data/e.jsonl, line 7: " in failure(made.run("apply"))
    file.write_bytes(good + lines({"s": "after"}).encode())
    assert "1 event read" in made.apply()
    assert made.equals_a_fresh_run()


@pytest.mark.parametrize("name", ["no JSON", "an event without its time", "an event that can't be computed"])
def test_a_first_apply_stops_at_a_broken_line_and_goes_on_when_it_is_gone(made: Shop, name: str) -> None:
    file = made.folder / "data/e.jsonl"
    good = lines(*({"s": str(n)} for n in range(6_000))).encode()
    file.write_bytes(good + BROKEN[name][0])
    text = failure(made.run("apply"))
    assert "line 6001: " in text
    assert "the next apply goes on from here" in text
    assert len(made.contents()["m"]) == 6_000
    file.write_bytes(good)
    assert "nothing new" in made.apply()
    assert made.equals_a_fresh_run()


def test_a_rebuild_that_meets_a_broken_event_leaves_what_runs_as_it_is(made: Shop) -> None:
    made.apply()
    before = made.contents()
    made.change("models/t.sql", "10 / k", "10 / (n - 2)")
    text = failure(made.run("apply"))
    assert "data/e.jsonl, line 1: " in text
    assert made.contents() == before
    made.change("models/t.sql", "10 / (n - 2)", "10 / k")
    made.append("data/e.jsonl", EVENT)
    assert "1 event read" in made.apply()
    assert made.equals_a_fresh_run()
    assert [entry.outcome for entry in api.history(made.folder, target="local")[1]] == ["applied", "failed"]


def test_blank_lines_and_other_line_ends_are_no_events(made: Shop) -> None:
    file = made.folder / "data/e.jsonl"
    file.write_bytes(b"\n\r\n  \n" + lines({}).strip().encode() + b"\r\n\n" + lines({"s": "b"}).encode())
    assert "2 events read" in made.apply()
    file.write_bytes(file.read_bytes() + b"\n\nbroken\n")
    assert "line 9: not a JSON object: broken" in failure(made.run("apply"))


def test_a_last_line_waits_until_it_is_an_event_and_counts_once(made: Shop) -> None:
    made.apply()
    line = lines({"s": "é"}).encode()
    file = made.folder / "data/e.jsonl"
    whole = file.read_bytes() + line
    for end in range(1, len(line) - 1):
        file.write_bytes(whole[: len(whole) - len(line) + end])
        if end % 9 == 0:
            assert "nothing new" in made.apply()
    file.write_bytes(whole[:-1])
    assert "1 event read" in made.apply()
    file.write_bytes(whole + lines({"s": "e"}).encode() + b"broken\n")
    assert "line 5: not a JSON object" in failure(made.run("apply"))
    file.write_bytes(whole + lines({"s": "e"}).encode())
    made.apply()
    assert made.equals_a_fresh_run()


def test_late_events_and_those_without_a_value_are_counted(make_project: Callable[..., Shop]) -> None:
    sources = (
        SOURCES + "    contracts: [{name: has_time, not_null: [at]}, {name: plausible, check: k < 100}]\n    quarantine: {topic: bad}\n"
    )
    made = make_project(
        CONFIG.replace("models:", "models:\n  u: {sink: {connector: file, path: out/u.jsonl}}"),
        sources,
        {**MODELS, "u": "SELECT k FROM source('e') UNION ALL SELECT k FROM ref('m')"},
        {
            "data/e.jsonl": lines(
                {}, {"at": "2026-08-30T09:00:00"}, {"at": None}, {"k": 100}, {"k": None}, {"at": "2026-08-30T11:00:00"}, {}
            )
        },
    )
    done = made.apply()
    assert "7 events read, 2 late, 3 quarantined" in done
    found, expected = made.contents(), made.simulated()
    assert (found["m"], found["t"], sorted(found["u"])) == (expected["m"], expected["t"], sorted(expected["u"]))
    with closing(sqlite3.connect(made.folder / ".streamform/state/local.db")) as connection:
        kept = connection.execute("SELECT source, contract, event FROM quarantined ORDER BY id").fetchall()
    assert [(source, contract) for source, contract, _ in kept] == [("e", "has_time"), ("e", "plausible"), ("e", "plausible")]
    assert [json.loads(event)["k"] for _, _, event in kept] == [1, 100, None]


def test_a_directory_is_read_in_the_order_of_names_and_each_file_from_where_it_was(make_project: Callable[..., Shop]) -> None:
    made = make_project(
        CONFIG,
        SOURCES.replace("path: data/e.jsonl", "path: data"),
        MODELS,
        {"data/b.jsonl": lines({"s": "b1"}), "data/a.jsonl": lines({"s": "a1"}), "data/.hidden": "x", "data/deep/c.jsonl": "x"},
    )
    made.apply()
    assert [row[4] for row in made.contents()["m"]] == ["a1", "b1"]
    made.append("data/a.jsonl", {**EVENT, "s": "a2"}).write("data/c.jsonl", lines({"s": "c1"}))
    assert "2 events read" in made.apply()
    assert [row[4] for row in made.contents()["m"]] == ["a1", "b1", "a2", "c1"]
    (made.folder / "data/b.jsonl").unlink()
    assert "nothing new" in made.apply()
    made.write("data/b.jsonl", lines({"s": "other"}))
    assert "data/b.jsonl is not the file that was read before" in failure(made.run("apply"))


def test_an_empty_directory_and_an_empty_file_are_no_error(make_project: Callable[..., Shop]) -> None:
    made = make_project(CONFIG, SOURCES.replace("data/e.jsonl", "data"), MODELS, {})
    (made.folder / "data").mkdir()
    assert "nothing new" in made.apply()
    made.write("data/e.jsonl", "")
    assert "nothing new" in made.apply()
    made.write("data/e.jsonl", lines({}))
    assert "1 event read" in made.apply()
    assert made.equals_a_fresh_run()


@pytest.mark.parametrize("change", ["shorter", "another", "replaced by a longer one", "gone"])
def test_a_file_that_is_not_what_was_read_stops_the_apply(made: Shop, change: str) -> None:
    made.apply()
    before, file = made.contents(), made.folder / "data/e.jsonl"
    text = file.read_text()
    if change == "gone":
        file.unlink()
    else:
        changed = {"shorter": text[:-20], "another": text.replace('"b"', '"x"'), "replaced by a longer one": lines({"s": "z"}) * 9}
        file.write_text(changed[change])
    found = failure(made.run("apply"))
    assert ("can't read data/e.jsonl: no such file" if change == "gone" else "data/e.jsonl is not the file that was read before") in found
    assert made.contents() == before
    file.write_text(text + lines({"s": "c"}))
    assert "1 event read" in made.apply()


def test_a_source_that_is_missing_at_first_is_refused_before_anything_is_written(made: Shop) -> None:
    (made.folder / "data/e.jsonl").unlink()
    assert "can't read data/e.jsonl: no such file" in failure(made.run("apply"))
    assert not (made.folder / "out").exists()
    assert not (made.folder / ".streamform" / "state").exists()
    made.write("data/e.jsonl", lines({}))
    made.apply()
