"""Applies on the embedded backend, each compared with a fresh run of the same files."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from streamform import api
from tests.conftest import REPOSITORY, environment, play

from .conftest import TARGET, Shop

ORDER = {"order_id": 1, "customer_id": 1001, "amount": 5.25, "status": "paid", "ordered_at": "2026-09-30T10:00:00"}


def test_the_rows_are_those_of_the_simulator(shop: Shop) -> None:
    shop.apply()
    compiled = api.compile(shop.folder)
    given = "\n".join(f"- {{event: {line}}}" for line in (shop.folder / "data" / "orders.jsonl").read_text().splitlines())
    given = given.replace('"}}', 'Z"}}')
    records = play(compiled, given, model="customer_metrics").records
    rows = {}
    for record in records:
        values = dict(part.split("=", 1) for part in record.split(" ")[1:])
        rows[int(values["customer_id"])] = (values["total_spend"], int(values["orders"]))
    shown = {key: (f"{float(total):.2f}", number) for key, (total, number) in rows.items()}
    assert shop.table() == shown


def test_a_second_apply_changes_nothing_and_says_so(shop: Shop) -> None:
    shop.apply()
    before = sorted((p.as_posix(), p.read_bytes()) for p in (shop.folder / ".streamform").rglob("*.json"))
    assert shop.apply() == "big_customers: unchanged (nothing new)"
    assert before == sorted((p.as_posix(), p.read_bytes()) for p in (shop.folder / ".streamform").rglob("*.json"))


def test_only_new_events_are_consumed(shop: Shop) -> None:
    shop.apply()
    shop.add(ORDER)
    assert "(1 event read, 1 change of big_customers, 1 change of customer_metrics)" in shop.apply()
    assert shop.equals_a_fresh_run()


def test_a_last_line_that_is_not_complete_waits(shop: Shop) -> None:
    shop.apply()
    file = shop.folder / "data" / "orders.jsonl"
    line = json.dumps(ORDER)
    file.write_text(file.read_text() + line[:30])
    assert "nothing new" in shop.apply()
    file.write_text(file.read_text() + line[30:])
    assert "1 event read" in shop.apply()
    file.write_text(file.read_text() + "\n")
    assert "nothing new" in shop.apply()
    assert shop.equals_a_fresh_run()


def test_a_backfill_repairs_the_sinks_by_the_difference_and_touches_no_other_row(shop: Shop) -> None:
    shop.apply()
    lines = len(shop.lines())
    with sqlite3.connect(shop.folder / "out" / "shop.db") as connection:
        connection.execute("INSERT INTO customer_metrics VALUES (-1, '1.00', 1)")
    assert shop.changed("models/clean_orders.sql", "status <> 'test'", "status = 'paid'") == "BACKFILL REQUIRED"
    assert lines < len(shop.lines()) < lines + 60
    assert shop.table()[-1] == ("1.00", 1)
    with sqlite3.connect(shop.folder / "out" / "shop.db") as connection:
        connection.execute("DELETE FROM customer_metrics WHERE customer_id = -1")
    assert shop.equals_a_fresh_run()


def test_a_compatible_change_keeps_the_state(shop: Shop) -> None:
    shop.apply()
    assert shop.changed("models/customer_metrics.sql", "SUM(amount) AS total_spend", "SUM(amount) AS total_spend, 1 AS one") == "COMPATIBLE"
    (entry,) = [e for e in api.history(shop.folder, target="local")[1] if e.sequence == 2]
    kept = [node["keys_kept"] for stage in entry.stages for node in stage.result.get("nodes", [])]
    assert kept == [len(shop.table())]
    assert [stage.kind for stage in entry.stages] == ["continue", "repair-sink", "repair-sink", "write-record", "catch-up"]
    shop.add(ORDER)
    shop.apply()
    total, one, orders = shop.table()[1001]
    assert (float(total) > 0, one, orders > 1_000) == (True, 1, True)
    assert shop.equals_a_fresh_run(), "rows that were there are repaired from the kept state"


def test_accumulators_in_another_order_keep_their_values(shop: Shop) -> None:
    shop.apply()
    before = shop.table()
    (shop.folder / "models" / "customer_metrics.sql").write_text(
        "SELECT customer_id, COUNT(*) AS orders, SUM(amount) AS total_spend FROM ref('clean_orders') GROUP BY customer_id"
    )
    verdict = api.plan(shop.folder, target="local").diff.verdict.text
    assert verdict == "COMPATIBLE"
    shop.approve()
    shop.apply()
    shop.add({**ORDER, "customer_id": 1001, "amount": 1.00})
    shop.apply()
    with sqlite3.connect(shop.folder / "out" / "shop.db") as connection:
        orders, total = connection.execute("SELECT orders, total_spend FROM customer_metrics WHERE customer_id = 1001").fetchone()
    assert orders == before[1001][1] + 1
    assert f"{float(before[1001][0]) + 1:.2f}" == total


def test_a_renamed_model_keeps_its_state(shop: Shop) -> None:
    shop.apply()
    (shop.folder / "models" / "clean_orders.sql").rename(shop.folder / "models" / "valid_orders.sql")
    shop.change("models/customer_metrics.sql", "clean_orders", "valid_orders")
    shop.change("tests/clean_orders.yml", "model: clean_orders", "model: valid_orders")
    shop.change("streamform.yml", "  clean_orders:\n", "  valid_orders:\n    renamed_from: clean_orders\n")
    assert "keys kept" in shop.apply()
    shop.add(ORDER)
    shop.apply()
    assert shop.equals_a_fresh_run()


def test_a_key_that_changes_is_rebuilt(shop: Shop) -> None:
    shop.apply()
    shop.change("streamform.yml", "    key: [customer_id]\n    sink: {connector: sqlite", "    key: [status]\n    sink: {connector: sqlite")
    shop.change("models/customer_metrics.sql", "  customer_id,\n  SUM", "  status,\n  SUM")
    shop.change("models/customer_metrics.sql", "GROUP BY customer_id", "GROUP BY status")
    for part in ("models/big_customers.sql", "tests/big_customers.yml", "tests/customer_metrics.yml"):
        (shop.folder / part).unlink()
    shop.change(
        "streamform.yml",
        "  big_customers:\n    materialized: upsert\n    key: [customer_id]\n    sink: {connector: file, path: out/big_customers.jsonl}\n",
        "",
    )
    shop.change("streamform.yml", "      big_customers: {connector: kafka, topic: big-customers}\n", "")
    assert api.plan(shop.folder, target="local").diff.verdict.text == "STATE INCOMPATIBLE"
    shop.approve()
    shop.apply()
    assert set(shop.table()) == {"paid", "refunded"}
    assert shop.equals_a_fresh_run()


APPEND = "models: {m: {sink: {connector: sqlite, path: out/shop.db, table: m}}, n: {sink: {connector: file, path: out/n.jsonl}}}"
SOURCE = 'sources: {e: {connector: file, path: data, schema: {k: int64, v: "decimal(9,2)", b: boolean, f: float64, at: timestamp}}}\n'
EVENTS = {
    "data/a.jsonl": '{"k": 1, "v": 1.50, "b": true, "f": 0.1, "at": "2026-08-30T10:00:00.5"}\n{"k": 2}\n',
    "data/b.jsonl": '{"k": 3, "v": "2.5", "b": false, "f": 1e3, "at": "2026-08-30 10:00:00"}\n',
}


def test_append_sinks_and_every_type(make_project: Callable[..., Shop]) -> None:
    models = {"m": "SELECT k, v, b, f, at FROM source('e')", "n": "SELECT k, v, b, f, at FROM ref('m') WHERE v > 0"}
    made = make_project(APPEND, SOURCE, models, EVENTS)
    made.apply()
    with sqlite3.connect(made.folder / "out" / "shop.db") as connection:
        rows = connection.execute("SELECT * FROM m").fetchall()
    assert rows == [
        (1, "1.50", 1, 0.1, "2026-08-30T10:00:00.5"),
        (2, None, None, None, None),
        (3, "2.50", 0, 1000.0, "2026-08-30T10:00:00"),
    ]
    lines = [json.loads(line) for line in (made.folder / "out" / "n.jsonl").read_text().splitlines()]
    assert [line["k"] for line in lines] == [1, 3]
    (made.folder / "data" / "c.jsonl").write_text('{"k": 4, "v": 9}\n')
    assert "1 event read" in made.apply()
    (made.folder / "models" / "m.sql").write_text("SELECT k, v, b, f, at FROM source('e') WHERE k > 1")
    made.run("apply")
    assert len((made.folder / "out" / "n.jsonl").read_text().splitlines()) == 3


def test_state_of_open_windows_is_kept_between_applies(make_project: Callable[..., Shop]) -> None:
    config = "models: {m: {window: {type: hopping, size: 10m, slide: 5m}, sink: {connector: file, path: out/m.jsonl}}}"
    sources = "sources: {e: {connector: file, path: e.jsonl, schema: {k: int64, at: timestamp}, event_time: at}}\n"
    sql = "SELECT k, window_start, window_end, COUNT(*) AS n FROM source('e') GROUP BY k, window_start, window_end"
    first = '{"k": 1, "at": "2026-08-30T10:01:00"}\n'
    second = '{"k": 1, "at": "2026-08-30T10:02:00"}\n{"k": 1, "at": "2026-08-30T10:30:00"}\n'
    made = make_project(config, sources, {"m": sql}, {"e.jsonl": first})
    made.apply()
    assert (made.folder / "out" / "m.jsonl").read_text() == ""
    (made.folder / "e.jsonl").write_text(first + second)
    made.apply()
    lines = [json.loads(line) for line in (made.folder / "out" / "m.jsonl").read_text().splitlines()]
    assert [(line["window_end"], line["n"]) for line in lines] == [("2026-08-30T10:05:00", 2), ("2026-08-30T10:10:00", 2)]


def test_sessions_and_distinct_values_survive_between_applies(make_project: Callable[..., Shop]) -> None:
    config = "models: {m: {window: {type: session, gap: 5m}, sink: {connector: file, path: out/m.jsonl}}}"
    sources = 'sources: {e: {connector: file, path: e.jsonl, schema: {v: "decimal(5,2)", at: timestamp}, event_time: at, watermark: 10m}}\n'
    sql = "SELECT window_start, window_end, COUNT(DISTINCT v) AS n, AVG(v) AS mean FROM source('e') GROUP BY window_start, window_end"
    events = [f'{{"v": {v}, "at": "2026-08-30T10:{minute:02d}:00"}}\n' for v, minute in ((1.5, 0), (1.5, 8), (2.5, 4), (1.0, 59))]
    made = make_project(config, sources, {"m": sql}, {"e.jsonl": ""})
    for number in range(len(events)):
        (made.folder / "e.jsonl").write_text("".join(events[: number + 1]))
        made.apply()
    (line,) = [json.loads(text) for text in (made.folder / "out" / "m.jsonl").read_text().splitlines()]
    assert (line["window_start"], line["window_end"], line["n"]) == ("2026-08-30T10:00:00", "2026-08-30T10:13:00", 2)
    assert line["mean"] == pytest.approx(5.5 / 3)


def test_run_follows_the_file_and_ends_with_a_checkpoint(shop: Shop) -> None:
    command = [sys.executable, "-m", "streamform.cli", "run", "--project", str(shop.folder), *TARGET]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "applied" in process.stdout.readline()
    before = shop.table()[1001][1]
    shop.add(ORDER)
    deadline = time.monotonic() + 30
    while shop.table()[1001][1] == before and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, shop.table()[1001][1]) == (0, before + 1), errors
    assert shop.equals_a_fresh_run()


def test_the_file_sink_can_be_followed(shop: Shop) -> None:
    shop.apply()
    assert set(shop.replayed()) == {key for key, (total, _) in shop.table().items() if float(total) > 1_000}
