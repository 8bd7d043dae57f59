"""Names in one SELECT, and the problems found while binding it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from sqlglot import exp

from streamform.codes import problem
from streamform.diagnostics import Diagnostic
from streamform.sql.expressions import ColumnRef, Relation
from streamform.sql.parse import Statement
from streamform.values.rows import Schema

WINDOW_COLUMNS = ("window_start", "window_end")


class Found(Exception):
    """A problem was recorded; the part being bound is given up."""


class Problems(Struct):
    """Collects what is wrong with one statement, with places."""

    statement: Statement
    items: list[Diagnostic] = field(default_factory=list)

    def found(self, code: str, node: exp.Expression, **facts: Any) -> Found:
        """Record a problem at a node; the caller raises what this returns."""
        st = self.statement
        self.items.append(problem(code, path=st.path, where=st.place(node), model=st.model, **facts))
        return Found()

    def unsupported(self, node: exp.Expression, construct: str, instead: str) -> Found:
        """Record that a construct is not supported."""
        return self.found("SF112", node, construct=construct, instead=instead)


class Catalog(Struct, frozen=True):
    """What source() and ref() can name: schemas by name."""

    sources: Mapping[str, Schema]
    models: Mapping[str, Schema]


class ScopeColumn(Struct, frozen=True):
    """A column that a name can lead to."""

    qualifier: str
    ref: ColumnRef


class Scope(Struct):
    """The columns that names in one SELECT resolve against."""

    columns: list[ScopeColumn]

    @property
    def names(self) -> list[str]:
        return [c.ref.name for c in self.columns]

    def find(self, name: str, qualifier: str = "") -> list[ColumnRef]:
        """The columns that a name leads to."""
        return [c.ref for c in self.columns if c.ref.name == name and (not qualifier or c.qualifier == qualifier)]


def relation_scope(relation: Relation, alias: str) -> Scope:
    """The columns of a relation under its alias."""
    return schema_scope(relation.schema, alias)


def schema_scope(schema: Schema, alias: str) -> Scope:
    """The columns of a schema under an alias."""
    return Scope([ScopeColumn(alias, ColumnRef(c.name, c.type, alias)) for c in schema])


def identifier(node: exp.Expression | str) -> str:
    """A name as it resolves: unquoted names fold to lower case."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    return str(node.name if isinstance(node, exp.Expression) else node).lower()
