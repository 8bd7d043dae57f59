"""DEPLOYMENT: facts that no manifest holds, and what changing them costs.

A manifest says what is computed. How events are encoded, where a start without state begins and which brokers are
asked is kept beside it, in the artifact of each apply, and compared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streamform.diff.model import Classification, DeploymentChange
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec
from streamform.project.model import Target
from streamform.values.instants import render_duration

COMPATIBLE, BACKFILL = Classification.COMPATIBLE, Classification.BACKFILL_REQUIRED

Facts = Mapping[str, Mapping[str, str]]
"""Subject (a source, a model, or `kafka`) -> field -> value."""


class DeploymentRule(NamedTuple):
    """One row: a field, what changing it costs, and the sentence."""

    id: str
    field: str
    classification: Classification
    keyed: Classification
    """What it costs where keyed state is computed from the subject."""
    sentence: str


DEPLOYMENT = (
    DeploymentRule(
        "D1", "source format", COMPATIBLE, COMPATIBLE, "events are decoded the new way from here on; those already read stay as they were"
    ),
    DeploymentRule(
        "D2",
        "sink format",
        COMPATIBLE,
        COMPATIBLE,
        "rows are encoded the new way from here on; those already written keep the old encoding",
    ),
    DeploymentRule("D3", "startup", COMPATIBLE, COMPATIBLE, "it only decides where a start without state begins"),
    DeploymentRule("D4", "idle timeout", COMPATIBLE, BACKFILL, "it moves the watermark, so it decides which events are late"),
    DeploymentRule("D5", "bootstrap servers", COMPATIBLE, COMPATIBLE, "the lists share a host, so the topics are the same"),
    DeploymentRule("D6", "brokers", COMPATIBLE, BACKFILL, "no host is shared, so other topics are read and written"),
)
DEPLOYMENT_BY_ID = {rule.id: rule for rule in DEPLOYMENT}


def deployment_facts(plan: Plan, target: Target) -> dict[str, dict[str, str]]:
    """The facts of a plan's sources and sinks, in the order of their names, and of the target's brokers."""
    sources = {n.spec.source.name: n.spec.source for n in plan.nodes if isinstance(n.spec, SourceSpec)}
    sinks = {n.model: n.spec.endpoint for n in plan.nodes if isinstance(n.spec, SinkSpec) and n.spec.endpoint is not None}
    facts: dict[str, dict[str, str]] = {}
    for name, source in sorted(sources.items()):
        idle = "none" if source.idle_timeout_ms is None else render_duration(source.idle_timeout_ms)
        facts[f"source {name}"] = {"source format": source.endpoint.format, "idle timeout": idle}
    for name, endpoint in sorted(sinks.items()):
        facts[f"model {name}"] = {"sink format": endpoint.format}
    if target.kafka is not None:
        facts["kafka"] = {"startup": target.kafka.startup, "bootstrap servers": target.kafka.bootstrap_servers}
    return facts


def compare_deployment(before: Facts | None, after: Facts, keyed: set[str]) -> tuple[DeploymentChange, ...]:
    """What differs; `keyed` names the subjects from which keyed state is computed.

    Without facts of the running side nothing can differ: a manifest alone has none.
    """
    return () if before is None else tuple(_changes(before, after, keyed))


def _changes(before: Facts, after: Facts, keyed: set[str]) -> Iterator[DeploymentChange]:
    for subject in after:
        for field, value in after[subject].items():
            old = before.get(subject, {}).get(field)
            if old is None or old == value:
                continue
            rule = _rule(field, old, value)
            cost = rule.keyed if subject in keyed or (subject == "kafka" and keyed) else rule.classification
            yield DeploymentChange(subject, field, old, value, rule.id, cost)


def _rule(field: str, before: str, after: str) -> DeploymentRule:
    if field == "bootstrap servers" and not _hosts(before) & _hosts(after):
        return DEPLOYMENT_BY_ID["D6"]
    return next(rule for rule in DEPLOYMENT if rule.field == field)


def _hosts(servers: str) -> set[str]:
    return {server.strip() for server in servers.split(",") if server.strip()}
