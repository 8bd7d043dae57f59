"""Documents in a folder: atomic replacement, compare and set, and locks held by living processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.lock import LockFiles
from streamform.errors import StoreError
from streamform.lifecycle.ports import ANY


class FolderDocuments(LockFiles):
    """Documents as files below a folder. A write is durable when it returns."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock_folder = root / "lock"

    def describe(self) -> str:
        """The folder."""
        return self.root.as_posix()

    def read(self, path: str) -> bytes | None:
        """The file's content, or None."""
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _store_error("read", path, error) from None

    def names(self, prefix: str) -> list[str]:
        """Files below a folder prefix, sorted."""
        folder = self.root / prefix
        try:
            if not folder.is_dir():
                return []
            return sorted(p.relative_to(self.root).as_posix() for p in folder.rglob("*.json") if p.is_file() and not p.name.startswith("."))
        except OSError as error:
            raise _store_error("read", prefix, error) from None

    def write(self, path: str, content: bytes, *, expected: str | None) -> None:
        """Write beside, sync, compare under a lock, rename, sync the folder."""
        target = self.root / path
        crash_point("document-writing")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._guard():
                self.check_locks()
                if expected != ANY:
                    self._check(path, expected)
                _replace(target, content)
            crash_point("document-written")
        except OSError as error:
            raise _store_error("write", path, error) from None

    def _check(self, path: str, expected: str | None) -> None:
        present = self.read(path)
        actual = None if present is None else hashlib.sha256(present).hexdigest()
        if actual != expected:
            raise StoreError(f"{path} was changed by somebody else in the meantime", "run the command again")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Keep compare and rename together."""
        descriptor = os.open(self.root / ".guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _replace(target: Path, content: bytes) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _store_error(verb: str, path: str, error: OSError) -> StoreError:
    cause = (error.strerror or str(error)).lower()
    return StoreError(f"can't {verb} {path}: {cause}", "check the disk and the permissions of the store")
