"""Materializing: the first apply, the one that changes nothing, the one that is blocked, and what each writes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pytest
import yaml

from streamform import api
from streamform.errors import LockHeld
from streamform.lifecycle.ports import Progress
from streamform_dagster.metadata import digest, record_document

from .conftest import WORDS, Location, failure_of

MODELS = ("big_customers", "clean_orders", "customer_metrics")


def test_the_first_apply_materializes_every_model_and_the_record(location: Location) -> None:
    location.applied()
    for model in MODELS:
        (metadata,) = location.materializations("local", model)
        assert metadata["streamform/outcome"] == "applied"
        assert metadata["streamform/verdict"] == "SAFE"
        assert metadata["streamform/unit"] == "big_customers"
    (record,) = location.materializations("local", "_record")
    assert record["streamform/seq"] == 1
    assert "streamform/previous_record_digest" not in record
    assert record["streamform/record_digest"] == digest(location.record() or "")
    assert record_document(record["streamform/record"]) == json.loads(location.record() or "")


def test_the_sink_holds_rows_after_the_first_apply(location: Location) -> None:
    location.applied()
    assert len(location.rows()) > 50


def test_an_apply_that_changes_nothing_logs_one_observation_and_materializes_no_model(location: Location) -> None:
    location.applied()
    before = location.record()
    location.applied()
    assert [len(location.materializations("local", model)) for model in (*MODELS, "_record")] == [1, 1, 1, 1]
    (observation,) = location.observations("local", "_record")
    assert observation["streamform/outcome"] == "unchanged"
    assert location.record() == before
    assert location.attempts() == 1


def test_an_apply_that_changes_nothing_writes_no_other_event(location: Location) -> None:
    location.applied()
    written = [e.event_type_value for e in location.applied().all_events if e.event_type_value.startswith("ASSET_")]
    assert [name for name in written if not name.endswith("_PLANNED")] == ["ASSET_OBSERVATION"]


def test_new_events_are_consumed_without_a_materialization(location: Location) -> None:
    location.applied()
    before = location.rows()
    newest = max(json.loads(line)["ordered_at"] for line in (location.shop / "data" / "orders.jsonl").read_text().splitlines())
    order = {"order_id": 10**9, "customer_id": 10**6, "amount": "12.50", "status": "paid", "ordered_at": newest}
    with (location.shop / "data" / "orders.jsonl").open("a") as file:
        file.write(json.dumps(order) + "\n")
    location.applied()
    assert len(location.rows()) == len(before) + 1
    assert len(location.materializations("local", "customer_metrics")) == 1


def test_a_change_that_costs_something_blocks_and_touches_nothing(location: Location) -> None:
    location.applied()
    record, rows = location.record(), location.rows()
    location.add_metric()
    result = location.apply()
    assert not result.success
    description, metadata = failure_of(result)
    assert len(description) <= 200
    assert description.startswith(WORDS)
    assert metadata["streamform/verdict"] == WORDS
    assert metadata["streamform/requires"] == WORDS
    assert metadata["streamform/acknowledge"] == WORDS
    assert metadata["streamform/plan_id"] == location.waiting_plan()
    assert "| `customer_metrics::aggregate::" in metadata["streamform/plan_diff"]
    assert len(metadata["streamform/plan_diff"].encode()) <= 50_000
    assert "replay-from-earliest" in metadata["streamform/consequences"]
    assert (location.record(), location.rows(), location.attempts()) == (record, rows, 1)


def test_a_blocked_run_says_on_the_plan_check_what_waits(blocked: Location) -> None:
    evaluation = blocked.check("plan", "local", "_record")
    assert not evaluation.passed
    assert blocked.waiting_plan() in evaluation.description


def test_a_blocked_run_gives_the_plan_a_partition(blocked: Location) -> None:
    assert blocked.partitions() == [blocked.waiting_plan()]


def test_the_approve_link_fills_in_plan_and_decision_alone(waiting: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFORM_DAGSTER_URL", "https://dagster.example/base/")
    _, metadata = failure_of(waiting.apply())
    address = urlsplit(metadata["streamform/approve_url"])
    plan = waiting.waiting_plan()
    assert (address.scheme, address.netloc) == ("https", "dagster.example")
    assert address.path == "/base/locations/__repository__@definitions.py/jobs/streamform__shop__local__decide/playground/setup"
    query = parse_qs(address.query)
    assert yaml.safe_load(query["config"][0]) == {"ops": {"decide__shop__local": {"config": {"plan": plan, "decision": "approve"}}}}
    assert (query["tags[0][key]"], query["tags[0][value]"]) == (["dagster/partition"], [plan])
    assert query["config"][0] in metadata["streamform/approve_yaml"]


def test_without_a_configured_address_the_link_goes_to_the_local_web_server(waiting: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMFORM_DAGSTER_URL", raising=False)
    _, metadata = failure_of(waiting.apply())
    assert metadata["streamform/approve_url"].startswith("http://localhost:3000/locations/")


def test_the_records_are_chained(blocked: Location) -> None:
    blocked.decide(blocked.waiting_plan(), acknowledge=WORDS)
    blocked.applied()
    first, second = blocked.materializations("local", "_record")
    assert (first["streamform/seq"], second["streamform/seq"]) == (1, 2)
    assert second["streamform/previous_record_digest"] == first["streamform/record_digest"]
    assert second["streamform/record_digest"] == digest(blocked.record() or "")
    assert second["streamform/approved_by"] == "nobody known"


def test_what_the_command_line_applied_is_mirrored_once(location: Location) -> None:
    api.apply(location.shop, target="local", by="somebody")
    location.applied()
    (record,) = location.materializations("local", "_record")
    assert record["streamform/adopted_from"] == "the store"
    assert record["streamform/record_digest"] == digest(location.record() or "")
    assert [len(location.materializations("local", model)) for model in MODELS] == [1, 1, 1]
    location.applied()
    assert len(location.materializations("local", "_record")) == 1
    assert [len(location.materializations("local", model)) for model in MODELS] == [1, 1, 1]


def test_a_record_that_the_command_line_replaced_shows_as_a_gap_in_the_chain(location: Location) -> None:
    location.applied()
    location.add_metric()
    api.apply(location.shop, target="local", by="somebody", policy=None)
    plan = location.waiting_plan()
    api.decide(location.shop, [plan], "approve", by="somebody", reason="wanted", acknowledge=WORDS)
    api.apply(location.shop, target="local", by="somebody")
    between = digest(location.record() or "")
    location.edit("customer_metrics", "MAX(amount) AS biggest", "MAX(amount) AS biggest, MIN(amount) AS smallest")
    location.apply()
    location.decide(location.waiting_plan(), acknowledge=WORDS)
    location.applied()
    first, second = location.materializations("local", "_record")
    assert second["streamform/seq"] == 2
    assert second["streamform/previous_record_digest"] == between != first["streamform/record_digest"]


def test_wiped_assets_are_mirrored_again_and_nothing_is_applied(location: Location) -> None:
    location.applied()
    keys = [dg.AssetKey(["local", name]) for name in (*MODELS, "_record")]
    location.instance.wipe_assets(keys)
    location.applied()
    assert location.attempts() == 1
    (record,) = location.materializations("local", "_record")
    assert record["streamform/adopted_from"] == "the store"


def test_a_reported_materialization_is_no_link_of_the_chain(location: Location) -> None:
    location.applied()
    forged = dg.AssetMaterialization(["local", "_record"], metadata={"streamform/seq": 99, "streamform/record_digest": "f" * 64})
    location.instance.report_runless_asset_event(forged)
    location.applied()
    assert len(location.materializations("local", "_record")) == 2
    assert len(location.observations("local", "_record")) == 1


def test_a_deleted_run_does_not_shorten_the_chain(blocked: Location) -> None:
    plan = blocked.waiting_plan()
    blocked.decide(plan, acknowledge=WORDS)
    blocked.instance.delete_run(blocked.applied().run_id)
    blocked.edit("customer_metrics", "MAX(amount) AS biggest", "MAX(amount) AS biggest, MIN(amount) AS smallest")
    blocked.apply()
    blocked.decide(blocked.waiting_plan(), acknowledge=WORDS)
    blocked.applied()
    assert blocked.materializations("local", "_record")[-1]["streamform/seq"] == 3


def test_of_two_applies_at_once_one_is_refused(location: Location) -> None:
    location.lock_wait_s = 0.0
    inside, done = threading.Event(), threading.Event()
    results: list[Any] = []

    def hold(plan: Any) -> None:
        inside.set()
        assert done.wait(60)

    worker = threading.Thread(target=lambda: results.append(api.apply(location.shop, target="local", by="", on_plan=hold)))
    worker.start()
    assert inside.wait(60)
    try:
        result = location.apply()
    finally:
        done.set()
        worker.join()
    description, _ = failure_of(result)
    assert description.startswith("another streamform is changing this target")
    assert (results[0].outcome, location.attempts()) == ("applied", 1)


def test_a_run_waits_for_another_apply_to_end(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamform_dagster.deploy.LOOK_AGAIN_S", 0.01)
    calls: list[int] = []
    real = api.apply

    def busy_twice(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise LockHeld("another streamform is changing this target: pid 1")
        return real(*arguments, **options)

    monkeypatch.setattr("streamform_dagster.deploy.api.apply", busy_twice)
    location.applied()
    assert len(calls) == 3


def _cut_off_backfill(location: Location) -> None:
    """The shop with an approved backfill that was interrupted on the command line when its state was there."""
    location.applied()
    location.add_metric()
    assert api.apply(location.shop, target="local", by="somebody").outcome == "blocked"
    api.decide(location.shop, [location.waiting_plan()], "approve", by="somebody", reason="wanted", acknowledge=WORDS)

    def interrupt(event: Progress) -> None:
        if event.stage == "repair-sink":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.apply(location.shop, target="local", by="somebody", progress=interrupt)


def test_an_apply_that_was_cut_off_is_finished_and_mirrored_by_the_next_run(location: Location) -> None:
    _cut_off_backfill(location)
    before = location.record()
    location.applied()
    assert location.record() != before
    _, record = location.materializations("local", "_record")
    assert record["streamform/record_digest"] == digest(location.record() or "")
    assert [len(location.materializations("local", model)) for model in MODELS] == [2, 2, 2]
    assert location.attempts() == 2
    assert all("biggest" in row for row in location.rows())


def test_a_record_that_finishing_an_earlier_attempt_wrote_is_mirrored_though_the_plan_is_blocked_now(location: Location) -> None:
    _cut_off_backfill(location)
    location.edit("clean_orders", "status <> 'test'", "status = 'paid'")
    assert not location.apply().success
    _, record = location.materializations("local", "_record")
    assert record["streamform/record_digest"] == digest(location.record() or "")


def test_a_record_that_the_command_line_wrote_is_mirrored_by_the_next_run(location: Location) -> None:
    api.apply(location.shop, target="local", by="somebody")
    location.applied()
    (record,) = location.materializations("local", "_record")
    assert record["streamform/record_digest"] == digest(location.record() or "")


def test_runs_are_tagged_with_project_and_target(location: Location) -> None:
    tags = location.tags(location.applied())
    assert (tags["streamform/app"], tags["streamform/target"]) == ("shop", "local")


def test_a_project_that_no_longer_compiles_fails_the_run_with_its_diagnostics(location: Location) -> None:
    location.applied()
    definitions = location.definitions()
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    job = definitions.resolve_job_def("streamform__shop__local__apply")
    result = job.execute_in_process(instance=location.instance, raise_on_error=False)
    description, metadata = failure_of(result)
    assert "amuont" in description
    assert "models/customer_metrics.sql" in metadata["streamform/problems"]
    assert location.tags(result)["dagster/max_retries"] == "0"
    assert location.attempts() == 1


def test_the_run_says_when_the_code_location_shows_something_else(location: Location, capsys: pytest.CaptureFixture[str]) -> None:
    definitions = location.definitions()
    location.edit("clean_orders", "status <> 'test'", "status <> 'trial'")
    definitions.resolve_job_def("streamform__shop__local__apply").execute_in_process(instance=location.instance)
    assert "Reload the code location." in capsys.readouterr().err
    location.applied()
    assert "Reload the code location." not in capsys.readouterr().err


@pytest.fixture
def two_units(location: Location) -> Location:
    (location.shop / "models" / "large_orders.sql").write_text("SELECT order_id, amount FROM source('orders') WHERE amount > 100\n")
    path = location.shop / "streamform.yml"
    sink = "  large_orders:\n    materialized: append\n    sink: {connector: file, path: out/large_orders.jsonl}\n\ntargets:\n"
    path.write_text(path.read_text().replace("targets:\n", sink, 1))
    return location


def test_each_unit_is_a_step(two_units: Location) -> None:
    steps = {event.step_key for event in two_units.applied().all_events if event.is_step_success}
    assert steps == {"apply__shop__local__big_customers", "apply__shop__local__large_orders"}
    assert [m["streamform/seq"] for m in two_units.materializations("local", "_record")] == [1, 2]


def test_a_unit_that_is_blocked_holds_up_no_other(two_units: Location) -> None:
    two_units.applied()
    two_units.add_metric()
    two_units.edit("large_orders", "order_id, amount", "order_id AS number, amount")
    two_units.edit("large_orders", "order_id AS number, amount", "order_id, amount")
    result = two_units.apply()
    failed = {event.step_key for event in result.all_events if event.is_step_failure}
    passed = {event.step_key for event in result.all_events if event.is_step_success}
    assert failed == {"apply__shop__local__big_customers"}
    assert passed == {"apply__shop__local__large_orders"}


def test_one_unit_can_be_applied_alone(two_units: Location) -> None:
    result = two_units.apply(asset_selection=[dg.AssetKey(["local", "large_orders"])])
    assert result.success
    assert two_units.materializations("local", "customer_metrics") == []


def test_a_run_of_everything_ends_units_whose_models_are_gone(two_units: Location) -> None:
    two_units.applied()
    (two_units.shop / "models" / "large_orders.sql").unlink()
    path = two_units.shop / "streamform.yml"
    text = path.read_text()
    start = text.index("  large_orders:")
    path.write_text(text[:start] + text[text.index("targets:\n") :])
    result = two_units.apply()
    if not result.success:
        plan = two_units.waiting_plan()
        two_units.decide(plan, acknowledge=failure_of(result)[1].get("streamform/acknowledge", ""))
        (request,) = two_units.tick().run_requests
        assert request.asset_selection is None
        assert two_units.launch(request).success
    assert "large_orders" not in (two_units.record() or "")
    assert "large_orders" not in two_units.materializations("local", "_record")[-1]["streamform/record"]["manifest"]


def test_a_stop_that_discards_state_is_asked_for_and_then_launched(location: Location) -> None:
    location.applied()
    config = {"ops": {"stop__shop__local": {"config": {"discard_state": True}}}}
    description, metadata = failure_of(location.run("stop", run_config=config))
    assert description.startswith("STATE INCOMPATIBLE")
    location.decide(location.waiting_plan(), acknowledge=metadata["streamform/acknowledge"])
    (request,) = location.tick().run_requests
    assert request.job_name == "streamform__shop__local__stop"
    assert location.launch(request).success
    assert location.attempts() == 2


def test_the_progress_of_an_apply_is_in_the_run_log(location: Location, capsys: pytest.CaptureFixture[str]) -> None:
    location.applied()
    assert "catch-up" in capsys.readouterr().err


def test_no_file_outside_the_project_is_touched(location: Location, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    location.applied()
    assert set(tmp_path.iterdir()) == before
