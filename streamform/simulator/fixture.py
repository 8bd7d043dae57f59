"""Fixtures: the events that a test gives, and what it expects of a model's changelog.

A fixture that can't be read is a problem of the project and is reported by check; an event that its source can't hold
makes the fixture fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from streamform.codes import listed, problem, suggest
from streamform.diagnostics import Diagnostic, Location
from streamform.plan.nodes import Plan
from streamform.project.documents import FixtureDocument, UpgradeDocument, validate
from streamform.project.tree import Document, TreeError, parse_tree
from streamform.runtime.records import OPERATIONS
from streamform.values.instants import parse_instant
from streamform.values.rows import Column, Row, Schema, Value, parse_document_value, render_value
from streamform.values.types import TIMESTAMP, DataType

STANDARD_INPUT = "<stdin>"

Match = Literal["exact", "unordered", "partial"]


class GivenEvent(Struct, frozen=True):
    """An event by column, as written; columns that are left out are NULL. `source` is None where there is only one."""

    columns: dict[str, Any]
    source: str | None = None


class GivenRows(Struct, frozen=True):
    """The events of a file, read as its source's format reads it."""

    file: str
    source: str | None = None


class GivenWatermark(Struct, frozen=True):
    """An explicit watermark; of every source where none is named."""

    watermark_ms: int
    source: str | None = None


Given = GivenEvent | GivenRows | GivenWatermark


class ExpectedRecord(Struct, frozen=True):
    """A record that the model must emit: its operation and output columns, and the row before an update where it is written."""

    op: int
    columns: dict[str, Any]
    before: dict[str, Any] | None = None


class Upgrade(Struct, frozen=True):
    """What comes after a change of the project: the revision before, the plan's verdict, and the events after."""

    project: str
    verdict: str | None
    given: tuple[Given, ...]


class Fixture(Struct, frozen=True):
    """One test of one model."""

    model: str
    path: str
    given: tuple[Given, ...] = ()
    expect: tuple[ExpectedRecord, ...] | None = None
    """None where the changelog is not compared."""
    late: tuple[dict[str, Any], ...] = ()
    quarantined: tuple[dict[str, Any], ...] = ()
    match: Match = "exact"
    expect_final: tuple[dict[str, Any], ...] | None = None
    """The model's rows when everything has been processed, in any order."""
    expect_error: str | None = None
    upgrade: Upgrade | None = None


class FixtureError(ValueError):
    """An event or a listed row that its source can't hold; the message names item and column."""


def parse_fixture(text: str, path: str) -> Fixture | list[Diagnostic]:
    """The fixture that a file holds, or everything that is wrong with it."""
    try:
        document = parse_tree(text, path)
    except TreeError as error:
        return [error.diagnostic]
    result = validate(FixtureDocument, document)
    return result if isinstance(result, list) else _Reader(document).fixture(result)


class _Reader:
    """Reads the items of one document and collects what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self.document, self.problems = document, list[Diagnostic]()

    def fixture(self, found: FixtureDocument) -> Fixture | list[Diagnostic]:
        given = self.given_items(found.given, ("given",))
        expect = None if found.expect is None else [self.expected(item, index) for index, item in enumerate(found.expect)]
        if expect is None and found.expect_final is None and found.expect_error is None and found.upgrade is None:
            expect = []
        for section in ("late", "quarantined", "expect_final"):
            self.rows(section, getattr(found, section) or ())
        upgrade = None if found.upgrade is None else self.upgrade(found.upgrade)
        if self.problems:
            return self.problems
        return Fixture(
            found.model,
            self.document.file,
            given,
            None if expect is None else tuple(e for e in expect if e is not None),
            tuple(found.late or ()),
            tuple(found.quarantined or ()),
            found.match,
            None if found.expect_final is None else tuple(found.expect_final),
            found.expect_error,
            upgrade,
        )

    def wrong(self, place: tuple[str | int, ...], cause: str, expected: str) -> None:
        """Something is wrong at a place of the document."""
        field = _field(place)
        where = self.document.locate(place)
        self.problems.append(problem("SF005", path=self.document.file, where=where, field=field, cause=cause, expected=expected))

    def rows(self, section: str, items: Sequence[dict[str, Any]]) -> None:
        """Rows without an operation: listed late or quarantined events, and the table at the end."""
        for index, row in enumerate(items):
            self.flat(row, (section, index))
            if section == "quarantined" and not isinstance(row.get("_contract"), str):
                self.wrong((section, index), "names no contract", "add _contract: NAME")

    def upgrade(self, found: UpgradeDocument) -> Upgrade:
        """The upgrade section."""
        return Upgrade(found.project, found.verdict, self.given_items(found.given, ("upgrade", "given")))

    def given_items(self, items: list[Any] | None, section: tuple[str | int, ...]) -> tuple[Given, ...]:
        """Events, files and watermarks, in order."""
        read = [self.given(item, (*section, index)) for index, item in enumerate(items or ())]
        return tuple(item for item in read if item is not None)

    def given(self, item: Any, place: tuple[str | int, ...]) -> Given | None:
        """One item: a watermark, a file of rows, an event in `event:`, or an event's columns as they are."""
        if not isinstance(item, dict):
            self.wrong(place, "is not a mapping", "write event: {..} or watermark: INSTANT")
            return None
        kind = next((name for name in ("event", "watermark") if name in item), None)
        if kind is None and isinstance(item.get("rows"), str):
            kind = "rows"
        if kind == "event" or (kind is not None and set(item) <= {kind, "source"}):
            return self.wrapped(item, kind, place)
        self.flat(item, place)
        return GivenEvent(item)

    def wrapped(self, item: dict[str, Any], kind: str, place: tuple[str | int, ...]) -> Given | None:
        """`kind: VALUE`, with the source beside it where there are several."""
        extra = next((key for key in item if key not in (kind, "source")), None)
        source = item.get("source")
        if extra is not None or not isinstance(source, str | None):
            cause = f"has `{extra}` beside {kind}" if extra is not None else "has a source that is no name"
            self.wrong(place, cause, f"write {{source: NAME, {kind}: ..}}" if kind != "event" else "write event: {column: value, ..}")
            return None
        value = item[kind]
        if kind == "watermark":
            return self.watermark(value, source, place)
        if kind == "rows":
            return GivenRows(value, source)
        if not isinstance(value, dict):
            self.wrong(place, "has an event that is no mapping", "write event: {column: value, ..}")
            return None
        self.flat(value, (*place, "event"))
        return GivenEvent(value, source)

    def watermark(self, value: Any, source: str | None, place: tuple[str | int, ...]) -> GivenWatermark | None:
        """A watermark as an instant, or as milliseconds."""
        try:
            if isinstance(value, int) and not isinstance(value, bool):
                return GivenWatermark(value, source)
            return GivenWatermark(parse_instant(value if isinstance(value, str) else repr(value)), source)
        except ValueError as error:
            self.wrong((*place, "watermark"), str(error), "write an instant such as 2026-08-30T10:00:00Z")
            return None

    def flat(self, row: dict[str, Any], place: tuple[str | int, ...]) -> None:
        """A row has one value for each column."""
        for column, value in row.items():
            if isinstance(value, (dict, list)):
                where = self.document.locate((*place, column))
                field = ".".join(map(str, (*place, column)))
                cause, expected = "is nested", "write one value for each column"
                self.problems.append(problem("SF005", path=self.document.file, where=where, field=field, cause=cause, expected=expected))

    def expected(self, item: dict[str, Any], index: int) -> ExpectedRecord | None:
        """`op` and the columns beside it; or the columns in `row:`, for a model with a column that is called op or before."""
        place = ("expect", index)
        op = item.get("op")
        if not isinstance(op, str) or op not in OPERATIONS:
            cause = "has no op" if op is None else f"has the op `{op}`"
            self.wrong(place, cause, "write op: insert, update or delete")
            return None
        before = item.get("before") if isinstance(item.get("before"), dict) else None
        if before is not None:
            self.flat(before, (*place, "before"))
            if op != "update":
                self.wrong(place, f"has a row before, and {op} has none", "write before: only for an update")
        columns = {name: value for name, value in item.items() if name != "op" and not (name == "before" and before is not None)}
        if set(columns) == {"row"} and isinstance(columns["row"], dict):
            columns, place = columns["row"], ("expect", index, "row")  # type: ignore[assignment]
        self.flat(columns, place)
        return ExpectedRecord(OPERATIONS[op], columns, before)


def _field(place: tuple[str | int, ...]) -> str:
    """`given[2].watermark`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def check_fixture(fixture: Fixture, plan: Plan, models: list[str]) -> Iterator[Diagnostic]:
    """What is wrong between a fixture and the model that it tests."""
    if fixture.model not in models:
        yield problem(
            "SF701",
            path=fixture.path,
            where=Location(fixture.path),
            file=fixture.path,
            model=fixture.model,
            suggestion=suggest(fixture.model, models),
            known=listed(models),
        )
        return
    planned = next((m for m in plan.models if m.name == fixture.model), None)
    if planned is None:
        return
    names = [column.name for column in plan.by_id[planned.output].schema]
    for item, columns in _expectations(fixture):
        missing = [name for name in names if name not in columns and fixture.match != "partial"]
        unknown = [name for name in columns if name not in names]
        if missing or unknown:
            cause = f"without `{missing[0]}`" if missing else f"with `{unknown[0]}`, which the model does not emit"
            yield problem(
                "SF702",
                path=fixture.path,
                where=Location(fixture.path),
                file=fixture.path,
                model=fixture.model,
                item=item,
                cause=cause,
                known=listed(names),
            )


def _expectations(fixture: Fixture) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, record in enumerate(fixture.expect or ()):
        yield f"expect[{index}]", record.columns
        if record.before is not None:
            yield f"expect[{index}].before", record.before
    for index, row in enumerate(fixture.expect_final or ()):
        yield f"expect_final[{index}]", row


def event_row(columns: dict[str, Any], schema: Schema, source: str, item: str) -> Row:
    """The row that an event's columns make in a source's schema. Raises: FixtureError."""
    known = {column.name for column in schema}
    unknown = next((name for name in columns if name not in known), None)
    if unknown is not None:
        raise FixtureError(f"{item} has column `{unknown}`, which source `{source}` does not declare")
    return tuple(_value(columns.get(column.name), column, item) for column in schema)


def _value(raw: Any, column: Column, item: str) -> Value:
    try:
        return parse_document_value(raw, column.type)
    except ValueError as error:
        raise FixtureError(
            f"{item}: column `{column.name}` expects {column.type}, got {_quoted(raw)}{_because(error, column.type)}"
        ) from None


def _quoted(raw: Any) -> str:
    return f'"{raw}"' if isinstance(raw, str) else render_value(raw)


def _because(error: ValueError, type_: DataType) -> str:
    return f" ({error})" if str(error) and type_ == TIMESTAMP else ""


def expected_row(columns: dict[str, Any], schema: Schema, item: str) -> Row:
    """An expected record's row in the model's output schema. Raises: FixtureError."""
    return tuple(_value(columns.get(column.name), column, item) for column in schema)
