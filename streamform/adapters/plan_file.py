"""The file that a plan is saved to: written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from streamform.errors import UsageError


def write_plan_file(path: Path, text: str) -> None:
    """Replace a file at once and durably; a link stays one. Raises: UsageError when it can't be written."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise UsageError(f"can't write {path}: it is not a regular file", "name a file")
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(f"can't write {path}: {(error.strerror or str(error)).lower()}", "check the path") from None
