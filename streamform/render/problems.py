"""Diagnostics as text and as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamform.diagnostics import Diagnostic


def render_diagnostic(diagnostic: Diagnostic) -> str:
    """The problem with its place, the source line with a caret, and the remedy."""
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"]
    place = str(diagnostic.where) if diagnostic.where else diagnostic.path
    if place:
        lines.append(f"  --> {place}")
    if diagnostic.excerpt is not None and diagnostic.where is not None:
        lines += _excerpt(diagnostic.excerpt, diagnostic.where.line, diagnostic.where.column, diagnostic.where.length)
    if diagnostic.help:
        lines.append(f"  help: {diagnostic.help}")
    return "\n".join(lines)


def _excerpt(text: str, line: int, column: int, length: int) -> list[str]:
    """The line and a caret below the place; a long line is cut around it."""
    start = max(0, column - 60)
    shown = text[start : start + 120].expandtabs(1)
    width = max(1, min(length, len(shown) - (column - 1 - start)))
    gutter = " " * len(str(line))
    return [f"  {gutter} |", f"  {line} | {shown}", f"  {gutter} | {' ' * (column - 1 - start)}{'^' * width}"]


def render_diagnostics(diagnostics: Sequence[Diagnostic]) -> str:
    """Several problems, a blank line between them."""
    return "\n\n".join(map(render_diagnostic, diagnostics))


def diagnostic_document(diagnostic: Diagnostic) -> dict[str, Any]:
    """One problem of a check report."""
    document: dict[str, Any] = {"severity": diagnostic.severity, "message": diagnostic.message}
    if diagnostic.path is not None:
        document["path"] = diagnostic.path
    if diagnostic.help:
        document["help"] = diagnostic.help
    document["code"] = diagnostic.code
    if diagnostic.where is not None and diagnostic.where.line:
        document["where"] = {"file": diagnostic.where.file, "line": diagnostic.where.line, "column": diagnostic.where.column}
    return document
