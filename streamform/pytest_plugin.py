"""pytest collects a project's fixtures: every file below `tests/` of a folder with a streamform.yml is a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ENDINGS = (".yml", ".yaml")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A fixture file of a project."""
    project = _project_of(file_path) if file_path.suffix in ENDINGS else None
    if project is None:
        return None
    collected: FixtureFile = FixtureFile.from_parent(parent, path=file_path)
    collected.project = project
    return collected


def _project_of(path: Path) -> Path | None:
    """The project whose tests/ folder holds the file."""
    for folder in path.parents:
        if folder.name == "tests" and any((folder.parent / f"streamform{ending}").is_file() for ending in ENDINGS):
            return folder.parent
    return None


class FixtureFile(pytest.File):
    """One fixture file."""

    project: Path

    def collect(self) -> Iterable[pytest.Item]:
        """The one test that it is."""
        item: FixtureItem = FixtureItem.from_parent(self, name=self.path.stem)
        yield item


class FixtureFailed(Exception):
    """A fixture that does not hold; the message is the report."""


class FixtureItem(pytest.Item):
    """One fixture as a test."""

    def runtest(self) -> None:
        """Run it through the simulator."""
        from streamform import api
        from streamform.render.test import render_fixture

        assert isinstance(self.parent, FixtureFile)
        project = self.parent.project
        report = api.test(project, files=[self.path.relative_to(project).as_posix()])
        failing = [fixture for fixture in report.fixtures if not fixture.passed]
        if failing:
            raise FixtureFailed("\n".join(map(render_fixture, failing)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The report, or what is wrong with the project; not a stack of calls."""
        from streamform.errors import ProjectError, StreamformError
        from streamform.render.problems import render_diagnostics

        error = excinfo.value
        if isinstance(error, ProjectError):
            return render_diagnostics(error.diagnostics)
        if isinstance(error, FixtureFailed | StreamformError):
            return str(error)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, 0, f"fixture {self.name}"
