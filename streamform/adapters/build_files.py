"""The files that `build` writes: the script, and the manifest of what it computes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streamform.errors import UsageError

FOLDER = "build"


def write_build(project_dir: Path, backend: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Replace files below build/<backend>/; the paths written, relative to the project. Raises: UsageError."""
    written: list[str] = []
    for name, text in files.items():
        path = project_dir / FOLDER / backend / name if name.endswith(".sql") else project_dir / FOLDER / name
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text, "utf-8")
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            cause = (error.strerror or str(error)).lower()
            raise UsageError(f"can't write {path}: {cause}", "check the project's folder and its permissions") from None
        written.append(path.relative_to(project_dir).as_posix())
    return tuple(written)
