"""The stack does what the other integration tests rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from confluent_kafka import Producer

from integration.conftest import NewTopic, PrivateGateway, PrivateStack, ProduceJson, ReadTopic
from integration.stack import SqlGateway, Stack, StackError, fetch, versions
from integration.stack.process import ProcessRecord, started_at, until
from integration.stack.topics import TopicRecord, end_offsets, make_admin, make_topic, produce, to_json
from tests.conftest import REPOSITORY

ANSWER_S, JOB_S = 30.0, 60.0
Compacted = Callable[[Iterable[TopicRecord]], dict[tuple[Any, ...], Any]]


def info(gateway: SqlGateway) -> dict[str, str]:
    """What a gateway says it is."""
    answer: dict[str, str] = requests.get(f"{gateway.url}/info", timeout=ANSWER_S).json()
    return answer


class Session:
    """A session of the gateway, as plain as the protocol allows."""

    def __init__(self, gateway_url: str) -> None:
        self.base = f"{gateway_url}/v2/sessions"
        self.base += "/" + requests.post(self.base, json={}, timeout=ANSWER_S).json()["sessionHandle"]

    def run(self, statement: str, **settings: str) -> dict[str, Any]:
        """Run one statement to its end. Returns: the first page of its result, with the job's id if it started one."""
        body = {"statement": statement, "executionConfig": settings}
        answer = requests.post(f"{self.base}/statements", json=body, timeout=JOB_S)
        operation = f"{self.base}/operations/{answer.json()['operationHandle']}"
        assert until(lambda: self.status(operation) not in ("INITIALIZED", "PENDING", "RUNNING"), JOB_S)
        page = requests.get(f"{operation}/result/0?rowFormat=JSON", timeout=ANSWER_S)
        assert page.ok, page.text
        found: dict[str, Any] = page.json()
        return found

    def status(self, operation: str) -> str:
        """How far the operation is."""
        word: str = requests.get(f"{operation}/status", timeout=ANSWER_S).json()["status"]
        return word


def vertices(stack: Stack, job: str) -> list[str]:
    """The states of the job's vertices; empty while the JobManager does not know it."""
    answer = requests.get(f"{stack.rest_url}/jobs/{job}", timeout=ANSWER_S)
    return [vertex["status"] for vertex in answer.json()["vertices"]] if answer.ok else []


def cancel(stack: Stack, job: str) -> None:
    """End the job and wait for its end."""
    requests.patch(f"{stack.rest_url}/jobs/{job}?mode=cancel", timeout=ANSWER_S)
    assert until(lambda: requests.get(f"{stack.rest_url}/jobs/{job}/status", timeout=ANSWER_S).json()["status"] == "CANCELED", JOB_S)


def test_the_gateway_answers_with_the_pinned_version(stack: Stack) -> None:
    assert info(stack.gateway) == {"productName": "Apache Flink", "version": versions.FLINK}


def test_the_cluster_has_its_slots(stack: Stack) -> None:
    overview = stack.jobmanager.overview()
    assert (overview["taskmanagers"], overview["slots-total"]) == (1, stack.shape.slots)


def test_a_topic_gives_back_what_was_written(new_topic: NewTopic, produce_json: ProduceJson, read_topic: ReadTopic) -> None:
    topic = new_topic("round-trip", partitions=2)
    rows = [{"id": 1, "amount": Decimal("0.10")}, {"id": 2, "amount": Decimal("12345678901234567.89")}]
    produce_json(topic, rows, key="id")
    found = read_topic(topic)
    assert sorted(record.key["id"] for record in found) == [1, 2]
    assert sorted((record.value for record in found), key=lambda row: row["id"]) == rows


def test_an_empty_topic_reads_as_nothing(new_topic: NewTopic, read_topic: ReadTopic) -> None:
    assert read_topic(new_topic("empty", partitions=3)) == []


def test_a_tombstone_removes_its_key(stack: Stack, new_topic: NewTopic, read_topic: ReadTopic, compacted: Compacted) -> None:
    topic = new_topic("tombstones", config={"cleanup.policy": "compact"})
    key = to_json({"id": 1})
    produce(stack.bootstrap_servers, topic, [(key, b'{"n":1}'), (to_json({"id": 2}), b'{"n":2}'), (key, None)])
    assert compacted(read_topic(topic)) == {(2,): {"n": 2}}


def test_committed_reading_passes_markers_and_stops_at_an_open_transaction(
    stack: Stack, new_topic: NewTopic, read_topic: ReadTopic
) -> None:
    topic = new_topic("transactions")
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": uuid4().hex, "log_level": 0})
    producer.init_transactions(ANSWER_S)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.flush)):
        producer.begin_transaction()
        producer.produce(topic, value=to_json({"n": number}))
        producer.flush(ANSWER_S)
        end(ANSWER_S)
    # Record, marker, record, marker, record of the transaction that stays open.
    assert [record.value["n"] for record in read_topic(topic)] == [0]
    assert [record.value["n"] for record in read_topic(topic, "read_uncommitted")] == [0, 1, 2]
    producer.abort_transaction(ANSWER_S)


def totals_set(stack: Stack, source: str, sink: str) -> tuple[list[str], str]:
    """The tables and the statement set of a job that keeps a total for each customer."""
    kafka = f"'properties.bootstrap.servers' = '{stack.bootstrap_servers}'"
    tables = [
        f"CREATE TEMPORARY TABLE orders (customer_id STRING, amount DECIMAL(12, 2)) WITH ('connector' = 'kafka', 'topic' = '{source}', {kafka}, "
        "'scan.startup.mode' = 'earliest-offset', 'format' = 'json')",
        f"CREATE TEMPORARY TABLE totals (customer_id STRING, total DECIMAL(38, 2), PRIMARY KEY (customer_id) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{sink}', {kafka}, 'key.format' = 'json', 'value.format' = 'json')",
    ]
    insert = "INSERT INTO totals SELECT customer_id, SUM(amount) FROM orders GROUP BY customer_id"
    return tables, f"EXECUTE STATEMENT SET BEGIN {insert}; END"


def test_a_statement_set_runs_under_the_given_id_and_its_totals_arrive(
    stack: Stack, new_topic: NewTopic, produce_json: ProduceJson, read_topic: ReadTopic, compacted: Compacted
) -> None:
    source, sink = new_topic("orders"), new_topic("totals", config={"cleanup.policy": "compact"})
    tables, statement_set = totals_set(stack, source, sink)
    session = Session(stack.gateway_url)
    for table in tables:
        session.run(table)
    job = uuid4().hex
    assert session.run(statement_set, **{"$internal.pipeline.job-id": job})["jobID"] == job
    assert until(lambda: set(vertices(stack, job)) == {"RUNNING"}, JOB_S)

    produce_json(source, [{"customer_id": "c1", "amount": 10.5}, {"customer_id": "c2", "amount": 1}, {"customer_id": "c1", "amount": 2}])
    expected = {("c1",): {"customer_id": "c1", "total": Decimal("12.5")}, ("c2",): {"customer_id": "c2", "total": 1}}
    assert until(lambda: compacted(read_topic(sink)) == expected, JOB_S)
    cancel(stack, job)


def test_a_killed_gateway_answers_again_on_its_port_and_jobs_go_on(stack: Stack, private_gateway: PrivateGateway) -> None:
    gateway = private_gateway()
    session = Session(gateway.url)
    gateway.kill()
    assert not gateway.is_alive
    gateway.start()
    assert info(gateway)["version"] == versions.FLINK
    assert "does not exist" in requests.get(session.base, timeout=ANSWER_S).text
    assert info(stack.gateway)["version"] == versions.FLINK


def test_parts_come_back_after_a_crash_and_stopping_leaves_no_process(private_stack: PrivateStack) -> None:
    own = private_stack({"flink", "kafka"}, slots=2)
    topic = make_topic(make_admin(own.bootstrap_servers), "kept")
    produce(own.bootstrap_servers, topic, [(None, b"1")])
    address = own.bootstrap_servers
    for part in (own.kafka, own.taskmanager, own.jobmanager):
        part.kill()
    assert [part.is_alive for part in own.parts.values()] == [False, False, False]
    for part in (own.kafka, own.jobmanager, own.taskmanager):
        part.start()
    assert own.bootstrap_servers == address
    assert end_offsets(make_admin(address), topic) == {0: 1}

    pids = [part.pid for part in own.parts.values()]
    own.stop()
    assert [started_at(pid) for pid in pids if pid] == [None, None, None]
    assert not own.places.records.exists()


def test_a_stack_without_a_part_says_so() -> None:
    with pytest.raises(StackError, match="a gateway needs flink beside it"):
        Stack.start({"gateway"})
    with pytest.raises(StackError, match="a stack is made of flink, gateway, kafka, not of spark"):
        Stack.start({"spark"})


def command(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command line of the stack, in a process of its own."""
    line = [sys.executable, "-m", "integration.stack", *arguments]
    return subprocess.run(line, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False)


def test_a_detached_stack_outlives_its_starter_and_is_ended_by_stop(tmp_path: Path, own_runs: dict[str, str]) -> None:
    run = ("--run-dir", str(tmp_path))
    started = command("start", "--detach", "--parts", "kafka", *run, environment=own_runs)
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout) == json.loads((tmp_path / "endpoints.json").read_text("utf-8"))
    assert "running" in command("status", environment=own_runs).stdout
    again = command("start", "--detach", "--parts", "kafka", *run, environment=own_runs)
    assert again.stdout == started.stdout

    stopped = command("stop", *run, environment=own_runs)
    assert f"ended kafka of {tmp_path}" in stopped.stderr
    assert command("status", environment=own_runs).stdout == "no stack runs\n"
    assert not (tmp_path / "endpoints.json").exists()


def test_stop_ends_what_a_killed_owner_left_and_nothing_else(tmp_path: Path, own_runs: dict[str, str]) -> None:
    line = [sys.executable, "-m", "integration.stack", "start", "--parts", "kafka", "--run-dir", str(tmp_path / "crashed")]
    owner = subprocess.Popen(
        line, cwd=REPOSITORY, env={**os.environ, **own_runs}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "{\n"
    owner.kill()
    owner.communicate()
    assert "which is gone" in command("status", environment=own_runs).stdout

    stopped = command("stop", "--run-dir", str(tmp_path / "other"), environment=own_runs)
    assert stopped.stderr == f"nothing ran in {tmp_path / 'other'}\nended what was left of {tmp_path / 'crashed'}\n"
    assert command("status", environment=own_runs).stdout == "no stack runs\n"


def test_a_pid_that_belongs_to_another_process_by_now_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ProcessRecord(child.pid, "another time").kill()
        assert child.poll() is None
        child.communicate(b"\n")
    assert child.returncode == 0


@pytest.fixture
def own_runs(tmp_path: Path) -> dict[str, str]:
    """A cache of the test's own that shares the jars but not the records of what runs."""
    fetch.fetch({"kafka"})
    folder = tmp_path / "cache"
    folder.mkdir()
    for bundle in fetch.bundles({"kafka"}):
        (folder / bundle.name).symlink_to(fetch.cache_folder() / bundle.name)
    return {"STREAMFORM_STACK_CACHE": str(folder)}
