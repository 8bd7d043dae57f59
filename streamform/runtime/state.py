"""Keyed state: entries by key, with a deadline for those that expire or close.

An entry is a list: the accumulators in plan order, then the latest event time when the node has a retention. A store
decides where entries live; operators see the part that is loaded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from streamform.runtime.records import Key

Entry = list[Any]
Deadline = Callable[[Key, Entry], int]
"""When an entry expires or its window closes, in milliseconds."""


class StateStore(Protocol):
    """Where the entries of one keyed node live."""

    live: dict[Key, Entry]
    """Entries that are in memory; operators read and change them in place."""

    def load(self, keys: Iterable[Key]) -> None:
        """Bring the entries of these keys, where they exist, into `live`, and note that they are about to change."""

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Note when a new entry may expire."""

    def next_deadline(self) -> int | None:
        """The earliest time at which an entry may expire."""

    def due(self, until_ms: int) -> list[tuple[Key, Entry]]:
        """Remove and return every entry whose deadline has been reached, in the order of the deadlines' arrival."""


class MemoryStore:
    """Entries in a dictionary, deadlines in a heap that is corrected when it is read."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self.live: dict[Key, Entry] = {}
        self.deadline = deadline
        self.heap: list[tuple[int, int, Key]] = []
        self.sequence = 0

    def load(self, keys: Iterable[Key]) -> None:
        """Everything is in memory."""

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """One heap entry a key; a later deadline is found out when this one comes up."""
        self.sequence += 1
        heapq.heappush(self.heap, (deadline_ms, self.sequence, key))

    def next_deadline(self) -> int | None:
        """A lower bound: the entry may have been extended since."""
        return self.heap[0][0] if self.heap else None

    def due(self, until_ms: int) -> list[tuple[Key, Entry]]:
        """Entries whose actual deadline is reached; others are scheduled again."""
        assert self.deadline is not None, "a store without deadlines was asked for due entries"
        removed: list[tuple[Key, Entry]] = []
        while self.heap and self.heap[0][0] <= until_ms:
            _, _, key = heapq.heappop(self.heap)
            entry = self.live.get(key)
            if entry is None:
                continue
            actual = self.deadline(key, entry)
            if actual <= until_ms:
                removed.append((key, self.live.pop(key)))
            else:
                self.schedule(key, actual)
        return removed
