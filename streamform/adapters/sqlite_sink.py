"""A SQLite table as a sink: always the current rows of an upsert model, or every row of an append model.

A table of ours beside it holds, for each sink, the number of the last delivery; both change in one transaction.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamform.adapters.sink import ADVICE, Mark, Shape, SinkVanished
from streamform.backends.embedded.output import column_value, key_of
from streamform.errors import Refused, StateError
from streamform.runtime.records import DELETE, Change
from streamform.values.rows import Column, Row, Value, file_value

MARKS = "_streamform_deliveries"

COLUMN_TYPES = {"int32": "INTEGER", "int64": "INTEGER", "boolean": "INTEGER", "float64": "REAL"}
"""Everything else is TEXT: a decimal keeps its digits, an instant its zone-less ISO form."""


class SqliteSink:
    """One table."""

    def __init__(self, project_dir: Path, shape: Shape) -> None:
        self.name = f"{shape.endpoint.path} table {shape.endpoint.table}"
        self.path, self.shape = project_dir / (shape.endpoint.path or ""), shape
        self.table_name = shape.endpoint.table or shape.model
        self.table = quoted(self.table_name)
        self.key = key_of(shape.schema, shape.key)
        self.opened: sqlite3.Connection | None = None
        columns = ", ".join(quoted(column.name) for column in shape.schema)
        self.insert = f"INSERT INTO {self.table} ({columns}) VALUES ({', '.join('?' * len(shape.schema))})"  # noqa: S608 - quoted
        matched = " AND ".join(f"{quoted(name)} IS ?" for name in shape.key) or "1"
        self.delete = f"DELETE FROM {self.table} WHERE {matched}"  # noqa: S608 - quoted

    def check_free(self) -> None:
        """A table with rows, or of another shape, is somebody else's."""
        if not self.path.exists():
            return
        with self._told():
            present = self._columns()
            rows = present and self._connection().execute(f"SELECT 1 FROM {self.table} LIMIT 1").fetchone()  # noqa: S608 - quoted
        if rows or (present and present != self._declared()):
            raise Refused(
                f"the sink of `{self.shape.model}`, {self.name}, was there before and this project did not write it",
                "drop or rename the table, or set another one",
            )

    def prepare(self, mark: Mark) -> None:
        """Make the table, or add the columns that it lacks."""
        with self._transaction() as connection:
            present = self._columns()
            if not present:
                self._create(connection)
            for column in self.shape.schema:
                if present and column.name not in {name for name, _ in present}:
                    connection.execute(f"ALTER TABLE {self.table} ADD COLUMN {_definition(column)}")
            self._remember(connection, mark)

    def clear(self, mark: Mark) -> None:
        """Drop the table."""
        with self._transaction() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")
            connection.execute(f"DELETE FROM {MARKS} WHERE token = ?", (mark.token,))  # noqa: S608 - constant

    def confirm(self, mark: Mark, pending: Sequence[Change] | None) -> None:
        """Deliver what is pending unless its number is there already."""
        with self._transaction() as connection:
            if self._lacks(connection, mark, can_send=pending is not None):
                self._write(connection, pending or ())
                self._remember(connection, mark)

    def length_after(self, mark: Mark, changes: Sequence[Change]) -> int:
        """A table has no length."""
        return 0

    def amend(self, mark: Mark, changes: Iterator[Change]) -> int:
        """Deliver the difference as the next number, unless that is there already."""
        after = Mark(mark.token, mark.number + 1)
        with self._transaction() as connection:
            if self._lacks(connection, after, can_send=True):
                self._write(connection, changes)
                self._remember(connection, after)
        return 0

    def rewrite(self, mark: Mark, rows: Iterable[Row]) -> int:
        """Make the table anew with these rows."""
        with self._transaction() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")
            self._create(connection)
            connection.executemany(self.insert, (self._values(row) for row in rows))
            self._remember(connection, Mark(mark.token, mark.number + 1))
        return 0

    def _lacks(self, connection: sqlite3.Connection, mark: Mark, *, can_send: bool) -> bool:
        """Whether the delivery of this number is what comes next; False when it is there already."""
        number = self._number(connection, mark)
        if number == mark.number:
            return False
        if number == mark.number - 1 and can_send:
            return True
        raise StateError(
            f"the sink of `{self.shape.model}`, {self.name}, holds delivery {number}, and the state expects {mark.number}",
            "table and state database are of different times; " + ADVICE,
        )

    def has_shape(self) -> bool:
        """Whether the table has exactly these columns and this key."""
        with self._told():
            return self._columns() == self._declared()

    def close(self) -> None:
        """Close the database."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def _create(self, connection: sqlite3.Connection) -> None:
        parts = [_definition(column) for column in self.shape.schema]
        if self.shape.upserts and self.shape.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, self.shape.key))})")
        connection.execute(f"CREATE TABLE {self.table} ({', '.join(parts)})")

    def _write(self, connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
        for op, row, before in changes:
            if self.shape.upserts:
                for old in {self.key(row)} | ({self.key(before)} if before is not None else set()):
                    connection.execute(self.delete, self._key_values(old))
            if op != DELETE:
                connection.execute(self.insert, self._values(row))

    def _values(self, row: Row) -> list[object]:
        return [_stored(value, column) for value, column in zip(row, self.shape.schema, strict=True)]

    def _key_values(self, key: Sequence[object]) -> list[object]:
        columns = {column.name: column for column in self.shape.schema}
        return [_stored(value, columns[name]) for value, name in zip(key, self.shape.key, strict=True)]  # type: ignore[arg-type]

    def _declared(self) -> list[tuple[str, int]]:
        """Column names, each with its place in the primary key."""
        places = {name: place for place, name in enumerate(self.shape.key, 1)} if self.shape.upserts else {}
        return [(column.name, places.get(column.name, 0)) for column in self.shape.schema]

    def _columns(self) -> list[tuple[str, int]]:
        found = self._connection().execute(f"PRAGMA table_info({self.table})").fetchall()
        return [(name, place) for _, name, _, _, _, place in found]

    def _number(self, connection: sqlite3.Connection, mark: Mark) -> int:
        found = connection.execute(f"SELECT number FROM {MARKS} WHERE token = ?", (mark.token,)).fetchone()  # noqa: S608 - constant
        if found is None or not self._columns():
            raise SinkVanished(f"the sink of `{self.shape.model}`, {self.name}, is not the one that was written before", ADVICE)
        number: int = found[0]
        return number

    def _remember(self, connection: sqlite3.Connection, mark: Mark) -> None:
        statement = f"INSERT OR REPLACE INTO {MARKS} VALUES (?, ?, ?)"  # noqa: S608 - constant
        connection.execute(statement, (mark.token, self.table_name, mark.number))

    def _connection(self) -> sqlite3.Connection:
        if self.opened is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.opened = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        return self.opened

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._told():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {MARKS} (token TEXT PRIMARY KEY, sink TEXT, number INTEGER)")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            cause = str(getattr(error, "strerror", None) or error).lower()
            help = (
                "make room and apply again; nothing that was committed is lost" if "full" in cause else "check the path and its permissions"
            )
            raise StateError(f"can't write the sink of `{self.shape.model}`, {self.name}: {cause}", help) from None


def quoted(name: str) -> str:
    """An identifier as SQLite reads it."""
    return '"' + name.replace('"', '""') + '"'


def _definition(column: Column) -> str:
    return f"{quoted(column.name)} {COLUMN_TYPES.get(column.type.kind, 'TEXT')}"


def _stored(value: Value, column: Column) -> object:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return column_value(file_value(value, column.type))  # type: ignore[arg-type]
