"""A database as a store: the address with its references resolved, the engine, and what goes wrong in plain words.

Nothing that leaves this module holds a secret: addresses are shown without credentials, and resolved references are taken
out of what a driver says.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from streamform.adapters.environment import resolve
from streamform.errors import StoreError
from streamform.project.store_address import SECRET_OPTIONS, DatabaseAddress

CONNECT_S, BUSY_S = 10, 30
MIN_SECRET = 3
"""Shorter values are not taken out of messages, since they occur everywhere."""

DRIVERS = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
OPTIONS = {"connect_timeout": str(CONNECT_S), "application_name": "streamform", "keepalives_idle": "30", "keepalives_interval": "10"}


class Advice(NamedTuple):
    """One row: what a driver says, and what to do."""

    mark: str
    help: str


ADVICE = (
    Advice("authentication failed", "check the user in `store`, and the variable that its password refers to"),
    Advice("no password supplied", "add a password to `store`: postgresql://USER:${PASSWORD}@HOST/DATABASE"),
    Advice("pg_hba.conf", "let this user and machine in, in the server's pg_hba.conf"),
    Advice("does not exist", "create it, or correct `store`"),
    Advice("permission denied", "let the user create tables in the database's schema, and read and write them"),
    Advice("must be a member", "only the user who holds the lock, or a superuser, can free it"),
    Advice("read-only", "let `store` name the primary server, and let the user write"),
    Advice("readonly", "check the file's permissions and those of its folder"),
    Advice("not a database", "let `store` name another file, or restore this one"),
    Advice("malformed", "restore the file from a backup"),
    Advice("lock timeout", "the server has not ended the holder's session yet; run the command again"),
    Advice("database is locked", "another process writes for a long time; run the command again"),
    Advice("unable to open", "check the path and its permissions"),
    Advice("disk", "make room on the disk"),
)


class Database:
    """A database that a target names, resolved and not yet contacted."""

    def __init__(self, address: DatabaseAddress, project_dir: Path) -> None:
        self.kind = address.kind
        self.secrets: set[str] = set()
        if address.kind == "sqlite":
            self.path = Path(os.path.normpath((project_dir / _value(address.database)).absolute()))
            self.url = URL.create(DRIVERS["sqlite"], database=str(self.path))
            self.shown = f"sqlite:///{self.path.as_posix()}"
            return
        self.url, self.shown = _server(address)
        self.secrets |= {str(self.url.password or ""), *(str(self.url.query.get(name, "")) for name in SECRET_OPTIONS)}

    def engine(self) -> Engine:
        """The engine of this process for the database. Raises: StoreError where no driver is installed."""
        try:
            return _engine(self.url, os.getpid())
        except ImportError:
            help = "install it: pip install 'streamform-dagster[postgres]'"
            raise StoreError(f"the store {self.shown} can't be used: no driver for PostgreSQL is installed", help) from None
        except (ArgumentError, ValueError):
            raise StoreError(f"the store {self.shown} can't be used: its address is not a URL", "correct `store` of the target") from None

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """A connection where each statement is a transaction. Raises: StoreError for whatever the database refuses."""
        with self.errors(), self.engine().connect() as connection:
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what SQLAlchemy and its drivers raise into StoreError."""
        try:
            yield
        except SQLAlchemyError as error:
            raise self.error(error) from None

    def error(self, error: SQLAlchemyError) -> StoreError:
        """One line with the cause, without secrets."""
        cause = self._cause(error)
        help = next((row.help for row in ADVICE if row.mark in cause), "check that the database runs, and `store` of the target")
        return StoreError(f"the store {self.shown} can't be used: {cause}", help)

    def _cause(self, error: SQLAlchemyError) -> str:
        said = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
        lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(("Multiple connection", "LINE "))]
        text = lines[0] if lines else type(error).__name__
        text = re.sub(r"^- host: .*?: (?=connection)", "", text)
        text = re.sub(r"^(connection failed|connection is bad): (connection to server (at|on) [^:]*(, port \d+)? failed: )?", "", text)
        text = re.sub(r"^(FATAL|ERROR): +", "", text)
        for value in sorted(self.secrets, key=len, reverse=True):
            if len(value) >= MIN_SECRET:
                text = text.replace(value, "***")
        return (text[:1].lower() if text[1:2].islower() else text[:1]) + text[1:].rstrip(".")


def _value(part: str) -> str:
    """A part of an address: what is written is percent-encoded, what a reference stands for is not."""
    pieces = re.split(r"(\$\{[^}]*\})", part)
    return "".join(resolve(piece) if piece.startswith("${") else unquote(piece) for piece in pieces)


def _server(address: DatabaseAddress) -> tuple[URL, str]:
    options: dict[str, list[str]] = {name: [value] for name, value in OPTIONS.items()}
    given: dict[str, list[str]] = {}
    for name, text in address.options:
        given.setdefault(name, []).append(resolve(text))
    options |= given
    host, port, database = _value(address.host), _value(address.port), _value(address.database)
    if port and not (port.isascii() and port.isdigit()):
        raise StoreError("the port of `store` is no number", "correct the variable that it refers to")
    url = URL.create(
        DRIVERS["postgresql"],
        username=_value(address.user) or None,
        password=_value(address.password) or None,
        host=host.strip("[]") or None,
        port=int(port) if port else None,
        database=database,
        query={name: tuple(values) if len(values) > 1 else values[0] for name, values in options.items()},
    )
    hosts, ports = host or ",".join(given.get("host", [])), port or ",".join(given.get("port", ["5432"]))
    return url, f"postgresql://{quote(hosts, safe=':,[]/')}:{ports}/{quote(database, safe='')}"


@cache
def _engine(url: URL, pid: int) -> Engine:
    """One engine a database and process, so that a long process connects once; a forked child begins anew."""
    if url.drivername == "sqlite":
        arguments = {"timeout": BUSY_S}
        return create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=arguments, hide_parameters=True)
    engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True, pool_size=2, hide_parameters=True)
    atexit.register(lambda: engine.dispose() if os.getpid() == pid else None)
    return engine
