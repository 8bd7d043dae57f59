"""What a change means for state that is kept: whether it can go on, and which sinks would hold rows that a fresh run has not."""

from __future__ import annotations

from collections.abc import Iterator

from streamform.diff.model import Classification, Diff, NodeDiff
from streamform.plan.nodes import (
    DELETE_EXPIRED,
    UNBOUNDED_RETENTION,
    AggregateSpec,
    FilterSpec,
    Node,
    Plan,
    ProjectSpec,
    SinkSpec,
    SourceSpec,
    UnionSpec,
)

_SHOWN_FIELDS = frozenset({"definition", "inputs", "schema"})
"""Fields of a stateless node whose change can change the rows that it shows."""


def can_carry(diff: Diff, plan: Plan) -> bool:
    """Whether existing state goes on under the plan, as it is or after a mechanical migration.

    Dropped accumulators are dropped, another retention gives other deadlines. A retention where none was has nothing to
    count from, and sessions keep their accumulators in one piece.
    """
    if diff.verdict.can_continue:
        return True
    if diff.verdict != Classification.STATE_MIGRATION_REQUIRED:
        return False
    return all(_is_mechanical(node, plan) for node in diff.changed_nodes if node.classification == Classification.STATE_MIGRATION_REQUIRED)


def _is_mechanical(found: NodeDiff, plan: Plan) -> bool:
    spec = plan.by_id[found.id].spec
    changed = {change.field: change for change in found.fields}
    if "retention" in changed and changed["retention"].before == UNBOUNDED_RETENTION:
        return False
    is_session = isinstance(spec, AggregateSpec) and spec.window is not None and spec.window.type == "session"
    return not (is_session and "accumulators" in changed)


def stale_models(diff: Diff, plan: Plan) -> list[str]:
    """Models with an upsert sink whose rows from before the change may not be those of a fresh run: something behind the state changed.

    A sink that only moved is none: what was written stays in the old place, and the new one shows what happens from then on.
    """
    changed = {node.id: node for node in diff.changed_nodes if node.classification > Classification.SAFE}
    return [
        sink.model
        for sink in plan.nodes
        if isinstance(sink.spec, SinkSpec) and sink.spec.endpoint is not None and sink.spec.materialized == "upsert"
        if any(_shows_other_rows(node, changed[node.id]) for node in behind_state(plan, sink) if node.id in changed)
    ]


def _shows_other_rows(node: Node, found: NodeDiff) -> bool:
    """Whether a node that changed would have shown other rows before, though what is stored goes on."""
    fields = {change.field: change for change in found.fields}
    if isinstance(node.spec, AggregateSpec):
        retention = fields.get("retention")
        return retention is not None and DELETE_EXPIRED in f"{retention.before} {retention.after}"
    if not isinstance(node.spec, SourceSpec | FilterSpec | ProjectSpec | UnionSpec):
        return False
    return found.change == "added" or bool(fields.keys() & _SHOWN_FIELDS)


def behind_state(plan: Plan, sink: Node) -> Iterator[Node]:
    """The sink, the nodes that feed it, and the keyed streams or sources at which these paths begin; each once."""
    pending, seen = [sink], {sink.id}
    while pending:
        node = pending.pop()
        yield node
        for below in plan.inputs_of(node) if node.state is None else ():
            if below.id not in seen:
                seen.add(below.id)
                pending.append(below)


def is_repairable(plan: Plan, model: str) -> bool:
    """Whether kept state gives every row of a model: all its rows come from keyed streams that forget nothing."""
    sink = next(node for node in plan.nodes if node.model == model and isinstance(node.spec, SinkSpec))
    return all(_forgets_nothing(node) for node in behind_state(plan, sink))


def _forgets_nothing(node: Node) -> bool:
    spec = node.spec
    if isinstance(spec, AggregateSpec):
        return spec.window is None and spec.retention_ms is None
    return not isinstance(spec, SourceSpec)
