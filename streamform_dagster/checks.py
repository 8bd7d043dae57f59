"""Checks: `fixtures` on every model, and `plan` on the record asset."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from streamform import api
from streamform.errors import ProjectError, StreamformError
from streamform.results import PlanResult, TestReport
from streamform_dagster.approval import add_plan_partitions, approve_url, failure_of
from streamform_dagster.events import problems_text, waiting_plans, waiting_text
from streamform_dagster.identity import person_of, run_of
from streamform_dagster.metadata import RawMetadata, cut_text, fenced, key, markdown
from streamform_dagster.project import StreamformProject

FIXTURES = "fixtures"


def build_fixture_checks(project: StreamformProject, keys: Mapping[str, dg.AssetKey]) -> dg.AssetChecksDefinition:
    """One check a model: its fixtures, run in the simulator."""
    specs = [
        dg.AssetCheckSpec(FIXTURES, asset=asset, description=f"Fixtures of `{model}`, in the simulator.") for model, asset in keys.items()
    ]

    @dg.multi_asset_check(name=project.op_name("fixtures"), specs=specs, can_subset=True)
    def fixtures(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        wanted = {check.asset_key for check in context.selected_asset_check_keys}
        models = [model for model, asset in keys.items() if asset in wanted]
        yield from _fixtures(project, models, keys)

    return fixtures


def _fixtures(project: StreamformProject, models: list[str], keys: Mapping[str, dg.AssetKey]) -> Iterator[dg.AssetCheckResult]:
    try:
        report = api.test(project.dir, model=models[0] if len(models) == 1 else None)
    except ProjectError:
        yield from (_fixtures_apart(project, model, keys[model]) for model in models)
        return
    except StreamformError as error:
        raise failure_of(error, allow_retries=False) from None
    for model in models:
        yield _fixture_result(keys[model], TestReport(tuple(f for f in report.fixtures if f.model == model), model))


def _fixtures_apart(project: StreamformProject, model: str, asset: dg.AssetKey) -> dg.AssetCheckResult:
    """The result of one model where something is wrong somewhere, maybe with the fixture of another one."""
    files = [fixture.path for fixture in api.check(project.dir).fixtures if fixture.model == model]
    try:
        report = api.test(project.dir, files=files) if files else api.test(project.dir, model=model)
    except ProjectError as error:
        return _result(asset, passed=False, description=error.message, metadata={key("problems"): markdown(fenced(problems_text(error)))})
    return _fixture_result(asset, report)


def _fixture_result(asset: dg.AssetKey, report: TestReport) -> dg.AssetCheckResult:
    from streamform.render.test import render_test

    failing = [fixture.path for fixture in report.fixtures if not fixture.passed]
    metadata: RawMetadata = {key("fixtures"): len(report.fixtures), key("failed"): len(failing)}
    if failing:
        metadata[key("report")] = markdown(fenced(render_test(report)))
    text = (
        f"failing: {', '.join(failing)}" if failing else f"{len(report.fixtures)} passed" if report.fixtures else "no fixtures under tests/"
    )
    return _result(asset, passed=report.passed, description=text, metadata=metadata)


def _result(asset: dg.AssetKey, *, passed: bool, description: str, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(asset_key=asset, check_name=FIXTURES, passed=passed, description=cut_text(description), metadata=metadata)


def build_plan_check(project: StreamformProject) -> dg.AssetChecksDefinition:
    """The check that compares what runs with the project, looks at the target, and registers plans that need an approval."""
    check = project.plan_check_key
    spec = dg.AssetCheckSpec(check.name, asset=check.asset_key, description="Whether a plan waits for a decision.")

    @dg.multi_asset_check(name=project.op_name("plan_check"), specs=[spec])
    def plan_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return _check_plan(context, project)

    return plan_check


def _check_plan(context: dg.AssetCheckExecutionContext, project: StreamformProject) -> dg.AssetCheckResult:
    run = run_of(context)
    try:
        plan = api.plan(
            project.dir,
            target=project.target,
            observe=True,
            policy=api.strict_policy(),
            requested_by=person_of(context.instance, run).name,
        )
    except ProjectError as error:
        metadata: RawMetadata = {key("problems"): markdown(fenced(problems_text(error)))}
        return dg.AssetCheckResult(passed=False, description=cut_text(error.message), metadata=metadata)
    except StreamformError as error:
        raise failure_of(error, allow_retries=True) from None
    waiting = waiting_plans(plan)
    add_plan_partitions(context.instance, project, waiting.values())
    links = [f"- [approve the plan of unit {unit}]({approve_url(project, run, plan_id)})" for unit, plan_id in waiting.items()]
    return dg.AssetCheckResult(passed=not waiting, description=_plan_text(plan, waiting), metadata=_plan_metadata(plan, waiting, links))


def _plan_text(plan: PlanResult, waiting: Mapping[str, str]) -> str:
    from streamform.render.diff import verdict_line

    acts = plan.situation is not None and any(unit.staging.changes for unit in plan.situation.units)
    state = waiting_text(waiting) if waiting else "An apply would go ahead." if acts else "Nothing to change."
    return cut_text(f"{verdict_line(plan.diff)}. {state}")


def _plan_metadata(plan: PlanResult, waiting: Mapping[str, str], links: list[str]) -> RawMetadata:
    from streamform.render.diff import diff_markdown

    metadata: RawMetadata = {key("verdict"): plan.diff.verdict.text}
    if waiting:
        metadata[key("plan_id")] = ", ".join(waiting.values())
        metadata[key("approve")] = markdown("\n".join(links))
    if not plan.diff.is_empty:
        metadata[key("plan_diff")] = markdown(diff_markdown(plan.diff))
    return metadata


__all__ = ["build_fixture_checks", "build_plan_check"]
