"""Places that can't be written, are full, are lost or belong to somebody else: one error, and a way out of it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamform import api
from tests.conftest import REPOSITORY, Run, environment, run_here

from .conftest import TARGET, Shop
from .test_crash_points import dies_at
from .test_verdicts import CONFIG, MODELS, SOURCES, events, more


@pytest.fixture
def made(make_project: Callable[..., Shop]) -> Shop:
    return make_project(CONFIG, SOURCES, MODELS, {"data/e.jsonl": events(200), "data/d.jsonl": ""})


def failure(done: Run, code: int) -> str:
    """The text of a command that failed in an orderly way."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert done.code == code, done
    return text


def sink_sql(made: Shop, statement: str) -> None:
    with closing(sqlite3.connect(made.folder / "out/x.db")) as connection, connection:
        connection.execute(statement)


def discarded(made: Shop) -> None:
    """Forget the state, and apply again."""
    done = made.run("stop", "--discard-state")
    assert done.code == 0, done
    made.apply()
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


# sinks

LOST: dict[str, Callable[[Shop], object]] = {
    "a file is gone": lambda made: (made.folder / "out/rows.jsonl").unlink(),
    "a file is shorter": lambda made: os.truncate(made.folder / "out/large.jsonl", 10),
    "a file was written by somebody else": lambda made: made.append("out/large.jsonl", {"mine": 1}),
    "a table is gone": lambda made: sink_sql(made, "DROP TABLE totals"),
    "the database is gone": lambda made: (made.folder / "out/x.db").unlink(),
    "the table is of another time": lambda made: sink_sql(made, "UPDATE _streamform_deliveries SET number = number + 1"),
}


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("change", ["none", "compatible"])
def test_a_sink_that_is_not_as_it_was_left_is_an_error_until_the_state_is_discarded(made: Shop, lost: str, change: str) -> None:
    made.apply()
    LOST[lost](made)
    if change == "compatible":
        made.change("models/copies.sql", "SELECT k, g, v, at", "SELECT k, g, v, at, f")
        made.change("models/totals.sql", "SELECT k, SUM(v) AS total", "SELECT k, 1 AS one, SUM(v) AS total")
    more(made)
    for _ in range(2):
        assert failure(made.run("apply"), 2).count("error: ") == 1
    discarded(made)


@pytest.mark.parametrize("lost", ["a file is gone", "a table is gone", "a file was written by somebody else"])
def test_an_apply_that_was_cut_off_before_a_sink_was_lost_can_be_left(made: Shop, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamform.adapters.engine.STEP", 50)
    assert dies_at(made, 75, "apply")
    assert made.contents()["rows"]
    assert made.contents()["totals"]
    LOST[lost](made)
    failure(made.run("apply"), 2)
    discarded(made)


def test_a_lost_table_is_made_anew_by_a_rebuild(made: Shop) -> None:
    made.apply()
    sink_sql(made, "DROP TABLE totals")
    (made.folder / "out/rows.jsonl").unlink()
    made.change("models/rows.sql", "v IS NOT NULL", "v > 0")
    made.apply()
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


WRONG = {
    "a folder": ("path: out/rows.jsonl", "path: data", "is a folder"),
    "below a file": ("path: out/rows.jsonl", "path: data/e.jsonl/rows.jsonl", "is no folder"),
    "a database below a file": ("path: out/x.db, table: totals", "path: data/e.jsonl/x.db, table: totals", "is no folder"),
    "no database": ("path: out/x.db, table: totals", "path: data/e.jsonl, table: totals", "file is not a database"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
def test_a_sink_that_can_not_be_written_is_refused_before_anything_changes(made: Shop, wrong: str, first: bool) -> None:
    before, after, words = WRONG[wrong]
    if not first:
        made.apply()
    made.change("streamform.yml", before, after)
    assert words in failure(made.run("apply"), 2 if words == "file is not a database" else 1)
    if first:
        assert not (made.folder / ".streamform/state").exists()
        assert not (made.folder / "out").exists()
    made.change("streamform.yml", after, before)
    made.apply()
    assert made.equals_a_fresh_run()


def test_a_table_of_somebody_else_is_refused_at_first_and_nothing_is_written(made: Shop) -> None:
    (made.folder / "out").mkdir()
    sink_sql(made, "CREATE TABLE totals (k INTEGER, total TEXT, n INTEGER, first TEXT)")
    assert "was there before" in failure(made.run("apply"), 1)
    assert not (made.folder / ".streamform/state").exists()
    assert not (made.folder / "out/rows.jsonl").exists()
    sink_sql(made, "DROP TABLE totals")
    made.apply()


def test_a_table_that_a_reader_holds_is_waited_for_or_named(made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamform.adapters.sqlite_sink.PATIENCE_S", 0.1)
    made.apply()
    more(made)
    with closing(sqlite3.connect(made.folder / "out/x.db", isolation_level=None)) as reader:
        reader.execute("BEGIN EXCLUSIVE")
        text = failure(made.run("apply"), 2)
        assert "database is locked" in text
        assert "another program holds it" in text
    made.apply()
    assert made.equals_a_fresh_run()


# the state


def test_a_state_database_that_is_deleted_is_missing_and_rebuilt(made: Shop) -> None:
    made.apply()
    before = made.contents()
    shutil.rmtree(made.folder / ".streamform/state")
    found = api.plan(made.folder, target="local", observe=True)
    assert found.situation is not None
    (unit,) = found.situation.units
    assert (unit.observation.word, unit.staging.requires.text) == ("missing", "STATE INCOMPATIBLE")
    more(made).apply()
    assert len(made.contents()["rows"]) > len(before["rows"])
    assert made.contents() == made.simulated()
    assert made.equals_a_fresh_run()


@pytest.mark.parametrize("size", [0, 100, 5_000])
def test_a_damaged_state_database_is_named(made: Shop, size: int) -> None:
    made.apply()
    before = made.contents()
    state = made.folder / ".streamform/state/local.db"
    whole = state.read_bytes()
    state.write_bytes(b"\xff" * size + whole[size:] if size else b"x" * 4096)
    text = failure(made.run("apply"), 2)
    assert "local.db" in text
    assert made.contents() == before
    state.write_bytes(whole)
    assert "nothing new" in made.apply()


def test_two_targets_can_not_share_a_state_database(made: Shop) -> None:
    made.apply()
    state = "embedded: {state: .streamform/state/local.db}"
    made.change("streamform.yml", "{local: {backend: embedded}}", f"{{local: {{backend: embedded}}, two: {{backend: embedded, {state}}}}}")
    done = run_here("apply", "--project", str(made.folder), "--target", "two")
    assert "holds the state of target `local` of project `made`" in failure(done, 2)


# disks


@pytest.fixture
def small_disk(made: Shop) -> Iterator[Shop]:
    """The project's outputs on a disk with little room."""
    for name in ("out", ".streamform"):
        (made.folder / name).mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk; the limit on file sizes is tested")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", made.folder / "out"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this system mounts no tmpfs; the limit on file sizes is tested")
    try:
        yield made
    finally:
        subprocess.run(["umount", made.folder / "out"], check=True)


def test_a_full_disk_under_the_sinks_loses_nothing(small_disk: Shop) -> None:
    filler = small_disk.folder / "out/filler"
    small_disk.write("data/e.jsonl", events(2_000)).apply()
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    small_disk.write("data/e.jsonl", events(4_000))
    text = failure(small_disk.run("apply"), 2)
    assert "make room" in text
    filler.unlink()
    small_disk.apply()
    assert small_disk.contents() == small_disk.simulated()


@pytest.mark.parametrize("limit", [20, 60, 120, 200, 400])
def test_files_that_may_not_grow_lose_nothing(made: Shop, limit: int) -> None:
    made.write("data/e.jsonl", events(3_000))
    command = [sys.executable, "-m", "streamform.cli", "apply", "--project", str(made.folder), *TARGET]
    limited = ["bash", "-c", f'trap "" XFSZ; ulimit -f {limit}; exec "$@"', "bash", *command]
    done = subprocess.run(limited, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)
    made.apply()
    assert made.contents() == made.simulated()


@pytest.fixture
def locked_out(made: Shop) -> Iterator[Shop]:
    """The project where another user can read it, and write nothing of it."""
    if os.geteuid() != 0:
        for folder in (made.folder, made.folder / "data", made.folder / "models"):
            folder.chmod(0o555)
        yield made
        made.folder.chmod(0o755)
        return
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        copy = Shop(shutil.copytree(made.folder, Path(name) / "made"))
        made.apply()  # whatever the child needs is loaded by this process, whose files it may not be able to read
        yield copy


def test_a_folder_that_can_not_be_written_is_named_and_left_alone(locked_out: Shop) -> None:
    code, text = as_another_user(locked_out, "apply")
    assert (code, text.count("error: "), "Traceback" in text) == (2, 1, False), text
    assert "permission denied" in text
    assert {p.name for p in locked_out.folder.iterdir()} == {"data", "models", "streamform.yml", "sources.yml"}


def as_another_user(made: Shop, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command in a child without rights, where this process has them."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65_534)
            os.setuid(65_534)
        done = made.run(*arguments)
        os.write(writing, (done.stdout + done.stderr).encode())
        os._exit(done.code)
    os.close(writing)
    with os.fdopen(reading) as output:
        text = output.read()
    return os.WEXITSTATUS(os.waitpid(child, 0)[1]), text


# other processes, and signals


def started(made: Shop, command: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "streamform.cli", command, "--project", str(made.folder), *TARGET]
    return subprocess.Popen(arguments, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def waited(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_applies_at_the_same_time_apply_once(made: Shop) -> None:
    processes = [started(made, "apply") for _ in range(3)]
    results = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert all("Traceback" not in errors for (_, errors), _ in results)
    refused = [errors for (_, errors), code in results if code == 2]
    assert all("another streamform is changing this target" in errors for errors in refused)
    assert sorted(code for _, code in results) == [0] * (3 - len(refused)) + [2] * len(refused)
    assert made.contents() == made.simulated()
    assert len(api.history(made.folder, target="local")[1]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_keeps_others_out_follows_and_ends_with_zero(made: Shop, number: signal.Signals) -> None:
    process = started(made, "run")
    assert process.stdout is not None
    assert "applied" in process.stdout.readline()
    assert "another streamform is changing this target" in failure(made.run("apply"), 2)
    before = made.contents()["rows"]
    line = events(1, 77)
    made.write("data/e.jsonl", events(200) + line[:20])
    made.write("data/e.jsonl", events(200) + line)
    waited(lambda: len(made.contents()["rows"]) == len(before) + 1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in errors) == (0, False)
    assert "nothing new" in made.apply()
    assert made.equals_a_fresh_run()


def test_run_that_meets_a_broken_line_says_so_and_keeps_what_it_has(made: Shop) -> None:
    process = started(made, "run")
    assert process.stdout is not None
    assert "applied" in process.stdout.readline()
    made.write("data/e.jsonl", events(203) + "broken\n")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.count("error: ") == 1
    assert "data/e.jsonl, line 204: not a JSON object: broken" in errors
    made.write("data/e.jsonl", events(203))
    assert "nothing new" in made.apply()
    assert made.equals_a_fresh_run()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_apply_that_is_interrupted_while_it_reads_exits_with_two(made: Shop, number: signal.Signals) -> None:
    made.write("data/e.jsonl", events(15_000))
    process = started(made, "apply")
    waited(lambda: (made.folder / "out/rows.jsonl").exists() and (made.folder / "out/rows.jsonl").stat().st_size > 0)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert [line for line in errors.splitlines() if line.startswith("error: ")] == [
        "error: interrupted; nothing is lost, and the same command goes on from here"
    ]
    assert "Traceback" not in errors
    made.apply()
    assert made.contents() == made.simulated()
