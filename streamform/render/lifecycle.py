"""Approvals, history and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamform.lifecycle.journal import Attempt
from streamform.lifecycle.ports import ObservedJob
from streamform.lifecycle.revisions import Revisions
from streamform.render.words import columns
from streamform.values.instants import render_instant

if TYPE_CHECKING:
    from streamform.results import PendingView, StatusResult, UnlockResult


def _at(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else render_instant(instant_ms)


def render_approvals(views: list[PendingView]) -> str:
    """A table of registered plans."""
    if not views:
        return "no plan waits for a decision\n"
    header = ("PLAN", "UNIT", "STATUS", "REQUIRES", "REQUESTED BY", "AT", "DECISIONS")
    rows = [
        (
            v.plan.plan_id,
            v.plan.unit,
            v.status,
            v.plan.requires,
            ", ".join(r.by or "nobody" for r in v.plan.requests),
            render_instant(v.plan.registered_at_ms),
            "; ".join(f"{d.decision} by {d.by or 'nobody'}: {d.reason}" for d in v.plan.decisions),
        )
        for v in views
    ]
    return "\n".join(columns([header, *rows], indent="")) + "\n"


def approvals_document(views: list[PendingView]) -> dict[str, Any]:
    """The JSON document."""
    return {"approvals_version": 1, "approvals": [approval_view_document(v) for v in views]}


def approval_view_document(view: PendingView) -> dict[str, Any]:
    """One registered plan."""
    plan = view.plan
    return {
        "plan_id": plan.plan_id,
        "unit": plan.unit,
        "target": plan.target,
        "status": view.status,
        "verdict": plan.verdict,
        "requires": plan.requires,
        "acknowledge": plan.acknowledge,
        "requested_by": [request.by for request in plan.requests],
        "requested_at": _at(plan.registered_at_ms),
        "expires_at": _at(view.expires_at_ms),
        "decisions": [
            {"decision": d.decision, "by": d.by, "at": _at(d.at_ms), "reason": d.reason, "verified": d.verified} for d in plan.decisions
        ],
    }


Counted = Mapping[tuple[str, int], Revisions]
"""By unit and sequence, how often plan and interface were accepted."""


def render_history(entries: list[Attempt], counted: Counted) -> str:
    """A table of journal entries, oldest first."""
    if not entries:
        return "nothing was applied yet\n"
    header = ("SEQ", "UNIT", "AT", "ACTION", "VERDICT", "OUTCOME", "REVISION", "BY", "PLAN")
    rows = [
        (
            str(e.sequence),
            e.unit,
            render_instant(e.started_at_ms),
            e.action,
            e.verdict,
            e.outcome,
            _revision(counted.get((e.unit, e.sequence))),
            e.by or "nobody",
            e.plan_id or "",
        )
        for e in entries
    ]
    return "\n".join(columns([header, *rows], indent="")) + "\n"


def _revision(after: Revisions | None) -> str:
    """The plan's and, behind a dot, the interface's; `?` where it is not known."""
    return "?" if after is None else f"{after.plan}.{'?' if after.interface is None else after.interface}"


def history_document(entries: list[Attempt], counted: Counted) -> dict[str, Any]:
    """The JSON document."""
    return {
        "history_version": 1,
        "entries": [
            {
                "seq": e.sequence,
                "unit": e.unit,
                "at": _at(e.started_at_ms),
                "action": e.action,
                "verdict": e.verdict,
                "requires": e.requires,
                "outcome": e.outcome,
                "by": e.by,
                "plan_id": e.plan_id,
                "record_digest": e.record_digest,
                "problem": e.problem,
                "plan_revision": None if (after := counted.get((e.unit, e.sequence))) is None else after.plan,
                "interface_revision": None if after is None else after.interface,
            }
            for e in entries
        ],
    }


def render_status(result: StatusResult) -> str:
    """What runs beside what is recorded."""
    lines = [f"{result.application} on target `{result.target}`"]
    record = result.deployed.record
    if record is None:
        return "\n".join([*lines, "  nothing is recorded as applied", ""])
    lines.append(f"  applied {record.applied_at} by streamform {record.streamform_version}")
    if result.problem is not None:
        lines.append(f"  {result.problem}")
    for name, observation in result.observations.items():
        jobs = ", ".join(f"job {job.job_id[:12]} {job.state}" for job in observation.jobs)
        detail = f": {observation.detail}" if observation.detail else ""
        lines.append(f"  {name}  {observation.word}{f'  {jobs}' if jobs else ''}{detail}")
    lines += [
        f"  unresolved: attempt {e.attempt} of {e.unit}; run `streamform apply` to finish it"
        for e in result.deployed.newest.values()
        if e.is_open
    ]
    return "\n".join([*lines, ""])


def status_document(result: StatusResult) -> dict[str, Any]:
    """The published document; units stand under a key of their own."""
    record = result.deployed.record
    document: dict[str, Any] = {
        "status_version": 1,
        "application": result.application,
        "target": result.target,
        "target_state": result.state,
        "tasks_checked": any(job.tasks is not None for o in result.observations.values() for job in o.jobs),
    }
    if record is not None:
        document["applied"] = {
            "applied_at": record.applied_at,
            "streamform_version": record.streamform_version,
            **({"artifact_digest": record.artifact_digest} if record.artifact_digest else {}),
        }
    document["jobs"] = [_job(job) for o in result.observations.values() for job in o.jobs]
    document["passed"] = result.passed
    if result.problem is not None:
        document["problem"] = result.problem
    document["unresolved"] = [
        {"attempt": e.attempt, "state": _attempt_state(e), "job_name": e.unit, "matching_jobs": []}
        for e in result.deployed.newest.values()
        if e.is_open
    ]
    document["units"] = [
        {"name": name, "observed": o.word, "detail": o.detail, "models": list(result.deployed.units[name].models)}
        for name, o in result.observations.items()
    ]
    return document


def _attempt_state(entry: Attempt) -> str:
    index = entry.next_stage
    kind = entry.stages[index].kind if index is not None else "write-record"
    return {"stop-job": "stopping", "submit": "submitting", "verify": "submitted", "write-record": "running"}.get(kind, "prepared")


def _job(job: ObservedJob) -> dict[str, Any]:
    document: dict[str, Any] = {"job_id": job.job_id, "state": job.state, "recorded": job.recorded}
    for name in ("name", "backend_status", "start_time", "failure"):
        if getattr(job, name) is not None:
            document[name] = getattr(job, name)
    if job.tasks is not None:
        document["tasks"] = {"running": job.tasks[0], "total": job.tasks[1]}
    return document


__all__ = ["approvals_document", "history_document", "render_approvals", "render_history", "render_status", "status_document"]


def render_unlock(result: UnlockResult) -> str:
    """Whose lock was freed."""
    if result.holder is None:
        return f"nobody holds the lock of target `{result.target}`\n"
    state = "which may still be alive" if result.was_forced else "which is gone"
    return f"freed the lock of target `{result.target}`; it was held by {result.holder.shown()}, {state}\n"


def unlock_document(result: UnlockResult) -> dict[str, Any]:
    """The JSON document."""
    holder = result.holder
    shown = None
    if holder is not None:
        shown = {"pid": holder.pid, "host": holder.host, "action": holder.action, "by": holder.by, "since": _at(holder.at_ms)}
    return {"unlock_version": 1, "target": result.target, "freed": holder is not None, "forced": result.was_forced, "holder": shown}
