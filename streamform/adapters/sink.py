"""Where changes go: what the embedded backend asks of a sink, and the errors that they share.

Every delivery has a number. A sink keeps the number of the last delivery, in the same transaction as the rows (sqlite) or
as its length (file), so that a delivery that was cut off is finished exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamform.errors import StateError
from streamform.project.model import Endpoint
from streamform.runtime.records import Change
from streamform.values.rows import Row, Schema

ADVICE = "restore it, or run `streamform stop --discard-state` and apply again, which writes it anew"


class SinkVanished(StateError):
    """What was delivered before is no longer there."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's rows look like."""

    model: str
    schema: Schema
    key: tuple[str, ...]
    upserts: bool
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Mark:
    """How far deliveries to one sink have come."""

    token: str
    """What the sink knows us by."""
    number: int = 0
    length: int = 0
    """The length of a file after the delivery of this number. Units: bytes."""


class Sink(Protocol):
    """One sink. Raises: StateError when it can't be written or is not as it was left."""

    def check_free(self) -> None:
        """Raise Refused where rows stand that nobody delivered through us."""

    def prepare(self, mark: Mark) -> None:
        """Make it ready for rows of this shape; rows that are there stay."""

    def clear(self, mark: Mark) -> None:
        """Empty what we delivered before."""

    def confirm(self, mark: Mark, pending: Sequence[Change] | None) -> None:
        """Make sure that the delivery of the mark's number has arrived, sending it where it has not."""

    def length_after(self, mark: Mark, changes: Sequence[Change]) -> int:
        """The length after one more delivery."""

    def amend(self, mark: Mark, changes: Iterator[Change]) -> int:
        """Deliver the difference to what is there as the next number; the length after it."""

    def rewrite(self, mark: Mark, rows: Iterable[Row]) -> int:
        """Replace everything by these rows as the next number; the length after it."""

    def has_shape(self) -> bool:
        """Whether what is there has exactly the columns and the key of these rows."""

    def close(self) -> None:
        """Release what is held open."""
