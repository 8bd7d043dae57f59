"""Which adapter a target asks for."""

from __future__ import annotations

from pathlib import Path

from streamform.adapters.folder import FolderDocuments
from streamform.lifecycle.ports import Backend, Documents
from streamform.project.model import Project, Target


def open_documents(project_dir: Path, target: Target) -> Documents:
    """The store that a target names: a folder, relative to the project's."""
    return FolderDocuments(project_dir / target.store)


def open_backend(project_dir: Path, project: Project, target: Target) -> Backend:
    """The backend of a target; nothing is contacted yet."""
    if target.backend == "embedded":
        from streamform.adapters.embedded import EmbeddedBackend

        return EmbeddedBackend(project_dir, project, target)
    from streamform.adapters.flink import FlinkBackend

    return FlinkBackend(project_dir, project, target)
