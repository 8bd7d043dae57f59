"""Jobs as the backend needs them: found by labels, waited for until they are healthy, ended with or without a savepoint."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamform.adapters.crashpoint import crash_point
from streamform.errors import JobFailed, Unreachable

if TYPE_CHECKING:
    from streamform.adapters.jobmanager import Job, JobManager

HEALTHY_S = 180.0
"""How long a job may take until all its tasks run and a checkpoint is complete."""
SETTLE_S = 2.0
"""How long all tasks must run before a checkpoint counts, so that a job that fails on its first events is not taken for healthy."""
RESTARTS = 3
"""Restarts, seen or counted by the cluster, after which a starting job counts as failed."""
STOP_S = 600.0
"""How long a savepoint may take."""
READY_S = 30.0
"""How long a job's tasks may take until a savepoint can begin."""
LOOK_S = 0.25

STATES = {
    "RUNNING": "starting",
    "CREATED": "starting",
    "INITIALIZING": "starting",
    "RESTARTING": "restarting",
    "FAILING": "failed",
    "FAILED": "failed",
    "RECONCILING": "restarting",
    "CANCELLING": "stopped",
    "CANCELED": "stopped",
    "FINISHED": "stopped",
    "SUSPENDED": "stopped",
}
"""The JobManager's words to those of the published status document; RUNNING counts only when every task runs."""

NOT_YET = ("Not all required tasks are currently running", "tasks not ready")
"""Parts of a savepoint's failure that pass once a job's tasks run."""


class FlinkJobs:
    """One cluster's jobs."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager

    def is_active(self, job_id: str) -> bool:
        """Whether a job runs or tries to."""
        return self.manager.is_active(job_id)

    def labelled(self, labels: Mapping[str, str]) -> list[Job]:
        """Active jobs that carry these labels."""
        return [job for job in self.manager.jobs() if job.is_active and labels.items() <= self.manager.labels(job.job_id).items()]

    def appears(self, job_id: str, within_s: float) -> bool:
        """Whether a job turns up within a time."""
        deadline = time.monotonic() + within_s
        while self.manager.job(job_id) is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True

    def await_healthy(self, job_id: str, tell: Callable[[str], None]) -> Mapping[str, Any]:
        """Wait until every task runs and a checkpoint is complete. Raises: JobFailed with the newest cause."""
        deadline, told = time.monotonic() + HEALTHY_S, ""
        since, trigger, state, restarts = deadline, "", "", 0
        while (now := time.monotonic()) < deadline:
            job = self.manager.job(job_id)
            if job is None or not job.is_active:
                raise self._failed(job_id, "is gone" if job is None else f"ended as {job.state.lower()}")
            since = min(since, now) if job.is_healthy else deadline
            if now - since < SETTLE_S:
                trigger = ""
            elif not trigger:
                trigger = uuid.uuid4().hex
                self.manager.trigger_checkpoint(job_id, trigger)
            elif self.manager.has_completed(job_id, trigger):
                return {"tasks": job.all_tasks}
            restarts += job.state == "RESTARTING" and state != "RESTARTING"
            state = job.state
            if not job.is_healthy and max(restarts, self.manager.restarts(job_id)) >= RESTARTS:
                raise self._failed(job_id, f"failed {RESTARTS} times")
            shown = f"{job.running_tasks} of {job.all_tasks} tasks run" + self._shortage(job)
            if shown != told:
                tell(shown)
                told = shown
            time.sleep(LOOK_S)
        raise self._failed(job_id, f"is not healthy after {HEALTHY_S:.0f} s: {told}")

    def _shortage(self, job: Job) -> str:
        """What a job that does not run may wait for."""
        return "" if job.running_tasks or self.manager.has_free_slots() else "; no task slot is free"

    def _failed(self, job_id: str, what: str) -> JobFailed:
        from streamform.backends.flink.cause import advice

        cause = self.manager.failure(job_id)
        return JobFailed(f"job {job_id} {what}" + (f": {cause}" if cause else ""), advice(cause) if cause else None)

    def stop_with_savepoint(self, job_id: str, folder: str | None, trigger: str) -> str:
        """End a job with a savepoint; where it is. Raises: JobFailed when none was made, Unreachable when it takes too long."""
        deadline, ready, number = time.monotonic() + STOP_S, time.monotonic() + READY_S, 0
        job = self.manager.job(job_id)
        if job is None:
            raise JobFailed(f"job {job_id} is gone, so it can't be stopped with a savepoint")
        if job.is_active and self.manager.savepoint(job_id, trigger) is None:
            self.manager.stop(job_id, folder, trigger)
            crash_point("flink-stopping")
        while time.monotonic() < deadline:
            status = self.manager.savepoint(job_id, trigger)
            if status is None:
                return self._location_of(job_id)
            if status.is_done and status.location is not None:
                self.manager.wait_ended(job_id, max(1.0, deadline - time.monotonic()))
                return status.location
            if status.is_done and (time.monotonic() > ready or not _can_pass(status.problem)):
                raise self._unstoppable(job_id, status.problem)
            if status.is_done:
                number += 1
                trigger = f"{int(trigger, 16) + number:032x}"[-32:]
                self.manager.stop(job_id, folder, trigger)
            time.sleep(LOOK_S)
        raise Unreachable(
            f"the savepoint of job {job_id} is not complete after {STOP_S:.0f} s", "run the command again; it goes on waiting"
        )

    def savepoint(self, job_id: str, folder: str | None, trigger: str) -> str:
        """Where a savepoint of a job is that goes on. Raises: JobFailed when none was made, Unreachable when it takes too long."""
        deadline = time.monotonic() + STOP_S
        if self.manager.savepoint(job_id, trigger) is None:
            self.manager.take_savepoint(job_id, folder, trigger)
        while time.monotonic() < deadline:
            status = self.manager.savepoint(job_id, trigger)
            if status is not None and status.location is not None:
                return status.location
            if status is None or status.is_done:
                raise JobFailed(f"no savepoint of job {job_id} was made: {'it was forgotten' if status is None else status.problem}")
            time.sleep(LOOK_S)
        raise Unreachable(
            f"the savepoint of job {job_id} is not complete after {STOP_S:.0f} s", "run the command again; it goes on waiting"
        )

    def _unstoppable(self, job_id: str, problem: str | None) -> JobFailed:
        cause = self.manager.failure(job_id) if _can_pass(problem) else None
        return JobFailed(
            f"job {job_id} can't be stopped with a savepoint: {problem}" + (f"; it fails with {cause}" if cause else ""),
            "mend what stops it, or give up its state with `streamform stop --discard-state`",
        )

    def _location_of(self, job_id: str) -> str:
        """The savepoint of a job that an earlier act stopped, after the trigger was forgotten."""
        job, place = self.manager.job(job_id), self.manager.checkpoints(job_id).savepoint
        if place is None or (job is not None and job.is_active):
            raise JobFailed(f"job {job_id} ended without a savepoint that is known", "run `streamform plan`, which says what is lost")
        return place

    def cancel(self, job_id: str) -> None:
        """End a job at once, where it is there."""
        if self.is_active(job_id):
            self.manager.cancel(job_id)
            self.manager.wait_ended(job_id, STOP_S)


def _can_pass(problem: str | None) -> bool:
    return any(mark in (problem or "") for mark in NOT_YET)
