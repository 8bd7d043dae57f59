"""The running check and the status sensor."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest

from streamform import api

from .conftest import PREFIX, Location

STATE = ".streamform/state/local.db"
SENSOR = PREFIX + "status_sensor"


def look(location: Location, cursor: str | None = None) -> Any:
    """One tick of the status sensor, with its events written as the daemon does."""
    sensor = location.definitions().resolve_sensor_def(SENSOR)
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=location.instance, cursor=cursor))
    for event in tick.asset_events:
        location.instance.report_runless_asset_event(event)
    return tick


def lose_state(location: Location) -> bytes:
    path = location.shop / STATE
    content = path.read_bytes()
    path.unlink()
    return content


@contextmanager
def changing(location: Location) -> Iterator[None]:
    """While another apply holds the lock of the target."""
    inside, done = threading.Event(), threading.Event()

    def hold(plan: Any) -> None:
        inside.set()
        assert done.wait(60)

    worker = threading.Thread(target=lambda: api.apply(location.shop, target="local", by="", on_plan=hold))
    worker.start()
    assert inside.wait(60)
    try:
        yield
    finally:
        done.set()
        worker.join()


def running_check(location: Location) -> Any:
    assert location.run("plan_check").success
    return location.check("running", "local", "_record")


def test_the_running_check_passes_where_what_was_applied_is_there(location: Location) -> None:
    location.applied()
    evaluation = running_check(location)
    assert (evaluation.passed, evaluation.description) == (True, "1 unit runs")
    (row,) = evaluation.metadata["streamform/units"].records
    assert (row.data["unit"], row.data["state"]) == ("big_customers", "running")


def test_the_running_check_fails_where_it_is_gone(location: Location) -> None:
    location.applied()
    lose_state(location)
    evaluation = running_check(location)
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert evaluation.description.startswith("big_customers: what was applied is not there: there is no state at ")


def test_before_the_first_apply_the_running_check_warns(location: Location) -> None:
    evaluation = running_check(location)
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert evaluation.description == "Nothing was applied yet"


def test_a_record_that_was_lost_is_drift(location: Location) -> None:
    location.applied()
    (location.shop / ".streamform" / "applied" / "local.json").unlink()
    location.definitions().resolve_job_def(PREFIX + "plan_check").execute_in_process(instance=location.instance, raise_on_error=False)
    evaluation = location.check("running", "local", "_record")
    assert evaluation.metadata["streamform/state"].value == "drift"
    assert "the applied record and the journal disagree" in evaluation.description
    assert evaluation.severity == dg.AssetCheckSeverity.ERROR


def test_a_project_that_does_not_compile_is_a_warning_of_the_running_check(location: Location) -> None:
    location.applied()
    definitions = location.definitions()
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    definitions.resolve_job_def(PREFIX + "plan_check").execute_in_process(instance=location.instance)
    evaluation = location.check("running", "local", "_record")
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "amuont" in evaluation.metadata["streamform/problems"].value


def test_the_sensor_writes_a_state_once(location: Location) -> None:
    location.applied()
    first = look(location)
    assert first.skip_message == "Written to the events: big_customers is running."
    assert location.check("running", "local", "_record").passed
    again = look(location, first.cursor)
    assert again.asset_events == []
    assert again.skip_message == "Nothing changed: 1 unit runs."
    assert again.cursor == first.cursor


def test_the_sensor_writes_each_change(location: Location) -> None:
    location.applied()
    ran = look(location)
    content = lose_state(location)
    lost = look(location, ran.cursor)
    assert lost.skip_message == "Written to the events: big_customers is missing, was running."
    assert not location.check("running", "local", "_record").passed
    assert look(location, lost.cursor).asset_events == []
    (location.shop / STATE).write_bytes(content)
    back = look(location, lost.cursor)
    assert back.skip_message == "Written to the events: big_customers is running, was missing."
    assert location.check("running", "local", "_record").passed
    assert [event["streamform/transition"] for event in location.observations("local", "_record")] == [
        "big_customers is running",
        "big_customers is missing, was running",
        "big_customers is running, was missing",
    ]


def test_before_the_first_apply_the_sensor_writes_nothing(location: Location) -> None:
    tick = look(location)
    assert tick.asset_events == []
    assert tick.skip_message == "Nothing changed: Nothing was applied yet."


@pytest.mark.parametrize("cursor", ["", "garbage", "[]", "7", "null", '{"v": 2, "states": {}}', '{"v": 1}', '{"v": 1, "states": [3]}'])
def test_a_cursor_that_cannot_be_read_writes_the_states_once_more(location: Location, cursor: str) -> None:
    location.applied()
    tick = look(location, cursor)
    assert len(tick.asset_events) == 2
    assert json.loads(tick.cursor) == {"v": 1, "states": {"big_customers": "running"}}
    assert look(location, tick.cursor).asset_events == []


def test_a_project_that_stops_compiling_is_one_change(location: Location) -> None:
    location.applied()
    ran = look(location)
    sensor = location.definitions().resolve_sensor_def(SENSOR)
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=location.instance, cursor=ran.cursor))
    assert tick.skip_message == "Written to the events: the target can't be looked at (unreadable)."
    location.edit("customer_metrics", "SUM(amuont)", "SUM(amount)")
    back = look(location, tick.cursor)
    assert back.skip_message == "Written to the events: the target can be looked at again."
    assert location.check("running", "local", "_record").passed


def test_the_sensor_waits_while_the_target_is_changed(location: Location) -> None:
    location.applied()
    ran = look(location)
    with changing(location):
        tick = look(location, ran.cursor)
        first = look(location)
    assert first.asset_events == []
    assert tick.asset_events == []
    assert tick.skip_message.startswith("The target is being changed: pid ")
    assert tick.cursor == ran.cursor


def test_the_status_sensor_is_off_on_an_embedded_target_and_on_where_jobs_run_alone(location: Location) -> None:
    from streamform_dagster import StreamformProject, build_streamform_defs

    cluster = build_streamform_defs(StreamformProject(location.shop, target="cluster"))
    assert location.definitions().resolve_sensor_def(SENSOR).default_status == dg.DefaultSensorStatus.STOPPED
    assert cluster.resolve_sensor_def("streamform__shop__cluster__status_sensor").default_status == dg.DefaultSensorStatus.RUNNING
