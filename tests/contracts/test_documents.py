"""The Documents port: what is read is what was written last, a write replaces all or nothing, and only what it expects."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamform.adapters.folder import FolderDocuments
from streamform.errors import LockHeld, StoreError
from streamform.lifecycle.ports import ANY, Documents
from tests.conftest import environment

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


# what only a folder can do wrong


@pytest.fixture
def folder(tmp_path: Path) -> FolderDocuments:
    return FolderDocuments(tmp_path / "store")


RACE = """
import sys
from streamform.adapters.folder import FolderDocuments
from streamform.errors import StoreError
from pathlib import Path
import hashlib
documents, won = FolderDocuments(Path(sys.argv[1])), 0
while won < int(sys.argv[2]):
    present = documents.read("count.json")
    number = 0 if present is None else int(present)
    try:
        documents.write("count.json", str(number + 1).encode(), expected=None if present is None else hashlib.sha256(present).hexdigest())
        won += 1
    except StoreError:
        pass
"""


def test_processes_that_compare_and_set_at_once_lose_no_write(folder: FolderDocuments) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", RACE, str(folder.root), "40"], env=environment()) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert folder.read("count.json") == b"120"


HOLD = """
import sys, time
from streamform.adapters.folder import FolderDocuments
from pathlib import Path
with FolderDocuments(Path(sys.argv[1])).lock("prod", {"action": "apply"}):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_names_who_holds_it_and_ends_with_that_process(folder: FolderDocuments) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockHeld, match=f"pid {holder.pid} on {os.uname().nodename}, apply"), folder.lock("prod", {}):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=30)
    with folder.lock("prod", {}):
        assert json.loads((folder.root / "lock" / "prod").read_text())["pid"] == os.getpid()


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
