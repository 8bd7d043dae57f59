"""Decisions about pending plans, what is known of a target, and its lock. Part of the facade; see api.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from streamform.compiling import choose_target, compile_for_target, load
from streamform.errors import Refused, Unreachable, UsageError
from streamform.results import PendingView, StatusResult, UnlockResult

if TYPE_CHECKING:
    from streamform.lifecycle.approval import DecisionWord, PendingPlan
    from streamform.lifecycle.journal import Attempt
    from streamform.lifecycle.revisions import Revisions
    from streamform.project.model import Policy, Project, Target


def strict_policy() -> Policy:
    """What holds where a target declares no policy and the caller asks for one: whatever costs something needs an approval."""
    from streamform.project.model import Policy

    return Policy()


def approvals(project_dir: Path, *, target: str | None = None, policy: Policy | None = None) -> tuple[str, list[PendingView]]:
    """Every registered plan of a target, oldest first; the target's name beside them."""
    from streamform.session import open_store, with_consumption

    project = load(project_dir).project
    chosen = choose_target(project, target)
    store = open_store(project_dir, project, chosen)
    plans = [found for plan_ in store.pending() if (found := with_consumption(store, plan_)) is not None]
    return chosen.name, [_pending_view(plan_, chosen, policy) for plan_ in plans]


def _pending_view(plan_: PendingPlan, target: Target, policy: Policy | None) -> PendingView:
    from streamform.adapters.clock import SystemClock
    from streamform.lifecycle.approval import expires_at_ms, status_of
    from streamform.project.model import Policy

    effective = target.approvals or policy or Policy()
    return PendingView(plan_, status_of(plan_, effective, SystemClock().now_ms()), expires_at_ms(plan_, effective))


def decide(
    project_dir: Path,
    plan_ids: Sequence[str],
    decision: DecisionWord,
    *,
    by: str,
    reason: str,
    acknowledge: str | None = None,
    target: str | None = None,
    verified: bool = False,
) -> list[PendingView]:
    """Write a decision about registered plans.

    Raises: UsageError for an id that nothing registered, Refused where a rule says no; nothing is written then.
    """
    from streamform.adapters.clock import SystemClock
    from streamform.lifecycle.approval import DecisionEntry, check_decision
    from streamform.session import open_store

    project = load(project_dir).project
    targets = [choose_target(project, target)] if target is not None else list(project.targets)
    found = [_find_pending(project_dir, project, targets, plan_id) for plan_id in dict.fromkeys(plan_ids)]
    for plan_, _ in found:
        check_decision(plan_, decision, reason, acknowledge)
    views: list[PendingView] = []
    for plan_, owner in found:
        entry = DecisionEntry(decision, by, SystemClock().now_ms(), reason, verified)
        store = open_store(project_dir, project, owner)
        written = store.write_pending(replace(plan_, decisions=(*plan_.decisions, entry)), replaces=plan_)
        views.append(_pending_view(written, owner, None))
    return views


def _find_pending(project_dir: Path, project: Project, targets: Sequence[Target], plan_id: str) -> tuple[PendingPlan, Target]:
    from streamform.session import open_store, with_consumption

    for target in targets:
        store = open_store(project_dir, project, target)
        plan_ = with_consumption(store, store.pending_plan(plan_id))
        if plan_ is not None:
            return plan_, target
    raise UsageError(f"no plan `{plan_id}` is registered", "a blocked `streamform apply` registers one; `streamform approvals` lists them")


# the lock


def unlock(project_dir: Path, *, target: str | None = None, force: bool = False) -> UnlockResult:
    """Free a target's lock: one whose holder surely ended, or, with `force`, any.

    Raises: Refused naming the holder when it may be alive, StoreError when the lock can't be freed.
    """
    from streamform.adapters.lock import is_gone
    from streamform.session import open_store

    project = load(project_dir).project
    chosen = choose_target(project, target)
    store = open_store(project_dir, project, chosen)
    holder = store.lock_holder()
    if holder is None:
        return UnlockResult(chosen.name, None)
    forced = not is_gone(holder)
    if forced and not force:
        message = f"the lock of target `{chosen.name}` is held by {holder.shown()}, which may still be alive"
        raise Refused(message, "wait until it is done; where you know that it ended, add --force")
    store.free_lock()
    return UnlockResult(chosen.name, holder, forced)


# history and status


def history(project_dir: Path, *, target: str | None = None) -> tuple[str, list[Attempt]]:
    """Every journal entry of a target in order of time; the target's name beside them."""
    from streamform.session import open_store

    project = load(project_dir).project
    chosen = choose_target(project, target)
    store = open_store(project_dir, project, chosen)
    entries = [entry for unit in store.units() for entry in store.attempts(unit)]
    return chosen.name, sorted(entries, key=lambda e: (e.started_at_ms, e.unit, e.sequence))


def revisions(project_dir: Path, *, target: str | None = None) -> dict[tuple[str, int], Revisions]:
    """How often plan and interface were accepted, by unit and sequence of each journal entry."""
    from streamform.lifecycle.revisions import count_revisions
    from streamform.session import open_store

    project = load(project_dir).project
    store = open_store(project_dir, project, choose_target(project, target))
    interface_of = cache(store.interface_of)
    found: dict[tuple[str, int], Revisions] = {}
    for unit in store.units():
        entries = store.attempts(unit)
        counted = count_revisions(entries, interface_of)
        found.update({(unit, entry.sequence): after for entry, after in zip(entries, counted, strict=True)})
    return found


def status(project_dir: Path, *, target: str | None = None) -> StatusResult:
    """Look at every unit of a target."""
    from streamform.lifecycle.health import judge, unreachable
    from streamform.session import open_session

    compiled, chosen = compile_for_target(project_dir, target)
    with open_session(project_dir, compiled, chosen) as session:
        deployed, holder = session.deployed(), session.store.lock_holder()
        name = compiled.project.name
        try:
            seen = {unit: session.backend.observe(unit, running) for unit, running in deployed.units.items()}
        except Unreachable as error:
            health = unreachable(deployed, error.message)
            return StatusResult(name, chosen.name, deployed, {}, "gateway-unreachable", error.message, health, holder)
    return StatusResult(name, chosen.name, deployed, seen, health=judge(deployed, seen), holder=holder)
