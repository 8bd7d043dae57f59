"""Which running node each desired node was: by hint, by renamed model, or by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from streamform.identity.manifest import Manifest
from streamform.plan.nodes import node_id
from streamform.project.model import Project


class Hints(Struct, frozen=True):
    """What the project says about where nodes were before."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Desired model -> running model."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Desired node id -> running node id; takes precedence."""


class Matching(Struct, frozen=True):
    """Counterparts by desired node id, and warnings about hints that name nothing."""

    nodes: Mapping[str, str]
    models: Mapping[str, str]
    warnings: tuple[str, ...]


def hints_of(project: Project) -> Hints:
    """The hints that streamform.yml gives."""
    models = {m.name: m.renamed_from for m in project.models if m.renamed_from is not None}
    nodes: dict[str, str] = {}
    for model in project.models:
        for reference, was in model.node_hints:
            kind, _, ordinal = reference.partition(".")
            if ordinal.isdecimal():
                nodes[node_id(model.name, kind, int(ordinal))] = was
    return Hints(models, nodes)


def match_nodes(running: Manifest, desired: Manifest, hints: Hints, proven: Mapping[str, str] | None = None) -> Matching:
    """The counterpart of each desired node that has one; no running node is taken twice. What is `proven` comes first."""
    known = {node.id for node in running.nodes}
    nodes: dict[str, str] = dict(proven or {})
    taken: set[str] = set(nodes.values())
    warnings: list[str] = []
    for after, was in _hinted(desired, hints):
        if was in known and was not in taken and after not in nodes:
            nodes[after] = was
            taken.add(was)
        elif was not in known or (proven or {}).get(after) is None:
            warnings.append(f"hint for `{after}` names `{was}`, which the running plan does not have; it can be deleted")
    for node in desired.nodes:
        if node.id not in nodes and node.id in known and node.id not in taken:
            nodes[node.id] = node.id
            taken.add(node.id)
    running_models = {model.name for model in running.models}
    claimed = {m.name: hints.models.get(m.name, m.name) for m in desired.models}
    models = {name: was if was in running_models else name for name, was in claimed.items()}
    return Matching(nodes, models, tuple(warnings))


def _hinted(desired: Manifest, hints: Hints) -> Iterator[tuple[str, str]]:
    """Each desired node with a hint, and the running node that the hint names."""
    for node in desired.nodes:
        if node.id in hints.nodes:
            yield node.id, hints.nodes[node.id]
        elif node.model in hints.models:
            yield node.id, hints.models[node.model] + node.id.removeprefix(node.model)
