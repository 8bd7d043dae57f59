"""The applied record as metadata of the record asset: a chain in which each materialization names the record before it.

The store is the authority; this is its mirror, written after the fact. A record that the store has and the mirror lacks
(applied on the command line, or by a run that was cut off) is mirrored by the next run that looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import dagster as dg
from dagster import DagsterInstance, EventLogEntry

from streamform_dagster.metadata import RawMetadata, key, record_value
from streamform_dagster.project import StreamformProject

LOOK_BACK = 20
"""Newest events of the record asset that are looked at; reports from outside may stand between ours."""


class Mirrored(NamedTuple):
    """The newest record that the mirror has."""

    seq: int
    record_digest: str


def last_mirrored(instance: DagsterInstance, project: StreamformProject) -> Mirrored | None:
    """The newest record of the chain; events that no run of ours wrote are passed over."""
    latest = instance.get_latest_materialization_event(project.record_key)
    events = [record.event_log_entry for record in instance.fetch_materializations(project.record_key, LOOK_BACK).records]
    found = [entry for event in (latest, *events) if event is not None and (entry := _mirrored(event)) is not None]
    return max(found, default=None)


def _mirrored(event: EventLogEntry) -> Mirrored | None:
    metadata = {} if event.asset_materialization is None else event.asset_materialization.metadata
    seq, record = metadata.get(key("seq")), metadata.get(key("record_digest"))
    if not event.run_id or not isinstance(seq, dg.IntMetadataValue) or not isinstance(record, dg.TextMetadataValue):
        return None
    return Mirrored(seq.value or 0, record.value or "")


def record_materialization(
    project: StreamformProject, link: Mirrored, text: str, replaced: str | None, facts: Mapping[str, object]
) -> dg.AssetMaterialization:
    """The next link. `replaced` is the digest of the record that this one replaced in the store."""
    metadata: RawMetadata = {
        **facts,
        key("seq"): link.seq,
        key("record_digest"): link.record_digest,
        key("record"): record_value(text),
    }
    if replaced is not None:
        metadata[key("previous_record_digest")] = replaced
    return dg.AssetMaterialization(project.record_key, description="The applied record.", metadata=metadata)


__all__ = ["Mirrored", "last_mirrored", "record_materialization"]
