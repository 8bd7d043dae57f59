"""What the compiler made of a model, operator by operator."""

from __future__ import annotations

from streamform.identity.fingerprint import short, state_digest, state_fingerprint
from streamform.plan.clock import source_clock
from streamform.plan.nodes import AggregateSpec, Node, Plan, ProjectSpec, SinkSpec, SourceSpec, UnionSpec
from streamform.render.words import title
from streamform.values.instants import render_duration


def render_explain(plan: Plan, models: list[str]) -> str:
    """Each model's chain of operators, from what it reads to its sink."""
    return "\n".join(_model(plan, name) for name in models)


def _model(plan: Plan, name: str) -> str:
    nodes = plan.nodes_of(name)
    blocks = [_read(plan, nodes)] if nodes and nodes[0].kind != "source" else []
    blocks += ["\n".join([title(node.kind), *(f"  {line}" for line in _facts(node))]) for node in nodes]
    return f"{name}\n\n" + "\n     ↓\n".join(blocks) + "\n"


def _read(plan: Plan, nodes: list[Node]) -> str:
    read = plan.by_id[nodes[0].inputs[0]]
    return f"Model\n  name={read.model}\n  changelog={_changelog(read)}"


def _facts(node: Node) -> list[str]:
    lines = _own(node)
    if node.time is not None and node.kind != "source":
        lines.append(f"time attribute={node.time}")
    lines += [
        f"boundedness={node.boundedness.capitalize()}",
        f"changelog={_changelog(node)}",
        f"state={'Keyed' if node.state else 'Stateless'}",
    ]
    if node.state is not None:
        lines += [f"fingerprint={state_fingerprint(node.state)}", f"digest={short(state_digest(node.state))}"]
    return lines


def _changelog(node: Node) -> str:
    return str(node.changelog)[0].upper() + str(node.changelog)[1:]


def _own(node: Node) -> list[str]:
    spec = node.spec
    if isinstance(spec, SourceSpec):
        return _source(spec)
    if isinstance(spec, ProjectSpec):
        return [f"columns={node.definition}"]
    if isinstance(spec, UnionSpec):
        return [f"inputs={', '.join(node.inputs)}"]
    if isinstance(spec, AggregateSpec):
        return [f"key={', '.join(key.name for key in spec.keys)}", f"aggregates={', '.join(call.name for call in spec.calls)}"]
    if isinstance(spec, SinkSpec):
        lines = [f"model={node.model}", f"materialized={spec.materialized}"]
        return lines if spec.endpoint is None else [*lines, f"connector={spec.endpoint.connector}", f"target={spec.endpoint.address}"]
    return [f"predicate={node.definition}"]


def _source(spec: SourceSpec) -> list[str]:
    clock = source_clock(spec.source)
    time = "processing" if clock is None else f"event({clock.column}) watermark={render_duration(clock.delay_ms)} late={clock.late}"
    lines = [f"name={spec.source.name}", f"connector={spec.source.endpoint.connector}", f"time={time}"]
    if spec.contracts:
        lines.append(f"contracts={', '.join(c.name for c in spec.contracts)}")
    return lines
