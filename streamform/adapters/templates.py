"""Writes the example project that ships with the package."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from streamform.errors import UsageError

EXAMPLE = "shop"
DAGSTER_FILES = frozenset({"definitions.py"})
RENAMED = {"gitignore": ".gitignore"}
"""Files whose name in a package would have a meaning of its own."""


def write_example(folder: Path, *, dagster: bool) -> list[str]:
    """Write the example into a new or empty folder; the paths written. Raises: UsageError, and nothing is written then."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder", "name a new folder, or empty this one")
        return [_write(folder, path, content) for path, content in _files(dagster=dagster)]
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise UsageError(f"can't write the example into {folder}: {cause}", "check the path and the disk") from None


def _write(folder: Path, path: str, content: bytes) -> str:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return path


def _files(*, dagster: bool) -> list[tuple[str, bytes]]:
    root = resources.files("streamform") / "templates" / EXAMPLE
    found = sorted(_walk(root, ""))
    return [(path, content) for path, content in found if dagster or path not in DAGSTER_FILES]


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += [] if entry.name == "__pycache__" else _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + RENAMED.get(entry.name, entry.name), entry.read_bytes()))
    return found
