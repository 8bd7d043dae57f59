"""The resource: what an op of yours calls to plan, apply, test or stop a project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from streamform import api
from streamform.results import ApplyResult, PlanResult, StatusResult, TestReport
from streamform_dagster.assets import bound_of
from streamform_dagster.deploy import deploy
from streamform_dagster.identity import person_of, run_of
from streamform_dagster.project import StreamformProject

LOCK_WAIT_S = 120.0


class StreamformResource(dg.ConfigurableResource[Any]):
    """A project on a target, as ops use it."""

    project_dir: str
    target: str | None = None
    lock_wait_s: float = LOCK_WAIT_S
    """How long a run waits while another process changes the target."""

    @classmethod
    def for_project(cls, project: StreamformProject, **settings: Any) -> StreamformResource:
        """The resource of a project."""
        return cls(project_dir=str(project.dir), target=project.target, **settings)

    def apply(self, context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        """The body of `@streamform_assets`: plan the unit, ask the gate, carry out what it lets through, report."""
        yield from deploy(context, bound_of(context.assets_def), lock_wait_s=self.lock_wait_s)

    def plan(self) -> PlanResult:
        """Compare what runs with the project, and look at the target."""
        return api.plan(Path(self.project_dir), target=self.target, observe=True, policy=api.strict_policy())

    def status(self) -> StatusResult:
        """Look at what runs."""
        return api.status(Path(self.project_dir), target=self.target)

    def test(self, model: str | None = None) -> TestReport:
        """Run fixtures in the simulator."""
        return api.test(Path(self.project_dir), model=model)

    def stop(self, context: dg.OpExecutionContext, unit: str | None = None, *, discard_state: bool = False) -> ApplyResult:
        """Stop units; discarding state asks the gate."""
        by = person_of(context.instance, run_of(context)).name
        return api.stop(
            Path(self.project_dir), target=self.target, unit=unit, discard_state=discard_state, by=by, policy=api.strict_policy()
        )
