"""Addresses of stores: what is taken, what is shown of them, and what no message ever holds. No database is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamform.adapters.database import Database
from streamform.adapters.factory import open_documents
from streamform.adapters.folder import FolderDocuments
from streamform.errors import StreamformError, UsageError
from streamform.lifecycle.ports import Documents
from streamform.project.model import Target
from streamform.project.store_address import AddressProblem, DatabaseAddress, is_database, parse_store_address
from tests.conftest import ProjectBuilder, run_python

ODD = "hunter2/@:?#%"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PW": ODD, "HOST": "db.example.com", "PORT": "6432", "DB": "the shop"}.items():
        monkeypatch.setenv(name, value)


def open_store(store: str, root: Path = Path("/project")) -> Documents:
    return open_documents(root, "shop", Target("prod", "embedded", store=store))


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("postgresql://me:${PW}@h/db", "postgresql://h:5432/db"),
        ("postgresql+psycopg://me@h:6432/db?sslmode=require", "postgresql://h:6432/db"),
        ("postgresql://${PW}:${PW}@${HOST}:${PORT}/${DB}?sslpassword=${PW}", "postgresql://db.example.com:6432/the%20shop"),
        ("postgresql://h/the%20shop", "postgresql://h:5432/the%20shop"),
        ("postgresql://[::1]:6432/db", "postgresql://[::1]:6432/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///run/postgresql:5432/db"),
        ("postgresql:///db?host=a&host=b&port=1&port=2", "postgresql://a,b:1,2/db"),
        ("sqlite:///store.db", "sqlite:////project/store.db"),
        ("sqlite:///deep/../store.db", "sqlite:////project/store.db"),
        ("sqlite:////var/store.db", "sqlite:////var/store.db"),
        ("store", "/project/store"),
    ],
)
def test_the_address_is_shown_without_credentials(store: str, shown: str) -> None:
    assert open_store(store).describe() == shown


def database(store: str) -> Database:
    address = parse_store_address(store)
    assert isinstance(address, DatabaseAddress)
    return Database(address, Path("/project"))


def test_what_a_reference_stands_for_is_taken_as_it_is() -> None:
    assert database("postgresql://me:${PW}@h/db").url.password == ODD


def test_what_is_written_out_is_percent_encoded() -> None:
    found = database("postgresql://m%40e:${PW}@h/a%2Fb").url
    assert (found.username, found.database) == ("m@e", "a/b")


@pytest.mark.parametrize("store", ["${WHERE}/store", "${FOLDER}"])
def test_a_folder_may_refer_to_the_environment(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/elsewhere")
    monkeypatch.setenv("FOLDER", "/elsewhere/store")
    documents = open_store(store)
    assert isinstance(documents, FolderDocuments)
    assert documents.describe() == "/elsewhere/store"


def test_the_whole_address_may_be_one_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "postgresql://me:writ%40ten@h/db")
    assert open_store("${URL}").describe() == "postgresql://h:5432/db"


@pytest.mark.parametrize(
    "store",
    [
        "mysql://me:${PW}@h/db",
        "postgres://h/db",
        "postgresql+psycopg2://h/db",
        "postgresql:h/db",
        "sqlite:store.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///folder/",
        "sqlite:///store.db?mode=ro",
        "sqlite://host/store.db",
        "postgresql://",
        "postgresql://h",
        "postgresql://h/",
        "postgresql:///db",
        "postgresql://h:port/db",
        "postgresql://h:0/db",
        "postgresql://h:65536/db",
        "postgresql://h/a/b",
        "postgresql://a b/db",
        "postgresql://me:hunter2/@h/db",
        "postgresql://me:hunter2@h@h/db",
        "POSTGRESQL://h/db",
    ],
)
def test_a_malformed_address_is_refused_by_check_and_by_every_command(project: ProjectBuilder, store: str) -> None:
    folder = project("SELECT amount FROM source('orders')", targets={"prod": {"backend": "embedded", "store": store}})
    found = [d for d in folder.check() if d.code.startswith("SF51")]
    assert [d.code for d in found] == ["SF515"]
    for command in ("history", "approvals", "unlock", "plan"):
        done = folder.run(command)
        assert done.code == 2
        assert found[0].message in done.stderr
        assert "hunter2" not in done.stdout + done.stderr.replace(store, "")


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://me:hunter2@h/db",
        "postgresql://me:${PW}hunter2@h/db",
        "postgresql://me:${PW}@h/db?password=hunter2",
        "postgresql://h/db?sslpassword=hunter2",
    ],
)
def test_a_password_that_is_written_out_is_refused_and_shown_by_no_command(project: ProjectBuilder, store: str) -> None:
    folder = project("SELECT amount FROM source('orders')", targets={"prod": {"backend": "embedded", "store": store}})
    assert folder.codes() == ["SF516"]
    for command in ("check", "check --json", "check --format sarif", "plan", "apply", "history", "unlock"):
        done = folder.run(*command.split())
        assert done.code in (1, 2)
        assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("value", ["mysql://me:hunter2@h/db", "postgresql://me:hunter2@h", "postgresql://me:hunter2/@h/db"])
def test_a_malformed_address_from_the_environment_is_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", value)
    with pytest.raises(UsageError) as error:
        open_store("${URL}")
    assert "hunter2" not in f"{error.value.message} {error.value.help}"


@pytest.mark.parametrize("store", ["postgresql://me:${NOT_SET}@h/db", "${NOT_SET}", "postgresql://${NOT_SET}/db"])
def test_a_variable_that_is_not_set_is_named(store: str) -> None:
    with pytest.raises(UsageError, match="NOT_SET is not set"):
        open_store(store)


def test_a_port_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "http")
    with pytest.raises(StreamformError, match="port of `store` is no number"):
        open_store("postgresql://h:${PORT}/db")


@pytest.mark.parametrize("store", ["", ".", ".streamform", "a:b", "C:/store", "/var/store", "a@b"])
def test_everything_else_is_a_folder(store: str) -> None:
    assert not is_database(store)
    assert isinstance(parse_store_address(store), AddressProblem)


def test_without_the_driver_the_extra_is_named(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from pathlib import Path
from streamform.adapters.factory import open_documents
from streamform.errors import StoreError
from streamform.project.model import Target
documents = open_documents(Path("."), "shop", Target("prod", "embedded", store="postgresql://h/db"))
try:
    documents.read("x.json")
except StoreError as error:
    print(error.message, error.help, sep="; ")
"""
    done = run_python(code, cwd=tmp_path)
    assert done.stdout == (
        "the store postgresql://h:5432/db can't be used: no driver for PostgreSQL is installed;"
        " install it: pip install 'streamform-dagster[postgres]'\n"
    ), done.stderr


def test_reading_a_sqlite_store_makes_no_file(tmp_path: Path) -> None:
    documents = open_store("sqlite:///deep/store.db", tmp_path)
    assert documents.read("applied/prod.json") is None
    assert documents.names("journal/") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no database" * 1000, b"\0" * 4096])
def test_a_file_that_is_no_database_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store.db").write_bytes(content)
    with pytest.raises(StreamformError, match="is not a database"):
        open_store("sqlite:///store.db", tmp_path).read("applied/prod.json")
    assert (tmp_path / "store.db").read_bytes() == content
