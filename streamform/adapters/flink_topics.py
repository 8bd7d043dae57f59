"""Topics before a job is started: they are there, and a sink's is not somebody else's."""

from __future__ import annotations

from collections.abc import Callable

from streamform.adapters.kafka import filled_topics, missing_topics
from streamform.errors import Refused
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec


def check_topics(bootstrap_servers: str, plan: Plan, ours: Callable[[], frozenset[str]]) -> None:
    """Raise Refused for a topic that is missing, and for a sink's topic that holds records and is none of `ours`."""
    read, written = _source_topics(plan), _sink_topics(plan)
    missing = missing_topics(bootstrap_servers, [*read, *written])
    if missing:
        topic = missing[0]
        raise Refused(f"there is no topic `{topic}`, {(read | written)[topic]}", "create it, or correct its name")
    known = ours()
    for topic in filled_topics(bootstrap_servers, [topic for topic in written if topic not in known]):
        raise Refused(
            f"topic `{topic}`, {written[topic]}, holds records that this project did not write", "name another topic, or delete its records"
        )


def _source_topics(plan: Plan) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in plan.nodes:
        if isinstance(node.spec, SourceSpec):
            source = node.spec.source
            if source.endpoint.connector == "kafka" and source.endpoint.topic is not None:
                found[source.endpoint.topic] = f"which source `{source.name}` reads"
            if source.quarantine_topic is not None:
                found[source.quarantine_topic] = f"the quarantine of source `{source.name}`"
    return found


def _sink_topics(plan: Plan) -> dict[str, str]:
    sinks = [(node.model, node.spec.endpoint) for node in plan.nodes if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None]
    return {e.topic: f"the sink of `{model}`" for model, e in sinks if e.connector == "kafka" and e.topic is not None}
