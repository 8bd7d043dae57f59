"""The plan diff as text, JSON and markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from streamform.diff.model import Classification, Diff, DiffNote, FieldChange, ModelDiff, NodeDiff, Side
from streamform.diff.rules import sentence
from streamform.identity.fingerprint import short
from streamform.render.words import counted, title

DIFF_VERSION = 1

_MODEL_LINES = {
    Classification.SAFE: "nothing to do",
    Classification.COMPATIBLE: "redeploy; existing state continues",
    Classification.STATE_MIGRATION_REQUIRED: "state migration required",
    Classification.BACKFILL_REQUIRED: "backfill required",
    Classification.STATE_INCOMPATIBLE: "rebuild required",
}
_NEEDS = {
    Classification.STATE_INCOMPATIBLE: "to rebuild",
    Classification.BACKFILL_REQUIRED: "to backfill",
    Classification.STATE_MIGRATION_REQUIRED: "to migrate",
    Classification.COMPATIBLE: "to redeploy",
}


def render_diff(diff: Diff, project: str, against: str) -> str:
    """Header, each model with its changed nodes, the verdict line."""
    blocks = [_header(diff, project, against)]
    blocks += [_model(model) for model in diff.models]
    if diff.deployment:
        lines = [
            f"  {c.subject}: {c.field}: {c.before} → {c.after}\n    {c.classification.text}: {deployment_sentence(c.rule)}"
            for c in diff.deployment
        ]
        blocks.append("\n".join(["deployment", *lines]))
    blocks.append(verdict_line(diff))
    notes = "".join(f"note: {note_text(note)}\n" for note in diff.notes)
    return "\n\n".join(blocks) + "\n" + "".join(f"warning: {warning}\n" for warning in diff.warnings) + notes


_NOTES = {
    "proved": "`{subject}` computes what `{counterpart}` computes ({rewrites}); in structural identity it costs nothing",
    "renamed": "`{subject}` holds what `{counterpart}` held, which is gone; if it was renamed, add `renamed_from: {counterpart}` to it",
    "unknown": "only a manifest of the running side is known, so structural identity can prove nothing and the diff is conservative",
}
"""What each kind of note says."""


def note_text(note: DiffNote) -> str:
    """A note as users read it."""
    return _NOTES[note.kind].format(subject=note.subject, counterpart=note.counterpart, rewrites=note.rewrites)


def _header(diff: Diff, project: str, against: str) -> str:
    running = "nothing is recorded as applied; the application starts fresh" if diff.running is None else _side(diff.running)
    return (
        f"plan: {project} against {against}\n  running: {running}\n  desired: application digest {short(diff.desired.application_digest)}"
    )


def _side(side: Side) -> str:
    digest = f"application digest {short(side.application_digest)}"
    if side.applied_at is None:
        return digest
    jobs = f"{'job' if len(side.jobs) == 1 else 'jobs'} {', '.join(map(short, side.jobs))}, " if side.jobs else ""
    return f"applied {side.applied_at} by streamform {side.streamform_version}, {jobs}{digest}"


def _model(model: ModelDiff) -> str:
    if not model.nodes:
        return "  ".join([model.name, *([model.change] if model.change else []), model.verdict.text])
    head = f"{model.name}  {model.change}" + (f" (was {model.counterpart})" if model.counterpart not in (None, model.name) else "")
    lines = [head, *(line for node in model.nodes for line in _node(node))]
    return "\n".join([*lines, f"  {model.verdict.text}: {_MODEL_LINES[model.verdict]}"])


def _node(node: NodeDiff) -> list[str]:
    was = f" (was {node.counterpart})" if node.change == "changed" and node.counterpart != node.id else ""
    lines = [f"  {node.id}  {title(node.operator)}  {node.change}{was}"]
    lines += [f"    {_field(change)}" for change in node.fields]
    return [*lines, f"    {node.classification.text}: {sentence(node.rule, node.facts)}"]


def _field(change: FieldChange) -> str:
    before, after = (short(v) if change.field == "state digest" else v for v in (change.before, change.after))
    return f"{change.field}: {before} → {after}"


def verdict_line(diff: Diff) -> str:
    """`verdict: STATE INCOMPATIBLE (1 model to rebuild)`."""
    counts = Counter(model.verdict for model in diff.models if model.nodes)
    parts = [f"{counted(counts[c], 'model')} {_NEEDS[c]}" for c in _NEEDS if counts[c]]
    return f"verdict: {diff.verdict.text}" + (f" ({', '.join(parts)})" if parts else "")


def diff_document(diff: Diff, target: str | None) -> dict[str, Any]:
    """The published document; what it does not have stands under `deployment`."""
    document: dict[str, Any] = {"diff_version": DIFF_VERSION}
    if target is not None:
        document["target"] = target
    if diff.running is not None:
        document["running"] = _side_document(diff.running)
    document |= {
        "desired": _side_document(diff.desired),
        "verdict": diff.verdict.text,
        "models": [_model_document(model) for model in diff.models],
        "warnings": list(diff.warnings),
    }
    document["notes"] = [
        {"kind": n.kind, "subject": n.subject, "counterpart": n.counterpart, "rewrites": n.rewrites, "text": note_text(n)}
        for n in diff.notes
    ]
    document["deployment"] = [
        {
            "subject": c.subject,
            "field": c.field,
            "old": c.before,
            "new": c.after,
            "classification": c.classification.text,
            "rule": c.rule,
            "reason": deployment_sentence(c.rule),
        }
        for c in diff.deployment
    ]
    return document


def _side_document(side: Side) -> dict[str, Any]:
    document: dict[str, Any] = {"application_digest": side.application_digest}
    if side.applied_at is not None:
        document["applied_at"] = side.applied_at
    return document


def _model_document(model: ModelDiff) -> dict[str, Any]:
    document: dict[str, Any] = {"name": model.name}
    if model.change is not None:
        document["change"] = model.change
    return document | {"verdict": model.verdict.text, "nodes": [_node_document(node) for node in model.nodes]}


def _node_document(node: NodeDiff) -> dict[str, Any]:
    return {
        "id": node.id,
        "operator": node.operator,
        "change": node.change,
        "classification": node.classification.text,
        "kind": node.kind.value,
        "reason": sentence(node.rule, node.facts),
        "fields": [{"field": f.field, "old": f.before, "new": f.after} for f in node.fields],
        "rule": node.rule,
    }


def diff_markdown(diff: Diff, limit: int = 50_000) -> str:
    """A table of what changed, for a pull request or a Dagster event; cut with a note when it would be too long."""
    lines = [f"**{verdict_line(diff)}**", ""]
    if diff.changed_nodes or diff.deployment:
        lines += ["| node | change | classification | why |", "|---|---|---|---|"]
    for node in diff.changed_nodes:
        lines.append(f"| `{node.id}` | {node.change} | {node.classification.text} | {_cell(sentence(node.rule, node.facts))} |")
    for change in diff.deployment:
        what = f"{change.field}: {change.before} → {change.after}"
        lines.append(f"| {change.subject} | {_cell(what)} | {change.classification.text} | {_cell(deployment_sentence(change.rule))} |")
    fields = [f"- `{node.id}` {f.field}: `{f.before}` → `{f.after}`" for node in diff.changed_nodes for f in node.fields]
    lines += ["", *fields] if fields else []
    text = "\n".join(lines)
    return text if len(text) <= limit else text[:limit].rsplit("\n", 1)[0] + "\n\n(cut; `streamform plan` shows all)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def deployment_sentence(rule: str) -> str:
    """The sentence of a deployment row."""
    from streamform.diff.deployment import DEPLOYMENT_BY_ID

    return DEPLOYMENT_BY_ID[rule].sentence


__all__ = ["diff_document", "diff_markdown", "render_diff", "verdict_line"]
