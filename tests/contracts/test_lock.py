"""Locks whose holder is gone or elsewhere: who may take them, and what `unlock` says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from streamform import api
from streamform.adapters.lock import is_gone, this_process
from streamform.errors import LockHeld
from streamform.lifecycle.lock import LockHolder, read_holder
from streamform.session import open_store
from tests.conftest import ProjectBuilder, ProjectFolder, environment

from .conftest import Place

HOLD = """
import os, sys
from pathlib import Path
from streamform.adapters.factory import open_documents
from streamform.project.model import Target
documents = open_documents(Path(sys.argv[1]), sys.argv[2], Target("prod", "embedded", store=sys.argv[3]))
with documents.lock("prod", {"action": "apply", "by": "ann", "at_ms": 1780000000000}):
    child = os.fork() if sys.argv[4] == "forks" else None
    if child != 0:
        print(os.getpid(), flush=True)
    sys.stdin.read()
    if child == 0:
        os._exit(0)
"""
"""With `forks` a child keeps the connection and the files of the holder open after the holder is killed."""


@pytest.fixture
def folder(place: Place, project: ProjectBuilder) -> ProjectFolder:
    """A project whose target has its lock in the place."""
    targets = {"prod": {"backend": "embedded", "store": place.store if place.kind == "postgres" else "sqlite:///s.db"}}
    if place.kind == "folder":
        targets["prod"]["store"] = "store"
    return project("SELECT amount FROM source('orders')", name=place.project, targets=targets)


@contextmanager
def held(folder: ProjectFolder, *, forks: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of the project's target."""
    found = api.load(folder.root).project
    arguments = [str(folder.root), found.name, found.targets[0].store, "forks" if forks else "alone"]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the holder, and not the child that it has."""
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def test_unlock_says_that_nobody_holds_the_lock(folder: ProjectFolder) -> None:
    done = folder.run("unlock")
    assert (done.code, done.stdout) == (0, "nobody holds the lock of target `prod`\n")


def test_unlock_leaves_the_lock_of_a_living_process_and_names_it(folder: ProjectFolder) -> None:
    with held(folder) as holder:
        done = folder.run("unlock")
        assert done.code == 1
        shown = f"pid {holder.pid} on {os.uname().nodename}, apply by ann since 2026-05-28T20:26:40Z"
        assert done.stderr.startswith(f"error: the lock of target `prod` is held by {shown}, which may still be alive\n")
        assert "--force" in done.stderr
        with pytest.raises(LockHeld, match=f"pid {holder.pid} on "):
            apply(folder)


def apply(folder: ProjectFolder) -> None:
    api.apply(folder.root, by="bob")


def test_unlock_frees_the_lock_of_a_process_that_is_surely_gone(folder: ProjectFolder) -> None:
    with held(folder, forks=True) as holder:
        kill(holder)
        done = folder.run("unlock", "--json")
        assert done.code == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["freed"], document["forced"]) == (True, False)
        assert document["holder"] == {
            "pid": holder.pid, "host": os.uname().nodename, "action": "apply", "by": "ann", "since": "2026-05-28T20:26:40.000Z",
        }  # fmt: skip
        assert folder.run("unlock").stdout == "nobody holds the lock of target `prod`\n"


def test_unlock_by_force_frees_any_lock_and_its_holder_ends_without_writing(folder: ProjectFolder) -> None:
    with held(folder) as holder:
        done = folder.run("unlock", "--force")
        assert done.code == 0, done.stderr
        assert f"it was held by pid {holder.pid} on" in done.stdout
        assert "which may still be alive" in done.stdout
        found = api.load(folder.root).project
        with open_store(folder.root, found, found.targets[0]).lock({"action": "apply"}):
            pass


def test_a_lock_that_somebody_took_away_is_not_freed_by_its_holders_end(folder: ProjectFolder) -> None:
    found = api.load(folder.root).project
    store = open_store(folder.root, found, found.targets[0])
    with held(folder) as holder:
        store.free_lock()
        with store.lock({"action": "stop"}):
            kill(holder)
            newer = store.lock_holder()
            assert newer is not None
            assert newer.action == "stop"


def test_postgres_takes_the_lock_of_a_process_that_is_surely_gone(folder: ProjectFolder, place: Place) -> None:
    if place.kind != "postgres":
        pytest.skip("the operating system keeps a lock only as long as some process has the file open")
    found = api.load(folder.root).project
    with held(folder, forks=True) as holder:
        kill(holder)
        with open_store(folder.root, found, found.targets[0]).lock({"action": "stop"}):
            pass


# who is gone


def gone_process() -> dict[str, Any]:
    """This machine, and the pid of a process that ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return {**this_process(), "pid": process.pid}


def test_a_process_that_ended_on_this_machine_is_gone() -> None:
    assert is_gone(read_holder(gone_process()))


@pytest.mark.parametrize(
    "fields", [{"host": "elsewhere"}, {"boot": "another"}, {"namespace": "pid:[1]"}, {"boot": ""}, {"pid": None}, {"pid": 0}, {"pid": -1}]
)
def test_a_process_elsewhere_or_of_another_time_is_not_surely_gone(fields: dict[str, Any]) -> None:
    assert not is_gone(replace(read_holder(gone_process()), **fields))


def test_a_living_process_is_not_gone() -> None:
    assert not is_gone(read_holder(this_process()))


@pytest.mark.parametrize("document", [None, 5, [], {}, {"pid": "1"}, {"pid": True}, {"host": 7}])
def test_a_holder_that_wrote_nonsense_is_nobody_known(document: Any) -> None:
    assert read_holder(document) == LockHolder()
    assert not is_gone(read_holder(document))
    assert read_holder(document).shown() == "a process that has not said who it is"
