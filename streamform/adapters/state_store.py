"""Keyed state in the state database, with the entries that were used lately in memory."""

from __future__ import annotations

from collections.abc import Iterable

from streamform.adapters.state_database import StateDatabase
from streamform.backends.embedded.encoding import decode_entry, decode_key, encode_entry, encode_key
from streamform.runtime.records import Key
from streamform.runtime.state import Deadline, Entry

CACHED = 50_000
"""Entries of a node that stay in memory after a checkpoint."""

ASKED = 500
"""Keys that one query asks for."""


class SqliteStore:
    """A StateStore whose changes become durable with save(), inside the caller's transaction."""

    def __init__(self, database: StateDatabase, number: int, deadline: Deadline | None) -> None:
        self.database, self.number, self.deadline = database, number, deadline
        self.live: dict[Key, Entry] = {}
        self.touched: dict[Key, str] = {}
        """Keys that may have changed since the last save, with their texts."""
        self.waiting: int | None = None
        """The earliest deadline of an entry that was made since the last save."""

    def load(self, keys: Iterable[Key]) -> None:
        """Bring the entries of these keys into memory; they count as changed from now on."""
        wanted = {key: encode_key(key) for key in keys if key not in self.touched}
        self.touched.update(wanted)
        missing = sorted((text, key) for key, text in wanted.items() if key not in self.live)
        for start in range(0, len(missing), ASKED):
            texts = dict(missing[start : start + ASKED])
            marks = ",".join("?" * len(texts))
            found = self.database.all(f"SELECT key, value FROM entry WHERE node = ? AND key IN ({marks})", self.number, *texts)  # noqa: S608 - marks only
            for text, value in found:
                self.live[texts[text]] = decode_entry(value)

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Remember that a new entry may expire."""
        if self.waiting is None or deadline_ms < self.waiting:
            self.waiting = deadline_ms

    def next_deadline(self) -> int | None:
        """A lower bound: an entry may have been extended since it was saved."""
        stored = self.database.one("SELECT min(deadline) FROM entry WHERE node = ?", self.number)[0]
        return min((d for d in (stored, self.waiting) if d is not None), default=None)

    def due(self, until_ms: int) -> list[tuple[Key, Entry]]:
        """Remove and return the entries whose deadline is reached."""
        assert self.deadline is not None, "a store without deadlines was asked for due entries"
        self.load(
            [
                decode_key(text)
                for (text,) in self.database.all("SELECT key FROM entry WHERE node = ? AND deadline <= ?", self.number, until_ms)
            ]
        )
        deadline = self.deadline
        removed = [(key, self.live[key]) for key in self.touched if key in self.live and deadline(key, self.live[key]) <= until_ms]
        for key, _ in removed:
            del self.live[key]
        self.save()
        return removed

    def save(self) -> None:
        """Write every entry that may have changed, and let go of what does not fit into memory."""
        number, live, deadline = self.number, self.live, self.deadline
        kept = [(number, text, encode_entry(entry), key) for key, text in self.touched.items() if (entry := live.get(key)) is not None]
        rows = [(n, text, value, None if deadline is None else deadline(key, live[key])) for n, text, value, key in kept]
        rows.sort()
        gone = [(number, text) for key, text in self.touched.items() if key not in live]
        self.database.many("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", rows)
        self.database.many("DELETE FROM entry WHERE node = ? AND key = ?", gone)
        self.touched.clear()
        self.waiting = None
        if len(self.live) > CACHED:
            self.live.clear()
