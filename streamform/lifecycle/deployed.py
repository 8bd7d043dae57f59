"""What is deployed, from what is written down: the journal's newest entries, beside the published record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from streamform.errors import StoreError
from streamform.identity.compose import compose, manifest_components
from streamform.identity.manifest import Manifest, sealed
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.ports import RunningUnit
from streamform.lifecycle.store import FACTS_FILE, STATEMENTS_FILE, Store

if TYPE_CHECKING:
    from streamform.lifecycle.journal import Attempt, RunningState

NOTHING = sealed((), ())
"""The manifest of no models."""


class Deployed(Struct, frozen=True):
    """The running side of a target."""

    record: AppliedRecord | None
    units: Mapping[str, RunningUnit]
    newest: Mapping[str, Attempt]
    """The newest entry of every unit that has a journal."""

    @property
    def manifest(self) -> Manifest | None:
        """What is running, or None where nothing was ever applied."""
        if self.record is None and not self.units:
            return None
        return compose(unit.manifest for unit in self.units.values())

    def sequence(self, unit: str) -> int:
        """The number of the unit's newest entry, 0 for none."""
        return self.newest[unit].sequence if unit in self.newest else 0

    def previous(self, unit: str) -> str | None:
        """The digest of the unit's newest entry."""
        from streamform.lifecycle.journal import attempt_digest

        return attempt_digest(self.newest[unit]) if unit in self.newest else None

    def open_attempt(self, unit: str) -> Attempt | None:
        """The unit's unfinished attempt."""
        entry = self.newest.get(unit)
        return entry if entry is not None and entry.is_open else None


def read_deployed(store: Store) -> Deployed:
    """The running side. Raises: StoreError when record and journal contradict each other."""
    newest = {name: entry for name in store.units() if (entry := store.newest(name)) is not None}
    record = store.read_record(frozenset(entry.record_digest for entry in newest.values() if entry.record_digest))
    if not newest:
        return Deployed(record, {} if record is None else _adopted_units(record), {})
    units = {name: _running_unit(store, name, entry.running) for name, entry in newest.items() if entry.running is not None}
    deployed = Deployed(record, units, newest)
    _check_agreement(deployed)
    return deployed


def _running_unit(store: Store, name: str, state: RunningState) -> RunningUnit:
    facts: Any = store.read_artifact(state.artifact, FACTS_FILE)
    return RunningUnit(
        name,
        state.models,
        store.artifact_manifest(state.artifact),
        facts,
        state.job_artifact,
        state.job_id,
        state.savepoint,
        state.status,
        state.details,
        tuple(store.read_artifact(state.job_artifact, STATEMENTS_FILE)),
    )


def _adopted_units(record: AppliedRecord) -> dict[str, RunningUnit]:
    """The units of a record that another tool, or a lost journal, left: one a connected component."""
    groups = manifest_components(record.manifest)
    job = record.jobs[0] if len(record.jobs) == 1 and len(groups) == 1 else None
    return {group[0]: RunningUnit(group[0], group, record.manifest.part(set(group)), None, None, job) for group in groups}


def _check_agreement(deployed: Deployed) -> None:
    """Refuse a record that says something else than the journal; an open attempt explains a difference."""
    if any(entry.is_open for entry in deployed.newest.values()):
        return
    running = deployed.manifest
    recorded = None if deployed.record is None else deployed.record.manifest.application_digest
    expected = None if running is None else running.application_digest
    if recorded is None and not deployed.units:
        return
    if recorded != expected:
        said = "no record" if recorded is None else f"application {recorded[:12]}"
        raise StoreError(
            f"the applied record and the journal disagree: the record says {said}, the journal application {str(expected)[:12]}",
            "one of them was edited, replaced or lost; restore the store from a backup",
        )


def with_unit(deployed: Deployed, unit: RunningUnit | None, name: str, gone: tuple[str, ...] = ()) -> Deployed:
    """The running side after a unit changed or, with None, is gone."""
    units = {n: u for n, u in deployed.units.items() if n != name and n not in gone}
    return replace(deployed, units=units if unit is None else {**units, name: unit})
