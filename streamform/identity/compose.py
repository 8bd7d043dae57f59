"""One manifest from the manifests of several units, in the order in which the compiler would write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamform.identity.manifest import Manifest, ManifestModel, ManifestNode, sealed
from streamform.plan.graph import Reads, build_graph, components


def compose(manifests: Iterable[Manifest]) -> Manifest:
    """The manifest of all models of these manifests; a model that occurs twice is taken from the last."""
    models: dict[str, ManifestModel] = {}
    nodes: dict[str, list[ManifestNode]] = {}
    for manifest in manifests:
        for model in manifest.models:
            models[model.name] = model
            nodes[model.name] = []
        for node in manifest.nodes:
            nodes[node.model].append(node)
    reads = {name: Reads((), tuple(sorted(read))) for name, read in _models_read(nodes).items()}
    order = build_graph(reads).order
    return sealed(tuple(models[name] for name in order), tuple(node for name in order for node in nodes[name]))


def _models_read(nodes: Mapping[str, list[ManifestNode]]) -> dict[str, set[str]]:
    """The models that each model reads."""
    owner = {node.id: name for name, own in nodes.items() for node in own}
    return {name: {owner[i] for node in own for i in node.inputs if owner.get(i) not in (None, name)} for name, own in nodes.items()}


def manifest_components(manifest: Manifest) -> list[tuple[str, ...]]:
    """The models of a manifest grouped by what they read from each other."""
    nodes: dict[str, list[ManifestNode]] = {model.name: [] for model in manifest.models}
    for node in manifest.nodes:
        nodes.setdefault(node.model, []).append(node)
    reads = _models_read(nodes)
    return components(reads, reads)
