"""Ports of the control plane: what the life cycle needs from the world, and the values that cross.

An adapter implements Documents (where everything is written down), Backend (where plans run) and Clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from streamform.backends.base import Capabilities
from streamform.identity.manifest import Manifest
from streamform.lifecycle.lock import LockHolder
from streamform.lifecycle.stages import Carrying, Observed, Stage
from streamform.plan.nodes import Plan
from streamform.project.model import Project, Target

ANY = "any"
"""Expected digest of a write that replaces whatever is there."""


class Documents(Protocol):
    """A small transactional store of documents by path: a folder, or a table in a database.

    Paths are relative, with / between parts. Raises: StoreError when the store can't be read or written.
    """

    def read(self, path: str) -> bytes | None:
        """The document's content, or None."""

    def write(self, path: str, content: bytes, *, expected: str | None) -> None:
        """Replace the document at once and durably.

        `expected` is the SHA-256 of the content that must be there, None for no document, or ANY.
        Raises: StoreError when something else is there; nothing is written then.
        """

    def names(self, prefix: str) -> list[str]:
        """Paths that start with a prefix, sorted."""

    def lock(self, name: str, holder: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Hold a lock for as long as this process lives. Raises: LockHeld naming who holds it."""

    def lock_holder(self, name: str) -> LockHolder | None:
        """Who holds a lock now, None for nobody."""

    def free_lock(self, name: str) -> None:
        """Take a lock away from its holder, who can write nothing more while it believes to hold it."""

    def describe(self) -> str:
        """The store's address without credentials."""


class Clock(Protocol):
    """The wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""


class DesiredUnit(Struct, frozen=True):
    """A unit as the project describes it now."""

    name: str
    models: tuple[str, ...]
    plan: Plan
    manifest: Manifest
    facts: Mapping[str, Mapping[str, str]]
    """Deployment facts by subject."""
    statements: tuple[str, ...] = ()
    """What would be submitted, without secrets; empty where nothing is."""


class RunningUnit(Struct, frozen=True):
    """A unit as it was last applied."""

    name: str
    models: tuple[str, ...]
    manifest: Manifest
    facts: Mapping[str, Mapping[str, str]] | None
    """None where only a manifest is known."""
    artifact: str | None
    """The artifact of what runs; None for a record that another tool wrote."""
    job_id: str | None = None
    savepoint: str | None = None
    status: Literal["applied", "stopped", "discarded"] = "applied"
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the backend asked to remember, such as the place of a compiled plan."""
    statements: tuple[str, ...] = ()
    """What its job was submitted from, without secrets."""


class ObservedJob(Struct, frozen=True):
    """A job that the backend knows."""

    job_id: str
    state: str
    """A state of the published status document: running, starting, restarting, failed, stopped, missing, unowned."""
    name: str | None = None
    recorded: bool = True
    backend_status: str | None = None
    start_time: str | None = None
    tasks: tuple[int, int] | None = None
    """Running and all tasks."""
    failure: str | None = None


class Observation(Struct, frozen=True):
    """What a look at the backend found about one unit."""

    word: Observed
    jobs: tuple[ObservedJob, ...] = ()
    detail: str | None = None


class Progress(Struct, frozen=True):
    """Something worth telling while a stage runs."""

    stage: str
    text: str
    fraction: float | None = None


class StageContext(Struct, frozen=True, dict=True):
    """What a backend needs to carry out one stage of one attempt, again and again until it is done."""

    project: Project
    target: Target
    unit: DesiredUnit | None
    """None while a unit is removed."""
    unit_name: str
    running: RunningUnit | None
    replaced: tuple[RunningUnit, ...]
    """Other running units that this one takes over."""
    carry: Mapping[str, str]
    """Desired node id -> running node id, for state that continues."""
    sequence: int
    attempt: str
    """Ids of acts are derived from unit, sequence and attempt, so that a repeated act is the same act."""
    artifact: str | None
    done: Mapping[str, Mapping[str, Any]]
    """Results of the stages of this attempt that are complete, by stage kind."""
    progress: Callable[[Progress], None]
    remember: Callable[[Mapping[str, Any]], None]
    """Write facts into the journal before acting on them."""
    remembered: Mapping[str, Any]
    """Facts that an earlier run of this stage wrote."""
    written: Callable[[], frozenset[str]] = frozenset
    """Addresses of every sink that some attempt on this target, ended or not, began to fill."""
    adopted: frozenset[str] = frozenset()
    """Models whose sinks are taken over with the rows that somebody else wrote."""


class Backend(Protocol):
    """Where units run."""

    capabilities: Capabilities

    def addresses(self) -> Mapping[str, str]:
        """The resolved addresses that approvals are bound to, without credentials."""

    def statements(self, project: Project, target: Target, unit: DesiredUnit) -> tuple[str, ...]:
        """What would be submitted for a unit, without secrets. Raises: Refused where the backend can't express it."""

    def observe(self, unit_name: str, running: RunningUnit | None) -> Observation:
        """Look at what runs. Raises: Unreachable."""

    def carry(self, unit: DesiredUnit, running: RunningUnit, carrying: Carrying, *, observe: bool) -> tuple[DesiredUnit, Carrying]:
        """The unit as it has to be written to take over the running one's state, and whether it can.

        Asked only of a backend that carries state where that is proved. Without `observe` nothing is contacted, and what can't be
        known is assumed. Raises: Unreachable.
        """

    def preflight(self, context: StageContext) -> None:
        """Look at what an attempt is about to need, before it is written down.

        Raises: Refused, DataError or Unreachable where it can't succeed; nothing has changed then.
        """

    def foreign_sinks(self, context: StageContext) -> tuple[str, ...]:
        """Models of the unit whose sinks hold rows that somebody else wrote. Raises: Unreachable, StateError."""

    def execute(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Carry out a stage, or finish one that was begun; what it returns is journalled.

        Raises: JobFailed when the backend refused or lost it, Unreachable or OutcomeUnknown when that is not known.
        """

    def follow(self, contexts: Sequence[StageContext], stop: Event) -> None:
        """Go on consuming these units until `stop` is set, then checkpoint; only where units are no jobs."""

    def has_acted(self, stage: Stage, context: StageContext) -> bool:
        """Whether a stage that was begun and cut off has changed anything yet."""

    def compensate(self, context: StageContext, error: Exception) -> Mapping[str, Any] | None:
        """After a failed stage: bring back what ran before; its facts, or None when that was not disturbed.

        Facts of the unit are job_id, savepoint, status and text. `stopped` maps each replaced unit that stays stopped to its savepoint.
        """

    def close(self) -> None:
        """Release what is held open."""
