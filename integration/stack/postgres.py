"""One PostgreSQL server from the system's package, as a process on a free port, with its data in a folder of its own."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from integration.stack import runs
from integration.stack.errors import StackError
from integration.stack.ports import HOST, free_ports
from integration.stack.process import TERM_S, Part, Places, until

USER, PASSWORD = "keeper", "s3cret/with@signs"
MAKE_S = 120.0


@cache
def binary(name: str) -> Path | None:
    """A program of the server, from the search path or where Debian puts it; the newest version."""
    found = shutil.which(name)
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(re.sub(r"\D", "", path.parts[4]) or "0"))
    return Path(found).resolve() if found else installed[-1] if installed else None


def missing_postgres() -> list[str]:
    """One sentence when there is no server, else nothing."""
    return (
        []
        if binary("initdb") and binary("postgres")
        else ["the store in a database needs PostgreSQL: install the system's package postgresql"]
    )


class Postgres(Part):
    """The server. It refuses to run as root, so that it is then run as a user who may nothing."""

    name = "postgres"
    main = "postgres"

    def __init__(self, places: Places, port: int) -> None:
        super().__init__(places)
        self.port = port
        self._numbers = count(1)

    @property
    def data(self) -> Path:
        """The folder of its files."""
        return self.places.run / "data"

    def command(self) -> list[str]:
        """Make the data where there is none, and the command line."""
        if not self.data.exists():
            self._make()
        settings = {"port": self.port, "listen_addresses": HOST, "unix_socket_directories": "", "fsync": "off", "timezone": "UTC"}
        return [*_as_user(), str(binary("postgres")), "-D", str(self.data), *(f"--{name}={value}" for name, value in settings.items())]

    def _make(self) -> None:
        given = self.places.run / "password"
        given.write_text(PASSWORD)
        user = _user()
        if user is not None:
            for place in (self.places.run, given):
                os.chown(place, user.pw_uid, user.pw_gid)
        options = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={given}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command = [*_as_user(), str(binary("initdb")), "-D", str(self.data), *options]
        done = subprocess.run(command, cwd=self.places.run, capture_output=True, text=True, timeout=MAKE_S, check=False)
        if done.returncode != 0:
            raise StackError(f"initdb failed: {done.stderr.strip()}")

    def is_ready(self) -> bool:
        """Whether somebody can log in."""
        try:
            self.admin().close()
        except psycopg.OperationalError:
            return False
        return True

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """A session of the administrator."""
        return psycopg.connect(host=HOST, port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True, connect_timeout=5)

    def new_database(self) -> str:
        """Make an empty database; its name."""
        name = f"store{next(self._numbers)}"
        with self.admin() as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def url(self, database: str) -> str:
        """The address of a database, as a project writes it: the password is in the variable STORE_PASSWORD."""
        return f"postgresql://{USER}:${{STORE_PASSWORD}}@{HOST}:{self.port}/{database}"

    def stop(self) -> None:
        """End it in order, whoever is connected."""
        record = self.record
        if record is not None:
            record.send(signal.SIGINT)
            until(lambda: not record.is_alive, TERM_S)
        super().stop()


def _user() -> pwd.struct_passwd | None:
    """Who runs the server where this process is root, None where this user can."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise StackError("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _as_user() -> list[str]:
    user = _user()
    return [] if user is None else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server of our own; it and its data are gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="streamform-postgres-"))
    places = runs.places_of(folder)
    runs.end_orphans()
    runs.write_down(places, owned=True)
    server = Postgres(places, free_ports(1)[0])
    try:
        server.start()
        yield server
    finally:
        server.stop()
        runs.end(places)
        shutil.rmtree(folder, ignore_errors=True)
