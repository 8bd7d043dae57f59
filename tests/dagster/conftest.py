"""A shop with its code location on a real SQLite instance of Dagster."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from streamform import api
from streamform.results import PendingView
from streamform_dagster import StreamformProject, StreamformResource, build_streamform_defs

PREFIX = "streamform__shop__local__"
DECIDE = "decide__shop__local"
WORDS = "BACKFILL REQUIRED"
DAGSTER_YAML = "telemetry: {enabled: false}\n"


class Location:
    """The shop, its definitions as they are on disk now, and what its runs wrote."""

    def __init__(self, shop: Path, instance: dg.DagsterInstance) -> None:
        self.shop, self.instance = shop, instance
        self.lock_wait_s = 10.0

    @property
    def project(self) -> StreamformProject:
        return StreamformProject(self.shop, target="local")

    def definitions(self) -> dg.Definitions:
        """The code location, loaded anew."""
        resource = StreamformResource.for_project(self.project, lock_wait_s=self.lock_wait_s)
        return build_streamform_defs(self.project, resource=resource)

    def run(self, job: str, **options: Any) -> dg.ExecuteInProcessResult:
        """Run one of the jobs."""
        name = job if job.startswith("__") else PREFIX + job
        return self.definitions().resolve_job_def(name).execute_in_process(instance=self.instance, raise_on_error=False, **options)

    def apply(self, **options: Any) -> dg.ExecuteInProcessResult:
        return self.run("apply", **options)

    def applied(self) -> dg.ExecuteInProcessResult:
        """Apply, and insist that it goes well."""
        result = self.apply()
        assert result.success
        return result

    def decide(
        self, plan: str, decision: str = "approve", *, acknowledge: str = "", partition: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Run the decide job."""
        config = {"plan": plan, "decision": decision, "reason": "the metric is wanted", "acknowledge": acknowledge}
        return self.run("decide", run_config={"ops": {DECIDE: {"config": config}}}, partition_key=partition or plan)

    def tick(self, cursor: str | None = None) -> Any:
        """Evaluate the approval sensor."""
        definitions = self.definitions()
        sensor = definitions.resolve_sensor_def(PREFIX + "approval_sensor")
        return sensor.evaluate_tick(
            dg.build_sensor_context(instance=self.instance, cursor=cursor, repository_def=definitions.get_repository_def())
        )

    def launch(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Execute what the sensor asked for."""
        assert request.job_name is not None
        selection = list(request.asset_selection) if request.asset_selection else None
        job = self.definitions().resolve_job_def(request.job_name)
        return job.execute_in_process(
            instance=self.instance, raise_on_error=False, run_config=request.run_config, tags=dict(request.tags), asset_selection=selection
        )

    # edits

    def edit(self, model: str, before: str, after: str) -> None:
        path = self.shop / "models" / f"{model}.sql"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    def add_metric(self) -> None:
        """An edit that needs a backfill."""
        self.edit("customer_metrics", "COUNT(*) AS orders", "COUNT(*) AS orders, MAX(amount) AS biggest")

    # what is there

    def record(self) -> str | None:
        path = self.shop / ".streamform" / "applied" / "local.json"
        return path.read_text() if path.exists() else None

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the sink, by customer."""
        with sqlite3.connect(self.shop / "out" / "shop.db") as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM customer_metrics ORDER BY customer_id")]

    def pending(self) -> list[PendingView]:
        return api.approvals(self.shop, target="local")[1]

    def waiting_plan(self) -> str:
        """The id of the only plan that waits."""
        (plan,) = [view.plan.plan_id for view in self.pending() if view.status == "pending"]
        return plan

    def attempts(self) -> int:
        return len(api.history(self.shop, target="local")[1])

    def materializations(self, *key: str) -> list[dict[str, Any]]:
        """Metadata of an asset's materializations, oldest first."""
        records = self.instance.fetch_materializations(dg.AssetKey(key), 100, ascending=True).records
        return [_metadata(record.asset_materialization) for record in records]

    def observations(self, *key: str) -> list[dict[str, Any]]:
        records = self.instance.fetch_observations(dg.AssetKey(key), 100, ascending=True).records
        return [_metadata(record.asset_observation) for record in records]

    def check(self, name: str, *key: str) -> Any:
        """The newest evaluation of a check."""
        record = self.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(dg.AssetKey(key), name))
        return None if record is None else record.event.dagster_event.event_specific_data  # type: ignore[union-attr]

    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions("streamform_plans__shop__local"))

    def tags(self, result: dg.ExecuteInProcessResult) -> dict[str, str]:
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return dict(run.tags)


def _metadata(event: Any) -> dict[str, Any]:
    return {name: value.value for name, value in event.metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, Any]]:
    """The description and metadata of the step that failed."""
    data = next(event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert data.user_failure_data is not None, data.error
    return data.user_failure_data.description or "", {name: value.value for name, value in data.user_failure_data.metadata.items()}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    api.init(folder, dagster=True)
    return folder


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose databases exist; copying it is faster than making one."""
    home = tmp_path_factory.mktemp("dagster_home")
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs(limit=1)
        instance.fetch_materializations(dg.AssetKey("none"), 1)
    return home


@pytest.fixture
def make_instance(tmp_path: Path, empty_home: Path) -> Iterator[Callable[..., dg.DagsterInstance]]:
    """Makes instances on SQLite, each in a home of its own; the argument is added to its dagster.yaml."""
    made: list[dg.DagsterInstance] = []

    def make(yaml: str = "") -> dg.DagsterInstance:
        home = shutil.copytree(empty_home, tmp_path / f"home{len(made)}")
        (home / "dagster.yaml").write_text(DAGSTER_YAML + yaml)
        made.append(dg.DagsterInstance.from_config(str(home)))
        return made[-1]

    yield make
    for instance in made:
        instance.dispose()


@pytest.fixture
def location(shop: Path, make_instance: Callable[[], dg.DagsterInstance]) -> Location:
    return Location(shop, make_instance())


@pytest.fixture
def blocked(location: Location) -> Location:
    """The shop, applied, edited, and blocked in a run."""
    location.applied()
    location.add_metric()
    assert not location.apply().success
    return location


@pytest.fixture
def waiting(location: Location) -> Location:
    """The shop with a plan that waits, all of it done without Dagster but for the plan's partition."""
    api.apply(location.shop, target="local", by="")
    location.add_metric()
    assert api.apply(location.shop, target="local", by="", policy=api.strict_policy()).outcome == "blocked"
    location.instance.add_dynamic_partitions("streamform_plans__shop__local", [location.waiting_plan()])
    return location
