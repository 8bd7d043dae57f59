"""The plan manifest, version 1: the published form of a plan, byte for byte.

Shape: models in dependency order, nodes in the same order; `time` and `window` are left out where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from streamform.errors import DocumentError
from streamform.identity.fingerprint import compact_json, digest, schema_digest, state_digest
from streamform.plan.nodes import KeyedState, Node, Plan, window_text
from streamform.values.rows import Schema

MANIFEST_VERSION = 1

WINDOW_FIELDS = ("type", "time", "size", "slide", "step", "alignment", "emission")

Columns = tuple[tuple[str, str], ...]
"""Pairs of column name and rendered type."""


class ManifestState(Struct, frozen=True):
    """What a keyed node keeps, as published."""

    keys: tuple[str, ...]
    accumulators: Columns
    retention: str
    digest: str
    window: tuple[tuple[str, str], ...] | None = None
    """Fields of the window in document order, or None."""

    @property
    def window_text(self) -> str:
        """The window as fingerprints show it, `none` where there is none."""
        return "none" if self.window is None else window_text(self.window)


class ManifestNode(Struct, frozen=True):
    """One node, as published."""

    id: str
    model: str
    operator: str
    inputs: tuple[str, ...]
    definition: str
    schema: Columns
    schema_digest: str
    boundedness: str
    mode: str
    key: tuple[str, ...]
    state: ManifestState | None
    time: str | None = None

    @property
    def changelog_text(self) -> str:
        """`append`, `upsert(a, b)`, or `upsert` for an empty key."""
        return f"{self.mode}({', '.join(self.key)})" if self.key else self.mode


class ManifestModel(Struct, frozen=True):
    """One model, as published."""

    name: str
    materialized: str
    key: tuple[str, ...]
    output: str


class Manifest(Struct, frozen=True):
    """A plan, as published."""

    application_digest: str
    models: tuple[ManifestModel, ...]
    nodes: tuple[ManifestNode, ...]

    def nodes_of(self, model: str) -> list[ManifestNode]:
        """A model's nodes in plan order."""
        return [node for node in self.nodes if node.model == model]

    def part(self, models: set[str]) -> Manifest:
        """The manifest of some of its models."""
        kept = tuple(m for m in self.models if m.name in models)
        return sealed(kept, tuple(n for n in self.nodes if n.model in models))


def manifest_parts(manifest: Manifest, groups: Iterable[tuple[str, ...]]) -> list[Manifest]:
    """The manifest of each group of models, in one pass; a group's models stand in the manifest's order."""
    places = {model.name: place for place, model in enumerate(manifest.models)}
    nodes: dict[str, list[ManifestNode]] = {}
    for node in manifest.nodes:
        nodes.setdefault(node.model, []).append(node)
    parts: list[Manifest] = []
    for group in groups:
        names = sorted(group, key=places.__getitem__)
        models = tuple(manifest.models[places[name]] for name in names)
        parts.append(sealed(models, tuple(node for name in names for node in nodes.get(name, ()))))
    return parts


def sink_addresses(manifest: Manifest) -> frozenset[str]:
    """The topics, files and tables that a plan writes to."""
    sinks = [node.definition.split(" ", 2) for node in manifest.nodes if node.operator == "sink"]
    return frozenset(parts[2] for parts in sinks if len(parts) == 3)


def build_manifest(plan: Plan) -> Manifest:
    """The manifest of a plan."""
    models = tuple(ManifestModel(m.name, m.materialized, m.key, m.output) for m in plan.models)
    return sealed(models, tuple(map(_node, plan.nodes)))


def sealed(models: tuple[ManifestModel, ...], nodes: tuple[ManifestNode, ...]) -> Manifest:
    """A manifest with its application digest."""
    document = manifest_document(Manifest("", models, nodes))
    return Manifest(digest(compact_json(document)), models, nodes)


def _node(node: Node) -> ManifestNode:
    return ManifestNode(
        node.id,
        node.model,
        node.kind,
        node.inputs,
        node.definition,
        _columns(node.schema),
        schema_digest(node.schema),
        node.boundedness,
        node.changelog.mode,
        node.changelog.key,
        None if node.state is None else _state(node.state),
        node.time,
    )


def _columns(schema: Schema) -> Columns:
    return tuple((column.name, str(column.type)) for column in schema)


def _state(state: KeyedState) -> ManifestState:
    window = None if state.window is None else state.window.fields
    return ManifestState(state.keys, _columns(state.accumulators), state.retention, state_digest(state), window)


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """The JSON document, keys in published order."""
    return {
        "manifest_version": MANIFEST_VERSION,
        "application_digest": manifest.application_digest,
        "models": [model_document(m) for m in manifest.models],
        "nodes": [node_document(n) for n in manifest.nodes],
    }


def model_document(model: ManifestModel) -> dict[str, Any]:
    """One model of the document."""
    return {"name": model.name, "materialized": model.materialized, "key": list(model.key), "output": model.output}


def node_document(node: ManifestNode) -> dict[str, Any]:
    """One node of the document."""
    document: dict[str, Any] = {
        "id": node.id,
        "model": node.model,
        "operator": node.operator,
        "inputs": list(node.inputs),
        "definition": node.definition,
        "schema": _column_documents(node.schema),
        "schema_digest": node.schema_digest,
        "boundedness": node.boundedness,
        "changelog": {"mode": node.mode, "key": list(node.key)},
        "state": _state_document(node.state),
    }
    if node.time is not None:
        document["time"] = node.time
    return document


def _column_documents(columns: Columns) -> list[dict[str, str]]:
    return [{"name": name, "type": type_} for name, type_ in columns]


def _state_document(state: ManifestState | None) -> dict[str, Any]:
    if state is None:
        return {"kind": "stateless"}
    document: dict[str, Any] = {
        "kind": "keyed",
        "keys": list(state.keys),
        "accumulators": _column_documents(state.accumulators),
        "retention": state.retention,
        "digest": state.digest,
    }
    if state.window is not None:
        document["window"] = dict(state.window)
    return document


def manifest_of(document: dict[str, Any]) -> Manifest:
    """The manifest of a document that is known to be one: validated before, or written by us and unchanged since."""
    models = tuple(ManifestModel(m["name"], m["materialized"], tuple(m["key"]), m["output"]) for m in document["models"])
    return Manifest(document["application_digest"], models, tuple(map(_node_of, document["nodes"])))


def _node_of(doc: dict[str, Any]) -> ManifestNode:
    changelog = doc["changelog"]
    return ManifestNode(
        doc["id"],
        doc["model"],
        doc["operator"],
        tuple(doc["inputs"]),
        doc["definition"],
        _columns_of(doc["schema"]),
        doc["schema_digest"],
        doc["boundedness"],
        changelog["mode"],
        tuple(changelog["key"]),
        _state_of(doc["state"]),
        doc.get("time"),
    )


def _columns_of(columns: list[dict[str, str]]) -> Columns:
    return tuple((column["name"], column["type"]) for column in columns)


def _state_of(doc: dict[str, Any]) -> ManifestState | None:
    if doc["kind"] == "stateless":
        return None
    window = doc.get("window")
    fields = None if window is None else tuple((name, window[name]) for name in WINDOW_FIELDS if name in window)
    return ManifestState(tuple(doc["keys"]), _columns_of(doc["accumulators"]), doc["retention"], doc["digest"], fields)


_REMEDY = "use a manifest that streamform wrote"


def check_structure(manifest: Manifest, file: str) -> None:
    """Refuse a manifest that is no plan, or that was changed after it was written. Raises: DocumentError naming the place."""
    for kind, names in (("model", [m.name for m in manifest.models]), ("node", [n.id for n in manifest.nodes])):
        if len(set(names)) < len(names):
            raise DocumentError(f"{file}: {kind} `{max(names, key=names.count)}` occurs twice", _REMEDY)
    models, nodes = {m.name for m in manifest.models}, {n.id for n in manifest.nodes}
    for model in manifest.models:
        if model.output not in nodes:
            raise DocumentError(f"{file}: the output of model `{model.name}` is `{model.output}`, which does not exist", _REMEDY)
    for node in manifest.nodes:
        if node.model not in models:
            raise DocumentError(f"{file}: node `{node.id}` belongs to model `{node.model}`, which does not exist", _REMEDY)
        unknown = next((name for name in node.inputs if name not in nodes), None)
        if unknown is not None:
            raise DocumentError(f"{file}: node `{node.id}` reads `{unknown}`, which does not exist", _REMEDY)
    _check_acyclic(manifest, file)
    if manifest.models and sealed(manifest.models, manifest.nodes).application_digest != manifest.application_digest:
        raise DocumentError(f"{file}: application_digest is not the manifest's own; it was changed after it was written", _REMEDY)


def _check_acyclic(manifest: Manifest, file: str) -> None:
    waiting = {node.id: set(node.inputs) for node in manifest.nodes}
    readers: dict[str, list[str]] = {}
    for node in manifest.nodes:
        for name in set(node.inputs):
            readers.setdefault(name, []).append(node.id)
    ready = [name for name, inputs in waiting.items() if not inputs]
    while ready:
        done = ready.pop()
        waiting.pop(done)
        for reader in readers.get(done, ()):
            waiting[reader].discard(done)
            if not waiting[reader]:
                ready.append(reader)
    if waiting:
        raise DocumentError(f"{file}: node `{min(waiting)}` reads itself through others", _REMEDY)
