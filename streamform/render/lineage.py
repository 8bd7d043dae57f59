"""Column lineage as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from streamform.plan.lineage import ColumnLineage, Origin
from streamform.render.words import columns

LINEAGE_VERSION = 1


def render_lineage(lineage: Sequence[ColumnLineage]) -> str:
    """Each model's columns beside what they are made of, and what decides about its rows."""
    return "\n".join(_model(name, list(group)) for name, group in groupby(lineage, key=lambda column: column.model))


def _model(name: str, lineage: list[ColumnLineage]) -> str:
    rows = [(column.column, column.type, f"<- {_listed(column.inputs) or 'no column'}", _sources(column)) for column in lineage]
    lines = [name, *columns(rows)]
    if lineage[0].decided_by:
        lines.append(f"  rows decided by {_listed(lineage[0].decided_by)}")
    return "\n".join(lines) + "\n"


def _sources(column: ColumnLineage) -> str:
    return f"(from {_listed(column.sources)})" if column.sources and column.sources != column.inputs else ""


def _listed(origins: Sequence[Origin]) -> str:
    return ", ".join(map(str, origins))


def lineage_document(lineage: Sequence[ColumnLineage]) -> dict[str, Any]:
    """The JSON document."""
    return {"lineage_version": LINEAGE_VERSION, "columns": [_column(column) for column in lineage]}


def _column(column: ColumnLineage) -> dict[str, Any]:
    return {
        "model": column.model,
        "column": column.column,
        "type": column.type,
        "inputs": [origin._asdict() for origin in column.inputs],
        "sources": [origin._asdict() for origin in column.sources],
        "decided_by": [origin._asdict() for origin in column.decided_by],
    }
