"""The plan check, its schedule, and fixtures as checks."""

from __future__ import annotations

import datetime

import dagster as dg
import pytest

from .conftest import PREFIX, WORDS, Location


def test_the_plan_check_passes_when_nothing_waits(location: Location) -> None:
    location.applied()
    assert location.run("plan_check").success
    evaluation = location.check("plan", "local", "_record")
    assert evaluation.passed
    assert evaluation.description == "verdict: SAFE. Nothing to change."
    assert "streamform/plan_diff" not in evaluation.metadata


def test_before_the_first_apply_the_plan_check_says_that_one_would_go_ahead(location: Location) -> None:
    location.run("plan_check")
    evaluation = location.check("plan", "local", "_record")
    assert evaluation.passed
    assert evaluation.description.endswith("An apply would go ahead.")
    assert location.record() is None


def test_the_plan_check_registers_what_waits(location: Location) -> None:
    location.applied()
    location.add_metric()
    assert location.run("plan_check").success
    evaluation = location.check("plan", "local", "_record")
    plan = location.waiting_plan()
    assert not evaluation.passed
    assert evaluation.metadata["streamform/plan_id"].value == plan
    assert "customer_metrics::aggregate" in evaluation.metadata["streamform/plan_diff"].value
    assert f"plan%3A%20%22{plan}" in evaluation.metadata["streamform/approve"].value
    assert location.partitions() == [plan]


def test_a_plan_that_the_check_registered_can_be_approved_and_applied(location: Location) -> None:
    location.applied()
    location.add_metric()
    location.run("plan_check")
    location.decide(location.waiting_plan(), acknowledge=WORDS)
    (request,) = location.tick().run_requests
    assert location.launch(request).success
    assert location.run("plan_check").success
    assert location.check("plan", "local", "_record").passed


def test_an_approved_plan_no_longer_waits(waiting: Location) -> None:
    waiting.decide(waiting.waiting_plan(), acknowledge=WORDS)
    waiting.run("plan_check")
    assert waiting.check("plan", "local", "_record").passed


def test_a_check_that_finds_the_same_again_registers_nothing_new(waiting: Location) -> None:
    before = waiting.waiting_plan()
    waiting.run("plan_check")
    waiting.run("plan_check")
    assert waiting.waiting_plan() == before
    assert [request.by for request in waiting.pending()[0].plan.requests] == [""]


def test_a_project_that_does_not_compile_fails_the_plan_check(location: Location) -> None:
    definitions = location.definitions()
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    job = definitions.resolve_job_def(PREFIX + "plan_check")
    assert job.execute_in_process(instance=location.instance).success
    evaluation = location.check("plan", "local", "_record")
    assert not evaluation.passed
    assert "amuont" in evaluation.metadata["streamform/problems"].value


def test_the_schedule_launches_the_plan_check(location: Location) -> None:
    schedule = location.definitions().resolve_schedule_def(PREFIX + "plan_check_schedule")
    context = dg.build_schedule_context(
        instance=location.instance, scheduled_execution_time=datetime.datetime(2026, 8, 30, 10, tzinfo=datetime.UTC)
    )
    (request,) = schedule.evaluate_tick(context).run_requests or []
    assert schedule.job_name == PREFIX + "plan_check"
    assert request.run_config == {}


def test_who_a_schedule_asks_for_is_the_system(location: Location) -> None:
    location.applied()
    location.add_metric()
    location.run("plan_check", tags={"dagster/schedule_name": PREFIX + "plan_check_schedule"})
    assert [request.by for request in location.pending()[0].plan.requests] == ["system"]


@pytest.fixture
def fixtures_job(location: Location) -> dg.JobDefinition:
    """All checks of models, as a location that was loaded before any edit has them."""
    models = [dg.AssetKey(["local", name]) for name in ("big_customers", "clean_orders", "customer_metrics")]
    job = dg.define_asset_job("fixtures", selection=dg.AssetSelection.checks_for_assets(*models))
    return dg.Definitions.merge(location.definitions(), dg.Definitions(jobs=[job])).resolve_job_def("fixtures")


def fixture_results(location: Location, job: dg.JobDefinition) -> dict[str, bool]:
    result = job.execute_in_process(instance=location.instance)
    return {evaluation.asset_key.path[-1]: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


def test_fixtures_pass(location: Location, fixtures_job: dg.JobDefinition) -> None:
    assert fixture_results(location, fixtures_job) == {"big_customers": True, "clean_orders": True, "customer_metrics": True}


def test_a_fixture_that_fails_fails_its_models_check_alone(location: Location, fixtures_job: dg.JobDefinition) -> None:
    location.edit("clean_orders", "amount IS NOT NULL", "amount IS NULL")
    results = fixture_results(location, fixtures_job)
    assert not results["clean_orders"]
    evaluation = location.check("fixtures", "local", "clean_orders")
    assert evaluation.description == "failing: tests/clean_orders.yml"
    assert "FAIL" in evaluation.metadata["streamform/report"].value


def test_a_fixture_that_no_longer_fits_its_model_fails_that_check_alone(location: Location, fixtures_job: dg.JobDefinition) -> None:
    location.add_metric()
    assert fixture_results(location, fixtures_job) == {"big_customers": True, "clean_orders": True, "customer_metrics": False}
    assert "biggest" in location.check("fixtures", "local", "customer_metrics").description


def test_a_project_that_does_not_compile_fails_every_fixture_check(location: Location, fixtures_job: dg.JobDefinition) -> None:
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    assert set(fixture_results(location, fixtures_job).values()) == {False}


def test_a_model_without_fixtures_says_so(location: Location, fixtures_job: dg.JobDefinition) -> None:
    (location.shop / "tests" / "clean_orders.yml").unlink()
    assert fixture_results(location, fixtures_job)["clean_orders"]
    assert location.check("fixtures", "local", "clean_orders").description == "no fixtures under tests/"
