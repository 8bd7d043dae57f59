"""A SQLite table as a sink: always the current rows of an upsert model, or every row of an append model.

A table of ours beside it holds, for each sink, the number of the last delivery; both change in one transaction.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.sink import ADVICE, Mark, Shape, SinkVanished, advice, check_writable
from streamform.backends.embedded.output import column_value, key_of
from streamform.errors import Refused, StateError
from streamform.runtime.records import DELETE, Change
from streamform.values.rows import Column, Row, file_value
from streamform.values.types import DataType

MARKS = "_streamform_deliveries"

PATIENCE_S = 10.0
"""How long a table that another program holds is waited for."""

CHUNK = 5_000
"""Changes that are written at once."""

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
        self.stored = [_storing(column.type) for column in shape.schema]
        names = [column.name for column in shape.schema]
        self.key_positions = [names.index(name) for name in shape.key]
        self.opened: sqlite3.Connection | None = None
        columns = ", ".join(quoted(column.name) for column in shape.schema)
        self.insert = f"INSERT INTO {self.table} ({columns}) VALUES ({', '.join('?' * len(shape.schema))})"  # noqa: S608 - quoted
        self.upsert = self.insert.replace("INSERT", "INSERT OR REPLACE", 1)
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
                "drop or rename the table, set another one, or keep its rows: streamform apply --adopt",
            )

    def check_adoptable(self) -> None:
        """The table has exactly our columns, types and key."""
        with self._told():
            present = self._columns()
        if present != self._declared():
            raise Refused(
                f"the sink of `{self.shape.model}`, {self.name}, has other columns or another key than the model, so it can't be adopted",
                "drop or rename the table, or set another one",
            )

    def check_writable(self) -> None:
        """The folder and the database."""
        check_writable(self.path, f"the sink of `{self.shape.model}`, {self.name}")

    def prepare(self, mark: Mark) -> None:
        """Make the table, or bring the one that is there under these columns."""
        with self._transaction() as connection:
            if mark.number > 1:
                self._lacks(connection, mark, can_send=False)
            present = {name: type_ for name, type_, _ in self._columns()}
            if not present:
                self._create(connection, self.table)
            elif any(present.get(name, type_) != type_ for name, type_, _ in self._declared()):
                self._reshape(connection, present)
            else:
                for column in self.shape.schema:
                    if column.name not in present:
                        connection.execute(f"ALTER TABLE {self.table} ADD COLUMN {self._definition(column)}")
            if mark.number <= 1:
                self._remember(connection, mark)

    def _reshape(self, connection: sqlite3.Connection, present: dict[str, str]) -> None:
        """Give columns another type, which changes what a table makes of values; columns that are no longer declared stay."""
        beside = quoted(f"_streamform_{self.table_name}")
        declared = {column.name for column in self.shape.schema}
        self._create(connection, beside, [f"{quoted(name)} {type_}" for name, type_ in present.items() if name not in declared])
        names = ", ".join(map(quoted, present))
        connection.execute(f"INSERT INTO {beside} ({names}) SELECT {names} FROM {self.table} ORDER BY rowid")  # noqa: S608 - quoted
        connection.execute(f"DROP TABLE {self.table}")
        connection.execute(f"ALTER TABLE {beside} RENAME TO {self.table}")

    def clear(self, mark: Mark) -> None:
        """Drop the table."""
        with self._transaction() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")
            connection.execute(f"DELETE FROM {MARKS} WHERE token = ?", (mark.token,))  # noqa: S608 - constant

    def needed(self, changes: Sequence[Change]) -> list[Change]:
        """The last change of each key: nobody sees a table within a transaction."""
        if not self.shape.upserts:
            return list(changes)
        last: dict[tuple[object, ...], Change] = {}
        for change in changes:
            _, row, before = change
            if before is not None and (old := self.key(before)) != self.key(row):
                last[old] = (DELETE, before, None)
            last[self.key(row)] = change
        return list(last.values())

    def confirm(self, mark: Mark, pending: Sequence[Change] | None) -> None:
        """Deliver what is pending unless its number is there already."""
        with self._transaction() as connection:
            if self._lacks(connection, mark, can_send=pending is not None):
                self._write(connection, pending or ())
                self._remember(connection, mark)

    def length(self) -> int:
        """A table has no length."""
        return 0

    def length_after(self, mark: Mark, changes: Sequence[Change]) -> int:
        """A table has no length."""
        return 0

    def amend(self, mark: Mark, changes: Iterator[Change]) -> int:
        """Deliver the difference as the next number, unless that is there already."""
        after = Mark(mark.token, mark.next)
        with self._transaction() as connection:
            if self._lacks(connection, after, can_send=True):
                self._write(connection, changes)
                self._remember(connection, after)
        return 0

    def rewrite(self, mark: Mark, rows: Iterable[Row]) -> int:
        """Make the table anew with these rows."""
        with self._transaction() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")
            self._create(connection, self.table)
            connection.executemany(self.insert, (self._values(row) for row in rows))
            self._remember(connection, Mark(mark.token, mark.next))
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
        """Whether the table has exactly these columns, their types, and this key."""
        with self._told():
            return self._columns() == self._declared()

    def close(self) -> None:
        """Close the database."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def _create(self, connection: sqlite3.Connection, table: str, more: Sequence[str] = ()) -> None:
        parts = [*(self._definition(column) for column in self.shape.schema), *more]
        if self.shape.upserts and self.shape.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, self.shape.key))})")
        connection.execute(f"CREATE TABLE {table} ({', '.join(parts)})")

    def _definition(self, column: Column) -> str:
        return f"{quoted(column.name)} {self._type(column)}"

    def _type(self, column: Column) -> str:
        """A column's type. SQLite makes a lone INTEGER key the row's number, which is never NULL; an INT key may be."""
        type_ = COLUMN_TYPES.get(column.type.kind, "TEXT")
        return "INT" if type_ == "INTEGER" and self.shape.upserts and column.name in self.shape.key else type_

    def _write(self, connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
        """Carry changes out, some at a time; no key is among them twice."""
        if not self.shape.upserts:
            connection.executemany(self.insert, (self._values(row) for _, row, _ in changes))
            return
        remaining = iter(changes)
        while part := list(islice(remaining, CHUNK)):
            keys = [(op, self.key(row)) for op, row, _ in part]
            connection.executemany(self.delete, [self._key_values(key) for op, key in keys if op == DELETE or None in key])
            connection.executemany(self.upsert, [self._values(row) for op, row, _ in part if op != DELETE])

    def _values(self, row: Row) -> list[object]:
        return [v if v is None or stored is None else stored(v) for v, stored in zip(row, self.stored, strict=True)]

    def _key_values(self, key: Sequence[object]) -> list[object]:
        stored = [self.stored[position] for position in self.key_positions]
        return [v if v is None or to_column is None else to_column(v) for v, to_column in zip(key, stored, strict=True)]

    def _declared(self) -> list[tuple[str, str, int]]:
        """Column names, each with its type and its place in the primary key."""
        places = {name: place for place, name in enumerate(self.shape.key, 1)} if self.shape.upserts else {}
        return [(column.name, self._type(column), places.get(column.name, 0)) for column in self.shape.schema]

    def _columns(self) -> list[tuple[str, str, int]]:
        found = self._connection().execute(f"PRAGMA table_info({self.table})").fetchall()
        return [(name, type_, place) for _, name, type_, _, _, place in found]

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
            self.opened = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE_S)
        return self.opened

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._told():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {MARKS} (token TEXT PRIMARY KEY, sink TEXT, number INTEGER)")
                yield connection
                crash_point("sink-committing")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        crash_point("sink-committed")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            cause = str(getattr(error, "strerror", None) or error).lower()
            raise StateError(f"can't write the sink of `{self.shape.model}`, {self.name}: {cause}", advice(cause)) from None


def quoted(name: str) -> str:
    """An identifier as SQLite reads it."""
    return '"' + name.replace('"', '""') + '"'


def _storing(type_: DataType) -> Callable[[Any], object] | None:
    """How values that are not NULL are held by a column of this type; None where that is what they are."""
    if type_.kind in ("int32", "int64", "string"):
        return None
    if type_.kind == "float64":
        return lambda value: "NaN" if math.isnan(value) else value
    return lambda value: column_value(file_value(value, type_))  # type: ignore[arg-type]
