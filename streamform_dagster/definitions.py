"""build_streamform_defs: everything that Dagster needs to operate projects."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from streamform.catalog import CatalogUnit
from streamform.errors import UsageError
from streamform_dagster.approval import approvals_spec, build_decide_job
from streamform_dagster.assets import ProjectSpecs, build_specs, record_spec, unit_assets
from streamform_dagster.checks import build_fixture_checks, build_plan_check
from streamform_dagster.jobs import build_apply_job, build_plan_check_job, build_plan_check_schedule, build_stop_job
from streamform_dagster.problems import build_problems
from streamform_dagster.project import StreamformProject
from streamform_dagster.resource import StreamformResource
from streamform_dagster.running import build_running_check
from streamform_dagster.sensor import Launches, build_approval_sensor
from streamform_dagster.status_sensor import build_status_sensor
from streamform_dagster.translator import DagsterStreamformTranslator


def build_streamform_defs(
    *projects: StreamformProject,
    translator: DagsterStreamformTranslator | None = None,
    key_prefix: str | Sequence[str] | None = None,
    resource: StreamformResource | None = None,
) -> dg.Definitions:
    """Assets, checks, jobs, the schedule and the sensors of one project, or of several that share a code location.

    A project that does not compile still gives definitions, with an asset that shows why. `key_prefix` is for projects
    that were given none.
    Raises: UsageError when no project is given, or when two would have assets of the same keys.
    """
    if not projects:
        raise UsageError("build_streamform_defs was given no project", 'pass StreamformProject("path/to/project", target="...")')
    chosen = translator or DagsterStreamformTranslator()
    parts = [_ProjectDefs(project.with_prefix(key_prefix), chosen, resource) for project in projects]
    refuse_collisions(parts)
    return dg.Definitions.merge(*(part.definitions() for part in parts))


class _ProjectDefs:
    """The definitions of one project."""

    def __init__(
        self, project: StreamformProject, translator: DagsterStreamformTranslator, resource: StreamformResource | None = None
    ) -> None:
        self.project = project
        self.specs = build_specs(project, translator) if project.is_loaded else ProjectSpecs({}, {})
        self.keys = {name: spec.key for name, spec in self.specs.models.items()}
        self.given_resource = resource

    @property
    def asset_keys(self) -> set[dg.AssetKey]:
        """Every key that no other project may have."""
        return {self.project.record_key, self.project.approvals_key, *self.keys.values(), *(s.key for s in self.specs.sources.values())}

    def definitions(self) -> dg.Definitions:
        """All of it; only the problems where the documents do not load."""
        problems = self.project.problems
        broken = [] if problems is None else [build_problems(self.project, problems)]
        if not self.project.is_loaded:
            return dg.Definitions(assets=broken)
        units = [self.unit(unit) for unit in self.project.catalog.units]
        external = [*self.specs.sources.values(), record_spec(self.project), approvals_spec(self.project)]
        return dg.Definitions.merge(dg.Definitions(assets=[*external, *broken, *units]), self.operations())

    @property
    def resource(self) -> StreamformResource:
        return self.given_resource or StreamformResource.for_project(self.project)

    def unit(self, unit: CatalogUnit) -> dg.AssetsDefinition:
        """The assets of one unit."""
        resource_key = self.project.resource_key

        @unit_assets(self.project, unit, self.specs, required_resource_keys={resource_key})
        def apply_unit(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
            bound: StreamformResource = getattr(context.resources, resource_key)
            yield from bound.apply(context)

        return apply_unit

    def operations(self) -> dg.Definitions:
        """Checks, jobs, the schedule and the sensors; a project without a model that compiles has no apply."""
        looks = [build_plan_check(self.project), build_running_check(self.project)]
        plan_check_job = build_plan_check_job(self.project, *looks)
        resource = self.resource
        jobs = [plan_check_job, build_decide_job(self.project), build_stop_job(self.project, resource.lock_wait_s)]
        sensors = [build_status_sensor(self.project)]
        if self.keys:
            apply_job = build_apply_job(self.project, self.keys.values())
            sensors.append(build_approval_sensor(Launches(self.project, self.keys, apply_job, jobs[-1])))
            jobs.append(apply_job)
        return dg.Definitions(
            asset_checks=[*looks, *([build_fixture_checks(self.project, self.keys)] if self.keys else [])],
            jobs=jobs,
            schedules=[build_plan_check_schedule(self.project, plan_check_job)],
            sensors=sensors,
            resources={self.project.resource_key: resource},
        )


def refuse_collisions(parts: Sequence[_ProjectDefs]) -> None:
    """Raise UsageError naming two projects whose assets would have the same keys."""
    owners: dict[dg.AssetKey, StreamformProject] = {}
    for part in parts:
        for asset in part.asset_keys:
            if (other := owners.setdefault(asset, part.project)) is not part.project:
                raise UsageError(
                    f"the projects {other.dir} and {part.project.dir} would both have the asset {asset.to_user_string()}",
                    "give one of them another key_prefix: StreamformProject(dir, target, key_prefix=[...])",
                )
