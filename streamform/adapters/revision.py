"""Another revision of a project: a folder, or a git reference of the repository that holds it."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamform.errors import UsageError

GIT = "git:"
TIMEOUT_S = 60


@contextmanager
def open_revision(project_dir: Path, revision: str) -> Iterator[Path]:
    """A folder with the project as it is in a revision: `git:REF`, or a path relative to the project.

    Raises: UsageError when there is none.
    """
    if not revision.startswith(GIT):
        folder = project_dir / revision
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", "name a project's folder, or git:REF")
        yield folder
        return
    archive = _archive(project_dir, revision.removeprefix(GIT))
    with tempfile.TemporaryDirectory(prefix="streamform-") as folder_name:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder_name, filter="data")
        yield Path(folder_name)


def _archive(project_dir: Path, reference: str) -> bytes:
    """The project's folder in a commit, as a tar archive."""
    commit = (
        _git(project_dir, reference, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}").decode().strip()
    )
    prefix = _git(project_dir, reference, "rev-parse", "--show-prefix").decode().strip()
    return _git(project_dir, reference, "archive", "--format=tar", f"{commit}:{prefix.rstrip('/')}" if prefix else commit)


def _git(project_dir: Path, reference: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, the reference is resolved to a commit first
            ["git", *arguments],  # noqa: S607 - git is looked up as everywhere
            cwd=project_dir,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"can't ask git about {reference}: {error}", "install git, or name a folder") from None
    if done.returncode != 0:
        cause = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = f" ({cause[-1]})" if cause else ""
        raise UsageError(
            f"git has no revision `{reference}` of {project_dir}{said}", "name a branch, a tag or a commit that holds the project"
        )
    return done.stdout
