"""Addresses: where the tables of a unit's statements read and write, from the text that was submitted.

A compiled plan names tables only. A restored source goes on reading where it was, whatever its table says now, so a table that
moved must not take over a position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TABLE = re.compile(r"CREATE TEMPORARY TABLE (`(?:[^`]|``)*`) \(")
_OPTION = re.compile(r"^  '((?:[^']|'')*)' = (?:U&)?'((?:[^']|'')*)'", re.MULTILINE)
_PLACE = ("connector", "topic", "path", "properties.bootstrap.servers")
CONNECTORS = frozenset({"kafka", "upsert-kafka"})
"""Connectors whose sources and sinks are known to keep what a changed table can go on with."""


def addresses_of(statements: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each temporary table, by its quoted name: its connector and where that reads or writes; references stay."""
    found: dict[str, dict[str, str]] = {}
    for statement in statements:
        match = _TABLE.match(statement)
        if match is not None:
            options = dict(_OPTION.findall(statement.rpartition("\n) WITH (\n")[2]))
            found[match[1]] = {name: options[name].replace("''", "'") for name in _PLACE if name in options}
    return found
