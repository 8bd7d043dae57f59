"""The applied record, version 1: what apply wrote down as running on a target."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from streamform.identity.manifest import Manifest, manifest_document, manifest_of

RECORD_VERSION = 1
OPTIONAL_FIELDS = ("artifact_digest", "attempt", "job_name", "restored_from")


class AppliedRecord(Struct, frozen=True):
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
    for name in OPTIONAL_FIELDS:
        if getattr(record, name) is not None:
            document[name] = getattr(record, name)
    document["manifest"] = manifest_document(record.manifest)
    return document


def record_of(document: dict[str, Any]) -> AppliedRecord:
    """The record of a document that is known to be one: validated before, or written by us and unchanged since."""
    return AppliedRecord(
        document["target"],
        document["applied_at"],
        document["streamform_version"],
        document["backend"],
        tuple(document["jobs"]),
        manifest_of(document["manifest"]),
        *(document.get(name) for name in OPTIONAL_FIELDS),
    )
