"""Topics before a job is started: they are there, and a sink's is not somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Collection

from streamform.adapters.kafka import filled_topics, missing_topics
from streamform.errors import Refused
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec


def check_topics(bootstrap_servers: str, plan: Plan, ours: Callable[[], frozenset[str]], adopted: Collection[str] = ()) -> None:
    """Raise Refused for a topic that is missing, and for a sink's topic that holds records and is neither ours nor to be adopted."""
    read, written = _source_topics(plan), _sink_topics(plan)
    missing = missing_topics(bootstrap_servers, [*read, *written])
    if missing:
        topic = missing[0]
        raise Refused(f"there is no topic `{topic}`, {(read | written)[topic]}", "create it, or correct its name")
    for topic, model in _foreign_topics(bootstrap_servers, plan, ours()).items():
        if model not in adopted:
            raise Refused(
                f"topic `{topic}`, {written[topic]}, holds records that this project did not write",
                "name another topic, delete its records, or keep them: streamform apply --adopt",
            )


def foreign_models(bootstrap_servers: str, plan: Plan, ours: frozenset[str]) -> tuple[str, ...]:
    """Models whose topics hold records that are not ours; a topic that is missing holds none."""
    return tuple(_foreign_topics(bootstrap_servers, plan, ours).values())


def _foreign_topics(bootstrap_servers: str, plan: Plan, ours: frozenset[str]) -> dict[str, str]:
    """The model of each topic that holds records and is none of ours."""
    models = _sink_models(plan)
    candidates = [topic for topic in models if topic not in ours]
    missing = missing_topics(bootstrap_servers, candidates)
    return {topic: models[topic] for topic in filled_topics(bootstrap_servers, [topic for topic in candidates if topic not in missing])}


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
    return {topic: f"the sink of `{model}`" for topic, model in _sink_models(plan).items()}


def _sink_models(plan: Plan) -> dict[str, str]:
    sinks = [(node.model, node.spec.endpoint) for node in plan.nodes if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None]
    return {e.topic: model for model, e in sinks if e.connector == "kafka" and e.topic is not None}
