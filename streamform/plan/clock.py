"""Clocks: which column says when a row happened, and how far its source lets it come late.

Rows E1 to E5 are the event time page's declarations. A clock is declared here and computed in runtime/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from streamform.project.model import LateEvents, Source
from streamform.sql.expressions import ColumnRef, Output
from streamform.values.rows import Schema


class SourceClock(Struct, frozen=True):
    """Event time of a source: the column, the delay that its watermark allows, and what happens to late events."""

    column: str
    delay_ms: int
    late: LateEvents

    @property
    def keeps_late(self) -> bool:
        """Whether models see late events."""
        return self.late == "keep"


class ClockRule(NamedTuple):
    """One row: a declaration and what it does to the plan."""

    id: str
    declaration: str
    meaning: str


CLOCK_RULES = (
    ClockRule("E1", "event_time", "The column of an event that says when it happened; without it a model runs in arrival order."),
    ClockRule(
        "E2",
        "watermark",
        "The delay: the watermark is the largest event time seen minus the delay, or the last explicit item, and never goes back. An event behind it is late; one exactly at it is not.",
    ),
    ClockRule(
        "E3",
        "late_events",
        "drop: a late event is counted and not delivered. keep: it is delivered. quarantine: it goes where broken events go.",
    ),
    ClockRule(
        "E4",
        "retention",
        "A key's state is dropped once the watermark reaches the key's latest event time plus the retention; nothing is emitted for that, "
        "or with on_expiry: delete a delete of its row.",
    ),
    ClockRule(
        "E5",
        "window",
        "A window closes when the watermark reaches its last millisecond, and emits its result once; a later event of it is late.",
    ),
)


def source_clock(source: Source) -> SourceClock | None:
    """The source's clock, with defaults filled in, or None when it has no event time."""
    if source.event_time is None:
        return None
    return SourceClock(source.event_time, source.watermark_ms or 0, source.late_events or "drop")


def united_time(times: Sequence[str | None], schemas: Sequence[Schema]) -> str | None:
    """The time attribute above a union: the column that is every input's, under the first one's name."""
    places = {[c.name for c in schema].index(time) if time is not None else None for time, schema in zip(times, schemas, strict=True)}
    return times[0] if len(places) == 1 else None


def projected_time(time: str | None, outputs: tuple[Output, ...]) -> str | None:
    """The time attribute above a projection: the first output that is the time column itself."""
    if time is None:
        return None
    return next((o.name for o in outputs if isinstance(o.expression, ColumnRef) and o.expression.name == time), None)
