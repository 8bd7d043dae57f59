"""Documents in memory: the smallest adapter that keeps the contract, for comparing the others with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamform.errors import LockHeld, StoreError
from streamform.lifecycle.ports import ANY


class MemoryDocuments:
    """Documents in a dictionary, locks in a set."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.held: set[str] = set()

    def describe(self) -> str:
        return "memory"

    def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    def names(self, prefix: str) -> list[str]:
        return sorted(path for path in self.content if path.startswith(prefix))

    def write(self, path: str, content: bytes, *, expected: str | None) -> None:
        present = self.content.get(path)
        actual = None if present is None else hashlib.sha256(present).hexdigest()
        if expected not in (ANY, actual):
            raise StoreError(f"{path} was changed by somebody else in the meantime", "run the command again")
        self.content[path] = content

    @contextmanager
    def lock(self, name: str, holder: Mapping[str, Any]) -> Iterator[None]:
        if name in self.held:
            raise LockHeld("another streamform is changing this target", "wait until it is done")
        self.held.add(name)
        try:
            yield
        finally:
            self.held.discard(name)
