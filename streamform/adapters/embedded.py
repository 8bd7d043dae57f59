"""The embedded backend: light to make, because a plan asks it little; what acts is loaded when something acts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from streamform.backends.base import CAPABILITIES
from streamform.errors import Refused
from streamform.lifecycle.ports import DesiredUnit, Observation, RunningUnit, StageContext
from streamform.lifecycle.stages import Carrying, Stage
from streamform.plan.nodes import Plan, SinkSpec, SourceSpec
from streamform.project.model import Endpoint, Project, Target

if TYPE_CHECKING:
    from streamform.adapters.embedded_runner import EmbeddedRunner

SOURCES, SINKS = frozenset({"file"}), frozenset({"file", "sqlite"})


class EmbeddedBackend:
    """Runs units in this process. The caller holds the target's lock while it changes anything."""

    capabilities = CAPABILITIES["embedded"]

    def __init__(self, project_dir: Path, project: Project, target: Target) -> None:
        self.project_dir, self.project, self.target = project_dir, project, target
        self.path = project_dir / (target.state or f".streamform/state/{target.name}.db")

    @cached_property
    def runner(self) -> EmbeddedRunner:
        """What looks and acts."""
        from streamform.adapters.embedded_runner import EmbeddedRunner

        return EmbeddedRunner(self.project_dir, self.project, self.target, self.path)

    def addresses(self) -> Mapping[str, str]:
        """Where the state is."""
        return {"state": Path(os.path.normpath(self.path.absolute())).as_posix()}

    def statements(self, project: Project, target: Target, unit: DesiredUnit) -> tuple[str, ...]:
        """Nothing is submitted. Raises: Refused for a connector that this backend lacks."""
        for subject, endpoint, able in _endpoints(unit.plan):
            if endpoint.connector not in able:
                raise Refused(
                    f"the embedded backend has no {endpoint.connector} connector for {subject}",
                    f"target `{target.name}` can move it with sources: or sinks: to {' or '.join(sorted(able))}, or use a flink target",
                )
            if endpoint.format != "json":
                raise Refused(f"the embedded backend reads and writes json, and {subject} is {endpoint.format}", "set format: json")
        return ()

    def observe(self, unit_name: str, running: RunningUnit | None) -> Observation:
        """Whether the state of what was applied is there."""
        return self.runner.observe(unit_name, running)

    def carry(self, unit: DesiredUnit, running: RunningUnit, carrying: Carrying, *, observe: bool) -> tuple[DesiredUnit, Carrying]:
        """State continues by the verdict."""
        raise AssertionError("an embedded target is not asked")

    def preflight(self, context: StageContext) -> None:
        """Refuse, before anything is written down, sources that can't be read and places that are somebody else's."""
        self.runner.preflight(context)

    def foreign_sinks(self, context: StageContext) -> tuple[str, ...]:
        """Models whose sinks hold rows that somebody else wrote."""
        return self.runner.foreign_sinks(context)

    def execute(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Carry out one stage."""
        return self.runner.execute(stage, context)

    def follow(self, contexts: Sequence[StageContext], stop: Event) -> None:
        """Go on consuming until told to stop; each step is durable when it ends."""
        self.runner.follow(contexts, stop)

    def has_acted(self, stage: Stage, context: StageContext) -> bool:
        """Whether a stage that was cut off changed the unit; a rebuild stands beside until the switch."""
        return self.runner.has_acted(stage, context)

    def compensate(self, context: StageContext, error: Exception) -> Mapping[str, Any] | None:
        """What is in use was not disturbed; what was being rebuilt is forgotten."""
        return self.runner.compensate(context, error)

    def close(self) -> None:
        """Release the state database."""
        if "runner" in self.__dict__:
            self.runner.close()


def _endpoints(plan: Plan) -> list[tuple[str, Endpoint, frozenset[str]]]:
    found: list[tuple[str, Endpoint, frozenset[str]]] = []
    for node in plan.nodes:
        if isinstance(node.spec, SourceSpec):
            found.append((f"source `{node.spec.source.name}`", node.spec.source.endpoint, SOURCES))
        elif isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None:
            found.append((f"the sink of `{node.model}`", node.spec.endpoint, SINKS))
    return found
