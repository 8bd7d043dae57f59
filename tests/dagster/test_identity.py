"""Who counts as whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.run_coordinator.base import SubmitRunContext

from .conftest import WORDS, Location

COORDINATOR = "run_coordinator: {module: streamform_dagster, class: HeaderRunCoordinator}\n"


class Request:
    """What a web server holds of a request."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


@pytest.fixture
def stamped(shop: Path, make_instance: Callable[[str], dg.DagsterInstance]) -> Location:
    return Location(shop, make_instance(COORDINATOR))


def submit(location: Location, headers: dict[str, str], tags: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The user that a run is stamped with."""
    monkeypatch.setattr(SubmitRunContext, "get_request_header", lambda self, key: headers.get(key))
    monkeypatch.setattr(dg.QueuedRunCoordinator, "submit_run", lambda self, context: context.dagster_run)
    job = location.definitions().resolve_job_def("streamform__shop__local__apply")
    run = location.instance.create_run_for_job(job, tags=tags)
    workspace: Any = None
    location.instance.run_coordinator.submit_run(SubmitRunContext(run, workspace))
    stored = location.instance.get_run_by_id(run.run_id)
    assert stored is not None
    return stored.tags["streamform/user"]


def test_the_header_names_the_user(stamped: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    assert submit(stamped, {"X-Forwarded-Email": "user-a"}, {}, monkeypatch) == "user-a"


def test_a_tag_that_somebody_typed_is_overwritten(stamped: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    assert submit(stamped, {"X-Forwarded-Email": "user-m"}, {"streamform/user": "user-a"}, monkeypatch) == "user-m"
    assert submit(stamped, {}, {"streamform/user": "user-a"}, monkeypatch) == ""


def test_the_header_can_be_another_one(stamped: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFORM_USER_HEADER", "X-User")
    assert submit(stamped, {"X-Forwarded-Email": "user-a", "X-User": "user-b"}, {}, monkeypatch) == "user-b"


def test_a_stamped_decision_is_verified(stamped: Location) -> None:
    stamped.applied()
    stamped.add_metric()
    stamped.apply(tags={"streamform/user": "user-a"})
    plan = stamped.waiting_plan()
    config = {"plan": plan, "decision": "approve", "reason": "wanted", "acknowledge": WORDS}
    run_config = {"ops": {"decide__shop__local": {"config": config}}}
    assert stamped.run("decide", run_config=run_config, partition_key=plan, tags={"streamform/user": "user-b"}).success
    (view,) = stamped.pending()
    assert [request.by for request in view.plan.requests] == ["user-a"]
    assert [(entry.by, entry.verified) for entry in view.plan.decisions] == [("user-b", True)]


def test_without_the_coordinator_a_tag_names_nobody(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    config = {"plan": plan, "decision": "approve", "reason": "wanted", "acknowledge": WORDS}
    run_config = {"ops": {"decide__shop__local": {"config": config}}}
    waiting.run("decide", run_config=run_config, partition_key=plan, tags={"streamform/user": "user-b"})
    (view,) = waiting.pending()
    assert [(entry.by, entry.verified) for entry in view.plan.decisions] == [("", False)]


def test_a_policy_about_people_is_not_met_where_nobody_is_known(location: Location) -> None:
    path = location.shop / "streamform.yml"
    path.write_text(path.read_text().replace("approvals: {above: SAFE}     #", "approvals: {above: SAFE, approvers: [user-b]}     #"))
    location.applied()
    location.add_metric()
    location.apply()
    location.decide(location.waiting_plan(), acknowledge=WORDS)
    assert location.tick().run_requests == []
    assert not location.apply().success
