"""A part of a project as JSON and back: the source text that is kept beside an artifact.

Targets are left out: addresses and references to secrets are no part of what was deployed. So is how a diff is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from streamform.errors import DocumentError
from streamform.project.files import ProjectFiles
from streamform.project.load import Loaded
from streamform.project.model import Project


def project_part(project: Project, models: set[str], sources: set[str]) -> dict[str, Any]:
    """The JSON of some models and the sources that they read."""
    part = replace(
        project,
        root=".",
        identity="conservative",
        targets=(),
        models=tuple(m for m in project.models if m.name in models),
        sources=tuple(s for s in project.sources if s.name in sources),
    )
    result: dict[str, Any] = to_builtins(part)
    return result


def read_project_part(document: Mapping[str, Any]) -> Loaded:
    """The project that a document holds. Raises: DocumentError."""
    try:
        project = convert(document, Project)
    except ValidationError as error:
        raise DocumentError(
            f"the stored source text can't be read: {error}",
            "it was written by another release; use that release, or apply again after a rebuild",
        ) from None
    return Loaded(project, ProjectFiles(project.root, {}))
