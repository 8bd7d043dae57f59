"""Documents in a database: rows of one table, a write is one statement that compares and sets.

Projects and targets are kept apart by columns. Tables are made on the first write; a reader finds nothing where there are none.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection, CursorResult
from sqlalchemy.exc import OperationalError

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.database import Database
from streamform.adapters.lock import LockFiles
from streamform.errors import StoreError
from streamform.lifecycle.lock import LockHolder
from streamform.lifecycle.ports import ANY
from streamform.lifecycle.store import encoded

FORMAT = 1
"""Of the tables. A release reads its own and earlier ones."""

FORMAT_TABLE = "streamform_format"
_KEY = "project = :project AND target = :target AND path = :path"
_READ = text(f"SELECT content, digest FROM streamform_documents WHERE {_KEY}")  # noqa: S608
_NAMES = text("SELECT path FROM streamform_documents WHERE project = :project AND target = :target AND path >= :first AND path < :end")
_INSERT = "INSERT INTO streamform_documents (project, target, path, digest, content) VALUES (:project, :target, :path, :digest, :content)"
_ADD = text(f"{_INSERT} ON CONFLICT (project, target, path) DO NOTHING")
_PUT = text(f"{_INSERT} ON CONFLICT (project, target, path) DO UPDATE SET digest = excluded.digest, content = excluded.content")
_REPLACE = text(f"UPDATE streamform_documents SET digest = :digest, content = :content WHERE {_KEY} AND digest = :expected")  # noqa: S608

SERIALIZATION_FAILURE = "40001"


class SqlDocuments(ABC):
    """Documents of one target of one project. A write is durable when it returns."""

    text_type: str
    bytes_type: str

    def __init__(self, database: Database, project: str, target: str) -> None:
        self.database = database
        self.owner = {"project": encoded(project), "target": encoded(target)}
        self._is_ready = False

    def describe(self) -> str:
        """The database, without credentials."""
        return self.database.shown

    # documents

    def read(self, path: str) -> bytes | None:
        """The document's content, or None. Raises: StoreError for one that was changed past this class, too."""
        with self.reading() as connection:
            row = None if connection is None else connection.execute(_READ, {**self.owner, "path": path}).one_or_none()
        if row is None:
            return None
        content = bytes(row.content)
        if hashlib.sha256(content).hexdigest() != row.digest:
            raise StoreError(f"{path} in {self.describe()} was changed by hand", "restore it from a backup")
        return content

    def names(self, prefix: str) -> list[str]:
        """Paths that start with a prefix, sorted."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else chr(0x10FFFF)
        with self.reading() as connection:
            if connection is None:
                return []
            return sorted(connection.execute(_NAMES, {**self.owner, "first": prefix, "end": end}).scalars())

    def write(self, path: str, content: bytes, *, expected: str | None) -> None:
        """One statement, which changes a row or none."""
        values = {**self.owner, "path": path, "digest": hashlib.sha256(content).hexdigest(), "content": content}
        statement = _PUT if expected == ANY else _ADD if expected is None else _REPLACE
        crash_point("document-writing")
        with self.writing() as connection:
            try:
                done: CursorResult[Any] = connection.execute(
                    statement, values if expected in (ANY, None) else {**values, "expected": expected}
                )
                changed = done.rowcount
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != SERIALIZATION_FAILURE:
                    raise
                changed = 0
        if changed != 1:
            raise StoreError(f"{path} was changed by somebody else in the meantime", "run the command again")
        crash_point("document-written")

    # connections

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """A connection to tables of our format, None where there are none yet."""
        with self.database.connect() as connection:
            yield connection if self._is_ready or self._has_tables(connection) else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection to tables of our format, which are made where there are none."""
        with self.connection_to_write() as connection:
            if not self._is_ready and not self._has_tables(connection):
                with self.making_tables(connection):
                    if not self._has_tables(connection):
                        self._make_tables(connection)
            yield connection

    def connection_to_write(self) -> AbstractContextManager[Connection]:
        """A connection that may write. Raises: StoreError where a lock of ours was lost."""
        return self.database.connect()

    @abstractmethod
    def making_tables(self, connection: Connection) -> AbstractContextManager[None]:
        """Keep other processes from making the tables at the same time."""

    def _has_tables(self, connection: Connection) -> bool:
        """Whether there are tables of a format that we read. Raises: StoreError for another format."""
        if not inspect(connection).has_table(FORMAT_TABLE):
            return False
        found = connection.execute(text("SELECT max(format) FROM streamform_format")).scalar()
        if found is None:
            return False
        if found != FORMAT:
            raise StoreError(
                f"the store {self.describe()} has format {found}, and this release knows {FORMAT}",
                "use the release that wrote it, or a newer one",
            )
        self._is_ready = True
        return True

    def _make_tables(self, connection: Connection) -> None:
        """The row with the format is written last, so that tables that are there in part are completed."""
        key = f"project {self.text_type}, target {self.text_type}"
        for statement in (
            f"CREATE TABLE IF NOT EXISTS streamform_documents ({key}, path {self.text_type}, digest {self.text_type},"
            f" content {self.bytes_type} NOT NULL, PRIMARY KEY (project, target, path))",
            f"CREATE TABLE IF NOT EXISTS streamform_locks ({key}, name {self.text_type}, holder {self.text_type},"
            " PRIMARY KEY (project, target, name))",
            "CREATE TABLE IF NOT EXISTS streamform_format (format INTEGER NOT NULL PRIMARY KEY)",
            f"INSERT INTO streamform_format (format) VALUES ({FORMAT}) ON CONFLICT DO NOTHING",  # noqa: S608
        ):
            connection.execute(text(statement))
        self._is_ready = True

    # locks

    @abstractmethod
    def lock(self, name: str, holder: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Hold a lock for as long as this process lives. Raises: LockHeld."""

    @abstractmethod
    def lock_holder(self, name: str) -> LockHolder | None:
        """Who holds a lock now, None for nobody."""

    @abstractmethod
    def free_lock(self, name: str) -> None:
        """Take a lock away from its holder."""


class SqliteDocuments(LockFiles, SqlDocuments):
    """Documents in a SQLite file; locks are files beside it."""

    text_type, bytes_type = "TEXT NOT NULL", "BLOB"

    def __init__(self, database: Database, project: str, target: str) -> None:
        super().__init__(database, project, target)
        beside = database.path.with_name(database.path.name + ".lock")
        self.lock_folder = beside / self.owner["project"] / self.owner["target"]

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """As for every database; a file that is not there is not made."""
        if not self.database.path.exists():
            yield None
            return
        with super().reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """As for every database, in a folder that is made where it is missing, and while our locks are ours."""
        self.check_locks()
        try:
            self.database.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise StoreError(f"the store {self.describe()} can't be made: {cause}", "check the path and its permissions") from None
        with super().writing() as connection:
            yield connection

    @contextmanager
    def making_tables(self, connection: Connection) -> Iterator[None]:
        """Each statement makes what is missing, in whatever order two processes come."""
        yield
