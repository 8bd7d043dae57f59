"""Deploy plans as documents and as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamform import __version__
from streamform.identity.fingerprint import canonical_json, digest
from streamform.lifecycle.deploy_plan import DEPLOY_PLAN_VERSION, action_of, application_plan_id, document_digest, unit_action
from streamform.lifecycle.situation import Situation, UnitPlan
from streamform.render.stages import consequence_documents, flink_notes, units_document
from streamform.values.instants import render_instant

if TYPE_CHECKING:
    from streamform.results import PlanResult, SavedPlan


def deploy_plan_document(result: PlanResult, created_at_ms: int) -> dict[str, Any]:
    """The published document with the units and a digest beside it. Units: created_at_ms, milliseconds since the epoch, UTC."""
    situation = result.situation
    assert situation is not None, "a plan against a file is never saved"
    units = situation.units
    document: dict[str, Any] = {
        "deploy_plan_version": DEPLOY_PLAN_VERSION,
        "plan_id": application_plan_id(units),
        "created_at": render_instant(created_at_ms),
        "streamform_version": __version__,
        "application": result.project,
        "target": result.target,
        "backend": result.backend,
        "action": action_of(units),
        "artifact_digest": _artifact_digest(units),
        "job_name": _job_names(result.project, result.target, units),
        "application_digest": situation.desired.application_digest,
        "verdict": result.diff.verdict.text,
        "changes": [
            {"node": node.id, "kind": node.kind.value, "classification": node.classification.text} for node in result.diff.changed_nodes
        ],
        "preconditions": _preconditions(situation),
        "consequences": [document for unit in units for document in consequence_documents(unit.staging.consequences)],
        "notes": flink_notes(result),
        "units": [_unit(unit, shown, result) for unit, shown in zip(units, units_document(result), strict=True)],
    }
    return document | {"digest": document_digest(document)}


def _unit(unit: UnitPlan, shown: dict[str, Any], result: PlanResult) -> dict[str, Any]:
    jobs = {"job_name": _job_names(result.project, result.target, [unit])} if result.backend == "flink" else {}
    return {**shown, "action": unit_action(unit), **jobs, "observed": unit.observation.word, "subject": dict(unit.subject)}


def _artifact_digest(units: Sequence[UnitPlan]) -> str:
    """The only unit's artifact; of several, the digest of their artifacts' digests by unit."""
    artifacts = {unit.name: unit.subject["desired"]["artifact"] for unit in units if unit.subject["desired"] is not None}
    return next(iter(artifacts.values())) if len(artifacts) == 1 else digest(canonical_json(artifacts))


def _job_names(application: str, target: str, units: Sequence[UnitPlan]) -> str:
    """The only unit's job name; of several, what the names begin with."""
    from streamform.backends.flink.script import job_name

    return job_name(application, target, units[0].name if len(units) == 1 else "").removesuffix("/")


def _preconditions(situation: Situation) -> dict[str, Any]:
    """The jobs that must still run, and the savepoint that a single stopped unit goes on from."""
    name, target = situation.project.name, situation.target.name
    running = [
        {
            "job_id": job.job_id,
            "job_name": job.name or _job_names(name, target, [unit]),
            "artifact_digest": unit.running.artifact if unit.running is not None else None,
        }
        for unit in situation.units
        for job in unit.observation.jobs
        if job.recorded and job.state in ("running", "running-unverified")
    ]
    savepoints = [unit.running.savepoint for unit in situation.units if unit.running is not None and unit.running.savepoint]
    return {"running": running, **({"savepoint": savepoints[0]} if len(savepoints) == 1 else {})}


def deploy_plan_text(document: dict[str, Any]) -> str:
    """The document as a file holds it."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def saved_plan_document(saved: SavedPlan) -> dict[str, Any]:
    """The `deploy_plan` key of `plan --out FILE --json`."""
    names = ("plan_id", "action", "digest")
    return {"file": saved.file, **{name: saved.document[name] for name in names}}


def render_saved_plan(saved: SavedPlan, project_dir: str) -> str:
    """What was written, and how it is applied."""
    from streamform.render.stages import shell_word

    folder = "" if project_dir == "." else f" --project {shell_word(project_dir)}"
    command = f"streamform apply --plan {shell_word(saved.file)}{folder}"
    return f"\nwrote {saved.file} ({saved.document['action']})\n  apply it with: {command}\n"


__all__ = ["deploy_plan_document", "deploy_plan_text", "render_saved_plan", "saved_plan_document"]
