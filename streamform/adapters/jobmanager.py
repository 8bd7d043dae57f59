"""The JobManager over REST: what runs, why it does not, and ending it. It is the truth about jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, field

from streamform.adapters.http import HttpService, Reply
from streamform.backends.flink.cause import root_cause
from streamform.errors import JobFailed, Unreachable

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED", "SUSPENDED"})
"""States that a job does not leave."""
UNKNOWN_JOB = "FlinkJobNotFoundException"
"""Part of the answer, with status 500, about the status of a job that is not known."""


class Job(Struct, frozen=True):
    """A job as the JobManager shows it."""

    job_id: str
    name: str
    state: str
    start_ms: int
    running_tasks: int
    all_tasks: int

    @property
    def is_active(self) -> bool:
        """Whether it runs or tries to."""
        return self.state not in ENDED

    @property
    def is_healthy(self) -> bool:
        """Whether every task runs."""
        return self.state == "RUNNING" and 0 < self.all_tasks == self.running_tasks


class Checkpoints(Struct, frozen=True):
    """What a job says about its checkpoints."""

    completed: int
    failed: int
    restored: str | None
    savepoint: str | None
    """The newest savepoint's place."""


class SavepointStatus(Struct, frozen=True):
    """What became of a triggered savepoint."""

    is_done: bool
    location: str | None = None
    problem: str | None = None


class JobManager(Struct, dict=True):
    """One cluster's JobManager."""

    http: HttpService
    clean: Callable[[str], str] = lambda text: text
    """Takes secrets out of what the cluster says."""
    _labels: dict[str, dict[str, str]] = field(default_factory=dict)

    def has_free_slots(self) -> bool:
        """Whether some task slot is free."""
        return bool(self._ok(self.http.get("/overview"), "its overview").get("slots-available"))

    def jobs(self) -> list[Job]:
        """Every job that the JobManager remembers."""
        return [_job(item) for item in self._ok(self.http.get("/jobs/overview"), "its jobs").get("jobs", [])]

    def job(self, job_id: str) -> Job | None:
        """One job, None when the JobManager does not know it.

        Taken from the overview: what `/jobs/<id>` says can be three seconds old.
        """
        return next((job for job in self.jobs() if job.job_id == job_id), None)

    def is_active(self, job_id: str) -> bool:
        """Whether a job runs or tries to."""
        reply = self.http.get(f"/jobs/{job_id}/status")
        if reply.status == 404 or any(UNKNOWN_JOB in text for text in reply.errors):
            return False
        return self._ok(reply, f"job {job_id}").get("status") not in ENDED

    def labels(self, job_id: str) -> dict[str, str]:
        """A job's labels; empty for a job without, or one that is gone."""
        if job_id not in self._labels:
            reply = self.http.get(f"/jobs/{job_id}/config")
            found = (
                reply.document.get("execution-config", {}).get("user-config", {})
                if reply.is_ok and isinstance(reply.document, dict)
                else {}
            )
            if not reply.is_ok:
                return {}
            self._labels[job_id] = {key: unquote(str(value)) for key, value in found.items()}
        return self._labels[job_id]

    def failure(self, job_id: str) -> str | None:
        """The root cause of a job's newest exception."""
        reply = self.http.get(f"/jobs/{job_id}/exceptions")
        if not reply.is_ok or not isinstance(reply.document, dict):
            return None
        entries = (reply.document.get("exceptionHistory") or {}).get("entries") or []
        stack = entries[0].get("stacktrace") if entries else reply.document.get("root-exception")
        return self.cause(stack) if stack else None

    def cause(self, stack: str) -> str:
        """The root cause of a stack, without secrets."""
        return self.clean(root_cause(stack))

    def checkpoints(self, job_id: str) -> Checkpoints:
        """A job's checkpoints."""
        reply = self.http.get(f"/jobs/{job_id}/checkpoints")
        if not reply.is_ok or not isinstance(reply.document, dict):
            return Checkpoints(0, 0, None, None)
        counts, latest = reply.document.get("counts", {}), reply.document.get("latest", {})
        restored, savepoint = latest.get("restored") or {}, latest.get("savepoint") or {}
        return Checkpoints(
            counts.get("completed", 0), counts.get("failed", 0), restored.get("external_path"), savepoint.get("external_path")
        )

    def restarts(self, job_id: str) -> int:
        """How often a job was restarted, 0 where the cluster does not say."""
        reply = self.http.get(f"/jobs/{job_id}/metrics?get=numRestarts")
        found = reply.document if reply.is_ok and isinstance(reply.document, list) else []
        return next((int(float(item.get("value", 0))) for item in found if item.get("id") == "numRestarts"), 0)

    def trigger_checkpoint(self, job_id: str, trigger: str) -> None:
        """Ask for a checkpoint now, where the cluster can; without it the next one comes by itself."""
        self.http.send("POST", f"/jobs/{job_id}/checkpoints", {"checkpointType": "CONFIGURED", "triggerId": trigger})

    def has_completed(self, job_id: str, trigger: str) -> bool:
        """Whether a checkpoint that was asked for is complete; where the cluster takes no requests, any."""
        reply = self.http.get(f"/jobs/{job_id}/checkpoints/{trigger}")
        if not reply.is_ok or not isinstance(reply.document, dict):
            return self.checkpoints(job_id).completed > 0
        operation = reply.document.get("operation") or {}
        return "checkpointId" in operation or ("failureCause" in operation and self.checkpoints(job_id).completed > 0)

    def stop(self, job_id: str, folder: str | None, trigger: str) -> None:
        """Ask for a stop with a savepoint, without draining; the same trigger again is the same stop."""
        body = {"drain": False, "formatType": "CANONICAL", "triggerId": trigger, **({"targetDirectory": folder} if folder else {})}
        reply = self.http.send("POST", f"/jobs/{job_id}/stop", body)
        if not reply.is_ok:
            raise JobFailed(f"job {job_id} can't be stopped: {self._said(reply)}")

    def savepoint(self, job_id: str, trigger: str) -> SavepointStatus | None:
        """What became of a triggered savepoint; None for a trigger that the JobManager does not know."""
        reply = self.http.get(f"/jobs/{job_id}/savepoints/{trigger}")
        if reply.status == 404:
            return None
        found = self._ok(reply, f"the savepoint of job {job_id}")
        if (found.get("status") or {}).get("id") != "COMPLETED":
            return SavepointStatus(False)
        operation = found.get("operation") or {}
        stack = (operation.get("failure-cause") or {}).get("stack-trace")
        return SavepointStatus(True, operation.get("location"), self.cause(stack) if stack else None)

    def cancel(self, job_id: str) -> None:
        """End a job at once."""
        reply = self.http.send("PATCH", f"/jobs/{job_id}?mode=cancel")
        if not reply.is_ok and reply.status not in (404, 409):
            raise JobFailed(f"job {job_id} can't be cancelled: {self._said(reply)}")

    def wait_ended(self, job_id: str, timeout_s: float) -> None:
        """Return once a job is over. Raises: Unreachable when it does not end in time."""
        deadline, pause = time.monotonic() + timeout_s, 0.05
        while self.is_active(job_id):
            if time.monotonic() > deadline:
                raise Unreachable(f"job {job_id} has not ended after {timeout_s:.0f} s", "look at it in Flink's dashboard, then run again")
            time.sleep(pause)
            pause = min(1.0, pause * 1.4)

    def _said(self, reply: Reply) -> str:
        return self.cause(reply.errors[-1]) if reply.errors else f"status {reply.status}"

    def _ok(self, reply: Reply, what: str) -> dict[str, Any]:
        if reply.is_ok and isinstance(reply.document, dict):
            return reply.document
        raise Unreachable(f"{self.http.what} at {self.http.shown} does not tell {what}: {self._said(reply)}", f"check {self.http.field}")


def _job(item: dict[str, Any]) -> Job:
    tasks = item.get("tasks") or {}
    running = tasks.get("running", 0) + (tasks.get("finished", 0) if tasks.get("running") else 0)
    return Job(item["jid"], item.get("name", ""), item.get("state", "UNKNOWN"), item.get("start-time", 0), running, tasks.get("total", 0))
