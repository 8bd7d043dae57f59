"""Topics for tests: make one, fill it, read all that it holds up to now.

Reading is exact: the end offsets are asked for first, and everything before them is returned, however transactions and
compaction left the log. Nothing waits for a fixed time.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from integration.stack.errors import StackError
from integration.stack.process import LOOK_EVERY_S

ANSWER_S, READ_S, SETTLE_S = 30.0, 60.0, 15.0
POLL_S = 0.5
MARKED = re.compile(r'"\\u0000([^"]*)\\u0000"')
"""A decimal number on its way through the JSON writer, which would make a float of it."""
UNSETTLED = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError._TRANSPORT,
    }
)
"""What the broker says for a moment after a topic was made, or after it started again."""
Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record of a topic, as its bytes."""

    partition: int
    offset: int
    timestamp_ms: int
    raw_key: bytes | None
    raw_value: bytes | None
    """None is a tombstone."""

    @property
    def key(self) -> Any:
        """The key read as JSON; None when there is none."""
        return read_json(self.raw_key)

    @property
    def value(self) -> Any:
        """The value read as JSON, numbers with a fraction as Decimal; None for a tombstone."""
        return read_json(self.raw_value)


def read_json(raw: bytes | None) -> Any:
    """What the bytes say, without losing a digit of a number."""
    return None if raw is None else json.loads(raw, parse_float=Decimal)


def make_topic(admin: AdminClient, prefix: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic with a name that nothing else has. Returns: its name."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    for created in admin.create_topics([topic], operation_timeout=ANSWER_S).values():
        created.result(ANSWER_S)
    # A topic that was just made has no leader for a moment.
    end_offsets(admin, name)
    return name


def produce(bootstrap_servers: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Write keys and values in their order, and return when the broker has all of them. Raises: StackError when it has not."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for key, value in records:
        while True:
            try:
                producer.produce(topic, value=value, key=key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(POLL_S)
    left = producer.flush(ANSWER_S)
    if failed or left:
        raise StackError(f"{topic} did not take every record: {failed[0] if failed else f'{left} are unanswered'}")


def produce_json(bootstrap_servers: str, topic: str, rows: Iterable[Mapping[str, Any]], key: str | Sequence[str] | None = None) -> None:
    """Write rows as JSON objects; `key` names the columns that make the record's key, a JSON object of its own."""
    columns = [key] if isinstance(key, str) else list(key or ())

    def encode(row: Mapping[str, Any]) -> tuple[bytes | None, bytes]:
        return (to_json({column: row[column] for column in columns}) if columns else None, to_json(row))

    produce(bootstrap_servers, topic, map(encode, rows))


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON, in which a Decimal is a number with all its digits."""
    text = json.dumps(
        value, separators=(",", ":"), default=lambda number: f"\0{number:f}\0" if isinstance(number, Decimal) else str(number)
    )
    return MARKED.sub(r"\1", text).encode()


def make_admin(bootstrap_servers: str) -> AdminClient:
    """An admin client that reports in results and exceptions only, not on stderr."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def end_offsets(admin: AdminClient, topic: str, isolation: Isolation = "read_committed") -> dict[int, int]:
    """The offset after the last readable record, by partition; an open transaction holds it back for read_committed.

    Raises: StackError when there is no such topic, or the broker has no answer in time.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return ask_end_offsets(admin, topic, isolation)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() not in UNSETTLED or time.monotonic() > deadline:
                raise StackError(f"{topic}: {reason.str()}") from error
            time.sleep(LOOK_EVERY_S)


def ask_end_offsets(admin: AdminClient, topic: str, isolation: Isolation) -> dict[int, int]:
    """One attempt. Raises: KafkaException."""
    found = admin.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in found.partitions}
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
    return {place.partition: answer.result(ANSWER_S).offset for place, answer in answers.items()}


def read_topic(admin: AdminClient, bootstrap_servers: str, topic: str, isolation: Isolation = "read_committed") -> list[TopicRecord]:
    """All that the topic holds now, from its beginning to its end as of the call, by partition and offset.

    Raises: StackError when the broker does not hand out everything in time.
    """
    ends = end_offsets(admin, topic, isolation)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"read-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found = consume_until(consumer, ends)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def consume_until(consumer: Consumer, ends: Mapping[int, int]) -> list[TopicRecord]:
    """Every record before these offsets.

    The last offsets can belong to markers and aborted records, which are never handed out: the end of a partition says that
    they were passed.
    """
    open_ends = {partition: end for partition, end in ends.items() if end > 0}
    found: list[TopicRecord] = []
    deadline = time.monotonic() + READ_S
    while open_ends:
        if time.monotonic() > deadline:
            raise StackError(f"the broker did not hand out everything before the offsets {open_ends} within {READ_S:.0f} s")
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise StackError(f"reading failed: {error}")
        if partition not in open_ends or offset is None or partition is None:
            continue
        if error is None and offset < open_ends[partition]:
            found.append(TopicRecord(partition, offset, message.timestamp()[1], message.key(), message.value()))
        reached = offset if error is not None else offset + 1
        if reached >= open_ends[partition]:
            del open_ends[partition]
    return found


def compacted(records: Iterable[TopicRecord]) -> dict[tuple[Any, ...], Any]:
    """The last value of each key, as compaction leaves it: keys of tombstones are absent.

    Shape: the key is the values of the record's key in the order of its columns' names, so (42,) for {"id": 42}.
    """
    table: dict[tuple[Any, ...], Any] = {}
    for record in records:
        key = record.key
        place = tuple(key[name] for name in sorted(key)) if isinstance(key, dict) else (key,)
        if record.raw_value is None:
            table.pop(place, None)
        else:
            table[place] = record.value
    return table
