"""The comparison: match, facets, propagation, rules, verdicts. One function a step, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from streamform.diff.facets import Facets, build_facets
from streamform.diff.match import Hints, Matching, match_nodes
from streamform.diff.model import (
    Change,
    Classification,
    DeploymentChange,
    Diff,
    ModelDiff,
    NodeDiff,
    Side,
    most_severe,
)
from streamform.diff.propagate import propagate
from streamform.diff.rules import RULE_BY_ID, classify
from streamform.identity.manifest import Manifest, ManifestModel, ManifestNode

StateColumns = Mapping[str, frozenset[str]]
"""For each desired source node, the columns that keyed state depends on."""


def compare(
    running: Manifest | None,
    desired: Manifest,
    hints: Hints | None = None,
    *,
    state_columns: StateColumns | None = None,
    deployment: tuple[DeploymentChange, ...] = (),
    side: Side | None = None,
) -> Diff:
    """What changing from the running manifest to the desired one costs.

    With nothing running every model is new and the verdict is SAFE: there is no state to contradict. Without
    `state_columns` every column of a source counts as read.
    """
    target = Side(desired.application_digest)
    if running is None or not running.models:
        models = tuple(ModelDiff(model.name, "added", Classification.SAFE) for model in desired.models)
        before = None if running is None else side or Side(running.application_digest)
        return Diff(before, target, Classification.SAFE, models)
    matching = match_nodes(running, desired, hints or Hints())
    facets = _facets(running, desired, matching, state_columns)
    changed = propagate(desired, facets, matching.nodes)
    gone = _by_model(_unmatched(running, matching))
    nodes = _by_model(desired.nodes)
    diffs = [_model(model, nodes.get(model.name, []), gone, running, matching, changed) for model in desired.models]
    diffs += _removed(running, desired, gone, matching)
    verdict = most_severe([m.verdict for m in diffs] + [c.classification for c in deployment])
    return Diff(side or Side(running.application_digest), target, verdict, tuple(diffs), matching.warnings, deployment)


def _facets(running: Manifest, desired: Manifest, matching: Matching, state_columns: StateColumns | None) -> dict[str, Facets]:
    before = {node.id: node for node in running.nodes}
    models_before = {model.name: model for model in running.models}
    models_after = {model.name: model for model in desired.models}
    result: dict[str, Facets] = {}
    for node in desired.nodes:
        counterpart = before.get(matching.nodes.get(node.id, ""))
        if counterpart is None:
            continue
        pair = (models_before.get(counterpart.model, _NO_MODEL), models_after.get(node.model, _NO_MODEL))
        facets = build_facets(counterpart, node, pair, matching.nodes)
        result[node.id] = replace(facets, retyped=_retyped(counterpart, node, state_columns))
    return result


_NO_MODEL = ManifestModel("", "", (), "")


def _retyped(before: ManifestNode, after: ManifestNode, state_columns: StateColumns | None) -> tuple[str, ...]:
    if after.operator != "source":
        return ()
    old = dict(before.schema)
    changed = [name for name, type_ in after.schema if name in old and old[name] != type_]
    read = None if state_columns is None else state_columns.get(after.id, frozenset())
    return tuple(name for name in changed if read is None or name in read)


def _by_model(nodes: Iterable[ManifestNode]) -> dict[str, list[ManifestNode]]:
    grouped: dict[str, list[ManifestNode]] = {}
    for node in nodes:
        grouped.setdefault(node.model, []).append(node)
    return grouped


def _model(
    model: ManifestModel,
    nodes: list[ManifestNode],
    gone: Mapping[str, list[ManifestNode]],
    running: Manifest,
    matching: Matching,
    facets: Mapping[str, Facets],
) -> ModelDiff:
    was = matching.models[model.name]
    compared = [_node(node, matching, facets) for node in nodes]
    found = tuple([n for n in compared if n is not None] + [_removed_node(node) for node in gone.get(was, ())])
    is_new = not any(node.id in matching.nodes for node in nodes)
    change: Change | None = "added" if is_new else "changed" if found else None
    return ModelDiff(model.name, change, most_severe([n.classification for n in found]), found, None if is_new else was)


def _node(node: ManifestNode, matching: Matching, facets: Mapping[str, Facets]) -> NodeDiff | None:
    counterpart = matching.nodes.get(node.id)
    if counterpart is None:
        rule = RULE_BY_ID["A1" if node.state is None else "A2"]
        return NodeDiff(node.id, node.operator, "added", rule.id, rule.kind, rule.classification)
    own = facets[node.id]
    if not own.fields and (own.upstream is None or node.state is None):
        return None
    rule, facts = classify(own)
    return NodeDiff(
        node.id, node.operator, "changed", rule.id, rule.kind, rule.classification, tuple(facts.items()), own.fields, counterpart
    )


def _unmatched(running: Manifest, matching: Matching) -> list[ManifestNode]:
    taken = set(matching.nodes.values())
    return [node for node in running.nodes if node.id not in taken]


def _removed_node(node: ManifestNode) -> NodeDiff:
    rule = RULE_BY_ID["R1" if node.state is None else "R2"]
    return NodeDiff(node.id, node.operator, "removed", rule.id, rule.kind, rule.classification, counterpart=node.id)


def _removed(running: Manifest, desired: Manifest, gone: Mapping[str, list[ManifestNode]], matching: Matching) -> list[ModelDiff]:
    """Running models that no desired model is or was."""
    kept = {matching.models[m.name] for m in desired.models}
    result: list[ModelDiff] = []
    for model in running.models:
        nodes = tuple(_removed_node(node) for node in gone.get(model.name, ()))
        if model.name not in kept and nodes:
            result.append(ModelDiff(model.name, "removed", most_severe([n.classification for n in nodes]), nodes, model.name))
    return result
