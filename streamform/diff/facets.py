"""What differs between a node and its counterpart, field by field, and what a rule needs to know about it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from streamform.diff.model import FieldChange
from streamform.identity.manifest import Columns, ManifestModel, ManifestNode


class Facets(Struct, frozen=True):
    """A node beside its counterpart. `inputs_moved` says that it reads other nodes than before."""

    before: ManifestNode
    after: ManifestNode
    model_before: ManifestModel
    model_after: ManifestModel
    fields: tuple[FieldChange, ...]
    inputs_moved: bool
    upstream: str | None = None
    """The nearest changed node upstream, once propagation has found one."""
    retyped: tuple[str, ...] = field(default=())
    """Columns of this source that are read and have another type."""

    @property
    def changed_fields(self) -> set[str]:
        """Names of the fields that differ."""
        return {change.field for change in self.fields}


def build_facets(
    before: ManifestNode, after: ManifestNode, models: tuple[ManifestModel, ManifestModel], renamed: Mapping[str, str]
) -> Facets:
    """The facets of a pair; `renamed` maps a desired node id to its counterpart's."""
    as_before = tuple(renamed.get(name, name) for name in after.inputs)
    moved = as_before != before.inputs
    fields = [FieldChange("inputs", _listed(before.inputs), _listed(after.inputs))] if moved else []
    fields += _differences(before, after, models)
    return Facets(before, after, models[0], models[1], tuple(fields), moved)


def _differences(before: ManifestNode, after: ManifestNode, models: tuple[ManifestModel, ManifestModel]) -> list[FieldChange]:
    pairs = [
        ("definition", before.definition, after.definition),
        ("schema", _columns(before.schema), _columns(after.schema)),
        ("boundedness", before.boundedness, after.boundedness),
        ("changelog", before.changelog_text, after.changelog_text),
    ]
    if before.operator == "sink" == after.operator:
        pairs += [("materialized", models[0].materialized, models[1].materialized), ("key", _listed(models[0].key), _listed(models[1].key))]
    pairs += _state_pairs(before, after)
    return [FieldChange(name, old, new) for name, old, new in pairs if old != new]


def _state_pairs(before: ManifestNode, after: ManifestNode) -> list[tuple[str, str, str]]:
    old, new = before.state, after.state
    if old is None or new is None:
        return [("state", "stateless" if old is None else "keyed", "stateless" if new is None else "keyed")]
    return [
        ("key", _listed(old.keys), _listed(new.keys)),
        ("accumulators", _columns(old.accumulators), _columns(new.accumulators)),
        ("retention", old.retention, new.retention),
        ("window", old.window_text, new.window_text),
        ("state digest", old.digest, new.digest),
    ]


def _columns(columns: Columns) -> str:
    return "[" + ", ".join(f"{name}: {type_}" for name, type_ in columns) + "]"


def _listed(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"


def schema_change(before: Columns, after: Columns) -> str:
    """`same`, `renamed` where only names differ, or `reshaped`."""
    if before == after:
        return "same"
    return "renamed" if [type_ for _, type_ in before] == [type_ for _, type_ in after] else "reshaped"


def key_types(node: ManifestNode) -> list[tuple[str, str]]:
    """The key columns of a keyed node with their types."""
    types = dict(node.schema)
    return [(name, types.get(name, "")) for name in (node.state.keys if node.state else ())]
