"""The model graph: tree, JSON, Graphviz and Mermaid."""

from __future__ import annotations

import json
from typing import Any

from streamform.plan.graph import Graph
from streamform.project.model import Endpoint, Project
from streamform.render.check import endpoint_text

GRAPH_VERSION = 1


def graph_document(project: Project, graph: Graph) -> dict[str, Any]:
    """The published document."""
    return {
        "graph_version": GRAPH_VERSION,
        "project": project.name,
        "sources": [{"name": s.name, **_endpoint(s.endpoint)} for s in project.sources],
        "models": [_model(project, graph, name) for name in sorted(graph.reads)],
        "edges": [{"from": a, "to": b} for a, b in _edges(graph)],
        "order": list(graph.order),
        "cycles": [list(cycle) for cycle in graph.cycles],
    }


def _endpoint(endpoint: Endpoint) -> dict[str, str]:
    return {"connector": endpoint.connector, "target": endpoint_text(endpoint)}


def _model(project: Project, graph: Graph, name: str) -> dict[str, Any]:
    model = project.model(name)
    assert model is not None
    document: dict[str, Any] = {"name": name, "materialized": model.materialized, "key": list(model.key)}
    if model.sink is not None:
        document["sink"] = _endpoint(model.sink)
    document["reads"] = {"sources": list(graph.reads[name].sources), "models": list(graph.reads[name].models)}
    return document


def _edges(graph: Graph) -> list[tuple[str, str]]:
    edges: list[tuple[str, str]] = []
    for name in sorted(graph.reads):
        edges += [(f"source:{source}", f"model:{name}") for source in graph.reads[name].sources]
        edges += [(f"model:{model}", f"model:{name}") for model in graph.reads[name].models]
    return edges


def render_graph(project: Project, graph: Graph) -> str:
    """A tree from each source down to the last models; a model with several inputs stands below each."""
    lines = [project.name, ""]
    readers: dict[str, list[str]] = {}
    for start, end in _edges(graph):
        readers.setdefault(start, []).append(end)
    for source in project.sources:
        lines.append(f"{source.name}  source  {source.endpoint.connector} {endpoint_text(source.endpoint)}")
        lines += _branches(f"source:{source.name}", readers, project, "")
    return "\n".join(lines) + "\n"


def _branches(node: str, readers: dict[str, list[str]], project: Project, indent: str) -> list[str]:
    lines: list[str] = []
    below = readers.get(node, [])
    for position, name in enumerate(below):
        last = position == len(below) - 1
        model = project.model(name.removeprefix("model:"))
        assert model is not None
        sink = f"  {model.sink.connector} {endpoint_text(model.sink)}" if model.sink else ""
        lines.append(f"{indent}{'└─' if last else '├─'} {model.name}  {model.materialized}{sink}")
        lines += _branches(name, readers, project, indent + ("   " if last else "│  "))
    return lines


def render_dot(project: Project, graph: Graph) -> str:
    """Graphviz."""
    lines = [f"digraph {_quoted(project.name)} {{", "  rankdir=LR;", '  node [shape=box, fontname="Helvetica"];']
    for source in project.sources:
        label = f"{source.name}\n{source.endpoint.connector} {endpoint_text(source.endpoint)}"
        lines.append(f"  {_quoted('source:' + source.name)} [shape=cylinder, label={_quoted(label)}];")
    for name in sorted(graph.reads):
        model = project.model(name)
        assert model is not None
        lines.append(f"  {_quoted('model:' + name)} [label={_quoted(f'{name}{chr(10)}{model.materialized}')}];")
    lines += [f"  {_quoted(start)} -> {_quoted(end)};" for start, end in _edges(graph)]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def render_mermaid(project: Project, graph: Graph) -> str:
    """Mermaid, for markdown pages."""
    ids = {f"source:{s.name}": f"s{i}" for i, s in enumerate(project.sources)}
    ids |= {f"model:{name}": f"m{i}" for i, name in enumerate(sorted(graph.reads))}
    lines = ["flowchart LR"]
    lines += [f"  {ids['source:' + s.name]}[({_label(s.name)})]" for s in project.sources]
    lines += [f"  {ids['model:' + name]}[{_label(name)}]" for name in sorted(graph.reads)]
    lines += [f"  {ids[start]} --> {ids[end]}" for start, end in _edges(graph) if start in ids]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") + '"'
