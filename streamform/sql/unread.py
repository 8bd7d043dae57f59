"""READ: the parts of the syntax that binding looks at. Whatever else a query holds is refused, never passed over.

The parser takes more than one dialect's clauses; a clause that nobody reads would silently do nothing.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from streamform.sql.scope import Found, Problems
from streamform.sql.unsupported import CLAUSES

READ: dict[str, frozenset[str]] = {
    "Select": frozenset({"with_", "expressions", "distinct", "from_", "where", "group", "having"}),
    "Subquery": frozenset({"this", "alias"}),
    "Table": frozenset({"this", "alias", "db", "catalog"}),
    "TableAlias": frozenset({"this", "columns"}),
    "With": frozenset({"expressions", "recursive"}),
    "CTE": frozenset({"this", "alias", "materialized"}),
    "Union": frozenset({"with_", "this", "expression", "distinct"}),
    "Group": frozenset({"expressions", "all", "rollup", "cube", "grouping_sets", "totals"}),
    "Star": frozenset(),
    "Column": frozenset({"this", "table"}),
    "Cast": frozenset({"this", "to"}),
    "TryCast": frozenset({"this", "to", "safe"}),
    "Between": frozenset({"this", "low", "high"}),
    "Floor": frozenset({"this", "to"}),
    "Ceil": frozenset({"this", "to"}),
    "StrPosition": frozenset({"this", "substr"}),
    "Substring": frozenset({"this", "start", "length"}),
    "Trim": frozenset({"this", "expression", "position"}),
    "In": frozenset({"this", "expressions", "query", "unnest"}),
}
"""By the parser's class. Classes without a row have no parts beside those that are bound."""

NAMES: dict[str, tuple[str, str]] = {
    "except_": ("* EXCEPT", "name the columns"),
    "replace": ("* REPLACE", "name the columns"),
    "rename": ("* RENAME", "name the columns"),
    "version": ("FOR SYSTEM_TIME", "remove it"),
    "hints": ("a table hint", "remove it"),
    "decimals": ("a second operand here", "use ROUND"),
    "db": ("a column's name of more than two parts", "qualify it with the alias alone"),
    "symmetric": ("BETWEEN SYMMETRIC", "order the bounds"),
}
"""What users call a part whose name in the parser differs, and what to write instead."""


def refuse_unread(problems: Problems, root: exp.Expression) -> None:
    """Record every part of the query that nobody reads. Raises: Found when there is one."""
    found: list[Found] = []
    for node in root.walk():
        read = READ.get(type(node).__name__)
        for part, value in node.args.items() if read is not None else ():
            if value and read is not None and part not in read:
                found.append(problems.unsupported(_place(node, value), *_named(node, part)))
    if found:
        raise found[0]


def _named(node: exp.Expr, part: str) -> tuple[str, str]:
    name = type(node).__name__.upper()
    clause = name in ("SELECT", "SUBQUERY", "TABLE", "UNION")
    if clause and part in CLAUSES:
        return CLAUSES[part]
    words = part.strip("_").upper().replace("_", " ")
    return NAMES.get(part, (words if clause else f"{words} in {name}", "remove it"))


def _place(node: exp.Expr, value: Any) -> Any:
    inner = value[0] if isinstance(value, list) else value
    return inner if isinstance(inner, exp.Expr) and any("start" in part.meta for part in inner.walk()) else node
