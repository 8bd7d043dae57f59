"""What every test may use: small projects from text, the command line in this process and in its own, a clock that stands."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamform import api
from streamform.diagnostics import Diagnostic
from streamform.plan.compile import compile_project
from streamform.plan.compiled import Compiled
from streamform.simulator.fixture import Fixture, parse_fixture
from streamform.simulator.run import run_fixture
from streamform.values.rows import render_value

REPOSITORY = Path(__file__).parents[1]
ORDERS = """
sources:
  orders:
    connector: file
    path: data/orders.jsonl
    key: [customer_id]
    schema: {customer_id: int64, amount: "decimal(12,2)", status: string, ordered_at: timestamp}
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the expected files anew; a reviewer reads the difference."""
    parser.addoption("--update-golden", action="store_true", help="write expected files of tests/golden anew")


@pytest.fixture(autouse=True)
def _no_shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test compiles for itself."""
    monkeypatch.setenv("STREAMFORM_CACHE_DIR", "")
    monkeypatch.setenv("NO_COLOR", "1")


@dataclass(frozen=True, slots=True)
class Run:
    """What a command did."""

    code: int
    stdout: str
    stderr: str


class ProjectFolder:
    """A project that a test wrote."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: str | bytes | Mapping[str, Any]) -> ProjectFolder:
        """Write one file: text as it is, a mapping as YAML."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content), sort_keys=False), "utf-8")
        return self

    def remove(self, path: str) -> ProjectFolder:
        """Remove one file."""
        (self.root / path).unlink()
        return self

    def check(self, *, strict: bool = False) -> tuple[Diagnostic, ...]:
        """Every problem that check finds."""
        return api.check(self.root, strict=strict).diagnostics

    def codes(self) -> list[str]:
        """The codes of every problem that check finds."""
        return [d.code for d in self.check()]

    def compiled(self) -> Compiled:
        """The project, compiled; with its problems."""
        return compile_project(api.load(self.root))

    def run(self, *arguments: str) -> Run:
        """A command on this project, in this process."""
        return run_here(*arguments, "--project", str(self.root))


ProjectBuilder = Callable[..., ProjectFolder]


@pytest.fixture
def project(tmp_path: Path) -> ProjectBuilder:
    """Writes a project: models by name, what stands under `models:` and the rest of streamform.yml, sources.yml, fixtures."""
    counter = iter(range(1_000))

    def build(
        models: Mapping[str, str] | str = "",
        config: Mapping[str, Any] | None = None,
        *,
        sources: str | Mapping[str, Any] = ORDERS,
        tests: Mapping[str, str] | None = None,
        **top: Any,
    ) -> ProjectFolder:
        folder = ProjectFolder(tmp_path / f"project{next(counter)}")
        document = {"name": "shop", "version": 1, **({"models": dict(config)} if config else {}), **top}
        folder.write("streamform.yml", document).write("sources.yml", sources)
        for name, sql in ({"m": models} if isinstance(models, str) and models else dict(models or {})).items():
            folder.write(f"models/{name}.sql", sql)
        for name, text in (tests or {}).items():
            folder.write(f"tests/{name}.yml", text)
        return folder

    return build


@dataclass(frozen=True, slots=True)
class Played:
    """What a model emitted: each record as `op column=value ..`, what was dropped, and the error that ended it."""

    records: list[str]
    late: list[str]
    quarantined: list[str]
    delivered: int
    error: str | None


def play(source: ProjectFolder | Compiled, given: str, *, model: str = "m", emit_unchanged: bool = False) -> Played:
    """Run events, written as the `given` of a fixture, through a model in the simulator."""
    compiled = source if isinstance(source, Compiled) else source.compiled()
    assert not compiled.has_errors, [d.message for d in compiled.diagnostics]
    fixture = parse_fixture(f"model: {model}\ngiven:\n{given}\n", "given.yml")
    assert isinstance(fixture, Fixture), fixture
    report = run_fixture(fixture, compiled.plan, emit_unchanged=emit_unchanged)
    actual = [row.actual for row in report.rows if row.actual is not None]
    records = [" ".join([record["op"], *_shown(record["columns"], report.columns)]) for record in actual]
    late, quarantined = (
        [" ".join(_shown(item.actual or {}, item.actual or {})) for item in part] for part in (report.late, report.quarantined)
    )
    return Played(records, late, quarantined, report.events_processed, report.error)


def _shown(columns: Mapping[str, Any], order: Iterable[str]) -> list[str]:
    return [f"{name}={render_value(columns[name])}" for name in order]


def run_here(*arguments: str, stdin: str = "") -> Run:
    """The command line in this process."""
    from streamform.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    before, handler = sys.stdin, signal.getsignal(signal.SIGTERM)
    sys.stdin = io.StringIO(stdin)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(list(arguments))
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdin = before
        signal.signal(signal.SIGTERM, handler)
    return Run(code, out.getvalue(), err.getvalue())


def environment(**more: str) -> dict[str, str]:
    """The environment of a command in its own process."""
    return {**os.environ, "STREAMFORM_CACHE_DIR": "", "PYTHONPATH": str(REPOSITORY), **more}


def run_cli(*arguments: str, cwd: Path | None = None, stdin: str = "", env: Mapping[str, str] | None = None, timeout: float = 60) -> Run:
    """The command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "streamform.cli", *arguments],
        cwd=cwd or REPOSITORY,
        input=stdin,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def run_python(code: str, *, cwd: Path | None = None, env: Mapping[str, str] | None = None, flags: Sequence[str] = ()) -> Run:
    """A piece of Python in a process of its own."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd or REPOSITORY,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)
