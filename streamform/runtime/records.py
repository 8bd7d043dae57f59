"""Changelog records: what flows on the edges of a dataflow.

An edge whose changelog mode is append carries plain rows. An updating edge carries changes: tuples of operation, row
and, for an update, the row before it. Plain tuples, because millions of them are made.
"""

from __future__ import annotations

from streamform.values.rows import Row

INSERT, UPDATE, DELETE = 0, 1, 2
OPERATION_NAMES = ("insert", "update", "delete")
OPERATIONS = {name: number for number, name in enumerate(OPERATION_NAMES)}

Change = tuple[int, Row, Row | None]
"""Operation, row after the change (for a delete the last row shown), row before an update."""

Key = tuple[object, ...]
