"""The gate: whether an apply may begin.

GATE holds the rules in the order in which they are asked; the first that applies decides. `apply` takes an Open, and an
Open is made nowhere but here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from streamform.diff.model import Classification, classification
from streamform.lifecycle.approval import DecisionEntry, PendingPlan, counted_approvals, status_of
from streamform.project.model import Policy

_SEAL = object()


class Open(Struct, frozen=True, dict=True):
    """Permission for one plan id of one unit. `approvals` are the decisions that gave it, none where the policy asks for none."""

    plan_id: str
    rule: str
    approvals: tuple[DecisionEntry, ...]
    seal: object

    def __post_init__(self) -> None:
        assert self.seal is _SEAL, "an Open is made by decide alone"


class Shut(Struct, frozen=True):
    """No permission, and why."""

    plan_id: str
    rule: str
    reason: str


Decision = Open | Shut


class GateInput(NamedTuple):
    """What the gate looks at."""

    plan_id: str
    requires: Classification
    policy: Policy | None
    pending: PendingPlan | None
    now_ms: int


class GateRule(NamedTuple):
    """One row."""

    id: str
    opens: bool
    test: Callable[[GateInput], bool]
    sentence: str


def _status(i: GateInput) -> str:
    return "none" if i.pending is None or i.policy is None else status_of(i.pending, i.policy, i.now_ms)


GATE: tuple[GateRule, ...] = (
    GateRule("G1", True, lambda i: i.policy is None, "the target declares no policy, and who asks brings none"),
    GateRule(
        "G2",
        True,
        lambda i: i.policy is not None and i.requires <= classification(i.policy.above),
        "the policy lets this pass without approval",
    ),
    GateRule("G3", False, lambda i: _status(i) == "consumed", "the approval of this plan was used by an earlier attempt"),
    GateRule("G4", False, lambda i: _status(i) == "rejected", "the plan was rejected"),
    GateRule("G5", False, lambda i: _status(i) == "expired", "the approval has expired"),
    GateRule("G6", False, lambda i: _status(i) == "stale", "another plan was registered for this unit since"),
    GateRule("G7", True, lambda i: _status(i) == "approved", "the plan is approved"),
    GateRule("G8", False, lambda i: True, "an approval is needed"),
)


def decide(question: GateInput) -> Decision:
    """Open or shut, by the first rule that applies."""
    rule = next(row for row in GATE if row.test(question))
    if not rule.opens:
        return Shut(question.plan_id, rule.id, rule.sentence)
    approvals: tuple[DecisionEntry, ...] = ()
    if rule.id == "G7":
        assert question.pending is not None
        assert question.policy is not None
        assert question.pending.plan_id == question.plan_id, "an approval of another plan opens nothing"
        approvals = tuple(counted_approvals(question.pending, question.policy, question.now_ms))
    return Open(question.plan_id, rule.id, approvals, _SEAL)


def needs_approval(requires: Classification, policy: Policy | None) -> bool:
    """Whether the policy asks for an approval of a plan that requires this."""
    return policy is not None and requires > classification(policy.above)
