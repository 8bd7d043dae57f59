"""What apply would do, and what approval it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamform.diff.model import Classification
from streamform.lifecycle.situation import UnitPlan
from streamform.lifecycle.stages import Consequence, Stage, Staging

if TYPE_CHECKING:
    from streamform.results import ApprovalView, PlanResult

FLINK_NOTE = (
    "the flink backend does not carry state across a changed query; on this target the action is a rebuild, "
    "and the classification tells you what a rebuild costs"
)


def render_stages(result: PlanResult) -> str:
    """Each unit's stages, consequences and approval; nothing where nothing would happen."""
    if result.situation is None:
        return ""
    shown = [unit for unit in result.situation.units if unit.staging.stages or unit.open_attempt is not None]
    blocks = [_unit(unit, result.approvals[unit.name], result) for unit in shown]
    return "\n".join(["", *blocks]) if blocks else "\nnothing to do\n"


def plan_notes(result: PlanResult) -> str:
    """What the target's backend makes of the verdict, where it is above SAFE."""
    return "".join(f"note: {note}\n" for note in flink_notes(result))


def flink_notes(result: PlanResult) -> list[str]:
    """Which units of a flink target do not carry their state, and why; of a plan against a file nothing more is known than that."""
    if result.backend != "flink" or result.diff.verdict == Classification.SAFE:
        return []
    if result.situation is None:
        return [FLINK_NOTE]
    losing = [unit for unit in result.situation.units if is_rebuilt(unit)]
    return [f"{FLINK_NOTE} (unit{'s' if len(losing) > 1 else ''} {', '.join(unit.name for unit in losing)})"] if losing else []


def is_rebuilt(unit: UnitPlan) -> bool:
    """Whether a unit's job starts without the state of the one before."""
    kinds = {stage.kind for stage in unit.staging.stages}
    return "submit" in kinds and any(c.kind == "state-discarded" and c.subject == "state" for c in unit.staging.consequences)


def _unit(unit: UnitPlan, approval: ApprovalView, result: PlanResult) -> str:
    lines = [f"unit {unit.name} ({', '.join(unit.models)})"]
    if unit.open_attempt is not None:
        lines.append(
            f"  attempt {unit.open_attempt.attempt} was cut off; the next apply finishes it, or closes it where it had not acted yet"
        )
    if unit.observation.detail is not None:
        lines.append(f"  seen: {unit.observation.word}: {unit.observation.detail}")
    lines += [f"  {number}. {stage.text}" for number, stage in enumerate(unit.staging.stages, 1)]
    lines += [f"  consequence: {c.text}" for c in unit.staging.consequences]
    if unit.staging.requires > unit.diff.verdict:
        lines.append(f"  these stages require {unit.staging.requires.text}")
    if approval.required:
        lines.append(f"  approval: {_approval(approval)}, plan id {unit.plan_id}")
    return "\n".join(lines) + "\n"


def _approval(approval: ApprovalView) -> str:
    return "needed" if approval.status in (None, "pending") else str(approval.status)


def approve_command(plan_id: str, acknowledge: str | None, project_dir: str = ".") -> str:
    """The exact line that approves a plan."""
    folder = "" if project_dir == "." else f" --project {shell_word(project_dir)}"
    words = f' --acknowledge "{acknowledge}"' if acknowledge else ""
    return f'streamform approve {plan_id}{folder} --reason "..."{words}'


def shell_word(text: str) -> str:
    """A text as one word of a command line."""
    import shlex

    return shlex.quote(text)


def units_document(result: PlanResult) -> list[dict[str, Any]]:
    """The `units` key of `plan --json`."""
    if result.situation is None:
        return []
    return [
        {
            "name": unit.name,
            "models": list(unit.models),
            "plan_id": unit.plan_id,
            "verdict": unit.diff.verdict.text,
            "requires": unit.staging.requires.text,
            "stages": stage_documents(unit.staging.stages),
            "consequences": consequence_documents(unit.staging.consequences),
            "approval": approval_document(result.approvals[unit.name]),
        }
        for unit in result.situation.units
    ]


def stage_documents(stages: tuple[Stage, ...]) -> list[dict[str, Any]]:
    """Each stage with its facts."""
    return [{"kind": stage.kind, "text": stage.text, **dict(stage.facts)} for stage in stages]


def consequence_documents(consequences: tuple[Consequence, ...]) -> list[dict[str, Any]]:
    """Each consequence."""
    return [{"kind": c.kind, "subject": c.subject, "text": c.text} for c in consequences]


def approval_document(approval: ApprovalView) -> dict[str, Any]:
    """Whether an approval is needed, and what it is worth now."""
    return {"required": approval.required, "status": approval.status, "acknowledge": approval.acknowledge}


def consequences_markdown(staging: Staging) -> str:
    """Stages and consequences as lists."""
    lines = [f"{number}. {stage.text}" for number, stage in enumerate(staging.stages, 1)]
    return "\n".join([*lines, "", *(f"- **{c.kind}** {c.text}" for c in staging.consequences)]).strip()


__all__ = ["approve_command", "consequences_markdown", "flink_notes", "plan_notes", "render_stages", "units_document"]
