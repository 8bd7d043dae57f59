"""The embedded backend's state database: one SQLite file for all units of one project and target.

State, source positions and what goes to the sinks change in one transaction. A generation is one run of a unit from the
start of its sources; while a unit is rebuilt, the new generation stands beside the one in use.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamform.adapters.crashpoint import crash_point
from streamform.errors import StateError

FORMAT = 1
"""PRAGMA user_version of what this release writes."""

SCHEMA = """
CREATE TABLE owner (project TEXT NOT NULL, target TEXT NOT NULL);
CREATE TABLE unit (name TEXT PRIMARY KEY, generation INTEGER, artifact TEXT, attempt TEXT);
CREATE TABLE generation (id INTEGER PRIMARY KEY AUTOINCREMENT, unit TEXT NOT NULL, attempt TEXT NOT NULL, events INTEGER NOT NULL DEFAULT 0);
CREATE TABLE node (generation INTEGER, id TEXT, number INTEGER, layout TEXT, PRIMARY KEY (generation, id)) WITHOUT ROWID;
CREATE TABLE entry (node INTEGER, key TEXT, value TEXT, deadline INTEGER, PRIMARY KEY (node, key)) WITHOUT ROWID;
CREATE INDEX entry_deadline ON entry (node, deadline) WHERE deadline IS NOT NULL;
CREATE TABLE clock (node INTEGER PRIMARY KEY, watermark INTEGER, delivered INTEGER, late INTEGER, quarantined INTEGER);
CREATE TABLE position (generation INTEGER, source TEXT, file TEXT, offset INTEGER, line INTEGER, tail TEXT,
  PRIMARY KEY (generation, source, file)) WITHOUT ROWID;
CREATE TABLE quarantined (id INTEGER PRIMARY KEY, generation INTEGER, source TEXT, contract TEXT, event TEXT);
CREATE TABLE fresh (generation INTEGER, model TEXT, key TEXT, row TEXT, PRIMARY KEY (generation, model, key)) WITHOUT ROWID;
CREATE TABLE spool (id INTEGER PRIMARY KEY, generation INTEGER, model TEXT, row TEXT);
CREATE INDEX spool_model ON spool (generation, model, id);
CREATE TABLE sink (token TEXT PRIMARY KEY, unit TEXT, model TEXT, place TEXT UNIQUE, shape TEXT, number INTEGER, length INTEGER);
CREATE TABLE written (token TEXT, key TEXT, row TEXT, PRIMARY KEY (token, key)) WITHOUT ROWID;
CREATE TABLE outbox (token TEXT PRIMARY KEY, changes TEXT) WITHOUT ROWID;
CREATE TABLE counter (next_node INTEGER NOT NULL);
INSERT INTO counter VALUES (1);
"""


class StateDatabase:
    """An open state database. Every sqlite and file system failure becomes a StateError that names the file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection

    @classmethod
    def open(cls, path: Path, project: str, target: str) -> StateDatabase:
        """Open it for writing, creating it where there is none.

        Raises: StateError for a file that is none, of another project or target, or of a newer release.
        """
        with _told(path, "open"):
            path.parent.mkdir(parents=True, exist_ok=True)
            database = cls(path, sqlite3.connect(path, isolation_level=None, timeout=10))
        try:
            with database.told("open"):
                database.connection.execute("PRAGMA journal_mode = WAL")
                database.connection.execute("PRAGMA synchronous = FULL")
            with database.transaction():
                database.begin_life(project, target)
            database.check_owner(project, target)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def look(cls, path: Path, project: str, target: str) -> StateDatabase | None:
        """Open it for reading only, None where there is none. Raises: StateError as open()."""
        with _told(path, "read"):
            if not path.is_file():
                return None
            database = cls(path, sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10))
        try:
            if database.has_tables():
                database.check_owner(project, target)
                return database
        except BaseException:
            database.close()
            raise
        database.close()
        return None

    def has_tables(self) -> bool:
        """Whether anything was ever written."""
        return bool(self.one("SELECT count(*) FROM sqlite_master")[0])

    def begin_life(self, project: str, target: str) -> None:
        """Write the tables into a new file."""
        if self.has_tables():
            return
        for statement in SCHEMA.split(";"):
            if statement.strip():
                self.run(statement)
        self.run("INSERT INTO owner VALUES (?, ?)", project, target)
        self.run(f"PRAGMA user_version = {FORMAT}")

    def check_owner(self, project: str, target: str) -> None:
        """Refuse what is not this target's database."""
        version = self.one("PRAGMA user_version")[0]
        if version > FORMAT:
            raise StateError(f"{self.path} was written by a newer release (format {version})", "use that release")
        if not self.all("SELECT 1 FROM sqlite_master WHERE name = 'owner'") or version < 1:
            raise StateError(f"{self.path} is a database, but no state database", "set another `embedded: {state: ..}` in the target")
        found = self.one("SELECT project, target FROM owner")
        if found != (project, target):
            raise StateError(
                f"{self.path} holds the state of target `{found[1]}` of project `{found[0]}`",
                "give each target a state database of its own: `embedded: {state: ..}`",
            )

    def close(self) -> None:
        """Release the file."""
        self.connection.close()

    @contextmanager
    def told(self, verb: str) -> Iterator[None]:
        """Turn a failure into a StateError."""
        with _told(self.path, verb):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside or nothing, durable at the end."""
        with self.told("write"):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                crash_point("state-committing")
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        crash_point("state-committed")

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        with self.told("write"):
            return self.connection.execute(statement, values)

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of values."""
        with self.told("write"):
            self.connection.executemany(statement, rows)

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        with self.told("read"):
            return self.connection.execute(statement, values).fetchall()

    def each(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, a few at a time, read by a cursor of its own."""
        with self.told("read"):
            yield from self.connection.execute(statement, values)

    def one(self, statement: str, *values: Any) -> tuple[Any, ...]:
        """The only row of a query."""
        rows = self.all(statement, *values)
        if len(rows) != 1:
            raise StateError(f"{self.path} is damaged: {statement} finds {len(rows)} rows", "restore it from a backup")
        return rows[0]

    def next_number(self) -> int:
        """A number that no node had before."""
        number: int = self.one("SELECT next_node FROM counter")[0]
        self.run("UPDATE counter SET next_node = next_node + 1")
        return number


@contextmanager
def _told(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error).lower()
        if "locked" in text:
            raise StateError(f"can't {verb} {path}: another process uses it", "end the other process, or wait for it") from None
        raise StateError(f"can't {verb} {path}: {text}", _advice(text)) from None
    except sqlite3.DatabaseError as error:
        raise StateError(f"can't {verb} {path}: {error}", "it is no SQLite database, or a damaged one; restore it from a backup") from None
    except OSError as error:
        raise StateError(f"can't {verb} {path}: {os.strerror(error.errno or 0).lower()}", _advice(str(error).lower())) from None


def _advice(text: str) -> str:
    if "full" in text or "no space" in text:
        return "make room on the disk; nothing that was committed is lost"
    return "check the folder's permissions and the disk"
