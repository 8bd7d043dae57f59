"""The plan's identity: node ids, digests, schemas and contracts."""

from __future__ import annotations

import json
from typing import Any

from streamform.identity.fingerprint import short
from streamform.identity.manifest import Manifest, ManifestNode, ManifestState, manifest_document, model_document, node_document
from streamform.render.words import title


def render_inspect(manifest: Manifest, models: list[str]) -> str:
    """Each model with its nodes, digests shortened."""
    blocks = [_model(manifest, name) for name in models]
    return f"application digest={short(manifest.application_digest)}\n\n" + "\n\n".join(blocks) + "\n"


def _model(manifest: Manifest, name: str) -> str:
    model = next(m for m in manifest.models if m.name == name)
    lines = [name, f"  materialized={model.materialized} key=[{', '.join(model.key)}]", f"  output={model.output}"]
    return "\n".join(lines + [f"\n{_node(node)}" for node in manifest.nodes_of(name)])


def _node(node: ManifestNode) -> str:
    schema = "[" + ", ".join(f"{column}: {type_}" for column, type_ in node.schema) + "]"
    lines = [
        f"  {node.id}  {title(node.operator)}",
        *([f"    inputs=[{', '.join(node.inputs)}]"] if node.inputs else []),
        f"    definition={node.definition}",
        f"    schema={schema}  digest={short(node.schema_digest)}",
        f"    boundedness={node.boundedness} changelog={node.changelog_text}" + (f" time={node.time}" if node.time else ""),
        f"    state={_state(node.state)}",
    ]
    return "\n".join(lines)


def _state(state: ManifestState | None) -> str:
    if state is None:
        return "stateless"
    window = "" if state.window is None else f" window={state.window_text}"
    return f"keyed key=[{', '.join(state.keys)}] retention={state.retention}{window}  digest={short(state.digest)}"


def manifest_text(manifest: Manifest) -> str:
    """The manifest as a file holds it."""
    return json.dumps(manifest_document(manifest), indent=2, ensure_ascii=False) + "\n"


def model_inspect_document(manifest: Manifest, name: str) -> dict[str, Any]:
    """The document of one model: its contract and its nodes, without an application digest."""
    model = next(m for m in manifest.models if m.name == name)
    nodes = [node_document(node) for node in manifest.nodes_of(name)]
    return {"manifest_version": 1, "model": name, "models": [model_document(model)], "nodes": nodes}
