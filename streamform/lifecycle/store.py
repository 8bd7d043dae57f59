"""The store: record, journal, artifacts and approvals of a target, over Documents.

Paths: applied/<target>.json · journal/<target>/<unit>/<sequence>.json · artifacts/<digest>/<file> ·
approvals/<target>/<plan id>.json. Units and targets are percent-encoded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from streamform.errors import DocumentError, StoreError
from streamform.identity.fingerprint import canonical_json, digest
from streamform.identity.manifest import Manifest, manifest_document, manifest_of
from streamform.identity.record import AppliedRecord, record_document, record_of
from streamform.lifecycle.ports import ANY, DesiredUnit, Documents

if TYPE_CHECKING:
    from streamform.lifecycle.approval import PendingPlan
    from streamform.lifecycle.journal import Attempt
    from streamform.lifecycle.lock import LockHolder

MANIFEST_FILE, FACTS_FILE, STATEMENTS_FILE, PROJECT_FILE = "manifest.json", "facts.json", "statements.json", "project.json"


class Store:
    """Typed access to what is written down about one target."""

    def __init__(self, documents: Documents, target: str) -> None:
        self.documents, self.target = documents, target
        self.folder = encoded(target)

    def lock(self, holder: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Keep every other process from changing the target."""
        return self.documents.lock(self.folder, holder)

    def lock_holder(self) -> LockHolder | None:
        """Who is changing the target now, None for nobody."""
        return self.documents.lock_holder(self.folder)

    def free_lock(self) -> None:
        """Take the lock away from whoever holds it."""
        self.documents.free_lock(self.folder)

    # record

    @property
    def record_path(self) -> str:
        return f"applied/{self.folder}.json"

    def read_record(self, written: frozenset[str] = frozenset()) -> AppliedRecord | None:
        """The applied record, or None where nothing was applied. Raises: DocumentError, StoreError.

        `written` holds digests of records that the journal says we wrote; such a record is not validated again.
        """
        content = self.documents.read(self.record_path)
        if content is None:
            return None
        if hashlib.sha256(content).hexdigest() in written:
            return record_of(json.loads(content))
        from streamform.identity.read import parse_json, read_record

        return read_record(parse_json(_decode(content, self.record_path), self.record_path), self.record_path)

    def write_record(self, record: AppliedRecord) -> str:
        """Replace the record at once; its digest."""
        text = json.dumps(record_document(record), indent=2, ensure_ascii=False) + "\n"
        self.documents.write(self.record_path, text.encode(), expected=ANY)
        return digest(text)

    # journal

    def units(self) -> list[str]:
        """Names of units that have journal entries."""
        prefix = f"journal/{self.folder}/"
        return sorted({unquote(name.removeprefix(prefix).split("/", 1)[0]) for name in self.documents.names(prefix)})

    def _attempt_path(self, unit: str, sequence: int) -> str:
        return f"journal/{self.folder}/{encoded(unit)}/{sequence:08d}.json"

    def attempts(self, unit: str) -> list[Attempt]:
        """A unit's entries from first to last. Raises: StoreError when the chain is broken."""
        from streamform.lifecycle.journal import attempt_digest

        prefix = f"journal/{self.folder}/{encoded(unit)}/"
        entries = [self._read_attempt(name) for name in self.documents.names(prefix)]
        for before, after in pairwise(entries):
            if after.previous != attempt_digest(before):
                raise StoreError(
                    f"journal entry {after.sequence} of unit `{unit}` does not follow entry {before.sequence}",
                    "an entry was edited or replaced; restore the journal from a backup",
                )
        return entries

    def newest(self, unit: str) -> Attempt | None:
        """A unit's newest entry."""
        names = self.documents.names(f"journal/{self.folder}/{encoded(unit)}/")
        return self._read_attempt(names[-1]) if names else None

    def _read_attempt(self, path: str) -> Attempt:
        from streamform.lifecycle.journal import read_attempt

        content = self.documents.read(path)
        if content is None:
            raise StoreError(f"{path} vanished while it was read", "run the command again")
        return read_attempt(_json(content, path), path)

    def write_attempt(self, attempt: Attempt, *, replaces: Attempt | None) -> Attempt:
        """Write an entry; `replaces` is the same entry as it was, None for a new one. Raises: StoreError when it moved."""
        from streamform.lifecycle.journal import attempt_text

        path = self._attempt_path(attempt.unit, attempt.sequence)
        expected = None if replaces is None else digest(attempt_text(replaces))
        self.documents.write(path, attempt_text(attempt).encode(), expected=expected)
        return attempt

    # artifacts

    def write_artifact(self, unit: DesiredUnit, sources: Mapping[str, Any]) -> str:
        """Store what a unit is made of; its digest, which the sources' text does not enter."""
        content = artifact_content(unit)
        name = digest(canonical_json(content))
        files = {
            MANIFEST_FILE: content["manifest"],
            FACTS_FILE: content["facts"],
            STATEMENTS_FILE: content["statements"],
            PROJECT_FILE: sources,
        }
        for file, value in files.items():
            path = f"artifacts/{name}/{file}"
            if self.documents.read(path) is None:
                self.documents.write(path, canonical_json(value).encode(), expected=ANY)
        return name

    def read_artifact(self, name: str, file: str) -> Any:
        """One file of an artifact. Raises: StoreError when it is missing, DocumentError when it is no JSON."""
        path = f"artifacts/{name}/{file}"
        content = self.documents.read(path)
        if content is None:
            raise StoreError(f"{path} is missing, and the journal says that it was applied", "restore the store from a backup")
        return _value(content, path)

    def artifact_manifest(self, name: str) -> Manifest:
        """The manifest of an artifact."""
        files = (MANIFEST_FILE, FACTS_FILE, STATEMENTS_FILE)
        manifest, facts, statements = (self.read_artifact(name, file) for file in files)
        if digest(canonical_json({"manifest": manifest, "facts": facts, "statements": statements})) != name:
            raise StoreError(f"artifact {name[:12]} was changed after it was written", "restore the store from a backup")
        return manifest_of(manifest)

    def interface_of(self, name: str) -> str | None:
        """The digest of what an artifact reads and writes; None when it is missing or damaged."""
        from streamform.lifecycle.revisions import interface_digest

        try:
            return interface_digest(self.artifact_manifest(name), self.read_artifact(name, FACTS_FILE))
        except (StoreError, DocumentError):
            return None

    # approvals

    def _approval_path(self, plan_id: str) -> str:
        return f"approvals/{self.folder}/{plan_id}.json"

    def pending(self) -> list[PendingPlan]:
        """Every plan that was registered for the target, in order of registration."""
        from streamform.lifecycle.approval import read_pending

        names = self.documents.names(f"approvals/{self.folder}/")
        plans = [read_pending(_json(content, name), name) for name in names if (content := self.documents.read(name)) is not None]
        return sorted(plans, key=lambda plan: (plan.registered_at_ms, plan.plan_id))

    def pending_plan(self, plan_id: str) -> PendingPlan | None:
        """The registered plan of this id."""
        if not plan_id.isalnum():
            return None
        from streamform.lifecycle.approval import read_pending

        path = self._approval_path(plan_id)
        content = self.documents.read(path)
        return None if content is None else read_pending(_json(content, path), path)

    def write_pending(self, plan: PendingPlan, *, replaces: PendingPlan | None) -> PendingPlan:
        """Write a registered plan. Raises: StoreError when it moved."""
        from streamform.lifecycle.approval import pending_text

        expected = None if replaces is None else digest(pending_text(replaces))
        self.documents.write(self._approval_path(plan.plan_id), pending_text(plan).encode(), expected=expected)
        return plan


def encoded(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="") if name.strip(".") else "%2E" * len(name)


def artifact_content(unit: DesiredUnit) -> dict[str, Any]:
    """What an artifact's digest is taken over."""
    facts = {subject: dict(fields) for subject, fields in unit.facts.items()}
    return {"manifest": manifest_document(unit.manifest), "facts": facts, "statements": list(unit.statements)}


def artifact_digest(unit: DesiredUnit) -> str:
    """The digest that the unit's artifact has or will have."""
    return digest(canonical_json(artifact_content(unit)))


def _decode(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(f"{path} is not UTF-8 text", "restore it from a backup") from None


def _value(content: bytes, path: str) -> Any:
    try:
        return json.loads(_decode(content, path))
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{path} is not a JSON document: {error}", "restore it from a backup") from None


def _json(content: bytes, path: str) -> dict[str, Any]:
    value = _value(content, path)
    if not isinstance(value, dict):
        raise DocumentError(f"{path} is not a JSON object", "restore it from a backup")
    return value


__all__ = ["Store", "artifact_content", "artifact_digest", "encoded"]
