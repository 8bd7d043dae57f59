"""What a code location shows of a project, also of one that is broken."""

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import dagster as dg
import pytest

from streamform import api
from streamform.errors import UsageError
from streamform_dagster import (
    DagsterStreamformTranslator,
    ModelProps,
    SourceProps,
    StreamformProject,
    StreamformResource,
    build_streamform_defs,
    streamform_assets,
)

from .conftest import PREFIX, Location


@pytest.fixture
def project(shop: Path) -> StreamformProject:
    return StreamformProject(shop, target="local")


def specs_of(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_models_sources_record_and_approvals_are_assets(project: StreamformProject) -> None:
    assert set(specs_of(build_streamform_defs(project))) == {
        "local/big_customers",
        "local/clean_orders",
        "local/customer_metrics",
        "local/sources/orders",
        "local/_record",
        "streamform/approvals/shop/local",
    }


def test_lineage_follows_ref_and_source(project: StreamformProject) -> None:
    specs = specs_of(build_streamform_defs(project))
    reads = {name: [dep.asset_key.to_user_string() for dep in spec.deps] for name, spec in specs.items()}
    assert reads["local/clean_orders"] == ["local/sources/orders"]
    assert reads["local/customer_metrics"] == ["local/clean_orders"]
    assert reads["local/big_customers"] == ["local/customer_metrics"]


def test_a_model_shows_columns_sql_operators_kinds_and_group(project: StreamformProject) -> None:
    spec = specs_of(build_streamform_defs(project))["local/customer_metrics"]
    schema = spec.metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [
        ("customer_id", "int64"),
        ("total_spend", "decimal(38,2)"),
        ("orders", "int64"),
    ]
    assert "SUM(amount) AS total_spend" in (spec.description or "")
    assert "Aggregate\n  key=customer_id" in (spec.description or "")
    assert (spec.kinds, spec.group_name) == ({"streamform", "embedded"}, "shop")


def test_a_source_shows_its_columns(project: StreamformProject) -> None:
    spec = specs_of(build_streamform_defs(project))["local/sources/orders"]
    assert {column.name for column in spec.metadata["dagster/column_schema"].columns} >= {"order_id", "amount", "ordered_at"}
    assert spec.kinds == {"file"}


def test_the_code_version_moves_with_what_is_computed_alone(project: StreamformProject, shop: Path) -> None:
    def version() -> str | None:
        return specs_of(build_streamform_defs(StreamformProject(shop, "local")))["local/customer_metrics"].code_version

    before = version()
    edit(shop / "models" / "clean_orders.sql", "-- Orders that count", "-- The orders that count")
    assert version() == before
    edit(shop / "models" / "clean_orders.sql", "'test'", "'trial'")
    assert version() != before


def test_jobs_schedule_sensor_and_checks_have_their_names(project: StreamformProject) -> None:
    defs = build_streamform_defs(project)
    repository = defs.get_repository_def()
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    assert jobs == {PREFIX + verb for verb in ("apply", "plan_check", "decide", "stop")}
    assert {sensor.name for sensor in repository.sensor_defs} == {PREFIX + "approval_sensor", PREFIX + "status_sensor"}
    assert [schedule.name for schedule in repository.schedule_defs] == [PREFIX + "plan_check_schedule"]
    checks = {key.to_user_string() for key in repository.asset_graph.asset_check_keys}
    assert checks == {
        "local/_record:plan",
        "local/_record:running",
        "local/big_customers:fixtures",
        "local/clean_orders:fixtures",
        "local/customer_metrics:fixtures",
    }


def test_the_sensor_runs_and_the_schedule_does_not_until_somebody_turns_it_on(project: StreamformProject) -> None:
    defs = build_streamform_defs(project)
    assert defs.resolve_sensor_def(PREFIX + "approval_sensor").default_status == dg.DefaultSensorStatus.RUNNING
    assert defs.resolve_schedule_def(PREFIX + "plan_check_schedule").default_status == dg.DefaultScheduleStatus.STOPPED


def test_the_number_of_jobs_does_not_grow_with_models(project: StreamformProject, shop: Path) -> None:
    few = len(build_streamform_defs(project).get_repository_def().job_names)
    names = [f"copy_{number}" for number in range(20)]
    for name in names:
        (shop / "models" / f"{name}.sql").write_text("SELECT order_id FROM source('orders')\n")
    edit(shop / "streamform.yml", "\ntargets:", "".join(f"  {name}: {{materialized: append}}\n" for name in names) + "\ntargets:")
    defs = build_streamform_defs(StreamformProject(shop, "local"))
    assert len(specs_of(defs)) == 26
    assert len(defs.get_repository_def().job_names) == few


def test_a_unit_is_materialized_whole(project: StreamformProject) -> None:
    job = build_streamform_defs(project).resolve_implicit_global_asset_job_def()
    with pytest.raises(dg.DagsterInvalidSubsetError):
        job.get_subset(asset_selection={dg.AssetKey(["local", "clean_orders"])})


def test_the_target_may_be_left_out_where_there_is_one(shop: Path) -> None:
    path = shop / "streamform.yml"
    path.write_text(path.read_text().split("  cluster:")[0])
    assert StreamformProject(shop).target == "local"
    assert "local/clean_orders" in specs_of(build_streamform_defs(StreamformProject(shop)))


@pytest.mark.parametrize("prefix", [["team", "shop"], "team"])
def test_a_key_prefix_takes_the_place_of_the_target(shop: Path, prefix: str | list[str]) -> None:
    parts = [prefix] if isinstance(prefix, str) else prefix
    project = StreamformProject(shop, "local", key_prefix=prefix)
    keys = {spec.key for spec in build_streamform_defs(project).resolve_all_asset_specs()}
    assert dg.AssetKey([*parts, "clean_orders"]) in keys
    assert dg.AssetKey([*parts, "sources", "orders"]) in keys
    assert dg.AssetKey([*parts, "_record"]) in keys
    assert dg.AssetKey(["streamform", "approvals", "shop", "local"]) in keys


def test_two_projects_share_a_code_location(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    api.init(other)
    edit(other / "streamform.yml", "name: shop", "name: other-shop")
    defs = build_streamform_defs(StreamformProject(shop, "local"), StreamformProject(other, "local", key_prefix="other"))
    dg.Definitions.validate_loadable(defs)
    assert "streamform__other_shop__local__apply" in defs.get_repository_def().job_names
    assert {"local/_record", "other/_record"} <= set(specs_of(defs))


def test_two_projects_are_merged_with_definitions_of_others(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    api.init(other)
    edit(other / "streamform.yml", "name: shop", "name: other")

    @dg.asset(deps=[dg.AssetKey(["local", "customer_metrics"])])
    def report() -> None: ...

    parts = [StreamformProject(shop, "local"), StreamformProject(other, "local", key_prefix="other")]
    defs = dg.Definitions.merge(*map(build_streamform_defs, parts), dg.Definitions(assets=[report]))
    dg.Definitions.validate_loadable(defs)


def test_a_translator_changes_keys_everywhere_and_groups(project: StreamformProject) -> None:
    class Translator(DagsterStreamformTranslator):
        def get_asset_spec(self, props: ModelProps | SourceProps, project: StreamformProject) -> dg.AssetSpec:
            spec = super().get_asset_spec(props, project)
            if isinstance(props, SourceProps):
                return spec.replace_attributes(key=dg.AssetKey(["raw", props.source.name]))
            return spec.replace_attributes(key=spec.key.with_prefix("x"), group_name="metrics").merge_attributes(owners=["team:data"])

    specs = specs_of(build_streamform_defs(project, translator=Translator()))
    clean, metrics = specs["x/local/clean_orders"], specs["x/local/customer_metrics"]
    assert [dep.asset_key.to_user_string() for dep in clean.deps] == ["raw/orders"]
    assert [dep.asset_key.to_user_string() for dep in metrics.deps] == ["x/local/clean_orders"]
    assert (metrics.group_name, list(metrics.owners)) == ("metrics", ["team:data"])


def test_the_decorator_with_a_body_of_ones_own(location: Location) -> None:
    @streamform_assets(project=location.project, name="deploy_shop")
    def deploy_shop(context: dg.AssetExecutionContext, streamform: StreamformResource):  # type: ignore[no-untyped-def]
        yield from streamform.apply(context)

    resources = {"streamform": StreamformResource.for_project(location.project)}
    assert dg.materialize([deploy_shop], instance=location.instance, resources=resources).success
    assert len(location.materializations("local", "clean_orders")) == 1


def test_the_decorator_wants_a_unit_where_there_are_several(shop: Path) -> None:
    (shop / "models" / "large.sql").write_text("SELECT order_id FROM source('orders') WHERE amount > 100\n")
    edit(shop / "streamform.yml", "\ntargets:", "  large: {materialized: append}\n\ntargets:")
    project = StreamformProject(shop, "local")
    with pytest.raises(UsageError, match="has 2 units: big_customers, large"):
        streamform_assets(project=project)
    with pytest.raises(UsageError, match="no unit or model `lagre`"):
        streamform_assets(project=project, unit="lagre")

    @streamform_assets(project=project, unit="clean_orders")
    def shop_unit():  # type: ignore[no-untyped-def]
        yield

    assert {key.path[-1] for key in shop_unit.keys} == {"big_customers", "clean_orders", "customer_metrics"}


def test_the_resource_looks_at_a_project(location: Location) -> None:
    location.applied()
    resource = StreamformResource(project_dir=str(location.shop), target="local")
    assert resource.plan().diff.is_empty
    assert set(resource.status().observations) == {"big_customers"}
    assert resource.test("clean_orders").passed


def test_a_model_that_does_not_compile_leaves_the_others_and_a_visible_error(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit(shop / "models" / "customer_metrics.sql", "SUM(amount)", "SUM(amuont)")
    with caplog.at_level(logging.ERROR, "dagster.streamform"):
        defs = build_streamform_defs(StreamformProject(shop, "local"))
    dg.Definitions.validate_loadable(defs)
    specs = specs_of(defs)
    assert "local/clean_orders" in specs
    assert "local/customer_metrics" not in specs
    assert "models/customer_metrics.sql" in (specs["local/_problems"].description or "")
    assert "amuont" in caplog.text
    assert PREFIX + "decide" in defs.get_repository_def().job_names


def test_the_problems_asset_fails_until_the_project_compiles(location: Location) -> None:
    location.edit("customer_metrics", "SUM(amount)", "SUM(amuont)")
    defs = location.definitions()
    job = defs.resolve_implicit_global_asset_job_def()
    key = dg.AssetKey(["local", "_problems"])
    assert not job.execute_in_process(instance=location.instance, asset_selection=[key], raise_on_error=False).success
    location.edit("customer_metrics", "SUM(amuont)", "SUM(amount)")
    assert job.execute_in_process(instance=location.instance, asset_selection=[key]).success
    assert "local/_problems" not in specs_of(location.definitions())


@pytest.mark.parametrize(("text", "expected"), [("name: [", "streamform.yml"), ("", "streamform.yml")])
def test_documents_that_do_not_load_leave_a_visible_error(shop: Path, text: str, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    (shop / "streamform.yml").write_text(text)
    defs = build_streamform_defs(StreamformProject(shop, "local"))
    dg.Definitions.validate_loadable(defs)
    (spec,) = specs_of(defs).values()
    assert spec.key.path[-1] == "_problems"
    assert expected in (spec.description or "")
    assert expected in caplog.text


def test_a_folder_that_is_no_project_leaves_a_visible_error(tmp_path: Path) -> None:
    defs = build_streamform_defs(StreamformProject(tmp_path / "nothing", "local"))
    (spec,) = specs_of(defs).values()
    assert "no streamform.yml" in (spec.description or "")


def test_a_target_that_does_not_exist_leaves_a_visible_error(shop: Path) -> None:
    defs = build_streamform_defs(StreamformProject(shop, "prod"))
    (spec,) = specs_of(defs).values()
    assert "there is no target `prod`" in (spec.description or "")
    assert "cluster" in (spec.description or "")


def test_a_project_without_models_loads(shop: Path) -> None:
    for path in (shop / "models").iterdir():
        path.unlink()
    (shop / "streamform.yml").write_text("name: shop\nversion: 1\ntargets: {local: {backend: embedded, embedded: {state: s.db}}}\n")
    for path in (shop / "tests").iterdir():
        path.unlink()
    dg.Definitions.validate_loadable(build_streamform_defs(StreamformProject(shop, "local")))


def test_nothing_that_is_beta_or_deprecated_is_used(project: StreamformProject) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dg.Definitions.validate_loadable(build_streamform_defs(project))


def test_the_generated_definitions_file_loads_as_a_code_location_does(shop: Path) -> None:
    code = "import definitions; print(sorted(definitions.defs.get_repository_def().job_names))"
    done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=False)
    assert PREFIX + "apply" in done.stdout, done.stderr


def test_the_component_builds_the_same_definitions(shop: Path, tmp_path: Path) -> None:
    from dagster.components.testing import create_defs_folder_sandbox

    from streamform_dagster import StreamformProjectComponent

    with create_defs_folder_sandbox() as sandbox:
        attributes = {"project": str(shop), "target": "local", "key_prefix": ["team"]}
        path = sandbox.scaffold_component(
            component_cls=StreamformProjectComponent,
            defs_path="streaming",
            defs_yaml_contents={"type": "streamform_dagster.StreamformProjectComponent", "attributes": attributes},
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            assert "team/clean_orders" in specs_of(defs)
