"""Kafka, asked by the deploying side: whether the topics are there. The client library is loaded when it is needed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from streamform.adapters.environment import without_credentials
from streamform.errors import Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

CONNECT_TIMEOUT_S = 4.0
ANSWER_TIMEOUT_S = 15.0


def missing_topics(bootstrap_servers: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics that do not exist. Raises: Unreachable when no broker answers."""
    wanted = sorted(set(topics))
    if not wanted:
        return []
    _probe(bootstrap_servers)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.connection.setup.timeout.ms": 5_000})
    try:
        known = client.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as error:
        cause = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
        raise _unreachable(bootstrap_servers, cause) from None
    return [topic for topic in wanted if topic not in known or known[topic].error is not None]


def filled_topics(bootstrap_servers: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics that hold a record. They must exist. Raises: Unreachable."""
    wanted = sorted(set(topics))
    if not wanted:
        return []
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "streamform-look", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(timeout=ANSWER_TIMEOUT_S).topics
        return [topic for topic in wanted if any(_holds(consumer, TopicPartition(topic, p)) for p in known[topic].partitions)]
    except KafkaException as error:
        cause = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
        raise _unreachable(bootstrap_servers, cause) from None
    finally:
        consumer.close()


def _holds(consumer: Consumer, partition: TopicPartition) -> bool:
    first, last = consumer.get_watermark_offsets(partition, timeout=ANSWER_TIMEOUT_S)
    return bool(last > first)


def _probe(bootstrap_servers: str) -> None:
    """Fail at once where no broker of the list takes a connection; the client library would try for long."""
    causes: list[str] = []
    for server in filter(None, map(str.strip, bootstrap_servers.split(","))):
        parts = urlsplit(server if "://" in server else f"//{server}")
        cause = _tried(partial(_host_and_port, parts))
        if cause is None:
            return
        causes.append(cause)
    raise _unreachable(bootstrap_servers, causes[0] if causes else "no server is named")


def _host_and_port(parts: SplitResult) -> tuple[str, int]:
    return parts.hostname or "", parts.port or 9092


def _tried(address: Callable[[], tuple[str, int]]) -> str | None:
    try:
        socket.create_connection(address(), CONNECT_TIMEOUT_S).close()
    except ValueError:
        return "the address is not host:port"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def _unreachable(servers: str, cause: str) -> Unreachable:
    return Unreachable(
        f"Kafka at {without_credentials(servers)} can't be used: {cause}", "check kafka.bootstrap_servers and that the brokers run"
    )
