"""Diagnostics: what is wrong with the user's project, as data.

A stage collects all it finds and goes on as far as it can; `check` prints all of them, every other command stops at the
first stage that has errors. Codes are stable (SFnnn) and never reused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from streamform.errors import ProjectError

_PASSWORD = re.compile(
    r"(?P<before>://[^:@/\s'\"]*:|[?&][a-z]*password=)(?!\$\{\w+\}(?:[@&'\"}\s]|$))(?P<password>(?<==)[^&#\s'\"}]+|(?<=:)[^\s'\"]+(?=@))"
)

Severity = Literal["error", "warning", "note"]


class Location(Struct, frozen=True):
    """A place in a file. `line` and `column` start at 1; 0 means the whole file. `length` is in characters."""

    file: str
    line: int = 0
    column: int = 0
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Diagnostic(Struct, frozen=True):
    """One problem. `path` is the document or file it is about, as reports show it."""

    code: str
    severity: Severity
    message: str
    path: str | None = None
    help: str | None = None
    where: Location | None = None
    subject: str | None = None
    excerpt: str | None = None
    """The source line that `where` points into, for the caret."""


class Diagnostics(Struct):
    """Collects problems in the order they are found."""

    items: list[Diagnostic] = field(default_factory=list)

    def add(self, diagnostic: Diagnostic) -> None:
        """Append one problem; an exact repetition is dropped."""
        if diagnostic not in self.items:
            self.items.append(diagnostic)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Append several."""
        for diagnostic in diagnostics:
            self.add(diagnostic)

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self.items)

    def raise_errors(self) -> None:
        """Raise ProjectError with the errors found so far, if there are any."""
        errors = [d for d in self.items if d.severity == "error"]
        if errors:
            raise ProjectError(errors)


def with_excerpt(diagnostic: Diagnostic, text: str) -> Diagnostic:
    """The diagnostic with the line of `text` that it points at; a password in it is replaced by as many stars."""
    where = diagnostic.where
    lines = text.split("\n")
    if where is None or not 0 < where.line <= len(lines):
        return diagnostic
    return replace(diagnostic, excerpt=without_passwords(lines[where.line - 1].rstrip("\r")))


def without_passwords(line: str) -> str:
    """A line whose URLs show no password; references to the environment stay."""
    return _PASSWORD.sub(lambda found: found["before"] + "*" * len(found["password"]), line)
