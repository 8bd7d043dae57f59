"""A rehearsal: the changed query's job, started from a fresh savepoint without its sinks, before the running job is stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamform.adapters.environment import resolve
from streamform.backends.flink.exec_plan import read_exec_plan
from streamform.backends.flink.rehearsal import rehearsal_statements
from streamform.errors import JobFailed
from streamform.lifecycle.ports import Progress, StageContext

if TYPE_CHECKING:
    from streamform.adapters.flink import FlinkBackend

ACT = "rehearse"
"""The name from which the rehearsal's job id is derived."""


def rehearse(backend: FlinkBackend, context: StageContext) -> Mapping[str, Any]:
    """Run the fitted plan until all its tasks run and a checkpoint is complete, then end it.

    Without a free task slot nothing is rehearsed, and the result says so. Raises: JobFailed with the cause where the job does
    not come up; what runs was not disturbed.
    """
    jobs, job_id = backend.jobs(), backend.job_id(context, ACT)
    if not context.remembered and not jobs.manager.has_free_slots():
        return {"text": "not rehearsed, because no task slot is free"}
    if not context.remembered.get("passed"):
        try:
            savepoint = _savepoint(backend, context)
            context.remember({"job_id": job_id, "savepoint": savepoint})
            _start(backend, context, job_id, savepoint)
            jobs.await_healthy(job_id, lambda text: context.progress(Progress("rehearse", text)))
            if jobs.manager.checkpoints(job_id).restored is None:
                raise JobFailed(f"job {job_id} did not start from the savepoint")
        except JobFailed as error:
            jobs.cancel(job_id)
            raise JobFailed(f"the rehearsal failed, and what runs was left alone: {error.message}", error.help) from None
        context.remember({"passed": True, "savepoint": savepoint})
    jobs.cancel(job_id)
    jobs.manager.dispose_savepoint(str(context.remembered.get("savepoint") or savepoint))
    return {"text": "rehearsed: every task ran, and a checkpoint was complete"}


def _savepoint(backend: FlinkBackend, context: StageContext) -> str:
    """A savepoint of the running job, which goes on. The same attempt asks for the same one."""
    assert context.running is not None
    assert context.running.job_id is not None
    if "savepoint" in context.remembered:
        return str(context.remembered["savepoint"])
    folder = backend.settings.savepoint_dir
    trigger = hashlib.sha256(f"{context.attempt} {ACT}".encode()).hexdigest()[:32]
    context.progress(Progress("rehearse", "savepoint"))
    return backend.jobs().savepoint(context.running.job_id, None if folder is None else resolve(folder), trigger)


def _start(backend: FlinkBackend, context: StageContext, job_id: str, savepoint: str) -> None:
    """Submit the rehearsal, once. Its labels are not the unit's, so it is never taken for the unit's job."""
    assert context.unit is not None
    if backend.jobs().manager.job(job_id) is not None:
        return
    plan = str(context.done["carry-state"]["details"]["plan"])
    tables = [node.table for node in read_exec_plan(backend.plans.text(plan)).of_role("sink")]
    settings = backend.job_settings(context, job_id, savepoint)
    settings["pipeline.name"] += "/rehearsal"
    settings["pipeline.global-job-parameters"] = settings["pipeline.global-job-parameters"].replace(
        "streamform.unit:", "streamform.rehearsal:"
    )
    settings["execution.state-recovery.ignore-unclaimed-state"] = "true"
    backend.start(job_id, rehearsal_statements(context.unit.statements, tables), plan, settings, compiles=False)
