"""The ledger of a unit's sinks: which places are ours, what was announced to them, and what they hold.

`written` is, for an upsert sink, the rows that we have delivered; a repair is the difference between them and a fresh run's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, to_builtins

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.file_sink import FileSink
from streamform.adapters.sink import Mark, Shape, Sink, SinkVanished
from streamform.adapters.sqlite_sink import SqliteSink
from streamform.adapters.state_database import StateDatabase
from streamform.backends.embedded.encoding import decode_changes, decode_key, decode_row, encode_changes, encode_key, encode_row
from streamform.backends.embedded.output import Keyed, compact, difference, key_of
from streamform.errors import Refused, StateError
from streamform.plan.nodes import Plan, SinkSpec
from streamform.project.model import Endpoint
from streamform.runtime.records import Change
from streamform.values.rows import Column, Row
from streamform.values.types import parse_rendered_type

T = TypeVar("T")

UNKNOWN = encode_row(())
"""In the place of a row that was written under other columns."""


class SinkLedger:
    """The sinks of one unit under one plan."""

    def __init__(self, database: StateDatabase, project_dir: Path, unit: str, plan: Plan) -> None:
        self.database, self.unit = database, unit
        self.shapes = sink_shapes(plan)
        self.sinks: dict[str, Sink] = {model: open_sink(project_dir, shape) for model, shape in self.shapes.items()}
        self.marks: dict[str, Mark] = {}
        self.arrived: set[str] = set()
        """Tokens whose announcement has arrived and still stands in the outbox."""

    def reserve(self) -> None:
        """Give places that are new to us a row, inside the caller's transaction; what the others belong to stays."""
        for model, shape in self.shapes.items():
            values = (os.urandom(8).hex(), "", model, place_of(shape), shape_text(shape))
            self.database.run("INSERT OR IGNORE INTO sink VALUES (?, ?, ?, ?, ?, 0, 0)", *values)

    def claim(self, *, start: int = 0, taken_over: Sequence[str] = ()) -> None:
        """Make these places ours, and let go of all others that were ours or those units', inside the caller's transaction.

        `start` is the number of a place that is new to us.
        """
        self.reserve()
        for unit in (self.unit, *taken_over):
            self.database.run("UPDATE sink SET unit = '' WHERE unit = ?", unit)
        for model, shape in self.shapes.items():
            token, old = self.database.one("SELECT token, shape FROM sink WHERE place = ?", place_of(shape))
            if not _same_rows(read_shape(old), shape):
                self.database.run("UPDATE written SET row = ? WHERE token = ?", UNKNOWN, token)
            self.database.run(
                "UPDATE sink SET unit = ?, model = ?, shape = ?, number = max(number, ?) WHERE token = ?",
                *(self.unit, model, shape_text(shape), start, token),
            )
        self.load()

    def forget_rows(self) -> None:
        """Every place begins anew, inside the caller's transaction."""
        for mark in self.marks.values():
            self.database.run("DELETE FROM written WHERE token = ?", mark.token)
            self.database.run("DELETE FROM outbox WHERE token = ?", mark.token)
            self.database.run("UPDATE sink SET number = 1, length = 0 WHERE token = ?", mark.token)
        self.load()

    def adopt(self, models: Collection[str]) -> None:
        """Count what stands in these places as delivered, and note that it is not ours, inside the caller's transaction."""
        if models:
            self.database.run("CREATE TABLE IF NOT EXISTS adopted (token TEXT PRIMARY KEY)")
        for model, mark in self.marks.items():
            if _has_adopted(self.database):
                self.database.run("DELETE FROM adopted WHERE token = ?", mark.token)
            if model in models:
                self.database.run("INSERT INTO adopted VALUES (?)", mark.token)
                self.database.run("UPDATE sink SET length = ? WHERE token = ?", self.sinks[model].length(), mark.token)

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Empty every place, except those of some models."""
        for model, sink in self.sinks.items():
            if model not in but:
                sink.clear(self.marks[model])

    def prepare(self) -> None:
        """Make every sink ready for rows."""
        for model, sink in self.sinks.items():
            sink.prepare(self.marks[model])

    def open(self) -> None:
        """Make sure that every sink is as it was left; deliveries that were cut off have been finished by recover()."""
        self.load()
        for model, sink in self.sinks.items():
            if model not in self.marks:
                raise StateError(
                    f"the sink of `{model}`, {self.shapes[model].endpoint.address}, was taken over by another unit",
                    "give each model a sink of its own and apply again",
                )
            sink.confirm(self.marks[model], None)

    # deliveries

    def announce(self, by_model: Mapping[str, Sequence[Change]]) -> dict[str, list[Change]]:
        """Write what goes to the sinks into the outbox, under the next number of each."""
        result: dict[str, list[Change]] = {}
        for model, sink in self.sinks.items():
            changes = sink.needed(by_model.get(model, ()))
            if not changes:
                continue
            mark = self.marks[model]
            after = Mark(mark.token, mark.number + 1, sink.length_after(mark, changes))
            self.database.run("INSERT OR REPLACE INTO outbox VALUES (?, ?)", mark.token, encode_changes(changes))
            self.database.run("UPDATE sink SET number = ?, length = ? WHERE token = ?", after.number, after.length, mark.token)
            self._note_written(model, mark.token, changes)
            self.marks[model] = after
            result[model] = changes
        return result

    def _note_written(self, model: str, token: str, changes: Sequence[Change]) -> None:
        shape = self.shapes[model]
        if not shape.upserts:
            return
        last = compact(changes, key_of(shape.schema, shape.key))
        kept = [(token, encode_key(key), encode_row(row)) for key, row in last.items() if row is not None]
        self.database.many("INSERT OR REPLACE INTO written VALUES (?, ?, ?)", kept)
        self.database.many(
            "DELETE FROM written WHERE token = ? AND key = ?", [(token, encode_key(k)) for k, r in last.items() if r is None]
        )

    def deliver(self, announced: Mapping[str, Sequence[Change]]) -> None:
        """Hand over what was announced."""
        for model, changes in announced.items():
            self.sinks[model].confirm(self.marks[model], changes)
            self.arrived.add(self.marks[model].token)
            crash_point("embedded-delivered")

    def forget_delivered(self) -> None:
        """Take out of the outbox what has arrived."""
        self.database.many("DELETE FROM outbox WHERE token = ?", [(token,) for token in self.arrived])
        self.arrived.clear()

    # repair

    def repair(self, model: str, generation: int) -> int:
        """Make a sink equal to a fresh run's; the number of rows that were changed or written."""
        shape = self.shapes[model]
        token, number, length, before = self.database.one("SELECT token, number, length, shape FROM sink WHERE place = ?", place_of(shape))
        mark, counted = Mark(token, number, length), [0]
        length = self._write(model, mark, read_shape(before), generation, counted)
        crash_point("embedded-repaired")
        with self.database.transaction():
            self.database.run("DELETE FROM written WHERE token = ?", mark.token)
            self.database.run(
                "INSERT INTO written SELECT ?, key, row FROM fresh WHERE generation = ? AND model = ?", mark.token, generation, model
            )
            self.database.run(
                "UPDATE sink SET number = ?, length = ?, model = ?, shape = ? WHERE token = ?",
                *(mark.next, length, model, shape_text(shape), mark.token),
            )
        return counted[0]

    def _write(self, model: str, mark: Mark, before: Shape, generation: int, counted: list[int]) -> int:
        """Deliver the difference where rows are kept under the same key, else everything anew."""
        sink, shape = self.sinks[model], self.shapes[model]
        if shape.upserts and mark.number > 0 and _same_key(before, shape) and sink.has_shape():
            present = self._rows("written", mark.token)
            if not _same_rows(before, shape):
                present = ((key, ()) for key, _ in present)
            changes = difference(present, self._rows("fresh", generation, model), lambda key: _keyed_row(shape, key))
            try:
                return sink.amend(mark, _counting(changes, counted))
            except SinkVanished:
                counted[0] = 0
        return sink.rewrite(mark, _counting(self._output(model, generation), counted))

    def _rows(self, table: str, *scope: object) -> Iterator[Keyed]:
        condition = "token = ?" if table == "written" else "generation = ? AND model = ?"
        for key, row in self.database.each(f"SELECT key, row FROM {table} WHERE {condition} ORDER BY key", *scope):  # noqa: S608 - constants
            yield key, decode_row(row)

    def _output(self, model: str, generation: int) -> Iterator[Row]:
        if self.shapes[model].upserts:
            yield from (row for _, row in self._rows("fresh", generation, model))
            return
        for (row,) in self.database.each("SELECT row FROM spool WHERE generation = ? AND model = ? ORDER BY id", generation, model):
            yield decode_row(row)

    # rows of the ledger

    def load(self) -> None:
        """Read the marks of the places that are ours again."""
        self.marks = {}
        for model, shape in self.shapes.items():
            for found in self.database.all(
                "SELECT token, number, length FROM sink WHERE place = ? AND unit = ?", place_of(shape), self.unit
            ):
                self.marks[model] = Mark(*found)

    def close(self) -> None:
        """Release every sink."""
        for sink in self.sinks.values():
            sink.close()


class Owners(Struct, frozen=True):
    """Who may write where: what preflight knows about the unit that is about to be applied."""

    units: frozenset[str]
    """The unit and those that it takes over."""
    models: Mapping[str, str]
    """Desired model -> running model, where a hint renamed it."""
    addresses: frozenset[str]
    """Sinks of the running plan: ours, even where the state that would say so is gone."""
    is_running: bool


def check_places(database: StateDatabase | None, project_dir: Path, plan: Plan, owners: Owners, adopted: Collection[str] = ()) -> None:
    """Raise Refused where a sink can't be written, or holds rows that are neither those of its model nor to be adopted."""
    for model, shape in sink_shapes(plan).items():
        with closing(open_sink(project_dir, shape)) as sink:
            sink.check_writable()
            if not _is_ours(database, project_dir, shape, owners):
                sink.check_adoptable() if model in adopted else sink.check_free()


def foreign_models(database: StateDatabase | None, project_dir: Path, plan: Plan, owners: Owners) -> tuple[str, ...]:
    """Models whose sinks hold rows that are not theirs."""
    found: list[str] = []
    for model, shape in sink_shapes(plan).items():
        with closing(open_sink(project_dir, shape)) as sink:
            try:
                if not _is_ours(database, project_dir, shape, owners):
                    sink.check_free()
            except Refused:
                found.append(model)
    return tuple(found)


def _is_ours(database: StateDatabase | None, project_dir: Path, shape: Shape, owners: Owners) -> bool:
    """Whether the rows at a place are this model's, or were left by a plan that no longer runs, and are written anew."""
    statement = "SELECT unit, model, token, number, length, shape FROM sink WHERE place = ?"
    found = [] if database is None else database.all(statement, place_of(shape))
    if not found:
        return shape.endpoint.address in owners.addresses
    unit, model, token, number, length, before = found[0]
    if not owners.is_running and _was_adopted(database, token):
        return False
    if unit in owners.units and model in (shape.model, owners.models.get(shape.model)):
        return True
    if owners.is_running:
        return False
    with closing(open_sink(project_dir, read_shape(before))) as sink:
        try:
            sink.confirm(Mark(token, number, length), None)
        except StateError:
            return False
    return True


def _was_adopted(database: StateDatabase | None, token: str) -> bool:
    """Whether rows of somebody else were taken over with a place, which a plan that begins anew must not empty."""
    if database is None or not _has_adopted(database):
        return False
    return bool(database.all("SELECT 1 FROM adopted WHERE token = ?", token))


def _has_adopted(database: StateDatabase) -> bool:
    """Whether anything was ever adopted; until then the table is not there."""
    return bool(database.all("SELECT 1 FROM sqlite_master WHERE name = 'adopted'"))


def recover(
    database: StateDatabase,
    project_dir: Path,
    unit: str,
    *,
    places: Collection[str] = (),
    tolerated: tuple[type[StateError], ...] = (),
) -> None:
    """Finish the deliveries of a unit that were cut off, in the shape that they were announced in, and look at these places.

    `tolerated`: a sink that fails in this way counts as unknown, because what follows writes it anew.
    """
    found = database.all(
        "SELECT token, place, number, length, shape, changes FROM sink LEFT JOIN outbox USING (token) WHERE unit = ? ORDER BY token", unit
    )
    for token, place, number, length, shape, changes in found:
        if number == 0 or (changes is None and (number == 1 or place not in places)):
            continue
        sink = open_sink(project_dir, read_shape(shape))
        try:
            sink.confirm(Mark(token, number, length), None if changes is None else decode_changes(changes))
        except tolerated:
            with database.transaction():
                database.run("DELETE FROM written WHERE token = ?", token)
                database.run("UPDATE sink SET number = 0, length = 0 WHERE token = ?", token)
        finally:
            sink.close()
    with database.transaction():
        database.many("DELETE FROM outbox WHERE token = ?", [(row[0],) for row in found])


def sink_shapes(plan: Plan) -> dict[str, Shape]:
    """Models with a sink outside, and what their rows look like."""
    models = {m.name: m for m in plan.models}
    shapes: dict[str, Shape] = {}
    for node in plan.nodes:
        if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None:
            model = models[node.model]
            shapes[node.model] = Shape(node.model, node.schema, model.key, model.materialized == "upsert", node.spec.endpoint)
    return shapes


def open_sink(project_dir: Path, shape: Shape) -> Sink:
    """The adapter of a sink; nothing is contacted yet."""
    return SqliteSink(project_dir, shape) if shape.endpoint.connector == "sqlite" else FileSink(project_dir, shape)


def place_of(shape: Shape) -> str:
    """What makes two sinks the same place."""
    return json.dumps(list(shape.endpoint.destination))


def shape_text(shape: Shape) -> str:
    """A shape as the database keeps it."""
    schema = [[column.name, str(column.type)] for column in shape.schema]
    return json.dumps([shape.model, schema, shape.key, shape.upserts, to_builtins(shape.endpoint)])


def read_shape(text: str) -> Shape:
    """The shape of a text."""
    model, schema, key, upserts, endpoint = json.loads(text)
    columns = tuple(Column(name, parse_rendered_type(type_)) for name, type_ in schema)
    return Shape(model, columns, tuple(key), upserts, Endpoint(**endpoint))


def _counting(items: Iterator[T], counted: list[int]) -> Iterator[T]:
    for item in items:
        counted[0] += 1
        yield item


def _same_rows(before: Shape, after: Shape) -> bool:
    return before.schema == after.schema


def _same_key(before: Shape, after: Shape) -> bool:
    types = [[next(c.type for c in shape.schema if c.name == name) for name in shape.key] for shape in (before, after)]
    return before.upserts == after.upserts and before.key == after.key and types[0] == types[1]


def _keyed_row(shape: Shape, key: str) -> Row:
    """A row that has only its key, for a delete."""
    values: dict[str, Any] = dict(zip(shape.key, decode_key(key), strict=True))
    return tuple(values.get(column.name) for column in shape.schema)
