"""Where a target's store is: a folder, a SQLite file or a PostgreSQL database, as `store:` writes it.

Nothing is resolved here: `${NAME}` stays as it is written.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl

from msgspec import Struct

REFERENCE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
EXAMPLE = "postgresql://USER:${PASSWORD}@HOST:5432/DATABASE, sqlite:///FILE, or a folder"

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>//.*)", re.DOTALL)
_DATABASE_WORD = re.compile(r"(postgres|sqlite|mysql|mariadb|oracle|mssql)[A-Za-z0-9+]*:", re.IGNORECASE)
_SERVER = re.compile(
    rf"""(?x) // (?: (?P<user> [^:@/?\#\s]* ) (?: : (?P<password> [^@/?\#\s]* ) )? @ )?
    (?P<host> \[ [0-9A-Fa-f:.]+ \] | (?: [A-Za-z0-9._~%-] | {REFERENCE} )* ) (?: : (?P<port> [0-9]{{1,5}} | {REFERENCE} ) )?
    / (?P<database> [^/?\#\s]+ ) (?: \? (?P<query> [^\#\s]* ) )?"""
)
SECRET_OPTIONS = frozenset({"password", "sslpassword"})
POSTGRES = ("postgresql", "postgresql+psycopg")


class DatabaseAddress(Struct, frozen=True):
    """A database. Parts are as they are written: percent-encoded, with references in them."""

    kind: Literal["postgresql", "sqlite"]
    database: str
    """The name of the database, or the path of a SQLite file."""
    host: str = ""
    port: str = ""
    user: str = ""
    password: str = ""
    options: tuple[tuple[str, str], ...] = ()


class AddressProblem(NamedTuple):
    """Why an address can't be used. Holds no part of a secret."""

    shown: str
    cause: str
    is_secret: bool = False
    """Whether the address is right but for a password that is written out."""


def is_database(store: str) -> bool:
    """Whether a store is written as a URL and not as a folder."""
    return _SCHEME.fullmatch(store) is not None or _DATABASE_WORD.match(store) is not None


def parse_store_address(store: str, *, is_resolved: bool = False) -> DatabaseAddress | AddressProblem:
    """The database that a URL names, or what is wrong with the URL.

    `is_resolved`: the text comes from the environment, where a password may stand as it is.
    """
    match = _SCHEME.fullmatch(store)
    if match is None:
        return AddressProblem("not a URL", "a database is written with ://")
    scheme, rest = match["scheme"], match["rest"]
    if scheme == "sqlite":
        return _sqlite(rest)
    if scheme not in POSTGRES:
        return AddressProblem(f"a {scheme}:// URL", "a store is a folder, SQLite or PostgreSQL")
    return _postgres(rest, is_resolved=is_resolved)


def _sqlite(rest: str) -> DatabaseAddress | AddressProblem:
    shown, path = "a sqlite:// URL", rest.removeprefix("///")
    if not rest.startswith("///") or path in ("", "/", ":memory:") or path.endswith("/"):
        return AddressProblem(shown, "which names no file")
    if "?" in path or "#" in path:
        return AddressProblem(shown, "which has options; there are none")
    return DatabaseAddress("sqlite", path)


def _postgres(rest: str, *, is_resolved: bool) -> DatabaseAddress | AddressProblem:
    shown, match = "a postgresql:// URL", _SERVER.fullmatch(rest)
    if match is None:
        return AddressProblem(shown, "which does not name a host and a database as it should")
    parts = {name: value or "" for name, value in match.groupdict().items()}
    options = tuple(parse_qsl(parts["query"], keep_blank_values=True))
    secrets = [parts["password"], *(value for name, value in options if name in SECRET_OPTIONS)]
    if not is_resolved and not all(re.fullmatch(REFERENCE, secret) for secret in secrets if secret):
        return AddressProblem(shown, "which has a password in it", is_secret=True)
    if not parts["host"] and not any(name == "host" for name, _ in options):
        return AddressProblem(shown, "which names no host")
    if parts["port"].isdigit() and not 0 < int(parts["port"]) < 65_536:
        return AddressProblem(shown, f"whose port {parts['port']} does not exist")
    return DatabaseAddress("postgresql", parts["database"], parts["host"], parts["port"], parts["user"], parts["password"], options)
