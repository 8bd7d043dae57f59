"""What can be wrong around the embedded backend: one clear error, the documented exit code, nothing lost."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import pytest

from streamform import api
from tests.conftest import REPOSITORY, Run, environment

from .conftest import TARGET, Shop

Break = Callable[[Shop], None]


def one_error(done: Run) -> str:
    assert "Traceback" not in done.stderr + done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def state(shop: Shop) -> str:
    return str(shop.folder / ".streamform" / "state" / "local.db")


def replace_state(text: bytes) -> Break:
    def act(shop: Shop) -> None:
        with open(state(shop), "wb") as file:  # noqa: PTH123 - shorter
            file.write(text)

    return act


def run_sql(statement: str) -> Break:
    def act(shop: Shop) -> None:
        with sqlite3.connect(state(shop)) as connection:
            connection.execute(statement)

    return act


def test_a_state_database_that_is_none(shop: Shop) -> None:
    (shop.folder / ".streamform" / "state").mkdir(parents=True)
    replace_state(b"something else, and long enough to be looked at" * 50)(shop)
    done = shop.run("apply")
    assert (done.code, "not a database" in one_error(done)) == (2, True)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE owner SET project = 'other'", "holds the state of target `local` of project `other`"),
        ("PRAGMA user_version = 99", "was written by a newer release"),
        ("DROP TABLE owner", "is a database, but no state database"),
    ],
)
def test_a_state_database_of_something_else(shop: Shop, statement: str, words: str) -> None:
    shop.apply()
    before = shop.table()
    run_sql(statement)(shop)
    done = shop.run("apply")
    assert (done.code, words in one_error(done)) == (2, True)
    assert shop.table() == before


def test_a_state_database_that_is_gone_is_rebuilt_once_somebody_agrees(shop: Shop) -> None:
    shop.apply()
    shutil.rmtree(shop.folder / ".streamform" / "state")
    done = shop.run("apply")
    assert done.code == 1
    assert "blocked: STATE INCOMPATIBLE" in done.stdout
    assert "the state database is gone" in done.stdout
    shop.approve()
    shop.apply()
    assert shop.equals_a_fresh_run()


def test_state_that_is_discarded_is_computed_again(shop: Shop) -> None:
    shop.apply()
    assert shop.run("stop", "--discard-state").code == 1
    (waiting,) = [view.plan for view in api.approvals(shop.folder, target="local")[1] if view.status == "pending"]
    api.decide(shop.folder, [waiting.plan_id], "approve", by="somebody", reason="wanted", acknowledge=waiting.acknowledge)
    assert shop.run("stop", "--discard-state").code == 0
    shop.approve()
    shop.apply()
    assert shop.equals_a_fresh_run()


SINKS: tuple[tuple[str, Break, str], ...] = (
    ("file gone", lambda shop: (shop.folder / "out" / "big_customers.jsonl").unlink(), "has lost rows"),
    ("file cut", lambda shop: (shop.folder / "out" / "big_customers.jsonl").write_text("{}\n"), "has lost rows"),
    ("file grown", lambda shop: _append(shop), "did not write"),
    ("table gone", lambda shop: _sink_sql(shop, "DROP TABLE customer_metrics"), "is not the one that was written before"),
    ("marks gone", lambda shop: _sink_sql(shop, "DELETE FROM _streamform_deliveries"), "is not the one that was written before"),
    ("another time", lambda shop: _sink_sql(shop, "UPDATE _streamform_deliveries SET number = number - 1"), "are of different times"),
)


def _append(shop: Shop) -> None:
    with (shop.folder / "out" / "big_customers.jsonl").open("a") as file:
        file.write("{}\n")


def _sink_sql(shop: Shop, statement: str) -> None:
    with sqlite3.connect(shop.folder / "out" / "shop.db") as connection:
        connection.execute(statement)


@pytest.mark.parametrize(("act", "words"), [(act, words) for _, act, words in SINKS], ids=[name for name, _, _ in SINKS])
def test_a_sink_that_is_not_as_it_was_left_is_never_written(shop: Shop, act: Break, words: str) -> None:
    shop.apply()
    act(shop)
    done = shop.run("apply")
    found = one_error(done) + done.stderr
    assert done.code == 2
    assert words in found


@pytest.mark.parametrize("broken", ["file gone", "file cut", "table gone", "marks gone"])
def test_a_sink_that_is_lost_is_written_anew_after_its_state_is_discarded(shop: Shop, broken: str) -> None:
    shop.apply()
    next(act for name, act, _ in SINKS if name == broken)(shop)
    shop.run("stop", "--discard-state")
    (waiting,) = [view.plan for view in api.approvals(shop.folder, target="local")[1] if view.status == "pending"]
    api.decide(shop.folder, [waiting.plan_id], "approve", by="somebody", reason="wanted", acknowledge=waiting.acknowledge)
    assert shop.run("stop", "--discard-state").code == 0
    shop.approve()
    shop.apply()
    assert shop.equals_a_fresh_run()


def test_a_place_that_holds_rows_of_somebody_else_is_refused(shop: Shop) -> None:
    (shop.folder / "out").mkdir()
    (shop.folder / "out" / "big_customers.jsonl").write_text("{}\n")
    done = shop.run("apply")
    assert (done.code, "did not write" in one_error(done)) == (1, True)
    assert not (shop.folder / ".streamform" / "journal").exists()
    assert not (shop.folder / ".streamform" / "state").exists()


SOURCES = (
    (lambda text: text + '{"order_id": "x"}\n', 'data/orders.jsonl, line 3001: order_id is "x", which is no int64'),
    (lambda text: text + '{"order_id": 99999999999999999999}\n', "which is no int64"),
    (lambda text: text + '{"amount": 12345678901.5}\n', "which is no decimal(12,2)"),
    (lambda text: text + "nonsense\n", "data/orders.jsonl, line 3001: not a JSON object: nonsense"),
    (lambda text: text + "[1]\n", "not a JSON object"),
    (lambda text: text + '{"ordered_at": null}\n', "orders events by it"),
    (lambda text: text[1000:], "is not the file that was read before"),
    (lambda text: text[:1000], "is not the file that was read before"),
)


@pytest.mark.parametrize(("change", "words"), SOURCES, ids=[words[:30] for _, words in SOURCES])
def test_a_source_that_can_not_be_read_on_is_named(shop: Shop, change: Callable[[str], str], words: str) -> None:
    shop.apply()
    before = shop.table()
    file = shop.folder / "data" / "orders.jsonl"
    text = file.read_text()
    file.write_text(change(text))
    done = shop.run("apply")
    assert (done.code, words in one_error(done)) == (2, True), done.stderr
    assert shop.table() == before
    file.write_text(text)
    assert "nothing new" in shop.apply()


def test_a_source_that_is_not_utf_8_or_not_there(shop: Shop) -> None:
    file = shop.folder / "data" / "orders.jsonl"
    file.write_bytes(b'{"status": "\xff"}\n' + file.read_bytes())
    done = shop.run("apply")
    assert (done.code, "data/orders.jsonl, line 1: not UTF-8 text" in done.stdout) == (1, True)
    file.unlink()
    done = shop.run("apply")
    assert (done.code, "can't read data/orders.jsonl: no such file" in done.stdout + done.stderr) == (2, True)


def test_events_before_a_broken_one_count(shop: Shop) -> None:
    file = shop.folder / "data" / "orders.jsonl"
    text = file.read_text()
    file.write_text(text + "broken\n")
    done = shop.run("apply")
    assert done.code == 1
    assert "the plan is deployed, and the next apply goes on from here" in done.stdout
    file.write_text(text)
    shop.apply()
    assert shop.equals_a_fresh_run()


def test_two_applies_at_once(shop: Shop) -> None:
    from streamform.adapters.folder import FolderDocuments

    with FolderDocuments(shop.folder / ".streamform").lock("local", {"action": "apply"}):
        done = shop.process("apply")
    assert (done.code, "another streamform is changing this target" in one_error(done)) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_apply_that_is_interrupted_is_finished_by_the_next(shop: Shop, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "streamform.cli", "apply", "--project", str(shop.folder), *TARGET]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    store = shop.folder / ".streamform" / "journal"
    while not store.exists() and process.poll() is None:
        pass
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 2)
    assert "Traceback" not in errors
    shop.apply()
    assert shop.equals_a_fresh_run()


def test_a_full_disk_loses_nothing(shop: Shop) -> None:
    command = "ulimit -f 200; exec " + " ".join([sys.executable, "-m", "streamform.cli", "apply", "--project", str(shop.folder), *TARGET])
    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; {command}"], cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    shop.apply()
    assert shop.equals_a_fresh_run()
