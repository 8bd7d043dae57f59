"""The Documents port: what is read is what was written last, a write replaces all or nothing, and only what it expects."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamform.adapters.folder import FolderDocuments
from streamform.errors import LockHeld, StoreError
from streamform.lifecycle.ports import ANY, Documents
from tests.conftest import environment

from .conftest import OPEN, Place

PATH = "journal/prod/m/00000001.json"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_was_never_written_is_not_there(documents: Documents) -> None:
    assert documents.read(PATH) is None
    assert documents.names("journal/prod/") == []


def test_what_is_read_is_what_was_written_last(documents: Documents) -> None:
    for content in (b"{}", b"", b"\xff\x00", b'{"a": 1}' * 10_000):
        documents.write(PATH, content, expected=ANY)
        assert documents.read(PATH) == content


def test_paths_are_listed_in_order_below_their_folder(documents: Documents) -> None:
    for path in ("journal/prod/m/00000002.json", PATH, "journal/prod/o/00000001.json", "journal/product/m/00000001.json"):
        documents.write(path, b"{}", expected=None)
    assert documents.names("journal/prod/m/") == [PATH, "journal/prod/m/00000002.json"]
    assert documents.names("journal/prod/") == [PATH, "journal/prod/m/00000002.json", "journal/prod/o/00000001.json"]


@pytest.mark.parametrize("expected", [None, digest(b"other"), ""])
def test_a_write_that_expects_something_else_is_refused_and_changes_nothing(documents: Documents, expected: str | None) -> None:
    documents.write(PATH, b"first", expected=None)
    with pytest.raises(StoreError, match="changed by somebody else"):
        documents.write(PATH, b"second", expected=expected)
    assert documents.read(PATH) == b"first"


def test_a_write_that_expects_a_document_where_there_is_none_is_refused(documents: Documents) -> None:
    with pytest.raises(StoreError, match="changed by somebody else"):
        documents.write(PATH, b"second", expected=digest(b"first"))
    assert documents.read(PATH) is None


def test_a_write_that_expects_what_is_there_replaces_it(documents: Documents) -> None:
    documents.write(PATH, b"first", expected=None)
    documents.write(PATH, b"second", expected=digest(b"first"))
    assert documents.read(PATH) == b"second"


def test_a_lock_is_held_by_one(documents: Documents) -> None:
    with documents.lock("prod", {"action": "apply"}):
        with pytest.raises(LockHeld), documents.lock("prod", {"action": "stop"}):
            pass
        with documents.lock("other", {}):
            pass
    with documents.lock("prod", {}):
        pass


def test_a_lock_is_free_after_an_error(documents: Documents) -> None:
    with pytest.raises(StoreError, match="inside"), documents.lock("prod", {}):
        raise StoreError("inside")
    with documents.lock("prod", {}):
        pass


def test_a_lock_is_shown_with_who_holds_it_since_when(documents: Documents) -> None:
    assert documents.lock_holder("prod") is None
    with documents.lock("prod", {"action": "apply", "by": "ann", "at_ms": 1_780_000_000_000}):
        holder = documents.lock_holder("prod")
        assert holder is not None
        assert (holder.pid, holder.action, holder.by, holder.at_ms) == (os.getpid(), "apply", "ann", 1_780_000_000_000)
        with pytest.raises(LockHeld, match=f"pid {os.getpid()} on .*, apply by ann since 2026-05-28T20:26:40Z"), documents.lock("prod", {}):
            pass
        assert documents.lock_holder("other") is None
    assert documents.lock_holder("prod") is None


def test_who_lost_its_lock_can_write_nothing(documents: Documents) -> None:
    documents.write(PATH, b"first", expected=None)
    with documents.lock("prod", {}):
        documents.write(PATH, b"second", expected=digest(b"first"))
        documents.free_lock("prod")
        assert documents.lock_holder("prod") is None
        for _ in range(2):
            with pytest.raises(StoreError, match="lock of this target"):
                documents.write(PATH, b"third", expected=digest(b"second"))
    assert documents.read(PATH) == b"second"
    documents.write(PATH, b"third", expected=digest(b"second"))


def test_freeing_a_lock_that_nobody_holds_changes_nothing(documents: Documents) -> None:
    documents.free_lock("prod")
    with documents.lock("prod", {}):
        documents.write(PATH, b"first", expected=None)
    assert documents.read(PATH) == b"first"


# several processes


RACE = (
    OPEN
    + """
won = 0
while won < int(sys.argv[4]):
    present = documents.read("count.json")
    number = 0 if present is None else int(present)
    try:
        documents.write("count.json", str(number + 1).encode(), expected=None if present is None else hashlib.sha256(present).hexdigest())
        won += 1
    except StoreError as error:
        assert "changed by somebody else" in error.message, error.message
"""
)


def test_processes_that_compare_and_set_at_once_lose_no_write(place: Place) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", RACE, *place.arguments, "40"], env=environment()) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    assert place.open().read("count.json") == b"120"


ONCE = (
    OPEN
    + """
print("ready", flush=True)
for number in range(20):
    sys.stdin.readline()
    try:
        documents.write(f"{number}.json", sys.argv[4].encode(), expected=None)
        print("won", flush=True)
    except StoreError as error:
        print(error.message, flush=True)
"""
)


def test_of_two_processes_that_write_the_same_new_document_exactly_one_wins(place: Place) -> None:
    command = [sys.executable, "-c", ONCE, *place.arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment()}
    writers = {name: subprocess.Popen([*command, name], **pipes) for name in ("one", "two")}
    assert [said_by(writer) for writer in writers.values()] == ["ready", "ready"]
    for number in range(20):
        for writer in writers.values():
            tell(writer)
        said = {name: said_by(writer) for name, writer in writers.items()}
        winner = place.open().read(f"{number}.json")
        assert winner is not None
        assert said.pop(winner.decode()) == "won"
        assert [*said.values()] == [f"{number}.json was changed by somebody else in the meantime"]
    assert [writer.wait(60) for writer in writers.values()] == [0, 0]
    for writer in writers.values():
        writer.communicate()


def said_by(process: subprocess.Popen[str]) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str]) -> None:
    """Let a process go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


HOLD = (
    OPEN
    + """
with documents.lock("prod", {"action": "apply"}):
    print("held", flush=True)
    sys.stdin.read()
"""
)


def test_a_lock_names_who_holds_it_and_ends_with_that_process(place: Place) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, *place.arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert said_by(holder) == "held"
    documents = place.open()
    with pytest.raises(LockHeld, match=f"pid {holder.pid} on {os.uname().nodename}, apply"), documents.lock("prod", {}):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=30)
    with documents.lock("prod", {}):
        found = documents.lock_holder("prod")
        assert found is not None
        assert found.pid == os.getpid()


def test_projects_and_targets_of_one_store_see_nothing_of_each_other(place: Place) -> None:
    if place.kind == "folder":
        pytest.skip("a folder belongs to one project; its paths keep targets apart")
    ours, others = place.open(), (place.open("other"), place.open(project="somebody else's"))
    ours.write(PATH, b"ours", expected=None)
    for other in others:
        assert other.read(PATH) is None
        assert other.names("journal/") == []
        other.write(PATH, b"theirs", expected=None)
        with ours.lock("prod", {}), other.lock("prod", {}):
            pass
    assert ours.read(PATH) == b"ours"


# what only a folder can do wrong


@pytest.fixture
def folder(tmp_path: Path) -> FolderDocuments:
    return FolderDocuments(tmp_path / "store")


def test_what_a_killed_write_left_beside_is_no_document(folder: FolderDocuments) -> None:
    folder.write(PATH, b"first", expected=None)
    (folder.root / PATH).with_name(".00000001.json.77.tmp").write_bytes(b"sec")
    assert folder.names("journal/prod/") == [PATH]
    assert folder.read(PATH) == b"first"


def test_a_write_that_fails_leaves_the_document_and_nothing_beside(folder: FolderDocuments) -> None:
    folder.write(PATH, b"first", expected=None)
    (folder.root / "taken.json").mkdir()
    with pytest.raises(StoreError, match=r"can't write taken\.json"):
        folder.write("taken.json", b"x", expected=ANY)
    assert sorted(p.name for p in folder.root.iterdir()) == [".guard", "journal", "taken.json"]
    assert folder.read(PATH) == b"first"


@pytest.mark.parametrize("path", ["file/x.json", "file/deep/x.json"])
def test_a_file_in_a_folders_place_is_a_store_error(folder: FolderDocuments, path: str) -> None:
    folder.write("file", b"", expected=None)
    assert folder.read(path) is None
    with pytest.raises(StoreError, match=r"can't write file/"):
        folder.write(path, b"x", expected=None)
