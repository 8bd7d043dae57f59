"""The example shop on its embedded target, and what its sinks must hold."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamform import api
from streamform.adapters.sink import Shape
from streamform.adapters.sink_ledger import sink_shapes
from streamform.backends.embedded.events import EventParser
from streamform.backends.embedded.output import column_value, compact, key_of
from streamform.plan.nodes import Plan, SourceSpec
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import Change
from streamform.values.rows import Row, file_value
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
        self.append("data/orders.jsonl", *events)

    def table(self, name: str = "customer_metrics", key: int = 1) -> Rows:
        """The rows of the sqlite sink, by their first columns."""
        with sqlite3.connect(self.folder / "out" / "shop.db") as connection:
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
        assert len({row[:key] for row in rows}) == len(rows), "a key twice"
        return {row[0] if key == 1 else row[:key]: row[key:] for row in rows}

    def write(self, path: str, text: str) -> Shop:
        """Write a file of the project."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)
        return self

    def append(self, path: str, *events: Mapping[str, Any]) -> Shop:
        """Append events to a file."""
        with (self.folder / path).open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        return self

    def verdict(self) -> str:
        """What plan says."""
        return api.plan(self.folder, target="local").diff.verdict.text

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the file sink."""
        return read_lines(self.folder / "out" / "big_customers.jsonl")

    def replayed(self) -> dict[int, Decimal]:
        """What somebody who follows the file's changelog has."""
        return {row["customer_id"]: row["total_spend"] for row in replay(self.lines()).values()}

    def equals_a_fresh_run(self) -> bool:
        """Whether every sink holds what a first apply of the same files to an empty target gives."""
        fresh = self.fresh()
        assert self.contents() == fresh.contents()
        return True

    def fresh(self) -> Shop:
        """A first apply of the same files to an empty target in another folder."""
        fresh = Shop(self.folder.with_name(self.folder.name + "_fresh"))
        shutil.rmtree(fresh.folder, ignore_errors=True)
        shutil.copytree(self.folder, fresh.folder, ignore=shutil.ignore_patterns(".streamform", "out"))
        fresh.apply()
        return fresh

    def plan(self) -> Plan:
        """The plan of the project on its target."""
        return api.compile(self.folder, "local").plan

    def contents(self) -> dict[str, list[Any]]:
        """What each sink holds: rows in order of arrival of an append model, sorted rows of an upsert model."""
        return {model: self.rows_of(shape) for model, shape in sink_shapes(self.plan()).items()}

    def rows_of(self, shape: Shape) -> list[Any]:
        """The rows of one sink as JSON values; a changelog is replayed."""
        names = [column.name for column in shape.schema]
        if shape.endpoint.connector == "sqlite":
            columns = ", ".join(f'"{name}"' for name in names)
            with closing(sqlite3.connect(self.folder / str(shape.endpoint.path))) as connection:
                found = connection.execute(f'SELECT {columns} FROM "{shape.endpoint.table}" ORDER BY rowid').fetchall()
            return sorted(found, key=repr) if shape.upserts else found
        lines = read_lines(self.folder / str(shape.endpoint.path))
        if not shape.upserts:
            return [_typed(line, shape) for line in lines]
        return sorted((_typed(row, shape) for row in replay(lines).values()), key=repr)

    def simulated(self) -> dict[str, list[Any]]:
        """What the simulator's dataflow gives for the same events, one source after the other, as contents() has it."""
        plan = self.plan()
        dataflow = Dataflow(plan)
        sources = {node.spec.source.name: node.spec.source for node in plan.nodes if isinstance(node.spec, SourceSpec)}
        for name, source in sorted(sources.items()):
            parser, path = EventParser(source), self.folder / str(source.endpoint.path)
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                for number, line in enumerate(file.read_bytes().splitlines(), 1):
                    row = parser.parse(line, f"line {number}")
                    for node in dataflow.source_nodes(name) if row is not None else ():
                        dataflow.push(node, [row], number)
        changes = {plan.by_id[sink].model: found for sink, found in dataflow.drain().changes.items()}
        return {model: _final(shape, changes.get(model, [])) for model, shape in sink_shapes(plan).items()}


def _typed(found: Mapping[str, Any], shape: Shape) -> tuple[Any, ...]:
    makers = {"float64": float, "decimal": Decimal}
    kinds = {column.name: column.type.kind for column in shape.schema}
    assert list(found) == list(kinds)
    return tuple(None if value is None else makers.get(kinds[name], lambda v: v)(value) for name, value in found.items())


def _final(shape: Shape, changes: list[Change]) -> list[Any]:
    if shape.upserts:
        kept = compact(changes, key_of(shape.schema, shape.key)).values()
        return sorted((_shown(row, shape) for row in kept if row is not None), key=repr)
    return [_shown(row, shape) for _, row, _ in changes]


def _shown(row: Row, shape: Shape) -> tuple[Any, ...]:
    values = [file_value(value, column.type) for value, column in zip(row, shape.schema, strict=True)]
    return tuple(values) if shape.endpoint.connector == "file" else tuple(column_value(value) for value in values)  # type: ignore[arg-type]


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; each line is complete."""
    text = file.read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line, parse_float=Decimal) for line in text.splitlines()]


def replay(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows by key of somebody who follows a changelog; each line must fit what is there."""
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        key = json.dumps(line["key"], default=str)
        assert (line["op"] == "insert") == (key not in rows), line
        if line["op"] == "delete":
            assert line["row"] is None
            del rows[key]
        else:
            rows[key] = line["row"]
    return rows


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
    counter = iter(range(1_000))

    def make(config: str, sources: str, models: Mapping[str, str], events: Mapping[str, str]) -> Shop:
        folder = tmp_path / f"made{next(counter)}"
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
