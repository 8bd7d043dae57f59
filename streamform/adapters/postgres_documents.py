"""Documents in PostgreSQL. A lock is an advisory one of a session of its own, so that it ends with the process.

While a lock is held every write goes through its session: who lost the lock, to a broken connection or to `unlock --force`,
can write nothing more.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from streamform.adapters.database import Database
from streamform.adapters.lock import is_gone, lock_held, this_process
from streamform.adapters.sql_documents import SqlDocuments
from streamform.errors import StoreError
from streamform.lifecycle.lock import LockHolder, read_holder

END_MS = 5_000
"""How long the end of a session that holds a lock may take."""

SESSION = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3", "idle_session_timeout": "0"}
"""What the session of a lock sets where the server knows it: it notices soon that the other machine is gone, and is left idle."""

_SET = text("SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name AND context = 'user'")
_TRY = text("SELECT pg_try_advisory_lock(:key)")
_WAIT = text("SELECT pg_advisory_lock(:key)")
_RELEASE = text("SELECT pg_advisory_unlock(:key)")
_SESSIONS = """FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low"""
_WHO = text(f"SELECT pid {_SESSIONS}")
_END = text(f"SELECT pg_terminate_backend(pid) {_SESSIONS}")
_LOCK_KEY = "project = :project AND target = :target AND name = :name"
_NOTE = text(
    "INSERT INTO streamform_locks (project, target, name, holder) VALUES (:project, :target, :name, :holder)"
    " ON CONFLICT (project, target, name) DO UPDATE SET holder = excluded.holder"
)
_NOTED = text(f"SELECT holder FROM streamform_locks WHERE {_LOCK_KEY}")  # noqa: S608


class PostgresDocuments(SqlDocuments):
    """Documents in a PostgreSQL database."""

    text_type, bytes_type = 'TEXT COLLATE "C" NOT NULL', "BYTEA"

    def __init__(self, database: Database, project: str, target: str) -> None:
        super().__init__(database, project, target)
        self._held: Connection | None = None
        self._turn = threading.RLock()

    @contextmanager
    def connection_to_write(self) -> Iterator[Connection]:
        """The session that holds our lock, else any. A lock that was lost stays lost."""
        held = self._held
        if held is None:
            with self.database.connect() as connection:
                yield connection
            return
        with self._turn:
            if held.invalidated:
                raise self._lost()
            try:
                yield held
            except SQLAlchemyError as error:
                raise self._lost() if held.invalidated else self.database.error(error) from None

    def _lost(self) -> StoreError:
        message = f"the connection to the store {self.describe()} was lost, and with it the lock of this target"
        return StoreError(message, "run the command again; it goes on from here")

    @contextmanager
    def making_tables(self, connection: Connection) -> Iterator[None]:
        """One process at a time."""
        key = {"key": _key("streamform tables")[0]}
        connection.execute(_WAIT, key)
        try:
            yield
        finally:
            connection.execute(_RELEASE, key)

    # locks

    @contextmanager
    def lock(self, name: str, holder: Mapping[str, Any]) -> Iterator[None]:
        """Hold an advisory lock on a session of its own, which ends when the process does."""
        with self.writing():
            pass
        key, *_ = self._lock_key(name)
        with self.database.errors():
            connection = self.database.engine().connect()
            connection.detach()
        try:
            with self.database.errors():
                for setting, value in SESSION.items():
                    connection.execute(_SET, {"name": setting, "value": value})
                self._take(connection, name, key)
                note = json.dumps({**holder, **this_process(), "session": _session(connection)})
                connection.execute(_NOTE, {**self.owner, "name": name, "holder": note})
            outer, self._held = self._held, connection
            try:
                yield
            finally:
                self._held = outer
        finally:
            with suppress(SQLAlchemyError):
                connection.execute(_RELEASE, {"key": key})
            with suppress(SQLAlchemyError):
                connection.close()

    def _take(self, connection: Connection, name: str, key: int) -> None:
        """Take the lock, also from a process that is surely gone and whose session the server still keeps."""
        if connection.execute(_TRY, {"key": key}).scalar():
            return
        holder = self._holder(connection, name)
        if holder is not None and not is_gone(holder):
            raise lock_held(holder)
        if holder is not None:
            self._end(connection, name)
        if not connection.execute(_TRY, {"key": key}).scalar():
            raise lock_held(self._holder(connection, name) or LockHolder())

    def lock_holder(self, name: str) -> LockHolder | None:
        """Who holds a lock now, None for nobody."""
        with self.reading() as connection:
            return None if connection is None else self._holder(connection, name)

    def free_lock(self, name: str) -> None:
        """End the session that holds a lock."""
        with self.reading() as connection:
            if connection is not None:
                self._end(connection, name)

    def _holder(self, connection: Connection, name: str) -> LockHolder | None:
        """Who holds the lock; what is written down counts when it is of the session that holds it."""
        _, high, low = self._lock_key(name)
        session = connection.execute(_WHO, {"high": high, "low": low}).scalars().first()
        if session is None:
            return None
        noted = connection.execute(_NOTED, {**self.owner, "name": name}).scalar()
        document = _parsed(noted)
        return read_holder(document) if document.get("session") == session else LockHolder()

    def _end(self, connection: Connection, name: str) -> None:
        """End the holder's session, and wait until the server has released its lock."""
        key, high, low = self._lock_key(name)
        connection.execute(_END, {"high": high, "low": low})
        connection.execute(_SET, {"name": "lock_timeout", "value": str(END_MS)})
        try:
            connection.execute(_WAIT, {"key": key})
            connection.execute(_RELEASE, {"key": key})
        finally:
            with suppress(SQLAlchemyError):
                connection.execute(_SET, {"name": "lock_timeout", "value": "0"})

    def _lock_key(self, name: str) -> tuple[int, int, int]:
        return _key(json.dumps(["streamform", self.owner["project"], self.owner["target"], name]))


def _key(name: str) -> tuple[int, int, int]:
    """The number of an advisory lock, and the two halves that the server shows of it."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return number - (1 << 64) if number >> 63 else number, number >> 32, number & 0xFFFFFFFF


def _session(connection: Connection) -> int:
    found: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    return found


def _parsed(noted: Any) -> dict[str, Any]:
    try:
        document = json.loads(noted)
    except (TypeError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
