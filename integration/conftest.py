"""What integration tests share: one stack for the whole run, topics of their own, and parts that they may break.

STREAMFORM_STACK_ENDPOINTS=FILE uses the stack that `python -m integration.stack start --detach` left running.
STREAMFORM_REQUIRE_STACK=1 makes a machine that can't run the stack a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from confluent_kafka.admin import AdminClient

from integration.requirement import require
from integration.shop import Shop, make_shop
from integration.stack import PARTS, SqlGateway, Stack, missing_parts, runs, topics
from integration.stack.postgres import Postgres, missing_postgres, running_postgres
from integration.stack.topics import Isolation, TopicRecord


class NewTopic(Protocol):
    """Creates a topic with a unique name and returns the name."""

    def __call__(self, name_prefix: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class ProduceJson(Protocol):
    """Writes rows as JSON; `key` names the columns of the record's key."""

    def __call__(self, topic: str, rows: Iterable[Mapping[str, Any]], key: str | Sequence[str] | None = None) -> None: ...


class ReadTopic(Protocol):
    """Reads everything from the beginning to the end as of the call."""

    def __call__(self, topic: str, isolation: Isolation = "read_committed") -> list[TopicRecord]: ...


class PrivateStack(Protocol):
    """Starts a stack of the test's own, which it may kill; ended after the test. Arguments are those of Stack.start."""

    def __call__(self, parts: Iterable[str] = PARTS, **options: Any) -> Stack: ...


class PrivateGateway(Protocol):
    """Starts one more gateway on the shared cluster, which the test may kill; ended after the test."""

    def __call__(self, options: Mapping[str, str] | None = None) -> SqlGateway: ...


def require_parts(parts: Iterable[str] = PARTS) -> None:
    """Skip the test where these parts can't run, or fail it where they must."""
    require(missing_parts(parts))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack of this run: shared by all tests, so a test that breaks parts asks for private ones."""
    endpoints = os.environ.get("STREAMFORM_STACK_ENDPOINTS")
    if endpoints:
        yield Stack.attach(endpoints)
        return
    require_parts()
    runs.end_orphans()
    with Stack.start(PARTS, tmp_path_factory.mktemp("stack")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka_admin(stack: Stack) -> AdminClient:
    """An admin client of the shared broker."""
    return topics.make_admin(stack.bootstrap_servers)


@pytest.fixture(scope="session")
def new_topic(kafka_admin: AdminClient) -> NewTopic:
    """Makes topics on the shared broker."""

    def make(name_prefix: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return topics.make_topic(kafka_admin, name_prefix, partitions, config)

    return make


@pytest.fixture(scope="session")
def produce_json(stack: Stack) -> ProduceJson:
    """Fills topics on the shared broker."""

    def produce(topic: str, rows: Iterable[Mapping[str, Any]], key: str | Sequence[str] | None = None) -> None:
        topics.produce_json(stack.bootstrap_servers, topic, rows, key)

    return produce


@pytest.fixture(scope="session")
def read_topic(stack: Stack, kafka_admin: AdminClient) -> ReadTopic:
    """Reads topics of the shared broker."""

    def read(topic: str, isolation: Isolation = "read_committed") -> list[TopicRecord]:
        return topics.read_topic(kafka_admin, stack.bootstrap_servers, topic, isolation)

    return read


@pytest.fixture(scope="session")
def compacted() -> Callable[[Iterable[TopicRecord]], dict[tuple[Any, ...], Any]]:
    """The last value of each key of what was read."""
    return topics.compacted


@pytest.fixture
def shop(tmp_path: Path, stack: Stack, new_topic: NewTopic, read_topic: ReadTopic) -> Iterator[Shop]:
    """The example project with topics of its own; its jobs are ended after the test."""
    made = make_shop(tmp_path, stack, new_topic, read_topic)
    yield made
    for job in made.active():
        requests.patch(f"{stack.rest_url}/jobs/{job}?mode=cancel", timeout=30)


@pytest.fixture
def private_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateStack]:
    """Stacks of the test's own."""
    started: list[Stack] = []

    def start(parts: Iterable[str] = PARTS, **options: Any) -> Stack:
        chosen = tuple(parts)
        require_parts(chosen)
        started.append(Stack.start(chosen, tmp_path_factory.mktemp("private"), **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def private_gateway(stack: Stack) -> Iterator[PrivateGateway]:
    """Gateways of the test's own on the shared cluster."""
    started: list[SqlGateway] = []
    numbers = count(1)

    def start(options: Mapping[str, str] | None = None) -> SqlGateway:
        started.append(stack.add_gateway(f"gateway-{os.getpid()}-{next(numbers)}", options))
        return started[-1]

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this run; a test takes a database of its own."""
    require(missing_postgres())
    with running_postgres() as server:
        yield server
