"""Documents in memory: the smallest adapter that keeps the contract, for comparing the others with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamform.errors import LockHeld, StoreError
from streamform.lifecycle.lock import LockHolder, read_holder
from streamform.lifecycle.ports import ANY


class MemoryDocuments:
    """Documents in a dictionary, locks in a set."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.held: dict[str, LockHolder] = {}
        self.taken: list[tuple[str, LockHolder]] = []
        """Locks that were taken and not given back, also those that were taken away."""

    def describe(self) -> str:
        return "memory"

    def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    def names(self, prefix: str) -> list[str]:
        return sorted(path for path in self.content if path.startswith(prefix))

    def write(self, path: str, content: bytes, *, expected: str | None) -> None:
        if any(self.held.get(name) is not holder for name, holder in self.taken):
            raise StoreError("the lock of this target was taken away", "run the command again")
        present = self.content.get(path)
        actual = None if present is None else hashlib.sha256(present).hexdigest()
        if expected not in (ANY, actual):
            raise StoreError(f"{path} was changed by somebody else in the meantime", "run the command again")
        self.content[path] = content

    @contextmanager
    def lock(self, name: str, holder: Mapping[str, Any]) -> Iterator[None]:
        if name in self.held:
            raise LockHeld(f"another streamform is changing this target: {self.held[name].shown()}", "wait until it is done")
        ours = self.held[name] = read_holder({**holder, "pid": os.getpid(), "host": "memory"})
        self.taken.append((name, ours))
        try:
            yield
        finally:
            self.taken.remove((name, ours))
            if self.held.get(name) is ours:
                del self.held[name]

    def lock_holder(self, name: str) -> LockHolder | None:
        return self.held.get(name)

    def free_lock(self, name: str) -> None:
        self.held.pop(name, None)
