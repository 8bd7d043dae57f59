"""The example shop on its embedded target, and what its sinks must hold."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamform import api
from tests.conftest import Run, run_cli, run_here

TARGET = ("--target", "local")
Rows = dict[Any, tuple[Any, ...]]


@dataclass
class Shop:
    """A project whose target is embedded."""

    folder: Path

    def run(self, *arguments: str) -> Run:
        """A command in this process."""
        return run_here(*arguments, "--project", str(self.folder), *TARGET)

    def process(self, *arguments: str, crash_at: str = "") -> Run:
        """A command in a process of its own, which may be told where to die."""
        env = {"STREAMFORM_CRASH_AT": crash_at} if crash_at else {}
        return run_cli(*arguments, "--project", str(self.folder), *TARGET, env=env)

    def apply(self) -> str:
        """Apply, and insist that it goes well."""
        done = self.run("apply")
        assert done.code == 0, done.stdout + done.stderr
        return done.stdout.splitlines()[-1]

    def approve(self) -> None:
        """Register what waits, and approve it."""
        assert self.run("apply").code == 1
        (waiting,) = [view.plan for view in api.approvals(self.folder, target="local")[1] if view.status == "pending"]
        api.decide(self.folder, [waiting.plan_id], "approve", by="somebody", reason="wanted", acknowledge=waiting.acknowledge)

    def change(self, file: str, before: str, after: str) -> None:
        """Edit a file of the project."""
        path = self.folder / file
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def changed(self, file: str, before: str, after: str) -> str:
        """Edit, approve, apply; the verdict."""
        self.change(file, before, after)
        verdict = api.plan(self.folder, target="local").diff.verdict.text
        self.approve()
        self.apply()
        return verdict

    def add(self, *events: dict[str, Any]) -> None:
        """Append events to the source."""
        with (self.folder / "data" / "orders.jsonl").open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    def table(self, name: str = "customer_metrics", key: int = 1) -> Rows:
        """The rows of the sqlite sink, by their first columns."""
        with sqlite3.connect(self.folder / "out" / "shop.db") as connection:
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
        assert len({row[:key] for row in rows}) == len(rows), "a key twice"
        return {row[0] if key == 1 else row[:key]: row[key:] for row in rows}

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the file sink."""
        text = (self.folder / "out" / "big_customers.jsonl").read_text()
        assert not text or text.endswith("\n")
        return [json.loads(line, parse_float=Decimal) for line in text.splitlines()]

    def replayed(self) -> dict[int, Decimal]:
        """What somebody who follows the file's changelog has; each line must fit what is there."""
        rows: dict[int, Decimal] = {}
        for line in self.lines():
            key = line["key"]["customer_id"]
            assert (line["op"] == "insert") == (key not in rows), line
            if line["op"] == "delete":
                del rows[key]
            else:
                rows[key] = line["row"]["total_spend"]
        return rows

    def equals_a_fresh_run(self) -> bool:
        """Whether both sinks hold what a first apply of the same files to an empty target gives."""
        fresh = Shop(self.folder.with_name(self.folder.name + "_fresh"))
        shutil.rmtree(fresh.folder, ignore_errors=True)
        shutil.copytree(self.folder, fresh.folder, ignore=shutil.ignore_patterns(".streamform", "out"))
        fresh.apply()
        assert self.table() == fresh.table()
        assert self.replayed() == fresh.replayed()
        return True


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "shop"
    api.init(folder)
    return folder


@pytest.fixture
def shop(template: Path, tmp_path: Path) -> Shop:
    return Shop(shutil.copytree(template, tmp_path / "shop"))


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Shop]:
    """A project from text: streamform.yml's models, sources.yml, models, events by file."""

    def make(config: str, sources: str, models: dict[str, str], events: dict[str, str]) -> Shop:
        folder = tmp_path / "made"
        for path, text in {
            "streamform.yml": f"name: made\nversion: 1\n{config}\ntargets: {{local: {{backend: embedded}}}}\n",
            "sources.yml": sources,
            **{f"models/{name}.sql": sql for name, sql in models.items()},
            **events,
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return Shop(folder)

    return make
