"""Health: what a look at a unit means for whoever operates it.

HEALTH holds the rows in the order in which they are asked; the first that applies says the state, how bad it is, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

from streamform.lifecycle.deployed import Deployed
from streamform.lifecycle.ports import Observation, ObservedJob, RunningUnit

Severity = Literal["ok", "warning", "error"]


class UnitHealth(Struct, frozen=True):
    """One unit."""

    unit: str
    state: str
    severity: Severity
    text: str


class Look(NamedTuple):
    """What is known about a unit."""

    running: RunningUnit
    observation: Observation
    is_unfinished: bool

    @property
    def strays(self) -> list[ObservedJob]:
        """Jobs of the unit that no record knows."""
        return [job for job in self.observation.jobs if not job.recorded]

    @property
    def unsettled(self) -> list[ObservedJob]:
        """Recorded jobs that are on their way to running."""
        return [job for job in self.observation.jobs if job.recorded and job.state != "running"]


class HealthRow(NamedTuple):
    """One row."""

    id: str
    state: str
    severity: Severity
    test: Callable[[Look], bool]
    sentence: str
    """`{detail}` is what the backend said, `{jobs}` the jobs that the row is about."""


HEALTH: tuple[HealthRow, ...] = (
    HealthRow("H1", "failed", "error", lambda look: look.observation.word == "failed", "its job failed: {detail}"),
    HealthRow(
        "H2", "discarded", "warning", lambda look: look.running.status == "discarded", "its state was discarded, and it does not run"
    ),
    HealthRow("H3", "missing", "error", lambda look: look.observation.word == "missing", "what was applied is not there: {detail}"),
    HealthRow("H4", "unowned", "error", lambda look: bool(look.strays), "{jobs} run as this unit, and no record knows them"),
    HealthRow("H5", "unfinished", "warning", lambda look: look.is_unfinished, "an attempt was cut off; the next apply finishes it"),
    HealthRow("H6", "stopped", "warning", lambda look: look.observation.word in ("stopped", "none"), "it is stopped"),
    HealthRow("H7", "restarting", "warning", lambda look: bool(look.unsettled), "its job is {state}: {detail}"),
    HealthRow("H8", "running", "ok", lambda look: True, "it runs"),
)


def judge(deployed: Deployed, seen: Mapping[str, Observation]) -> tuple[UnitHealth, ...]:
    """The health of every unit that was looked at, in order of name."""
    looks = {name: Look(deployed.units[name], seen[name], deployed.open_attempt(name) is not None) for name in sorted(seen)}
    return tuple(_judge(name, look) for name, look in looks.items())


def unreachable(deployed: Deployed, problem: str) -> tuple[UnitHealth, ...]:
    """The health of every unit where the target can't be looked at. Nothing is known then, so nothing is wrong with a unit."""
    return tuple(UnitHealth(name, "unreachable", "warning", problem) for name in sorted(deployed.units))


def _judge(name: str, look: Look) -> UnitHealth:
    row = next(row for row in HEALTH if row.test(look))
    jobs = ", ".join(f"job {job.job_id}" for job in look.strays)
    state = look.unsettled[0].state if look.unsettled else row.state
    text = row.sentence.format(detail=look.observation.detail or "the backend gives no reason", jobs=jobs, state=state)
    return UnitHealth(name, row.state, row.severity, text)


__all__ = ["HEALTH", "HealthRow", "Look", "Severity", "UnitHealth", "judge", "unreachable"]
