"""MODES: what kind of changes each node emits, given what it reads; and whether the declaration agrees.

Rows M1 to M6 are the changelog page's rules; M8 and M9 make the mode that the page reserves for retraction. The declared materialization is the contract with readers, so check
requires it to be what the SQL produces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamform.codes import listed, problem
from streamform.diagnostics import Diagnostic
from streamform.plan.nodes import APPEND, RETRACT, Changelog
from streamform.project.model import Model
from streamform.sql.expressions import ColumnRef, Output


class Mode(NamedTuple):
    """One row: a kind of node over a kind of input."""

    id: str
    node: str
    over: str
    emits: str
    why: str


MODES = (
    Mode("M1", "source", "-", "append", "Every event is a new fact."),
    Mode(
        "M2",
        "filter",
        "any",
        "its input's",
        "A filter shows or hides rows; over updates, a row that starts or stops matching is an insert or a delete.",
    ),
    Mode("M3", "project", "any", "its input's, keyed by the key columns' output names", "Each row is computed from one row."),
    Mode(
        "M8",
        "project",
        "upsert, without all of its key columns",
        "retract",
        "Rows that change have no key any more; an aggregate above takes the old row out and the new one in.",
    ),
    Mode(
        "M4",
        "aggregate",
        "any",
        "upsert(grouping columns)",
        "A group's row changes as facts arrive, or as rows below it change; without GROUP BY there is one row with an empty key.",
    ),
    Mode("M5", "windowed aggregate", "append", "append", "A window's result is emitted once, when the window closes."),
    Mode("M7", "union", "append", "append", "Every row of every input is a new fact."),
    Mode("M9", "union", "any that is updated", "retract", "Equal keys of two inputs are different rows, so rows have no common key."),
    Mode("M6", "sink", "any", "its input's", "The model's changelog as readers see it."),
)


def derive_projected(changelog: Changelog, outputs: tuple[Output, ...]) -> tuple[Changelog, str | None]:
    """The changelog of a projection (M3, M8), and the key column that it drops, if it drops one."""
    renamed: dict[str, str] = {}
    for output in outputs:
        if isinstance(output.expression, ColumnRef):
            renamed.setdefault(output.expression.name, output.name)
    dropped = next((column for column in changelog.key if column not in renamed), None)
    if dropped is not None:
        return RETRACT, dropped
    return Changelog(changelog.mode, tuple(renamed[column] for column in changelog.key)), None


def derive_united(changelogs: Sequence[Changelog]) -> Changelog:
    """The changelog of a union (M7, M9)."""
    return RETRACT if any(changelog.is_updating for changelog in changelogs) else APPEND


def derive_aggregated(keys: tuple[str, ...], *, windowed: bool) -> Changelog:
    """The changelog of an aggregate (M4), which over windows is append (M5)."""
    return APPEND if windowed else Changelog("upsert", keys)


def check_materialization(model: Model, derived: Changelog, columns: list[str], dropped: str | None) -> list[Diagnostic]:
    """Where the declared contract and the derived changelog disagree."""
    if model.materialized == "append":
        return _check_append(model, derived)
    repeated = next((c for i, c in enumerate(model.key) if c in model.key[:i]), None)
    if repeated is not None:
        return [problem("SF208", path=model.path, model=model.name, column=repeated)]
    if not derived.is_updating:
        return _check_declared_key(model, columns)
    if dropped is not None:
        return [problem("SF207", path=model.path, model=model.name, column=dropped, known=listed(columns))]
    if derived.mode == "retract":
        return [problem("SF209", path=model.path, model=model.name)]
    if model.key != derived.key:
        code = "SF203" if not derived.key else "SF201" if not model.key else "SF202"
        return [problem(code, path=model.path, model=model.name, derived=", ".join(derived.key), declared=", ".join(model.key))]
    return []


def _check_append(model: Model, derived: Changelog) -> list[Diagnostic]:
    if derived.is_updating:
        hint = f" and key: [{', '.join(derived.key)}]" if derived.key else ""
        return [problem("SF204", path=model.path, model=model.name, derived=derived, key_hint=hint)]
    return [problem("SF250", path=model.path, model=model.name, declared=", ".join(model.key))] if model.key else []


def _check_declared_key(model: Model, columns: list[str]) -> list[Diagnostic]:
    if not model.key:
        return [problem("SF205", path=model.path, model=model.name)]
    missing = next((column for column in model.key if column not in columns), None)
    if missing is None:
        return []
    return [problem("SF207", path=model.path, model=model.name, column=missing, known=listed(columns))]
