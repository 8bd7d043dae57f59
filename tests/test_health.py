"""The table of health: what a look at a unit means."""

from __future__ import annotations

import pytest

from streamform.lifecycle.deployed import NOTHING, Deployed
from streamform.lifecycle.health import HEALTH, UnitHealth, judge, unreachable
from streamform.lifecycle.ports import Observation, ObservedJob, RunningUnit

RUNS = ObservedJob("a1", "running")
STRAY = ObservedJob("b2", "unowned", recorded=False)

CASES = {
    "H1": ("applied", Observation("failed", (ObservedJob("a1", "failed"),), "out of memory"), "error", "its job failed: out of memory"),
    "H2": ("discarded", Observation("missing"), "warning", "its state was discarded, and it does not run"),
    "H3": ("applied", Observation("missing"), "error", "what was applied is not there: the backend gives no reason"),
    "H4": ("applied", Observation("running", (RUNS, STRAY)), "error", "job b2 run as this unit, and no record knows them"),
    "H6": ("stopped", Observation("stopped"), "warning", "it is stopped"),
    "H7": ("applied", Observation("running", (ObservedJob("a1", "restarting"),), "no slots"), "warning", "its job is restarting: no slots"),
    "H8": ("applied", Observation("running", (RUNS,)), "ok", "it runs"),
}
"""By row: the recorded status, what was seen, how bad it is, and the sentence."""


def deployed(status: str) -> Deployed:
    return Deployed(None, {"shop": RunningUnit("shop", ("shop",), NOTHING, None, None, "a1", status=status)}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("row", CASES)
def test_the_first_row_that_applies_is_the_state(row: str) -> None:
    status, observation, severity, text = CASES[row]
    (found,) = judge(deployed(status), {"shop": observation})
    state = next(r.state for r in HEALTH if r.id == row)
    assert found == UnitHealth("shop", state, severity, text)  # type: ignore[arg-type]


def test_a_target_that_is_not_reached_says_nothing_about_its_units_but_that() -> None:
    assert unreachable(deployed("applied"), "the gateway is away") == (UnitHealth("shop", "unreachable", "warning", "the gateway is away"),)
