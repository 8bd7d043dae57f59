"""What apply did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamform.identity.fingerprint import short
from streamform.render.stages import approve_command

if TYPE_CHECKING:
    from streamform.results import ApplyResult, UnitOutcome

APPLY_VERSION = 1


def render_apply(result: ApplyResult, project_dir: str) -> str:
    """One line a unit, and for each that is blocked the command that approves it."""
    lines: list[str] = []
    for unit in result.units:
        lines += _unit(unit, project_dir)
    return "\n".join(lines) + "\n"


def _unit(unit: UnitOutcome, project_dir: str) -> list[str]:
    if unit.outcome == "blocked":
        command = approve_command(unit.plan_id, unit.acknowledge, project_dir)
        return [
            f"{unit.name}: blocked: {unit.requires}, {unit.reason}; plan id {unit.plan_id}",
            f"  approve it with: {command}",
        ]
    if unit.outcome == "failed":
        return [f"{unit.name}: failed: {unit.reason}"]
    return [f"{unit.name}: {unit.outcome}{_measured(unit)}"]


def _measured(unit: UnitOutcome) -> str:
    """What the stages measured: events, rows, the job."""
    parts: list[str] = []
    if unit.result is not None and unit.result.job_id:
        parts.append(f"job {short(unit.result.job_id)}")
    parts += [str(facts["text"]) for _, facts in (unit.result.stages if unit.result is not None else ()) if "text" in facts]
    return f" ({'; '.join(parts)})" if parts else ""


def apply_document(result: ApplyResult) -> dict[str, Any]:
    """The JSON document."""
    return {
        "apply_version": APPLY_VERSION,
        "target": result.target,
        "outcome": result.outcome,
        "units": [_unit_document(u) for u in result.units],
    }


def _unit_document(unit: UnitOutcome) -> dict[str, Any]:
    done = unit.result
    stages = done.stages if done is not None else ()
    document: dict[str, Any] = {
        "name": unit.name,
        "plan_id": unit.plan_id,
        "verdict": unit.verdict,
        "requires": unit.requires,
        "outcome": unit.outcome,
        "jobs": [done.job_id] if done is not None and done.job_id else [],
        "stages": [{"kind": kind, **facts} for kind, facts in stages],
        "nodes": [node for _, facts in stages for node in facts.get("nodes", [])],
    }
    if unit.reason is not None:
        document["reason"] = unit.reason
    if unit.acknowledge is not None:
        document["acknowledge"] = unit.acknowledge
    return document
