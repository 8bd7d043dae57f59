"""The applied record, version 1: what apply wrote down as running on a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamform.identity.manifest import Manifest, manifest_document

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class AppliedRecord:
    """What runs on a target: the manifest of all its units, and a job for each unit that has one."""

    target: str
    applied_at: str
    streamform_version: str
    backend: str
    jobs: tuple[str, ...]
    manifest: Manifest
    artifact_digest: str | None = None
    attempt: str | None = None
    job_name: str | None = None
    restored_from: str | None = None


def record_document(record: AppliedRecord) -> dict[str, Any]:
    """The JSON document, keys in published order; facts that are absent are left out."""
    document: dict[str, Any] = {
        "record_version": RECORD_VERSION,
        "target": record.target,
        "applied_at": record.applied_at,
        "streamform_version": record.streamform_version,
        "backend": record.backend,
        "jobs": list(record.jobs),
    }
    for name in ("artifact_digest", "attempt", "job_name", "restored_from"):
        if getattr(record, name) is not None:
            document[name] = getattr(record, name)
    document["manifest"] = manifest_document(record.manifest)
    return document
