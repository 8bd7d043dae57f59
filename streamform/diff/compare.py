"""The comparison: match, facets, propagation, rules, verdicts. One function a step, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
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
from streamform.diff.proofs import Proofs
from streamform.diff.propagate import propagate
from streamform.diff.rules import RULE_BY_ID, classify
from streamform.identity.manifest import Manifest, ManifestModel, ManifestNode

NO_PROOFS = Proofs()
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
    proofs: Proofs = NO_PROOFS,
) -> Diff:
    """What changing from the running manifest to the desired one costs.

    With nothing running every model is new and the verdict is SAFE: there is no state to contradict. Without
    `state_columns` every column of a source counts as read. `proofs` is what structural identity knows about the two.
    """
    target = Side(desired.application_digest)
    if running is None or not running.models:
        models = tuple(ModelDiff(model.name, "added", Classification.SAFE) for model in desired.models)
        before = None if running is None else side or Side(running.application_digest)
        return Diff(before, target, Classification.SAFE, models)
    matching = match_nodes(running, desired, hints or Hints(), proofs.counterparts)
    facets = _facets(running, desired, matching, state_columns)
    changed = proofs.same_input(propagate(desired, facets, matching.nodes))
    gone = _by_model(_unmatched(running, matching))
    nodes = _by_model(desired.nodes)
    sides = _Sides(matching, changed, gone, proofs)
    diffs = [_model(model, nodes.get(model.name, []), sides) for model in desired.models]
    diffs += _removed(running, desired, sides)
    verdict = most_severe([m.verdict for m in diffs] + [c.classification for c in deployment])
    notes = proofs.notes((node for model in diffs for node in model.nodes), {node.id: node for node in desired.nodes})
    return Diff(side or Side(running.application_digest), target, verdict, tuple(diffs), matching.warnings, deployment, notes)


class _Sides(Struct, frozen=True):
    """What the comparison of one model looks at."""

    matching: Matching
    facets: Mapping[str, Facets]
    gone: Mapping[str, list[ManifestNode]]
    """Running nodes without a counterpart, by model."""
    proofs: Proofs


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


def _model(model: ManifestModel, nodes: list[ManifestNode], sides: _Sides) -> ModelDiff:
    was = sides.matching.models[model.name]
    compared = [_node(node, sides) for node in nodes]
    removed = [_removed_node(node, model.name, sides) for node in sides.gone.get(was, ())]
    found = tuple([n for n in compared if n is not None] + removed)
    is_new = not any(node.id in sides.matching.nodes for node in nodes)
    change: Change | None = "added" if is_new else "changed" if found else None
    return ModelDiff(model.name, change, most_severe([n.classification for n in found]), found, None if is_new else was)


def _node(node: ManifestNode, sides: _Sides) -> NodeDiff | None:
    counterpart = sides.matching.nodes.get(node.id)
    if counterpart is None:
        rule = RULE_BY_ID["A1" if node.state is None else "A2"]
        added = NodeDiff(node.id, node.operator, "added", rule.id, rule.kind, rule.classification)
        return sides.proofs.lowered(added, node.model, is_keyed=node.state is not None)
    own = sides.facets[node.id]
    if not own.fields and (own.upstream is None or node.state is None):
        return None
    rule, facts = classify(own)
    found = NodeDiff(
        node.id, node.operator, "changed", rule.id, rule.kind, rule.classification, tuple(facts.items()), own.fields, counterpart
    )
    return sides.proofs.lowered(found, node.model, is_keyed=node.state is not None)


def _unmatched(running: Manifest, matching: Matching) -> list[ManifestNode]:
    taken = set(matching.nodes.values())
    return [node for node in running.nodes if node.id not in taken]


def _removed_node(node: ManifestNode, model: str, sides: _Sides) -> NodeDiff:
    rule = RULE_BY_ID["R1" if node.state is None else "R2"]
    found = NodeDiff(node.id, node.operator, "removed", rule.id, rule.kind, rule.classification, counterpart=node.id)
    return sides.proofs.lowered(found, model, is_keyed=node.state is not None)


def _removed(running: Manifest, desired: Manifest, sides: _Sides) -> list[ModelDiff]:
    """Running models that no desired model is or was."""
    kept = {sides.matching.models[m.name] for m in desired.models}
    result: list[ModelDiff] = []
    for model in running.models:
        nodes = tuple(_removed_node(node, model.name, sides) for node in sides.gone.get(model.name, ()))
        if model.name not in kept and nodes:
            result.append(ModelDiff(model.name, "removed", most_severe([n.classification for n in nodes]), nodes, model.name))
    return result
