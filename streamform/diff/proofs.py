"""What structural identity proves about nodes: in structural mode it lowers classifications, in conservative mode it is a note.

It only ever lowers. A keyed node that holds the same is SAFE; so is a stateless one of a model that shows the same, or of a
model that nothing outside sees, because what reads that is judged on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from streamform.diff.facets import Facets
from streamform.diff.model import Classification, DiffNote, NodeDiff
from streamform.diff.rules import RULE_BY_ID, Rule
from streamform.identity.manifest import ManifestNode
from streamform.identity.mapping import Proof, StreamMapping


class Proofs(Struct, frozen=True):
    """A mapping, and whether it decides (`identity: structural`) or is only told."""

    mapping: StreamMapping = field(default_factory=StreamMapping)
    decides: bool = False
    is_known: bool = True
    """False where the running side is only a manifest, from which definitions can't be taken apart."""

    @property
    def counterparts(self) -> Mapping[str, str]:
        """Counterparts of keyed nodes that take precedence over hints and positions."""
        return self.mapping.streams if self.decides else {}

    def same_input(self, facets: Mapping[str, Facets]) -> dict[str, Facets]:
        """The facets without changes upstream of those keyed nodes whose rows are proven to be the same."""
        if not self.decides:
            return dict(facets)
        fed = self.mapping.same_input
        return {node: replace(own, upstream=None) if fed.get(node) == own.before.id else own for node, own in facets.items()}

    def lowered(self, found: NodeDiff, model: str, *, is_keyed: bool) -> NodeDiff:
        """The node's difference, SAFE where a proof says so. `model` is the desired model, or a running one that is gone."""
        reason = self.reason(found, model, is_keyed=is_keyed) if self.decides and found.classification > Classification.SAFE else None
        if reason is None:
            return found
        rule, facts = reason
        return replace(found, rule=rule.id, kind=rule.kind, classification=rule.classification, facts=facts)

    def reason(self, found: NodeDiff, model: str, *, is_keyed: bool) -> tuple[Rule, tuple[tuple[str, str], ...]] | None:
        """The row that clears a node, with its facts."""
        if is_keyed:
            was = self.mapping.streams.get(found.id)
            if was is None or found.change == "removed":
                return None
            return RULE_BY_ID["I1"], (("was", was), ("rewrites", named(self.mapping.proofs[found.id])))
        if model in self.mapping.outputs:
            return RULE_BY_ID["I2"], (("model", model), ("rewrites", named(self.mapping.proofs[model])))
        return (RULE_BY_ID["I3"], (("model", model),)) if model in self.mapping.internal else None

    def notes(self, nodes: Iterable[NodeDiff], desired: Mapping[str, ManifestNode]) -> tuple[DiffNote, ...]:
        """What the proofs say beside the classifications."""
        notes = [DiffNote("renamed", model, was) for model, was in self.mapping.candidates.items()]
        if self.decides:
            return (*notes, *(() if self.is_known else (DiffNote("unknown", "", ""),)))
        for node in nodes:
            model = desired[node.id].model if node.id in desired else ""
            if node.change == "removed" or node.classification == Classification.SAFE:
                continue
            reason = self.reason(node, model, is_keyed=desired[node.id].state is not None)
            if reason is not None and reason[0].id != "I3":
                notes.append(DiffNote("proved", node.id, dict(reason[1]).get("was", model), dict(reason[1])["rewrites"]))
        return tuple(notes)


def named(proof: Proof) -> str:
    """The rewrites of a proof as users read them."""
    return "; ".join(f"{row.id} {row.name}" for row in proof) or "no rewrite, only places differ"
