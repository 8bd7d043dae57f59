"""Stop: the plan of ending a unit's job, with its state kept in a savepoint or discarded."""

from __future__ import annotations

from msgspec.structs import replace

from streamform.diff.model import Classification
from streamform.errors import Refused
from streamform.lifecycle.approval import plan_id_of
from streamform.lifecycle.ports import Backend
from streamform.lifecycle.situation import UnitPlan
from streamform.lifecycle.stages import WRITE_RECORD, Consequence, Stage, Staging


def stop_plan(unit: UnitPlan, backend: Backend, *, discard_state: bool) -> UnitPlan:
    """The unit's situation with the stages of a stop instead of those of an apply; it has a plan id of its own.

    Raises: Refused where there is nothing to stop.
    """
    has_jobs = backend.capabilities.has_jobs
    if unit.running is None or (has_jobs and not discard_state and unit.observation.word != "running"):
        raise Refused(f"nothing of unit `{unit.name}` is running", "`streamform status` shows what is")
    if not has_jobs and not discard_state:
        raise Refused(
            "nothing runs by itself on an embedded target", "interrupt `streamform run`, or pass --discard-state to forget the state"
        )
    staging = _discard(has_jobs) if discard_state else _stop()
    subject = {**unit.subject, "stages": [{"kind": stage.kind, **dict(stage.facts)} for stage in staging.stages], "action": "stop"}
    return replace(unit, staging=staging, subject=subject, plan_id=plan_id_of(subject))


def _stop() -> Staging:
    stage = Stage("stop-job", "stop the running job with a savepoint", (("savepoint", True),))
    return Staging((stage, WRITE_RECORD), (), Classification.SAFE)


def _discard(has_jobs: bool) -> Staging:
    stage = (
        Stage("stop-job", "cancel the running job", (("savepoint", False),)) if has_jobs else Stage("remove", "forget state and positions")
    )
    lost = Consequence("state-discarded", "state", "the state is lost; the next apply computes everything again")
    return Staging((stage, WRITE_RECORD), (lost,), Classification.STATE_INCOMPATIBLE)
