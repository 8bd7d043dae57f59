"""The Flink backend: each unit is one job, submitted through the SQL Gateway and judged by the JobManager.

A job's id is derived from its unit, sequence and attempt, so the same act twice is one job. Its labels say whose it is; its
name says nothing. What is submitted is a compiled plan, kept on the cluster's storage, so that a savepoint fits it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import to_builtins
from msgspec.structs import replace

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.environment import referenced, resolve, without_credentials
from streamform.adapters.flink_health import STATES, FlinkJobs
from streamform.backends.base import CAPABILITIES
from streamform.backends.flink.cause import redacted
from streamform.backends.flink.layout import kept_layouts, layouts_of, possible_layouts
from streamform.backends.flink.script import (
    checkpoint_interval_ms,
    compile_statement,
    definitions_of,
    emit_unit,
    execute_statement,
    job_name,
    settings_of,
)
from streamform.errors import JobFailed, OutcomeUnknown, Refused, StreamformError
from streamform.identity.manifest import sink_addresses
from streamform.lifecycle.ports import DesiredUnit, Observation, ObservedJob, Progress, RunningUnit, StageContext
from streamform.lifecycle.stages import Carrying, Stage

if TYPE_CHECKING:
    from pathlib import Path

    from streamform.adapters.flink_carry import CarriedPlans
    from streamform.adapters.gateway import Gateway, GatewaySession
    from streamform.project.model import FlinkSettings, Project, Target

APPEAR_S = 20.0
"""How long a job may take to appear after a submit whose answer was lost."""
LOOK_S = 0.2


class FlinkBackend:
    """Units of one target. Nothing is contacted before it has to be."""

    capabilities = CAPABILITIES["flink"]

    def __init__(self, project_dir: Path, project: Project, target: Target) -> None:
        self.project, self.target = project, target
        self._gateway: Gateway | None = None
        self._jobs: FlinkJobs | None = None

    @property
    def settings(self) -> FlinkSettings:
        assert self.target.flink is not None, "check has made sure that a flink target has its addresses"
        return self.target.flink

    def addresses(self) -> Mapping[str, str]:
        """Gateway, JobManager and brokers, without credentials; a reference that is not set stays one."""
        found = {"gateway": self.settings.gateway, "jobmanager": self.settings.rest or ""}
        if self.target.kafka is not None:
            found["kafka"] = self.target.kafka.bootstrap_servers
        return {name: without_credentials(_resolved(text)) for name, text in found.items()}

    def statements(self, project: Project, target: Target, unit: DesiredUnit) -> tuple[str, ...]:
        """Settings, tables, views and the statement set, with references unresolved."""
        return emit_unit(project.name, target, unit.name, unit.plan)

    # connections

    def gateway(self) -> Gateway:
        """The SQL Gateway."""
        if self._gateway is None:
            from streamform.adapters.gateway import Gateway
            from streamform.adapters.http import HttpService

            field = f"flink.gateway of target `{self.target.name}`"
            self._gateway = Gateway(HttpService("the SQL Gateway", resolve(self.settings.gateway), field))
        return self._gateway

    def jobs(self) -> FlinkJobs:
        """The JobManager."""
        if self._jobs is None:
            from streamform.adapters.http import HttpService
            from streamform.adapters.jobmanager import JobManager

            field = f"flink.rest of target `{self.target.name}`"
            address = resolve(self.settings.rest) if self.settings.rest is not None else self._address_from_gateway()
            self._jobs = FlinkJobs(JobManager(HttpService("the JobManager", address, field), self.cleaner()))
        return self._jobs

    def cleaner(self, statements: Sequence[str] = ()) -> Callable[[str], str]:
        """What takes the values of references, the target's and those of statements, out of a text."""
        names = referenced([*statements, json.dumps(to_builtins(self.target), default=str)])
        secrets = {name: os.environ[name] for name in names if name in os.environ}
        return lambda text: redacted(text, secrets)

    def _address_from_gateway(self) -> str:
        """Where the gateway submits to, for a target that declares no `rest`."""
        session = self.gateway().session({})
        try:
            known = session.settings()
        finally:
            session.close()
        return f"http://{known.get('rest.address', 'localhost')}:{known.get('rest.port', '8081')}"

    # looking

    def labels(self, unit: str, attempt: str = "") -> dict[str, str]:
        """What a job of ours says about itself."""
        found = {"project": self.project.name, "target": self.target.name, "unit": unit}
        return {f"streamform.{name}": value for name, value in ({**found, "attempt": attempt} if attempt else found).items()}

    def observe(self, unit_name: str, running: RunningUnit | None) -> Observation:
        """The recorded job, and jobs of the unit that nothing records."""
        jobs = self.jobs()
        recorded = None if running is None else running.job_id
        strays = [job for job in jobs.labelled(self.labels(unit_name)) if job.job_id != recorded]
        unowned = tuple(ObservedJob(job.job_id, "unowned", job.name, recorded=False, backend_status=job.state) for job in strays)
        if running is None or running.status != "applied":
            word = "none" if running is None else "stopped" if running.status == "stopped" else "missing"
            return Observation(word, unowned)  # type: ignore[arg-type]
        if recorded is None:
            return Observation("missing", unowned, "the record names no job")
        job = jobs.manager.job(recorded)
        if job is None:
            return Observation("missing", (ObservedJob(recorded, "missing"), *unowned), f"the JobManager does not know job {recorded}")
        failure = None if job.is_healthy else jobs.manager.failure(recorded)
        seen = ObservedJob(
            recorded,
            STATES.get(job.state, "missing") if not job.is_healthy else "running",
            job.name,
            backend_status=job.state,
            tasks=(job.running_tasks, job.all_tasks),
            failure=failure,
        )
        if job.is_active:
            return Observation("running", (seen, *unowned), failure)
        word = "failed" if job.state == "FAILED" else "missing"
        return Observation(word, (seen, *unowned), failure or f"job {recorded} is {job.state.lower()}")  # type: ignore[arg-type]

    def carry(self, unit: DesiredUnit, running: RunningUnit, carrying: Carrying, *, observe: bool) -> tuple[DesiredUnit, Carrying]:
        """Whether the running job's state fits a changed query: compiled and compared, or assumed."""
        if not unit.statements:
            return unit, replace(carrying, problem="no model of the unit has a sink any more")
        layouts = kept_layouts(unit.plan, running.details.get("layouts") or {}, carrying.nodes)
        problems: list[str] = []
        for possible in possible_layouts(layouts, layouts_of(unit.plan)):
            statements = emit_unit(self.project.name, self.target, unit.name, unit.plan, possible)
            written = replace(unit, statements=statements)
            problem = self.plans.problem(written, running, carrying, self.plan_folder(unit.name)) if observe else None
            if problem is None:
                return written, replace(carrying, is_checked=observe)
            problems.append(problem)
        return unit, replace(carrying, is_checked=True, problem=problems[0])

    @cached_property
    def plans(self) -> CarriedPlans:
        """Compiled plans of jobs whose state is carried."""
        from streamform.adapters.flink_carry import CarriedPlans

        return CarriedPlans(self.settings, self.compile_into)

    def compile_into(self, statements: Sequence[str], place: str) -> None:
        """Have the gateway write the compiled plan of a unit's statements; one that is there stays."""
        with self.session(statements) as session:
            compile_plan(session, statements, resolve(place))

    def preflight(self, context: StageContext) -> None:
        """Gateway, JobManager and topics are there, the SQL compiles, and nothing of the unit runs that no record names."""
        assert context.unit is not None, "only units that stay are submitted"
        if not context.unit.statements:
            raise Refused(
                f"no model of unit `{context.unit_name}` has a sink, so on target `{self.target.name}` there is nothing to run",
                "declare a sink for a model, or override it under the target's sinks",
            )
        recorded = None if context.running is None else context.running.job_id
        known = {recorded, *(unit.job_id for unit in context.replaced)}
        stray = next((job for job in self.jobs().labelled(self.labels(context.unit_name)) if job.job_id not in known), None)
        if stray is not None:
            raise Refused(
                f"job {stray.job_id} of unit `{context.unit_name}` runs, and no record names it",
                "end it in Flink's dashboard, or restore the store that recorded it",
            )
        self._check_topics(context)
        with self.session(context.unit.statements) as session:
            session.query(f"EXPLAIN {resolve(context.unit.statements[-1]).removeprefix('EXECUTE ')}")

    def _check_topics(self, context: StageContext) -> None:
        if self.target.kafka is None:
            return
        from streamform.adapters.flink_topics import check_topics

        assert context.unit is not None
        servers = resolve(self.target.kafka.bootstrap_servers)
        check_topics(servers, context.unit.plan, lambda: _our_addresses(context), context.adopted)

    def foreign_sinks(self, context: StageContext) -> tuple[str, ...]:
        """Models whose topics hold records that somebody else wrote."""
        if self.target.kafka is None or context.unit is None:
            return ()
        from streamform.adapters.flink_topics import foreign_models

        return foreign_models(resolve(self.target.kafka.bootstrap_servers), context.unit.plan, _our_addresses(context))

    # acting

    def execute(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Carry out one stage."""
        acts: dict[str, Callable[[Stage, StageContext], Mapping[str, Any]]] = {
            "carry-state": self.carry_state,
            "rehearse": self.rehearse,
            "submit": self.submit,
            "verify": self.verify,
            "stop-job": self.stop,
            "remove": self.stop,
            "adopt-job": self.adopt,
        }
        result = acts[stage.kind](stage, context)
        crash_point(f"flink-{stage.kind}")
        return result

    def carry_state(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Write the plan that takes over the running job's state, before anything is stopped. Raises: Refused where it does not fit."""
        assert context.unit is not None
        assert context.running is not None
        place = self.plan_place(context)
        assert place is not None, "without a place for plans nothing is carried"
        carrying = Carrying(stage.fact("models"), context.carry, bool(stage.fact("retention")))
        return self.plans.prepare(context.unit, context.running, carrying, place)

    def rehearse(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Start the changed query's job beside the running one, without its sinks, and end it. Raises: JobFailed."""
        from streamform.adapters.flink_rehearsal import rehearse

        return rehearse(self, context)

    def submit(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Start the unit's job, once: from the savepoint it was stopped with, or from its sources' beginning."""
        job_id = self.job_id(context)
        if self.jobs().is_active(self.job_id(context, "restore")):
            raise JobFailed("the start failed before, and what ran before was started again")
        if stage.fact("carry"):
            return self.submit_carried(context, job_id)
        restored = context.running if stage.fact("restore") else None
        assert restored is None or restored.savepoint is not None, "only what was stopped with a savepoint is restored"
        assert context.unit is not None
        if restored is not None and not restored.details.get("plan"):
            raise Refused(
                "the job was not submitted as a compiled plan, so its savepoint fits nothing", "run `streamform stop --discard-state`"
            )
        plan = self.plan_place(context) if restored is None else str(restored.details["plan"])
        statements = context.unit.statements if restored is None else restored.statements
        context.remember({"job_id": job_id, "plan": plan})
        if self.jobs().manager.job(job_id) is None:
            context.progress(Progress("submit", f"job {job_id}"))
            savepoint = None if restored is None else restored.savepoint
            self.start(job_id, statements, plan, self.job_settings(context, job_id, savepoint), compiles=restored is None)
        from streamform.adapters.flink_carry import facts_of

        layouts = {"layouts": layouts_of(context.unit.plan)}
        details = dict(restored.details) if restored is not None else {} if plan is None else facts_of(plan, statements) | layouts
        return {"job_id": job_id, "text": f"job {job_id}", "details": {**details, "plan": plan}}

    def submit_carried(self, context: StageContext, job_id: str) -> Mapping[str, Any]:
        """Start the changed query's job, once, from the savepoint with which the running one was stopped."""
        assert context.unit is not None
        assert context.running is not None
        fitted = context.done["carry-state"]
        plan, stopped = str(fitted["details"]["plan"]), context.done.get("stop-job", {})
        savepoint = stopped.get("savepoint") or context.running.savepoint
        if savepoint is None:
            raise JobFailed("the job was stopped, and no savepoint of it is known")
        context.remember({"job_id": job_id, "plan": plan})
        if self.jobs().manager.job(job_id) is None:
            context.progress(Progress("submit", f"job {job_id}"))
            settings = self.job_settings(context, job_id, savepoint)
            if fitted["dropped"]:
                settings["execution.state-recovery.ignore-unclaimed-state"] = "true"
            self.start(job_id, context.unit.statements, plan, settings, compiles=False)
        return {"job_id": job_id, "text": f"job {job_id}"}

    def job_id(self, context: StageContext, act: str = "submit") -> str:
        """The id of the job that an attempt starts."""
        parts = (self.project.name, self.target.name, context.unit_name, str(context.sequence), context.attempt, act)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def plan_place(self, context: StageContext) -> str | None:
        """Where the compiled plan is kept on the cluster's storage; None where the target names none."""
        folder = self.plan_folder(context.unit_name)
        return None if folder is None else f"{folder}/{context.sequence}-{context.attempt}.json"

    def plan_folder(self, unit_name: str) -> str | None:
        """Where the compiled plans of a unit's jobs are kept."""
        base = self.settings.plans or self.settings.savepoint_dir
        names = (self.project.name, self.target.name, unit_name)
        return None if base is None else f"{base.rstrip('/')}/streamform-plans/{'/'.join(quote(name, safe='') for name in names)}"

    def job_settings(self, context: StageContext, job_id: str, savepoint: str | None) -> dict[str, str]:
        """What holds for this job alone."""
        assert context.unit is not None or context.running is not None
        interval = self.settings.checkpoint_interval_ms
        if context.unit is not None:
            interval = checkpoint_interval_ms(self.target, context.unit.plan)
        labels = ",".join(f"{key}:{quote(value, safe='')}" for key, value in self.labels(context.unit_name, context.attempt).items())
        settings = {
            "$internal.pipeline.job-id": job_id,
            "pipeline.name": job_name(self.project.name, self.target.name, context.unit_name),
            "pipeline.global-job-parameters": labels,
            "execution.checkpointing.interval": f"{interval or 10_000} ms",
            "table.dml-sync": "false",
        }
        if savepoint is not None:
            settings["execution.state-recovery.path"] = savepoint
            settings["execution.state-recovery.claim-mode"] = "NO_CLAIM"
        return settings

    def start(self, job_id: str, statements: Sequence[str], plan: str | None, settings: dict[str, str], *, compiles: bool) -> None:
        """Submit; where the answer is lost, the JobManager says whether the job is there."""
        with self.session(statements) as session:
            statement = resolve(statements[-1])
            if plan is not None:
                place = resolve(plan)
                if compiles:
                    compile_plan(session, statements, place)
                crash_point("flink-compiled")
                statement = execute_statement(place)
            try:
                session.start(statement, settings, sent=lambda: crash_point("flink-sent"))
            except OutcomeUnknown:
                if not self.jobs().appears(job_id, APPEAR_S):
                    raise
            except StreamformError as error:
                if not (self.jobs().appears(job_id, APPEAR_S) if _is_timeout(error) else self.jobs().is_active(job_id)):
                    raise

    def verify(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Wait until every task runs and a checkpoint is complete. Raises: JobFailed with the cause."""
        job_id = str(context.done["submit"]["job_id"])
        result = self.jobs().await_healthy(job_id, lambda text: context.progress(Progress("verify", text)))
        if "carry-state" in context.done and self.jobs().manager.checkpoints(job_id).restored is None:
            raise JobFailed(f"job {job_id} did not start from the savepoint", "nothing was carried; run `streamform plan` again")
        return result

    def adopt(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """The running job is kept. Raises: JobFailed when it has ended in the meantime."""
        assert context.running is not None
        job_id = context.running.job_id
        if job_id is None or not self.jobs().is_active(job_id):
            raise JobFailed(f"job {job_id} ended before it could be kept", "run `streamform plan` again")
        return {"job_id": job_id, "text": f"job {job_id} kept", "details": adopted_details(context.running.details, context.carry)}

    def stop(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """End the unit's job and every job that it takes over, with a savepoint where it is kept."""
        savepoints: dict[str, str] = dict(context.remembered.get("savepoints", {}))
        for name, job_id in _ending(context).items():
            context.progress(Progress(stage.kind, f"job {job_id}"))
            if stage.fact("savepoint") is False:
                self.jobs().cancel(job_id)
                continue
            is_needed = bool(stage.fact("savepoint")) or self.jobs().is_active(job_id)
            try:
                savepoints[name] = self.stopped(context, job_id)
            except JobFailed:
                if is_needed:
                    raise
                continue
            context.remember({"savepoints": dict(savepoints)})
        savepoint = savepoints.get(context.unit_name)
        return {"savepoint": savepoint, "savepoints": savepoints, "text": f"savepoint {savepoint}" if savepoint else "stopped"}

    def stopped(self, context: StageContext, job_id: str) -> str:
        """The savepoint with which a job ended. Raises: JobFailed where there is none, Unreachable when it takes too long."""
        folder = None if self.settings.savepoint_dir is None else resolve(self.settings.savepoint_dir)
        return self.jobs().stop_with_savepoint(job_id, folder, self.trigger(context, job_id))

    def trigger(self, context: StageContext, job_id: str) -> str:
        """The id of a savepoint's request, the same each time that an attempt asks."""
        return hashlib.sha256(f"{context.attempt} {job_id}".encode()).hexdigest()[:32]

    def follow(self, contexts: Sequence[StageContext], stop: Event) -> None:
        """Jobs run by themselves."""
        raise AssertionError("units of a flink target are jobs")

    def has_acted(self, stage: Stage, context: StageContext) -> bool:
        """Whether a stage that was cut off reached the cluster."""
        if stage.kind == "submit":
            return bool(context.remembered) and self.jobs().appears(self.job_id(context), APPEAR_S)
        if stage.kind in ("stop-job", "remove"):
            return any(self._is_ending(context, job_id) for job_id in _ending(context).values())
        return False

    def _is_ending(self, context: StageContext, job_id: str) -> bool:
        return not self.jobs().is_active(job_id) or self.jobs().manager.savepoint(job_id, self.trigger(context, job_id)) is not None

    def compensate(self, context: StageContext, error: Exception) -> Mapping[str, Any] | None:
        """End what was started; start what ran before again where it had been stopped. Units that it replaces stay stopped."""
        for act in ("rehearse", "submit"):
            self.jobs().cancel(self.job_id(context, act))
        savepoints: dict[str, str] = dict(context.done.get("stop-job", context.remembered).get("savepoints", {}))
        savepoint = savepoints.pop(context.unit_name, None)
        others = "".join(f"; unit `{name}` is stopped with a savepoint" for name in savepoints)
        if context.running is None or savepoint is None:
            return {"job_id": context.running.job_id, "stopped": savepoints, "text": others[2:]} if savepoints and context.running else None
        try:
            job_id = self.brought_back(context, context.running, savepoint)
            crash_point("flink-restored")
        except Refused as problem:
            text = f"what ran before is stopped with a savepoint: {problem.message}"
            return {"status": "stopped", "savepoint": savepoint, "stopped": savepoints, "text": text + others}
        return {"job_id": job_id, "stopped": savepoints, "text": f"what ran before runs again as job {job_id}{others}"}

    def brought_back(self, context: StageContext, running: RunningUnit, savepoint: str) -> str:
        """The job that goes on from a savepoint as before. Raises: Refused where it can't; nothing of it runs then."""
        plan, job_id = running.details.get("plan"), self.job_id(context, "restore")
        if not plan:
            raise Refused("it was not submitted as a compiled plan")
        if self.jobs().manager.job(job_id) is None:
            settings = self.job_settings(context, job_id, savepoint)
            self.start(job_id, running.statements, str(plan), settings, compiles=False)
        try:
            self.jobs().await_healthy(job_id, lambda text: None)
        except JobFailed:
            self.jobs().cancel(job_id)
            raise
        return job_id

    @contextmanager
    def session(self, statements: Sequence[str]) -> Iterator[GatewaySession]:
        """A session in which a unit's tables and views are defined."""
        session = self.gateway().session({"execution.runtime-mode": "streaming", **settings_of(tuple(statements))})
        session.clean = self.cleaner(statements)
        try:
            for statement in definitions_of(tuple(statements)):
                session.define(resolve(statement))
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """Release connections."""
        if self._gateway is not None:
            self._gateway.http.close()
        if self._jobs is not None:
            self._jobs.manager.http.close()


def adopted_details(details: Mapping[str, Any], carry: Mapping[str, str]) -> dict[str, Any]:
    """What is remembered of a job that is kept, under the names that its nodes have now."""
    layouts = details.get("layouts") or {}
    named = {name: layouts[was] for name, was in carry.items() if was in layouts}
    return {**details, "layouts": named} if layouts else dict(details)


def _our_addresses(context: StageContext) -> frozenset[str]:
    """Sinks of what runs, and those that some attempt began to fill."""
    recorded = [unit for unit in (context.running, *context.replaced) if unit is not None]
    return context.written() | {address for unit in recorded for address in sink_addresses(unit.manifest)}


def _ending(context: StageContext) -> dict[str, str]:
    """The jobs of the unit and of those that it takes over, by unit."""
    units = (context.running, *context.replaced)
    return {unit.name: unit.job_id for unit in units if unit is not None and unit.job_id is not None}


def compile_plan(session: GatewaySession, statements: Sequence[str], place: str) -> None:
    """Compile a unit's statement set into a file; one that is there stays."""
    text = compile_statement(place, (resolve(statements[-1]),))
    session.query(text.replace("' FOR ", "' IF NOT EXISTS FOR ", 1))


def _is_timeout(error: StreamformError) -> bool:
    """Whether the gateway gave up waiting for the cluster, which may have taken the job."""
    return "TimeoutException" in getattr(error, "stack", "")


def _resolved(text: str) -> str:
    try:
        return resolve(text)
    except StreamformError:
        return text
