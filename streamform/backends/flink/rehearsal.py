"""Rehearsals: a unit's statements for a job that restores its state and reads its sources, and leaves no trace outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_TABLE = re.compile(r"CREATE TEMPORARY TABLE (`(?:[^`]|``)*`) \(")
_GROUP = re.compile(r"^  'properties\.group\.id' = '((?:[^']|'')*)'", re.MULTILINE)
_OPTIONS = "\n) WITH (\n"


def rehearsal_statements(statements: Sequence[str], sinks: Iterable[str]) -> tuple[str, ...]:
    """The statements with nothing behind these tables, and with consumer groups of their own that commit no offsets."""
    silent = set(sinks)
    return tuple(_silenced(statement, silent) for statement in statements)


def _silenced(statement: str, sinks: set[str]) -> str:
    match = _TABLE.match(statement)
    if match is None:
        return statement
    columns, between, options = statement.rpartition(_OPTIONS)
    if match[1] in sinks:
        return f"{columns}{between}  'connector' = 'blackhole'\n)"
    quiet = r"  'properties.group.id' = '\1-rehearsal',\n  'properties.commit.offsets.on.checkpoint' = 'false'"
    return f"{columns}{between}{_GROUP.sub(quiet, options)}"
