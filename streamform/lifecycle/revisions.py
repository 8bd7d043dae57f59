"""Revisions: how often a unit's plan was accepted, and how often its sources and sinks were. Counters of the journal, never identities.

A plan is accepted once the applied record names it, also where consuming fails afterwards. An interface is accepted with a plan
whose sources or sinks are not those that were in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from streamform.identity.fingerprint import canonical_json, digest
from streamform.identity.manifest import Manifest
from streamform.lifecycle.journal import Attempt

InterfaceOf = Callable[[str], str | None]
"""The interface of an artifact, None where the artifact can't be read any more."""


class Revisions(Struct, frozen=True):
    """Both counters as they stand after an entry."""

    plan: int
    interface: int | None
    """None from an accepted plan on whose artifact can't be read."""


def count_revisions(entries: Iterable[Attempt], interface_of: InterfaceOf) -> Iterator[Revisions]:
    """The counters after each entry of one unit, oldest first. A stop, a failure and a removal leave them as they are."""
    counted, in_use = Revisions(0, 0), None
    for entry in entries:
        if entry.outcome == "removed":
            in_use = None
        elif entry.artifact is not None and entry.record_digest is not None:
            accepted = interface_of(entry.artifact)
            counted = Revisions(counted.plan + 1, _interface_revision(counted, in_use, accepted))
            in_use = accepted
        yield counted


def _interface_revision(counted: Revisions, in_use: str | None, accepted: str | None) -> int | None:
    if accepted is None or counted.interface is None:
        return None
    return counted.interface + (accepted != in_use)


def interface_digest(manifest: Manifest, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """What a unit reads and writes: places, columns, keys, formats and brokers. How it computes, and from where it starts, is no part."""
    ends = [node for node in manifest.nodes if node.operator in ("source", "sink")]
    sources = {canonical_json([n.definition, n.schema, n.time]) for n in ends if n.operator == "source"}
    sinks = {canonical_json([n.model, n.definition, n.schema, n.changelog_text]) for n in ends if n.operator == "sink"}
    formats = {f"{subject}: {value}" for subject, fields in facts.items() for name, value in fields.items() if name.endswith(" format")}
    brokers = str(facts.get("kafka", {}).get("bootstrap servers", "")).split(",")
    return digest(canonical_json([sorted(sources), sorted(sinks), sorted(formats), sorted(map(str.strip, brokers))]))


__all__ = ["InterfaceOf", "Revisions", "count_revisions", "interface_digest"]
