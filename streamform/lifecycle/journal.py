"""The journal: one entry an attempt, written before each act, chained to the entry before it.

Shape: entries of a unit are numbered from 1 without gaps; only the newest may be open. `running` says what runs once
the entry is closed, so the newest closed entry is all that a reader needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from streamform.errors import DocumentError
from streamform.identity.fingerprint import canonical_json, digest
from streamform.lifecycle.stages import StageKind

ATTEMPT_VERSION = 1

Action = Literal["apply", "stop", "discard", "remove", "adopt"]
Outcome = Literal["open", "applied", "failed", "stopped", "removed"]
StageState = Literal["waiting", "begun", "done"]


class StageEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of an attempt: how far it came, what was written before acting, what it returned."""

    kind: StageKind
    facts: Mapping[str, Any] = field(default_factory=dict)
    state: StageState = "waiting"
    begun_at_ms: int | None = None
    remembered: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)


class RunningState(Struct, frozen=True, forbid_unknown_fields=True):
    """What runs after an attempt."""

    models: tuple[str, ...]
    artifact: str
    """What was applied: manifest and deployment facts."""
    job_artifact: str
    """What the job was submitted from; older than `artifact` when a job was adopted."""
    job_id: str | None = None
    savepoint: str | None = None
    status: Literal["applied", "stopped", "discarded"] = "applied"
    details: Mapping[str, Any] = field(default_factory=dict)


class Attempt(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry."""

    unit: str
    target: str
    sequence: int
    previous: str | None
    """Digest of the entry before, None for the first."""
    attempt: str
    action: Action
    by: str
    started_at_ms: int
    plan_id: str | None
    verdict: str
    requires: str
    artifact: str | None
    models: tuple[str, ...]
    """The models that the attempt deploys."""
    carry: Mapping[str, str] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    """Running units, other than this one, that end with the attempt."""
    approvals: tuple[Mapping[str, Any], ...] = ()
    """The decisions that the attempt consumed."""
    stages: tuple[StageEntry, ...] = ()
    outcome: Outcome = "open"
    finished_at_ms: int | None = None
    problem: str | None = None
    running: RunningState | None = None
    """What runs once the entry is closed; before that, what ran before."""
    record_digest: str | None = None

    @property
    def is_open(self) -> bool:
        return self.outcome == "open"

    @property
    def next_stage(self) -> int | None:
        """The first stage that is not done."""
        return next((i for i, stage in enumerate(self.stages) if stage.state != "done"), None)

    def with_stage(self, index: int, stage: StageEntry) -> Attempt:
        """The attempt with one stage replaced."""
        return replace(self, stages=(*self.stages[:index], stage, *self.stages[index + 1 :]))


def attempt_document(attempt: Attempt) -> dict[str, Any]:
    """The JSON document."""
    return {"attempt_version": ATTEMPT_VERSION, **to_builtins(attempt)}


def attempt_text(attempt: Attempt) -> str:
    """The document as it is stored; its SHA-256 is what the next entry names."""
    return canonical_json(attempt_document(attempt))


def attempt_digest(attempt: Attempt) -> str:
    """The digest that the next entry names."""
    return digest(attempt_text(attempt))


def read_attempt(document: Mapping[str, Any], file: str) -> Attempt:
    """The attempt that a document holds. Raises: DocumentError."""
    if document.get("attempt_version") != ATTEMPT_VERSION:
        raise DocumentError(
            f"{file} has attempt_version {document.get('attempt_version')!r}; this streamform reads version {ATTEMPT_VERSION}",
            "use the release that wrote it",
        )
    try:
        return convert({key: value for key, value in document.items() if key != "attempt_version"}, Attempt)
    except ValidationError as error:
        raise DocumentError(f"{file} is not a journal entry: {error}", "restore it from a backup") from None
