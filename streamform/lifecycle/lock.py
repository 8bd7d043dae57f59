"""Who holds a target's lock, as the holder wrote it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from streamform.values.instants import render_instant


class LockHolder(Struct, frozen=True):
    """The process that holds a lock. What it did not write down is None."""

    pid: int | None = None
    host: str | None = None
    boot: str | None = None
    """What tells one start of the host from another."""
    namespace: str | None = None
    """What tells one container's pids from another's."""
    action: str | None = None
    by: str | None = None
    at_ms: int | None = None

    def shown(self) -> str:
        """One line for people."""
        if self.pid is None:
            return "a process that has not said who it is"
        who = f" by {self.by}" if self.by else ""
        since = f" since {render_instant(self.at_ms).replace('.000Z', 'Z')}" if self.at_ms is not None else ""
        return f"pid {self.pid} on {self.host}, {self.action or 'unknown command'}{who}{since}"


def read_holder(document: Any) -> LockHolder:
    """The holder that a document describes; what is not there or of another type is left out."""
    if not isinstance(document, Mapping):
        return LockHolder()
    texts: dict[str, Any] = {
        name: value for name in ("host", "boot", "namespace", "action", "by") if isinstance(value := document.get(name), str)
    }
    numbers: dict[str, Any] = {name: value for name in ("pid", "at_ms") if type(value := document.get(name)) is int}
    return LockHolder(**numbers, **texts)
