"""The Flink backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamform.backends.base import CAPABILITIES
from streamform.lifecycle.ports import DesiredUnit
from streamform.project.model import Project, Target


class FlinkBackend:
    capabilities = CAPABILITIES["flink"]

    def __init__(self, project_dir: Path, project: Project, target: Target) -> None:
        self.target = target

    def addresses(self) -> Mapping[str, str]:
        return {}

    def statements(self, project: Project, target: Target, unit: DesiredUnit) -> tuple[str, ...]:
        return ()

    def close(self) -> None: ...
