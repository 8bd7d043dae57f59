"""Which adapter a target asks for."""

from __future__ import annotations

from pathlib import Path

from streamform.adapters.environment import resolve
from streamform.adapters.folder import FolderDocuments
from streamform.errors import UsageError
from streamform.lifecycle.ports import Backend, Documents
from streamform.project.model import Project, Target
from streamform.project.store_address import EXAMPLE, AddressProblem, is_database, parse_store_address


def open_documents(project_dir: Path, project: str, target: Target) -> Documents:
    """The store that a target names: a folder, relative to the project's, or a database, where this project and target have their rows.

    Raises: UsageError for an address that can't be used and for a variable that is not set.
    """
    written = target.store
    resolved = written if is_database(written) else resolve(written)
    if not is_database(resolved):
        return FolderDocuments(project_dir / resolved)
    address = parse_store_address(resolved, is_resolved=resolved != written)
    if isinstance(address, AddressProblem):
        raise UsageError(f"target `{target.name}`: `store` is {address.shown}, {address.cause}", f"write {EXAMPLE}")
    from streamform.adapters.database import Database

    database = Database(address, project_dir)
    if address.kind == "sqlite":
        from streamform.adapters.sql_documents import SqliteDocuments

        return SqliteDocuments(database, project, target.name)
    from streamform.adapters.postgres_documents import PostgresDocuments

    return PostgresDocuments(database, project, target.name)


def open_backend(project_dir: Path, project: Project, target: Target) -> Backend:
    """The backend of a target; nothing is contacted yet."""
    if target.backend == "embedded":
        from streamform.adapters.embedded import EmbeddedBackend

        return EmbeddedBackend(project_dir, project, target)
    from streamform.adapters.flink import FlinkBackend

    return FlinkBackend(project_dir, project, target)
