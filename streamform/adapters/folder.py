"""Documents in a folder: atomic replacement, compare and set, and locks held by living processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.lock import FileLock
from streamform.errors import StoreError
from streamform.lifecycle.lock import LockHolder
from streamform.lifecycle.ports import ANY


class FolderDocuments:
    """Documents as files below a folder. A write is durable when it returns."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._locks: dict[str, FileLock] = {}

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
                for lock in self._locks.values():
                    lock.check()
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

    def lock(self, name: str, holder: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Hold the file `lock/<name>`; the operating system releases it when the process ends, however it ends."""
        return self._lock(name).hold(holder)

    def lock_holder(self, name: str) -> LockHolder | None:
        """Who holds a lock, None for nobody."""
        return self._lock(name).holder()

    def free_lock(self, name: str) -> None:
        """Take a lock away from its holder."""
        self._lock(name).free()

    def _lock(self, name: str) -> FileLock:
        return self._locks.setdefault(name, FileLock(self.root / "lock" / name))


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
