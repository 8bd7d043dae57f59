"""Where changes go: what the embedded backend asks of a sink, and the errors that they share.

Every delivery has a number. A sink keeps the number of the last delivery, in the same transaction as the rows (sqlite) or
as its length (file), so that a delivery that was cut off is finished exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from streamform.errors import Refused, StateError
from streamform.project.model import Endpoint
from streamform.runtime.records import Change
from streamform.values.rows import Row, Schema

ADVICE = "restore it, or run `streamform stop --discard-state` and apply again, which writes it anew"


class SinkVanished(StateError):
    """What was delivered before is no longer there."""


class Shape(Struct, frozen=True):
    """What a model's rows look like."""

    model: str
    schema: Schema
    key: tuple[str, ...]
    upserts: bool
    endpoint: Endpoint


class Mark(Struct, frozen=True):
    """How far deliveries to one sink have come."""

    token: str
    """What the sink knows us by."""
    number: int = 0
    length: int = 0
    """The length of a file after the delivery of this number. Units: bytes."""

    @property
    def next(self) -> int:
        """The number of the next delivery: 0 is a place whose rows nobody counted, 1 an empty one."""
        return max(self.number, 1) + 1


class Sink(Protocol):
    """One sink. Raises: StateError when it can't be written or is not as it was left."""

    def check_free(self) -> None:
        """Raise Refused where rows stand that nobody delivered through us."""

    def check_adoptable(self) -> None:
        """Raise Refused where rows of somebody else stand that ours can't be written beside."""

    def check_writable(self) -> None:
        """Raise Refused where nothing can be written; nothing is created."""

    def prepare(self, mark: Mark) -> None:
        """Make it ready for rows of this shape; rows that are there stay. Raises: SinkVanished when delivered rows are gone."""

    def length(self) -> int:
        """The length of what is there. Units: bytes of a file, 0 for a table."""

    def clear(self, mark: Mark) -> None:
        """Empty what we delivered before."""

    def needed(self, changes: Sequence[Change]) -> list[Change]:
        """What is delivered of these changes."""

    def confirm(self, mark: Mark, pending: Sequence[Change] | None) -> None:
        """Make sure that the delivery of the mark's number has arrived, sending it where it has not."""

    def length_after(self, mark: Mark, changes: Sequence[Change]) -> int:
        """The length after one more delivery."""

    def amend(self, mark: Mark, changes: Iterator[Change]) -> int:
        """Deliver the difference to what is there as the next number; the length after it."""

    def rewrite(self, mark: Mark, rows: Iterable[Row]) -> int:
        """Replace everything by these rows as the next number; the length after it."""

    def has_shape(self) -> bool:
        """Whether what is there has exactly the columns and the key of these rows, as far as it can tell."""

    def close(self) -> None:
        """Release what is held open."""


def check_writable(path: Path, subject: str) -> None:
    """Raise Refused where a file can't be written or made; nothing is created."""
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    wrong = nearest.is_dir() if nearest == path else not nearest.is_dir()
    if wrong or not os.access(nearest, os.W_OK):
        cause = f"{nearest} is {'a folder' if nearest.is_dir() else 'no folder'}" if wrong else f"{nearest} is read-only for this user"
        raise Refused(f"{subject} can't be written: {cause}", "check the path and its permissions")


def advice(cause: str) -> str:
    """What to do about a sink that could not be written."""
    if "full" in cause or "space" in cause or "large" in cause:
        return "make room and apply again; nothing that was committed is lost"
    return "another program holds it; let it end and apply again" if "locked" in cause else "check the path and its permissions"
