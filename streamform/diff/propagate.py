"""P1: what changed upstream of each node, across models."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from streamform.diff.facets import Facets
from streamform.identity.manifest import Manifest

_SEMANTIC_FIELDS = frozenset({"definition", "inputs", "state", "window", "retention", "state digest"})
"""Fields whose change means that other rows come out, or the same rows at other times."""


def propagate(desired: Manifest, facets: Mapping[str, Facets], matched: Mapping[str, str]) -> dict[str, Facets]:
    """The facets with the nearest change upstream filled in.

    A node counts as changed when it is new, when its definition, inputs or state differ, or when a column that state
    depends on has another type. Changes that readers can't see, such as a column nobody reads, do not count.
    """
    nearest: dict[str, str | None] = {}
    result: dict[str, Facets] = {}
    for node in desired.nodes:
        found = next((nearest[name] for name in node.inputs if nearest.get(name)), None)
        own = facets.get(node.id)
        if own is not None:
            upstream = found or (_moved_input(own) if own.inputs_moved else None)
            result[node.id] = replace(own, upstream=upstream)
        nearest[node.id] = node.id if node.id not in matched or _is_semantic(own) else found
    return result


def _is_semantic(facets: Facets | None) -> bool:
    return facets is not None and (bool(facets.changed_fields & _SEMANTIC_FIELDS) or bool(facets.retyped))


def _moved_input(facets: Facets) -> str:
    """The input that is gone, else the first one that is new."""
    gone = [name for name in facets.before.inputs if name not in facets.after.inputs]
    return (gone or list(facets.after.inputs) or [facets.before.id])[0]
