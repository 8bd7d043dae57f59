"""A project's files as text, before anything in them is read.

Separate from load.py because a compile that is found in the cache needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from streamform.codes import problem
from streamform.diagnostics import Diagnostic, Location, with_excerpt

PROJECT_FILE, SOURCES_FILE, MODELS_FOLDER, TESTS_FOLDER = "streamform.yml", "sources.yml", "models", "tests"
MAX_SQL_BYTES = 4 * 1024 * 1024


class ProjectFiles(Struct, frozen=True):
    """The text of a project's files, by path relative to the project folder, in name order.

    streamform.yaml stands under streamform.yml, sources.yaml under sources.yml; `actual` maps to the names on disk.
    """

    root: str
    texts: dict[str, str]
    problems: tuple[Diagnostic, ...] = ()
    actual: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    """Files below models/ that are no model, documentation and hidden files apart."""

    def shown(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic as users see it: names as on disk, and the source line that it points at."""
        file = diagnostic.where.file if diagnostic.where is not None else None
        if file is not None and file in self.texts:
            diagnostic = with_excerpt(diagnostic, self.texts[file])
        if diagnostic.where is not None and file in self.actual:
            diagnostic = replace(diagnostic, where=replace(diagnostic.where, file=self.actual[file]))
        if diagnostic.path is not None and diagnostic.path in self.actual:
            diagnostic = replace(diagnostic, path=self.actual[diagnostic.path])
        return diagnostic

    def under(self, folder: str, *suffixes: str) -> list[str]:
        """Paths below a folder that end with one of the suffixes."""
        return [path for path in self.texts if path.startswith(folder + "/") and path.endswith(suffixes)]


def read_project_files(folder: Path, *, tests: bool = False) -> ProjectFiles:
    """The text of every file that a project consists of; a file that can't be read is a problem, not an exception."""
    root = str(folder)
    documents = {name: _on_disk(folder, name) for name in (PROJECT_FILE, SOURCES_FILE)}
    if not documents[PROJECT_FILE]:
        return ProjectFiles(root, {}, (problem("SF001", path=".", folder=root),))
    texts: dict[str, str] = {}
    twice = [found for found in documents.values() if len(found) > 1]
    problems = [problem("SF009", path=first, where=Location(second), first=first, second=second) for first, second in twice]
    canonical = {found[0]: name for name, found in documents.items() if found}
    for path in _project_paths(folder, canonical, tests=tests):
        name = path.relative_to(folder).as_posix()
        name = canonical.get(name, name)
        try:
            name.encode("utf-8")
            texts[name] = _read(path)
        except (OSError, ValueError) as error:
            name, cause = name.encode("utf-8", "backslashreplace").decode(), _cause(error)
            problems.append(problem("SF002", path=name, where=Location(name), file=name, cause=cause))
    actual = {name: found for found, name in canonical.items() if found != name}
    return ProjectFiles(root, texts, tuple(problems), actual, tuple(_unread(folder)) if tests else ())


def _unread(folder: Path) -> Iterator[str]:
    for path in _files_below(folder / MODELS_FOLDER):
        if path.suffix not in (".sql", ".md") and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix()


def _on_disk(folder: Path, name: str) -> list[str]:
    """The names under which a document exists."""
    return [n for n in (name, name.removesuffix(".yml") + ".yaml") if (folder / n).is_file()]


def _cause(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return f"byte {error.start} is not UTF-8" if isinstance(error, UnicodeDecodeError) else "its name is not UTF-8"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _read(path: Path) -> str:
    if path.suffix == ".sql" and path.stat().st_size > MAX_SQL_BYTES:
        raise ValueError(f"more than {MAX_SQL_BYTES >> 20} MiB")
    data = path.read_bytes()
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    if "\0" in text:
        raise ValueError("it holds a NUL character, so it is no text")
    return text


def _project_paths(folder: Path, documents: Iterable[str], *, tests: bool) -> Iterator[Path]:
    yield from (folder / name for name in documents)
    yield from _files_below(folder / MODELS_FOLDER, ".sql")
    if tests:
        yield from _files_below(folder / TESTS_FOLDER, ".yml", ".yaml")


def _files_below(folder: Path, *suffixes: str) -> list[Path]:
    """Regular files below a folder, all or those with a suffix, in name order. A symbolic link to a folder is not followed, so no loop is entered."""
    if not folder.is_dir():
        return []
    found: list[Path] = []
    pending = [folder]
    while pending:
        for entry in pending.pop().iterdir():
            if entry.is_dir() and not entry.is_symlink():
                pending.append(entry)
            elif (not suffixes or entry.suffix in suffixes) and entry.is_file():
                found.append(entry)
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())
