"""Approvals through Dagster: the decide job, the sensor, and everything that must not open the gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from streamform import api
from streamform.errors import UsageError

from .conftest import WORDS, Location, failure_of

RETRIES = "run_retries: {enabled: true, max_retries: 2}\n"
APPROVALS = ("streamform", "approvals", "shop", "local")


def test_a_wrong_acknowledgement_is_refused(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    result = waiting.decide(plan, acknowledge="yes")
    description, _ = failure_of(result)
    assert "acknowledge" in description
    assert waiting.waiting_plan() == plan
    assert waiting.materializations(*APPROVALS) == []
    assert waiting.tick().run_requests == []


def test_an_approval_is_written_to_the_store_and_logged_in_its_partition(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    assert waiting.decide(plan, acknowledge=WORDS).success
    (view,) = waiting.pending()
    assert view.status == "approved"
    (event,) = waiting.materializations(*APPROVALS)
    assert (event["streamform/plan_id"], event["streamform/decision"], event["streamform/status"]) == (plan, "approve", "approved")
    assert event["streamform/subject"]["target"] == "local"
    assert waiting.instance.get_materialized_partitions(dg.AssetKey(APPROVALS)) == {plan}


def test_the_sensor_asks_for_exactly_one_run(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.decide(plan, acknowledge=WORDS)
    (decision,) = waiting.pending()[0].plan.decisions
    tick = waiting.tick()
    (request,) = tick.run_requests
    assert request.run_key == f"{plan}@{decision.at_ms}"
    assert request.job_name == "streamform__shop__local__apply"
    assert {key.path[-1] for key in request.asset_selection} == {"big_customers", "clean_orders", "customer_metrics"}
    assert request.tags["streamform/plan_id"] == plan
    again = waiting.tick(tick.cursor)
    assert again.run_requests == []
    assert "was requested already" in again.skip_message


def test_the_run_that_the_sensor_asks_for_applies_and_repairs_the_rows(blocked: Location) -> None:
    assert "biggest" not in blocked.rows()[0]
    blocked.decide(blocked.waiting_plan(), acknowledge=WORDS)
    (request,) = blocked.tick().run_requests
    assert blocked.launch(request).success
    rows = blocked.rows()
    assert all("biggest" in row for row in rows)
    assert len(rows) > 50
    (view,) = blocked.pending()
    assert view.status == "consumed"
    assert blocked.tick().skip_message == "No plan waits for a decision."
    assert blocked.check("plan", "local", "_record").passed


def test_an_approval_is_good_for_one_apply(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.decide(plan, acknowledge=WORDS)
    waiting.applied()
    result = waiting.decide(plan, acknowledge=WORDS)
    assert failure_of(result)[0].startswith(f"plan {plan} was applied already")


def test_approved_on_the_command_line_applied_in_dagster(waiting: Location) -> None:
    api.decide(waiting.shop, [waiting.waiting_plan()], "approve", by="user-a", reason="wanted", acknowledge=WORDS)
    (request,) = waiting.tick().run_requests
    assert request.tags["streamform/approved_by"] == "user-a"
    assert waiting.launch(request).success
    assert waiting.materializations("local", "_record")[-1]["streamform/approved_by"] == "user-a"


def test_a_plan_has_the_same_id_in_the_projects_folder_and_in_dagster(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(location.shop)
    here = Path()
    api.apply(here, target="local", by="user-a")
    location.add_metric()
    assert api.apply(here, target="local", by="user-a").outcome == "blocked"
    api.decide(here, [location.waiting_plan()], "approve", by="user-a", reason="wanted", acknowledge=WORDS)
    location.applied()
    assert "biggest" in location.rows()[0]


def test_approved_in_dagster_applied_on_the_command_line(waiting: Location) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    assert api.apply(waiting.shop, target="local", by="user-a").outcome == "applied"
    assert "biggest" in waiting.rows()[0]
    assert waiting.tick().run_requests == []


def test_a_plan_that_the_command_line_registered_gets_a_partition_from_the_sensor(location: Location) -> None:
    location.applied()
    location.add_metric()
    api.apply(location.shop, target="local", by="user-a")
    (request,) = location.tick().dynamic_partitions_requests
    assert list(request.partition_keys) == [location.waiting_plan()]


def test_a_second_edit_makes_the_approval_stale(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.decide(plan, acknowledge=WORDS)
    (request,) = waiting.tick().run_requests
    rows = waiting.rows()
    waiting.edit("customer_metrics", "MAX(amount) AS biggest", "MIN(amount) AS smallest")
    _, metadata = failure_of(waiting.launch(request))
    assert metadata["streamform/plan_id"] == waiting.waiting_plan() != plan
    assert waiting.rows() == rows
    assert {view.plan.plan_id: view.status for view in waiting.pending()}[plan] == "stale"
    assert failure_of(waiting.decide(plan, acknowledge=WORDS))[0].startswith(f"plan {plan} is stale")


def test_editing_back_finds_nothing_to_do_and_leaves_the_approval_unused(waiting: Location) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    waiting.edit("customer_metrics", ", MAX(amount) AS biggest", "")
    waiting.applied()
    assert waiting.attempts() == 1


def test_a_rejected_plan_stays_blocked_and_says_so(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    assert waiting.decide(plan, "reject").success
    description, _ = failure_of(waiting.apply())
    assert "rejected" in description
    assert waiting.tick().run_requests == []


def test_a_revoked_approval_lets_nothing_through(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.decide(plan, acknowledge=WORDS)
    assert waiting.decide(plan, "revoke").success
    assert waiting.tick().run_requests == []
    assert not waiting.apply().success


def test_an_approval_after_a_revocation_asks_for_another_run(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.decide(plan, acknowledge=WORDS)
    first = waiting.tick()
    waiting.decide(plan, "revoke")
    waiting.decide(plan, acknowledge=WORDS)
    (request,) = waiting.tick(first.cursor).run_requests
    assert request.run_key != first.run_requests[0].run_key


def test_a_decision_in_the_partition_of_another_plan_is_refused(waiting: Location) -> None:
    plan = waiting.waiting_plan()
    waiting.instance.add_dynamic_partitions("streamform_plans__shop__local", ["0" * 16])
    result = waiting.decide(plan, acknowledge=WORDS, partition="0" * 16)
    assert failure_of(result)[0].startswith("the partition is 0000000000000000")
    assert waiting.waiting_plan() == plan


def test_a_decision_about_a_plan_that_nobody_registered_is_refused(waiting: Location) -> None:
    waiting.instance.add_dynamic_partitions("streamform_plans__shop__local", ["0" * 16])
    assert failure_of(waiting.decide("0" * 16, acknowledge=WORDS))[0].startswith("no plan `0000000000000000` is registered")


def test_a_decision_that_is_none_does_not_start(waiting: Location) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        waiting.decide(waiting.waiting_plan(), "perhaps")


def test_a_reported_decision_opens_nothing(waiting: Location) -> None:
    forged = dg.AssetMaterialization(
        list(APPROVALS), partition=waiting.waiting_plan(), metadata={"streamform/decision": "approve", "streamform/status": "approved"}
    )
    waiting.instance.report_runless_asset_event(forged)
    assert waiting.tick().run_requests == []
    assert not waiting.apply().success


def test_run_tags_open_nothing(waiting: Location) -> None:
    tags = {"streamform/approved_by": "user-a", "streamform/plan_id": waiting.waiting_plan(), "streamform/user": "user-a"}
    assert not waiting.apply(tags=tags).success


@pytest.mark.parametrize(
    "cursor", ["", "garbage", "[]", "7", "null", '{"v": 2, "asked": []}', '{"v": 1}', '{"v": 1, "asked": 3}', '{"v": 1, "asked": [[]]}']
)
def test_a_cursor_that_cannot_be_read_counts_as_none(waiting: Location, cursor: str) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    assert len(waiting.tick(cursor).run_requests) == 1


def test_the_cursor_forgets_what_is_over(waiting: Location) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    tick = waiting.tick()
    assert len(json.loads(tick.cursor)["asked"]) == 1
    waiting.applied()
    assert json.loads(waiting.tick(tick.cursor).cursor)["asked"] == []


def test_a_tick_says_what_it_waits_for(waiting: Location) -> None:
    assert waiting.tick().skip_message == f"Waiting for a decision about {waiting.waiting_plan()}."


def test_a_tick_on_a_project_that_does_not_load_says_so(waiting: Location) -> None:
    definitions = waiting.definitions()
    (waiting.shop / "streamform.yml").write_text("name: [")
    sensor = definitions.resolve_sensor_def("streamform__shop__local__approval_sensor")
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=waiting.instance, cursor="kept"))
    assert tick.skip_message.startswith("The approvals can't be read: ")
    assert tick.cursor == "kept"


def test_run_retries_do_not_repeat_a_blocked_run(shop: Path, make_instance: Callable[[str], dg.DagsterInstance]) -> None:
    location = Location(shop, make_instance(RETRIES))
    location.applied()
    location.add_metric()
    tags = location.tags(location.apply())
    assert tags["dagster/max_retries"] == "0"
    assert tags["dagster/will_retry"] == "false"
    assert tags["streamform/blocked"] == location.waiting_plan()


def test_run_retries_repeat_a_run_that_found_the_target_locked(
    shop: Path, make_instance: Callable[[str], dg.DagsterInstance], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamform.errors import LockHeld

    location = Location(shop, make_instance(RETRIES))
    location.lock_wait_s = 0.0

    def locked(*arguments: object, **options: object) -> None:
        raise LockHeld("another streamform is changing this target: pid 1")

    monkeypatch.setattr("streamform_dagster.deploy.api.apply", locked)
    assert location.tags(location.apply())["dagster/will_retry"] == "true"


def test_a_refused_decision_is_not_retried(shop: Path, make_instance: Callable[[str], dg.DagsterInstance]) -> None:
    location = Location(shop, make_instance(RETRIES))
    location.applied()
    location.add_metric()
    location.apply()
    assert location.tags(location.decide(location.waiting_plan(), acknowledge="no"))["dagster/will_retry"] == "false"


def test_re_executing_a_run_that_applied_changes_nothing(waiting: Location) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    (request,) = waiting.tick().run_requests
    assert waiting.launch(request).success
    assert waiting.launch(request).success
    assert waiting.attempts() == 2


def test_a_target_without_a_policy_blocks_in_dagster_all_the_same(location: Location) -> None:
    path = location.shop / "streamform.yml"
    path.write_text(path.read_text().replace("    approvals: {above: SAFE}     # anything above SAFE waits for `streamform approve`\n", ""))
    assert "approvals: {above: SAFE}     #" not in path.read_text()
    location.applied()
    location.add_metric()
    assert not location.apply().success
    location.decide(location.waiting_plan(), acknowledge=WORDS)
    (request,) = location.tick().run_requests
    assert location.launch(request).success


def test_two_projects_with_the_same_keys_are_refused_together(shop: Path, tmp_path: Path) -> None:
    from streamform_dagster import StreamformProject, build_streamform_defs

    other = tmp_path / "other"
    api.init(other, dagster=True)
    with pytest.raises(UsageError, match="would both have the asset") as error:
        build_streamform_defs(StreamformProject(shop, "local"), StreamformProject(other, "local"))
    assert str(shop) in error.value.message
    assert str(other) in error.value.message
    assert "key_prefix" in (error.value.help or "")
