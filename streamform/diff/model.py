"""The values of a comparison. Reasons are rule ids with facts; sentences are in RULES and are made by the views."""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import cached_property
from typing import Literal

from msgspec import Struct


class Classification(IntEnum):
    """What existing state and output need, from nothing to everything. The most severe one wins."""

    SAFE = 0
    COMPATIBLE = 1
    STATE_MIGRATION_REQUIRED = 2
    BACKFILL_REQUIRED = 3
    STATE_INCOMPATIBLE = 4

    @property
    def text(self) -> str:
        """The word that users read."""
        return self.name.replace("_", " ")

    @property
    def can_continue(self) -> bool:
        """Whether the application continues from its state as it is."""
        return self <= Classification.COMPATIBLE


def classification(text: str) -> Classification:
    """The classification of this word. Raises: KeyError."""
    return Classification[text.replace(" ", "_")]


class ChangeKind(Enum):
    """The published kinds of change."""

    STATELESS_ADDED = "stateless-added"
    STATELESS_REMOVED = "stateless-removed"
    STATELESS_DEFINITION = "stateless-definition"
    OUTPUT_RENAMED = "output-renamed"
    OUTPUT_RESHAPED = "output-reshaped"
    SINK_KEY_CHANGED = "sink-key-changed"
    SINK_TARGET = "sink-target"
    SINK_RENAMED = "sink-renamed"
    SINK_RESHAPED = "sink-reshaped"
    KEYED_ADDED = "keyed-added"
    KEYED_REMOVED = "keyed-removed"
    KEY_CHANGED = "key-changed"
    ACCUMULATOR_TYPE_CHANGED = "accumulator-type-changed"
    ACCUMULATOR_ADDED = "accumulator-added"
    ACCUMULATOR_REMOVED = "accumulator-removed"
    RETENTION_CHANGED = "retention-changed"
    WINDOW_CHANGED = "window-changed"
    INPUT_CHANGED = "input-changed"
    KEYED_COMPATIBLE = "keyed-compatible"
    STATE_KIND_CHANGED = "state-kind-changed"
    CONTRACT_CHANGED = "contract-changed"
    PROVED_UNCHANGED = "proved-unchanged"


Change = Literal["added", "removed", "changed"]
NoteKind = Literal["proved", "renamed", "unknown"]


class FieldChange(Struct, frozen=True):
    """A field of a node that differs."""

    field: str
    before: str
    after: str


class NodeDiff(Struct, frozen=True):
    """One node that was added, removed or changed."""

    id: str
    operator: str
    change: Change
    rule: str
    kind: ChangeKind
    classification: Classification
    facts: tuple[tuple[str, str], ...] = ()
    """What the rule's sentence names."""
    fields: tuple[FieldChange, ...] = ()
    counterpart: str | None = None
    """The running node that this one is compared with."""


class ModelDiff(Struct, frozen=True):
    """One model with its nodes that differ; `change` is None where nothing does."""

    name: str
    change: Change | None
    verdict: Classification
    nodes: tuple[NodeDiff, ...] = ()
    counterpart: str | None = None


class DeploymentChange(Struct, frozen=True):
    """A fact that no manifest holds and that differs, such as a format."""

    subject: str
    field: str
    before: str
    after: str
    rule: str
    classification: Classification


class DiffNote(Struct, frozen=True):
    """Something worth knowing that decides nothing."""

    kind: NoteKind
    subject: str
    """A desired node or model."""
    counterpart: str
    rewrites: str = ""


class Side(Struct, frozen=True):
    """One side of the comparison."""

    application_digest: str
    applied_at: str | None = None
    streamform_version: str | None = None
    jobs: tuple[str, ...] = ()


class Diff(Struct, frozen=True, dict=True):
    """The comparison of a running plan with a desired one; `running` is None where nothing runs."""

    running: Side | None
    desired: Side
    verdict: Classification
    models: tuple[ModelDiff, ...]
    warnings: tuple[str, ...] = ()
    deployment: tuple[DeploymentChange, ...] = ()
    notes: tuple[DiffNote, ...] = ()

    @property
    def changed_nodes(self) -> list[NodeDiff]:
        """Every node that differs, in order."""
        return [node for model in self.models for node in model.nodes]

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not self.changed_nodes and not self.deployment

    @cached_property
    def by_name(self) -> dict[str, list[tuple[int, ModelDiff]]]:
        """Places and comparisons of models by name; a name may be both gone and new."""
        found: dict[str, list[tuple[int, ModelDiff]]] = {}
        for place, model in enumerate(self.models):
            found.setdefault(model.name, []).append((place, model))
        return found

    def part(self, models: set[str], gone: set[str], deployment: tuple[DeploymentChange, ...]) -> Diff:
        """The comparison of some desired models, of running models that are gone, and of some deployment facts."""
        found = {place: m for name in models | gone for place, m in self.by_name.get(name, ())}
        kept = tuple(m for _, m in sorted(found.items()) if m.name in (gone if m.change == "removed" else models))
        verdict = most_severe([m.verdict for m in kept] + [c.classification for c in deployment])
        shown = {node.id for model in kept for node in model.nodes} | models
        notes = tuple(note for note in self.notes if note.subject in shown)
        return Diff(self.running, self.desired, verdict, kept, self.warnings, deployment, notes)


def most_severe(values: list[Classification]) -> Classification:
    """The most severe of some classifications, SAFE for none."""
    return max(values, default=Classification.SAFE)
