"""The clock of a source at run time: the watermark, and which events are late.

The watermark is judged before an event moves it, so an event never makes itself late.
"""

from __future__ import annotations

from msgspec import Struct

from streamform.plan.clock import SourceClock

NEVER = -(2**63)
"""The watermark before anything was seen. Units: milliseconds."""


class RunningClock(Struct):
    """How far event time has come. `watermark_ms` only ever grows."""

    declared: SourceClock
    watermark_ms: int = NEVER

    def observe(self, event_ms: int) -> bool:
        """Account for one event; True when it is late. The watermark may move."""
        late = event_ms < self.watermark_ms
        reached = event_ms - self.declared.delay_ms
        if reached > self.watermark_ms:
            self.watermark_ms = reached
        return late

    def advance(self, watermark_ms: int) -> bool:
        """Move to an explicit watermark; True when it moved. Never backwards."""
        if watermark_ms <= self.watermark_ms:
            return False
        self.watermark_ms = watermark_ms
        return True
