"""Locks on files, which the operating system releases when their holder ends, and what is known about a holder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from streamform.errors import LockHeld, StoreError
from streamform.lifecycle.lock import LockHolder, read_holder


def this_process() -> dict[str, Any]:
    """What a holder writes down about itself."""
    return {"pid": os.getpid(), "host": os.uname().nodename, "boot": boot_id(), "namespace": _namespace()}


def boot_id() -> str:
    """What tells one start of this machine from another, empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_gone(holder: LockHolder) -> bool:
    """Whether the holder surely ended: its pid was one of this very system, and nothing runs under it."""
    here = this_process()
    if not holder.boot or (holder.host, holder.boot, holder.namespace) != (here["host"], here["boot"], here["namespace"]):
        return False
    if holder.pid is None or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def lock_held(holder: LockHolder) -> LockHeld:
    """The error of a process that finds the lock taken."""
    help = "wait until it is done; `streamform unlock` frees a lock whose process is gone"
    return LockHeld(f"another streamform is changing this target: {holder.shown()}", help)


class FileLock:
    """A lock on one file. The file stays when the lock is released, and says who held it last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @contextmanager
    def hold(self, holder: Mapping[str, Any]) -> Iterator[None]:
        """Hold the lock until the end, however the process ends. Raises: LockHeld, StoreError."""
        try:
            descriptor = self._taken()
        except OSError as error:
            raise _lock_error("take", error) from None
        self._descriptor = descriptor
        try:
            self._write(descriptor, holder)
            yield
        finally:
            self._descriptor = None
            os.close(descriptor)

    def check(self) -> None:
        """Raise StoreError when this process holds the lock and somebody took it away."""
        if self._descriptor is not None and not self._is_ours(self._descriptor):
            raise StoreError("the lock of this target was taken away by `streamform unlock --force`", "run the command again")

    def holder(self) -> LockHolder | None:
        """Who holds the lock now, None for nobody."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _lock_error("read", error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._written_holder()
        except OSError as error:
            raise _lock_error("read", error) from None
        finally:
            os.close(descriptor)
        return None

    def free(self) -> None:
        """Take the lock away from its holder: who comes next locks another file, and the holder's next check fails."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise _lock_error("free", error) from None

    def _taken(self) -> int:
        """The descriptor of the locked file; a file that was taken away meanwhile does not count."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise lock_held(self._written_holder()) from None
            except OSError:
                os.close(descriptor)
                raise
            if self._is_ours(descriptor):
                return descriptor
            os.close(descriptor)

    def _is_ours(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _write(self, descriptor: int, holder: Mapping[str, Any]) -> None:
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({**holder, **this_process()}).encode(), 0)
        except OSError as error:
            raise _lock_error("write", error) from None

    def _written_holder(self) -> LockHolder:
        try:
            return read_holder(json.loads(self.path.read_text("utf-8")))
        except (OSError, ValueError, RecursionError):
            return LockHolder()


def _lock_error(verb: str, error: OSError) -> StoreError:
    cause = (error.strerror or str(error)).lower()
    return StoreError(f"can't {verb} the lock of this target: {cause}", "check the disk and the permissions of the store")


class LockFiles:
    """The locks of documents as files of one folder; the operating system releases them when the process ends, however it ends."""

    lock_folder: Path

    def lock(self, name: str, holder: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Hold the file of a lock. Raises: LockHeld naming who holds it."""
        return self._lock(name).hold(holder)

    def lock_holder(self, name: str) -> LockHolder | None:
        """Who holds a lock, None for nobody."""
        return self._lock(name).holder()

    def free_lock(self, name: str) -> None:
        """Take a lock away from its holder."""
        self._lock(name).free()

    def check_locks(self) -> None:
        """See that what is held is still ours. Raises: StoreError where it was taken away."""
        for lock in self._locks.values():
            lock.check()

    def _lock(self, name: str) -> FileLock:
        return self._locks.setdefault(name, FileLock(self.lock_folder / name))

    @cached_property
    def _locks(self) -> dict[str, FileLock]:
        return {}
