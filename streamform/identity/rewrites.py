"""REWRITES: every way in which a text may change without changing its structural keys, each with the reason why.

The list is closed: what is not in it changes the keys.
"""

from __future__ import annotations

from typing import NamedTuple


class Rewrite(NamedTuple):
    """One row."""

    id: str
    evidence: str
    """The evidence in which two texts differ when this rewrite lies between them."""
    name: str
    proof: str


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "W1",
        "AND",
        "the order of conditions",
        "AND is commutative, associative and idempotent in three-valued logic, so the same rows pass. Where a condition fails to compute, the failure is an error in one order or the other, never another result.",
    ),
    Rewrite("W2", "OR", "the order of alternatives", "OR is commutative, associative and idempotent in three-valued logic."),
    Rewrite(
        "W3",
        "flipped comparisons",
        "a comparison written the other way round",
        "a > b is b < a for every pair of values, NULL and NaN included; =, <> and IS DISTINCT FROM are symmetric.",
    ),
    Rewrite(
        "W4",
        "pass-through",
        "projections that pass columns through",
        "An expression over a projection's output is the expression over its input with the output's own expression in the column's place.",
    ),
    Rewrite(
        "W5",
        "shape",
        "the shape of subqueries and common table expressions",
        "A filter over a filter keeps the rows that meet both conditions; a projection between them changes no row that passes.",
    ),
    Rewrite(
        "W6",
        "inlining",
        "which stateless model a part stands in",
        "A model that is read through ref() hands on the rows of its query unchanged, so its query may stand in its place.",
    ),
    Rewrite(
        "W7",
        "unused columns",
        "columns that nothing reads",
        "A column that no condition, key, accumulator or output reads takes part in no result.",
    ),
    Rewrite("W8", "aliases", "names given to columns on the way", "Names select expressions; the expressions are compared."),
    Rewrite(
        "W9",
        "equation order",
        "the order of accumulators",
        "Each accumulator folds the same rows by itself; where its slot stands decides nothing.",
    ),
)


def rewrites_between(running: dict[str, tuple[str, ...]], desired: dict[str, tuple[str, ...]]) -> tuple[Rewrite, ...]:
    """The rewrites that lie between two texts with the same key."""
    return tuple(row for row in REWRITES if running.get(row.evidence, ()) != desired.get(row.evidence, ()))
