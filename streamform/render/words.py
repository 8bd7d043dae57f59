"""Small words that several views share."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def title(kind: str) -> str:
    """An operator's name as text shows it: `Aggregate`."""
    return kind.capitalize()


def columns(rows: Iterable[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Rows as aligned columns."""
    table = [tuple(row) for row in rows]
    if not table:
        return []
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in table]
