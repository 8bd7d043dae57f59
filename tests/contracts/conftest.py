"""Every adapter of the Documents port, and the typed store over each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from integration.requirement import require
from integration.stack.postgres import PASSWORD, missing_postgres, running_postgres
from streamform.adapters.factory import open_documents
from streamform.lifecycle.ports import Documents
from streamform.lifecycle.store import Store
from streamform.project.model import Target

from .memory import MemoryDocuments

PROJECTS = (f"project {number}" for number in count())


@dataclass(frozen=True, slots=True)
class Place:
    """Where documents are, for this process and for others."""

    kind: str
    root: Path
    project: str
    store: str

    def open(self, target: str = "prod", *, project: str | None = None) -> Documents:
        """The documents of one target, as another process would see them."""
        return open_documents(self.root, project or self.project, Target(target, "embedded", store=self.store))

    @property
    def arguments(self) -> list[str]:
        """What a script of another process is told."""
        return [str(self.root), self.project, self.store]


OPEN = """
import hashlib, sys
from pathlib import Path
from streamform.adapters.factory import open_documents
from streamform.errors import StoreError
from streamform.project.model import Target
documents = open_documents(Path(sys.argv[1]), sys.argv[2], Target("prod", "embedded", store=sys.argv[3]))
"""
"""The beginning of a script that is given Place.arguments."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of an empty database on a server of this run."""
    require(missing_postgres())
    with running_postgres() as server:
        yield server.url(server.new_database())


def place_of(kind: str, request: pytest.FixtureRequest, root: Path) -> Place:
    """An empty store of one kind."""
    if kind == "postgres":
        request.getfixturevalue("monkeypatch").setenv("STORE_PASSWORD", PASSWORD)
        return Place(kind, root, next(PROJECTS), request.getfixturevalue("postgres_url"))
    return Place(kind, root, next(PROJECTS), "sqlite:///deep/store.db" if kind == "sqlite" else "store")


@pytest.fixture(params=["folder", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store that several processes can use."""
    return place_of(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "folder", "sqlite", "postgres"])
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Documents:
    """An empty store of documents."""
    return MemoryDocuments() if request.param == "memory" else place_of(request.param, request, tmp_path).open()


@pytest.fixture
def store(documents: Documents) -> Store:
    """What is written down about one target."""
    return Store(documents, "prod")
