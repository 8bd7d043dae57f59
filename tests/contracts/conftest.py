"""Every adapter of the Documents port, and the typed store over each."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamform.adapters.folder import FolderDocuments
from streamform.lifecycle.ports import Documents
from streamform.lifecycle.store import Store

from .memory import MemoryDocuments


@pytest.fixture(params=["memory", "folder"])
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Documents:
    """An empty store of documents."""
    return MemoryDocuments() if request.param == "memory" else FolderDocuments(tmp_path / "store")


@pytest.fixture
def store(documents: Documents) -> Store:
    """What is written down about one target."""
    return Store(documents, "prod")
