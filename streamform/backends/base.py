"""Capabilities: what a backend can do with a plan and with what was stored under another one, as data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

BackendName = Literal["flink", "embedded"]


class Capabilities(Struct, frozen=True):
    """What build_stages may ask of a backend. No stage exists that its backend cannot execute."""

    backend: BackendName
    has_jobs: bool
    """Whether a unit is a job that runs by itself; otherwise apply and run consume the sources."""
    carries_state: bool
    """Whether state continues under a COMPATIBLE change."""
    repairs_sinks: bool
    """Whether an upsert sink is made equal to a fresh run's by the difference."""
    restores: bool
    """Whether an unchanged unit that was stopped continues from where it stopped."""


CAPABILITIES: dict[str, Capabilities] = {
    "embedded": Capabilities("embedded", has_jobs=False, carries_state=True, repairs_sinks=True, restores=True),
    "flink": Capabilities("flink", has_jobs=True, carries_state=False, repairs_sinks=False, restores=True),
}
