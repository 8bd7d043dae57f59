"""Approvals: what a pending plan is bound to, who decided what about it, and what it is worth now.

A plan id names one situation. The subject is hashed; whatever moves on either side makes another id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from streamform.errors import DocumentError, Refused
from streamform.identity.fingerprint import canonical_json, digest
from streamform.project.model import Policy

APPROVAL_VERSION = 1
PLAN_ID_DIGITS = 16
SYSTEM = "system"
"""The requester of schedules and sensors."""

DecisionWord = Literal["approve", "reject", "revoke"]
Status = Literal["pending", "approved", "rejected", "consumed", "stale", "expired"]


class DecisionEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One decision about a pending plan, never changed afterwards."""

    decision: DecisionWord
    by: str
    at_ms: int
    reason: str
    verified: bool = False
    """Whether who decided was established by more than their own word."""


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody asked for this plan to be applied or checked."""

    by: str
    at_ms: int


class PendingPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that somebody may decide. `consumed_by` names the attempt that used its approval."""

    plan_id: str
    project: str
    target: str
    unit: str
    verdict: str
    requires: str
    acknowledge: str | None
    """The words that an approver must repeat, where the cost asks for it."""
    subject: Mapping[str, Any]
    diff_markdown: str
    registered_at_ms: int
    requests: tuple[Request, ...] = ()
    decisions: tuple[DecisionEntry, ...] = ()
    consumed_by: str | None = None
    superseded_by: str | None = None


def plan_id_of(subject: Mapping[str, Any]) -> str:
    """The first 16 hex digits of the SHA-256 of the subject's canonical JSON."""
    return digest(canonical_json(subject))[:PLAN_ID_DIGITS]


ACKNOWLEDGED = ("BACKFILL REQUIRED", "STATE INCOMPATIBLE")


def acknowledgement(requires: str) -> str | None:
    """The words that an approver must repeat for a plan that requires this."""
    return requires if requires in ACKNOWLEDGED else None


def decisive(plan: PendingPlan) -> list[DecisionEntry]:
    """The decisions that count: those after the last rejection or revocation, and that one."""
    kept: list[DecisionEntry] = []
    for entry in plan.decisions:
        kept = [*kept, entry] if entry.decision == "approve" else [entry]
    return kept


def status_of(plan: PendingPlan, policy: Policy, now_ms: int) -> Status:
    """What the plan is worth at this time. The expiry counts from the stored time of each approval."""
    if plan.consumed_by is not None:
        return "consumed"
    if plan.superseded_by is not None:
        return "stale"
    entries = decisive(plan)
    if not entries:
        return "pending"
    if entries[0].decision == "reject" and len(entries) == 1:
        return "rejected"
    approvals = [entry for entry in entries if entry.decision == "approve"]
    if not approvals:
        return "pending"
    valid = counted_approvals(plan, policy, now_ms)
    if len(valid) >= policy.min_approvals:
        return "approved"
    expired = all(now_ms >= entry.at_ms + policy.expires_ms for entry in approvals)
    return "expired" if expired else "pending"


def counted_approvals(plan: PendingPlan, policy: Policy, now_ms: int) -> list[DecisionEntry]:
    """The approvals that the policy counts: in time, by different people, named where it names them, not by who asked.

    Where nobody is known a rule about people is not met.
    """
    asked = {request.by for request in plan.requests}
    by_person: dict[str, DecisionEntry] = {}
    for entry in decisive(plan):
        in_time = entry.at_ms <= now_ms < entry.at_ms + policy.expires_ms
        if entry.decision == "approve" and in_time and _counts(entry, policy, asked):
            by_person.setdefault(entry.by, entry)
    return list(by_person.values())


def _counts(entry: DecisionEntry, policy: Policy, asked: set[str]) -> bool:
    names_people = bool(policy.approvers) or policy.min_approvals > 1 or not policy.allow_self
    if not names_people:
        return True
    if not entry.by or not (entry.verified or policy.trust_os_user):
        return False
    if policy.approvers and entry.by not in policy.approvers:
        return False
    return policy.allow_self or (entry.by not in asked and bool(asked - {SYSTEM, ""}))


def expires_at_ms(plan: PendingPlan, policy: Policy) -> int | None:
    """When the last counted approval ends, or None where there is none."""
    times = [entry.at_ms + policy.expires_ms for entry in decisive(plan) if entry.decision == "approve"]
    return max(times, default=None)


def with_request(plan: PendingPlan, by: str, now_ms: int) -> PendingPlan:
    """The plan with one more requester; asking again changes nothing."""
    if any(request.by == by for request in plan.requests):
        return plan
    return replace(plan, requests=(*plan.requests, Request(by, now_ms)))


def check_decision(plan: PendingPlan, decision: DecisionWord, reason: str, acknowledge: str | None) -> None:
    """Refuse a decision that can't be taken about this plan. Raises: Refused with what to do instead."""
    if not reason.strip():
        raise Refused("a decision needs a reason", "pass --reason with a sentence")
    if plan.consumed_by is not None:
        raise Refused(f"plan {plan.plan_id} was applied already", "run `streamform plan` for what is pending now")
    if plan.superseded_by is not None:
        newer = plan.superseded_by
        raise Refused(f"plan {plan.plan_id} is stale: {newer} was registered for unit `{plan.unit}` since", f"decide about {newer}")
    if decision == "approve" and plan.acknowledge is not None and acknowledge != plan.acknowledge:
        words = f'pass --acknowledge "{plan.acknowledge}"'
        raise Refused(f"plan {plan.plan_id} requires {plan.requires}; an approval must acknowledge that in these words", words)
    if decision == "revoke" and not any(entry.decision == "approve" for entry in decisive(plan)):
        raise Refused(f"plan {plan.plan_id} has no approval to revoke", "reject it instead")


def pending_text(plan: PendingPlan) -> str:
    """The document as it is stored."""
    return canonical_json({"approval_version": APPROVAL_VERSION, **to_builtins(plan)})


def read_pending(document: Mapping[str, Any], file: str) -> PendingPlan:
    """The plan that a document holds. Raises: DocumentError."""
    if document.get("approval_version") != APPROVAL_VERSION:
        raise DocumentError(f"{file} is not an approval of version {APPROVAL_VERSION}", "use the release that wrote it")
    try:
        return convert({key: value for key, value in document.items() if key != "approval_version"}, PendingPlan)
    except ValidationError as error:
        raise DocumentError(f"{file} is not an approval: {error}", "restore it from a backup") from None
