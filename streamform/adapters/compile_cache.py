"""Compiled projects, kept between commands.

The key is the content of the project's files, of the compiler itself and of its parser's version: never a time. Entries
lie in the user's own cache folder, which nobody else may write, because reading one runs what it says. Any entry can be
removed at any time without changing a result.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from importlib.util import find_spec
from pathlib import Path

from streamform.plan.compiled import Compiled
from streamform.project.files import ProjectFiles
from streamform.project.model import Target

FORMAT = "1"
MAX_ENTRIES = 32
COMPILER_PARTS = ("values", "project", "sql", "plan")

Entry = tuple[Compiled, Target]


def cache_folder() -> Path | None:
    """The folder of entries, or None where there is none that is only ours."""
    configured = os.environ.get("STREAMFORM_CACHE_DIR")
    if configured == "":
        return None
    base = Path(configured) if configured else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamform" / "compile"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = base.stat()
    except OSError:
        return None
    return base if status.st_uid == os.getuid() and not status.st_mode & 0o022 else None


def cache_key(files: ProjectFiles, target: str | None) -> str:
    """The name of the entry for these files on this target."""
    seed = hashlib.sha256()
    for part in (FORMAT, sys.version, _compiler_digest(), files.root, repr(target)):
        seed.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for path, text in (*files.texts.items(), *files.actual.items()):
        seed.update(path.encode() + b"\0" + text.encode("utf-8", "surrogatepass") + b"\0")
    return seed.hexdigest()


def _compiler_digest() -> str:
    """What tells one state of the compiler and its parser from another."""
    package = Path(__file__).parent.parent
    seed = hashlib.sha256()
    for part in COMPILER_PARTS:
        for path in sorted((package / part).glob("*.py")):
            seed.update(path.read_bytes())
    parser = find_spec("sqlglot")
    if parser is not None and parser.origin is not None:
        version = Path(parser.origin).with_name("_version.py")
        seed.update(version.read_bytes() if version.is_file() else b"")
    return seed.hexdigest()


def read_entry(key: str) -> Entry | None:
    """The entry of this key; one that can't be read counts as missing."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        content = (folder / key).read_bytes()
        checksum, body = content[:32], content[32:]
        if hashlib.sha256(body).digest() != checksum:
            return None
        entry: Entry = pickle.loads(body)  # noqa: S301 - the folder is ours alone
        return entry
    except (OSError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, EOFError, TypeError, ValueError):
        return None


def write_entry(key: str, entry: Entry) -> None:
    """Keep an entry; failing to is no error, because nothing depends on it."""
    folder = cache_folder()
    if folder is None:
        return
    body = pickle.dumps(entry, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        beside = folder / f".{key}.{os.getpid()}"
        beside.write_bytes(hashlib.sha256(body).digest() + body)
        beside.replace(folder / key)
        _prune(folder)
    except OSError:
        return


def _prune(folder: Path) -> None:
    """Keep the newest entries only."""
    entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in entries[MAX_ENTRIES:]:
        path.unlink(missing_ok=True)
