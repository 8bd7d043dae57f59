"""The JobManager's protocol: jobs that it knows and does not know, the health gate, and stops with a savepoint."""

from __future__ import annotations

from typing import Any

import pytest

from streamform.adapters import flink_health, http
from streamform.adapters.flink_health import FlinkJobs
from streamform.adapters.http import HttpService
from streamform.adapters.jobmanager import JobManager
from streamform.backends.flink.cause import redacted
from streamform.errors import JobFailed, Unreachable
from tests.adapters.service import HTML, Answer, Service, serving

JOB, TRIGGER, SECOND = "ab" * 16, "0" * 31 + "1", "0" * 31 + "2"
UNKNOWN = Answer({"errors": ["Internal server error.", "<..FlinkJobNotFoundException: Could not find Flink job (ab)"]}, 500)
NOTHING = Answer({"errors": ["There is no operation with this triggerId"]}, 404)
TAKEN = Answer({"request-id": TRIGGER}, 202)
STATUS, STOP, SAVEPOINT = f"GET /jobs/{JOB}/status", f"POST /jobs/{JOB}/stop", f"GET /jobs/{JOB}/savepoints/{TRIGGER}"
FULL = Answer({"slots-total": 8, "slots-available": 0})
NOT_YET = "x\nCaused by: org.apache.flink.runtime.checkpoint.CheckpointException: Not all required tasks are currently running."


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_S", 0.001)
    monkeypatch.setattr(flink_health, "LOOK_S", 0.001)
    monkeypatch.setattr(flink_health, "SETTLE_S", 0.01)


def manager(server: Service) -> JobManager:
    return JobManager(HttpService("the JobManager", server.url, "flink.rest of target `prod`"))


def overview(state: str, running: int = 3, total: int = 3) -> Answer:
    return Answer({"jobs": [{"jid": JOB, "name": "n", "state": state, "start-time": 5, "tasks": {"running": running, "total": total}}]})


def savepoint(location: str | None = None, problem: str | None = None) -> Answer:
    operation: dict[str, Any] = {"location": location} if location else {"failure-cause": {"class": "x", "stack-trace": problem}}
    return Answer({"status": {"id": "COMPLETED"}, "operation": operation})


def failing(message: str) -> Answer:
    stack = f"org.apache.flink.runtime.JobException: no recovery\nCaused by: java.io.IOException: {message}\n\tat a.b(C.java:1)"
    return Answer({"exceptionHistory": {"entries": [{"stacktrace": stack}]}})


@pytest.mark.parametrize("answer", [UNKNOWN, NOTHING, Answer({"status": "FINISHED"}), Answer({"status": "CANCELED"})])
def test_a_job_that_is_unknown_or_over_is_not_active(answer: Answer) -> None:
    with serving({STATUS: answer}) as server:
        assert not manager(server).is_active(JOB)


@pytest.mark.parametrize("word", ["INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "CANCELLING"])
def test_a_job_that_runs_or_tries_to_is_active(word: str) -> None:
    with serving({STATUS: Answer({"status": word})}) as server:
        assert manager(server).is_active(JOB)


def test_an_error_of_the_job_manager_is_no_missing_job() -> None:
    broken = Answer({"errors": ["Internal server error.", "x\nCaused by: java.lang.OutOfMemoryError: Java heap space"]}, 500)
    with serving({STATUS: broken}) as server, pytest.raises(Unreachable, match="OutOfMemoryError: Java heap space"):
        manager(server).is_active(JOB)


def test_html_is_one_error() -> None:
    with serving({"GET /jobs/overview": HTML}) as server, pytest.raises(Unreachable, match="it answers HTML"):
        manager(server).jobs()


def test_a_jobs_tasks_are_those_of_the_overview() -> None:
    with serving({"GET /jobs/overview": overview("RUNNING", 2)}) as server:
        job = manager(server).job(JOB)
    assert job is not None
    assert (job.running_tasks, job.all_tasks, job.is_healthy) == (2, 3, False)


def test_a_job_is_found_by_its_labels_and_not_by_its_name() -> None:
    labels = Answer({"execution-config": {"user-config": {"streamform.unit": "a%20b", "streamform.target": "prod"}}})
    with serving({"GET /jobs/overview": overview("RUNNING"), f"GET /jobs/{JOB}/config": labels}) as server:
        jobs = FlinkJobs(manager(server))
        assert [job.job_id for job in jobs.labelled({"streamform.unit": "a b"})] == [JOB]
        assert jobs.labelled({"streamform.unit": "b"}) == []


def test_a_job_is_healthy_once_its_tasks_run_and_a_checkpoint_is_complete() -> None:
    told: list[str] = []
    with serving(
        {"GET /jobs/overview": [overview("CREATED", 0), overview("RUNNING", 1), overview("RUNNING")], "GET /overview": FULL, **checkpoint()}
    ) as server:
        assert FlinkJobs(manager(server)).await_healthy(JOB, told.append) == {"tasks": 3}
    assert told == ["0 of 3 tasks run; no task slot is free", "1 of 3 tasks run", "3 of 3 tasks run"]


def checkpoint() -> dict[str, Answer | list[Answer]]:
    """A cluster on which no checkpoint can be asked for, and the first one that comes by itself is complete at the third look."""
    none, one = Answer({"counts": {"completed": 0}, "latest": {}}), Answer({"counts": {"completed": 1}, "latest": {}})
    return {f"POST /jobs/{JOB}/checkpoints": NOTHING, f"GET /jobs/{JOB}/checkpoints": [none, none, one]}


@pytest.mark.parametrize(("state", "said"), [("FAILED", "ended as failed"), ("CANCELED", "ended as canceled")])
def test_a_job_that_ends_while_it_is_waited_for_failed_with_its_cause(state: str, said: str) -> None:
    answers = {"GET /jobs/overview": overview(state, 0), f"GET /jobs/{JOB}/exceptions": failing("disk full")}
    with serving(answers) as server, pytest.raises(JobFailed, match=f"{said}: IOException: disk full"):
        FlinkJobs(manager(server)).await_healthy(JOB, lambda text: None)


def test_a_job_that_keeps_restarting_failed() -> None:
    answers = {
        "GET /jobs/overview": overview("RESTARTING", 0),
        f"GET /jobs/{JOB}/metrics": Answer([{"id": "numRestarts", "value": "3.0"}]),
        f"GET /jobs/{JOB}/exceptions": failing("Failed to deserialize JSON"),
        "GET /overview": FULL,
    }
    with serving(answers) as server, pytest.raises(JobFailed, match="failed 3 times") as caught:
        FlinkJobs(manager(server)).await_healthy(JOB, lambda text: None)
    assert caught.value.help == "an event is not what the source's schema says; timestamps are written without Z"


def test_restarts_that_the_cluster_did_not_count_yet_are_counted() -> None:
    answers = {
        "GET /jobs/overview": [overview("RESTARTING", 0), overview("RUNNING", 0)] * 3,
        f"GET /jobs/{JOB}/exceptions": failing("disk full"),
        "GET /overview": FULL,
    }
    with serving(answers) as server, pytest.raises(JobFailed, match="failed 3 times: IOException: disk full"):
        FlinkJobs(manager(server)).await_healthy(JOB, lambda text: None)


def test_a_secret_in_a_jobs_failure_is_not_shown() -> None:
    with serving({f"GET /jobs/{JOB}/exceptions": failing("login hunter22 refused")}) as server:
        asked = manager(server)
        asked.clean = lambda text: redacted(text, {"BROKER_LOGIN": "hunter22"})
        assert asked.failure(JOB) == "IOException: login ${BROKER_LOGIN} refused"


def test_a_stop_waits_for_its_savepoint_and_for_the_end_of_the_job() -> None:
    done = [NOTHING, Answer({"status": {"id": "IN_PROGRESS"}}), savepoint("file:/s/1")]
    running, over = Answer({"status": "RUNNING"}), Answer({"status": "FINISHED"})
    with serving({"GET /jobs/overview": overview("RUNNING"), STOP: TAKEN, SAVEPOINT: done, STATUS: [running, running, over]}) as server:
        assert FlinkJobs(manager(server)).stop_with_savepoint(JOB, "file:///s", TRIGGER) == "file:/s/1"
    (asked,) = [one.body for one in server.asked if one.method == "POST"]
    assert asked == {"drain": False, "formatType": "CANONICAL", "triggerId": TRIGGER, "targetDirectory": "file:///s"}


def test_a_stop_that_was_asked_for_before_is_not_asked_for_again() -> None:
    with serving(
        {"GET /jobs/overview": overview("RUNNING"), SAVEPOINT: savepoint("file:/s/1"), STATUS: Answer({"status": "FINISHED"})}
    ) as s:
        assert FlinkJobs(manager(s)).stop_with_savepoint(JOB, None, TRIGGER) == "file:/s/1"
    assert s.paths() == []


def test_a_stop_is_asked_for_again_while_tasks_are_not_running_yet() -> None:
    answers: dict[str, Answer | list[Answer]] = {
        "GET /jobs/overview": overview("RUNNING"),
        STOP: TAKEN,
        SAVEPOINT: [NOTHING, savepoint(problem=NOT_YET)],
        f"GET /jobs/{JOB}/savepoints/{SECOND}": savepoint("file:/s/2"),
        STATUS: Answer({"status": "FINISHED"}),
    }
    with serving(answers) as server:
        assert FlinkJobs(manager(server)).stop_with_savepoint(JOB, None, TRIGGER) == "file:/s/2"
    assert [one.body["triggerId"] for one in server.asked if one.method == "POST"] == [TRIGGER, SECOND]


def test_a_job_whose_tasks_never_run_can_not_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_health, "READY_S", 0.0)
    answers: dict[str, Answer | list[Answer]] = {
        "GET /jobs/overview": overview("RESTARTING"),
        STOP: TAKEN,
        SAVEPOINT: [NOTHING, savepoint(problem=NOT_YET)],
    }
    exceptions = {f"GET /jobs/{JOB}/exceptions": failing("disk full")}
    with serving({**answers, **exceptions}) as server, pytest.raises(JobFailed, match="it fails with IOException: disk full") as caught:
        FlinkJobs(manager(server)).stop_with_savepoint(JOB, None, TRIGGER)
    assert caught.value.help is not None
    assert "--discard-state" in caught.value.help


def test_a_savepoint_that_failed_is_no_stop() -> None:
    broken = savepoint(problem="x\nCaused by: java.io.IOException: no space left")
    answers: dict[str, Answer | list[Answer]] = {"GET /jobs/overview": overview("RUNNING"), STOP: TAKEN, SAVEPOINT: [NOTHING, broken]}
    with serving(answers) as server, pytest.raises(JobFailed, match="can't be stopped with a savepoint: IOException: no space left"):
        FlinkJobs(manager(server)).stop_with_savepoint(JOB, None, TRIGGER)


def test_a_job_that_was_stopped_long_ago_still_has_its_savepoint() -> None:
    kept = Answer({"counts": {}, "latest": {"savepoint": {"external_path": "file:/s/1"}}})
    with serving({"GET /jobs/overview": overview("FINISHED"), SAVEPOINT: NOTHING, f"GET /jobs/{JOB}/checkpoints": kept}) as server:
        assert FlinkJobs(manager(server)).stop_with_savepoint(JOB, None, TRIGGER) == "file:/s/1"


def test_a_job_that_is_gone_has_no_savepoint() -> None:
    with serving({"GET /jobs/overview": Answer({"jobs": []})}) as server, pytest.raises(JobFailed, match="is gone"):
        FlinkJobs(manager(server)).stop_with_savepoint(JOB, None, TRIGGER)


@pytest.mark.parametrize("answer", [Answer(text="", status=202), Answer({"errors": ["gone"]}, 404), Answer({"errors": ["over"]}, 409)])
def test_a_job_that_is_over_already_is_cancelled_without_an_error(answer: Answer) -> None:
    over = [Answer({"status": "RUNNING"}), Answer({"status": "CANCELED"})]
    with serving({STATUS: over, f"PATCH /jobs/{JOB}": answer}) as server:
        FlinkJobs(manager(server)).cancel(JOB)
    assert server.paths("PATCH") == [f"/jobs/{JOB}?mode=cancel"]


def test_a_job_that_does_not_end_in_time_is_said() -> None:
    with serving({STATUS: Answer({"status": "CANCELLING"})}) as server, pytest.raises(Unreachable, match="has not ended after 0 s"):
        manager(server).wait_ended(JOB, 0.0)
