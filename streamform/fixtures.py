"""Fixtures of a project: found, checked against its models, and run. Part of the facade: api.py has the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamform.errors import UsageError

if TYPE_CHECKING:
    from streamform.diagnostics import Diagnostic
    from streamform.plan.compiled import Compiled
    from streamform.plan.nodes import Plan
    from streamform.project.load import Loaded
    from streamform.project.model import Source
    from streamform.simulator.fixture import Fixture
    from streamform.simulator.run import FixtureReport
    from streamform.values.rows import Row


def read_fixtures(loaded: Loaded) -> tuple[list[Fixture], list[Diagnostic]]:
    """Every fixture under tests/, and what is wrong with those that can't be read."""
    from streamform.simulator.fixture import parse_fixture

    fixtures: list[Fixture] = []
    broken: list[Diagnostic] = []
    for path in loaded.files.under("tests", ".yml", ".yaml"):
        parsed = parse_fixture(loaded.files.texts[path], path)
        if isinstance(parsed, list):
            broken.extend(loaded.files.shown(d) for d in parsed)
        else:
            fixtures.append(parsed)
    return fixtures, broken


def fixture_problems(fixtures: Sequence[Fixture], compiled: Compiled) -> Iterator[Diagnostic]:
    """What is wrong between fixtures and the models that they test."""
    from streamform.simulator.fixture import check_fixture

    names = [model.name for model in compiled.project.models]
    for fixture in fixtures:
        yield from check_fixture(fixture, compiled.plan, names)


def given_fixtures(project_dir: Path, files: Sequence[str], stdin: Callable[[], str] | None) -> tuple[list[Fixture], list[Diagnostic]]:
    """The fixtures of files that were named; `-` reads from stdin. Raises: UsageError."""
    from streamform.simulator.fixture import STANDARD_INPUT, parse_fixture

    fixtures: list[Fixture] = []
    broken: list[Diagnostic] = []
    for file in files:
        text = (stdin or _no_stdin)() if file == "-" else read_text(project_dir / file)
        parsed = parse_fixture(text, STANDARD_INPUT if file == "-" else file)
        if isinstance(parsed, list):
            broken.extend(parsed)
        else:
            fixtures.append(parsed)
    return fixtures, broken


def _no_stdin() -> str:
    raise UsageError("there is no standard input to read a fixture from", "pass a file")


def read_text(path: Path) -> str:
    """A file that the user named. Raises: UsageError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"can't read {path}: {(error.strerror or str(error)).lower()}", "check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", "check the file") from None


def run_one(project_dir: Path, compiled: Compiled, fixture: Fixture, plan_of: Callable[[Path], Plan]) -> FixtureReport:
    """Run a fixture through the simulator; `plan_of` compiles another revision of the project. Raises: UsageError for one that is not there."""
    from streamform.adapters.file_source import file_rows
    from streamform.simulator.run import run_fixture

    def rows_of(source: Source, file: str) -> Iterator[Row]:
        return file_rows(project_dir, source, file)

    emit_unchanged = compiled.project.emit_unchanged
    if fixture.upgrade is None:
        return run_fixture(fixture, compiled.plan, emit_unchanged=emit_unchanged, rows_of=rows_of)
    from streamform.adapters.revision import open_revision
    from streamform.diff.match import hints_of
    from streamform.simulator.upgrade import Revisions, run_upgrade

    with open_revision(project_dir, fixture.upgrade.project) as before:
        revisions = Revisions(plan_of(before), compiled.plan, hints_of(compiled.project), compiled.project.identity == "structural")
        return run_upgrade(fixture, revisions, emit_unchanged=emit_unchanged, rows_of=rows_of)
