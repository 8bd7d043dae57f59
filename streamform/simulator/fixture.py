"""Fixtures: the events that a test gives, and the changelog that it expects.

A fixture that can't be read is a problem of the project and is reported by check; an event that its source can't hold
makes the fixture fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamform.codes import listed, problem, suggest
from streamform.diagnostics import Diagnostic, Location
from streamform.plan.nodes import Plan
from streamform.project.documents import FixtureDocument, validate
from streamform.project.tree import Document, TreeError, parse_tree
from streamform.runtime.records import OPERATIONS
from streamform.values.instants import parse_instant
from streamform.values.rows import Column, Row, Schema, Value, parse_document_value, render_value
from streamform.values.types import TIMESTAMP, DataType

STANDARD_INPUT = "<stdin>"


@dataclass(frozen=True, slots=True)
class GivenEvent:
    """An event by column, as written; columns that are left out are NULL."""

    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GivenWatermark:
    """An explicit watermark."""

    watermark_ms: int


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """A record that the model must emit: its operation and every output column."""

    op: int
    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fixture:
    """One test of one model."""

    model: str
    path: str
    given: tuple[GivenEvent | GivenWatermark, ...] = ()
    expect: tuple[ExpectedRecord, ...] = ()
    late: tuple[dict[str, Any], ...] = ()
    quarantined: tuple[dict[str, Any], ...] = ()


class FixtureError(ValueError):
    """An event or a listed row that its source can't hold; the message names item and column."""


def parse_fixture(text: str, path: str) -> Fixture | list[Diagnostic]:
    """The fixture that a file holds, or everything that is wrong with it."""
    try:
        document = parse_tree(text, path)
    except TreeError as error:
        return [error.diagnostic]
    result = validate(FixtureDocument, document)
    if isinstance(result, list):
        return result
    problems: list[Diagnostic] = []
    given = [_given(item, index, document, problems) for index, item in enumerate(result.given or ())]
    expect = [_expected(item, index, document, problems) for index, item in enumerate(result.expect or ())]
    for section, items in (("late", result.late or ()), ("quarantined", result.quarantined or ())):
        for index, row in enumerate(items):
            problems.extend(_flat(row, (section, index), document))
            if section == "quarantined" and not isinstance(row.get("_contract"), str):
                where = document.locate((section, index))
                problems.append(_invalid(path, where, f"{section}[{index}]", "names no contract", "add _contract: NAME"))
    if problems:
        return problems
    kept = tuple(item for item in given if item is not None)
    return Fixture(
        result.model, path, kept, tuple(e for e in expect if e is not None), tuple(result.late or ()), tuple(result.quarantined or ())
    )


def _invalid(path: str, where: Location, field: str, cause: str, expected: str) -> Diagnostic:
    return problem("SF005", path=path, where=where, field=field, cause=cause, expected=expected)


def _given(item: Any, index: int, document: Document, problems: list[Diagnostic]) -> GivenEvent | GivenWatermark | None:
    place, name = ("given", index), f"given[{index}]"
    if not isinstance(item, dict):
        problems.append(
            _invalid(document.file, document.locate(place), name, "is not a mapping", "write event: {..} or watermark: INSTANT")
        )
        return None
    if set(item) == {"watermark"}:
        return _watermark(item["watermark"], place, document, problems)
    if "event" in item:
        extra = next((key for key in item if key != "event"), None)
        if extra is not None or not isinstance(item["event"], dict):
            cause = f"has `{extra}` beside event" if extra is not None else "has an event that is no mapping"
            problems.append(_invalid(document.file, document.locate(place), name, cause, "write event: {column: value, ..}"))
            return None
        item, place = item["event"], ("given", index, "event")  # type: ignore[assignment]
    problems.extend(_flat(item, place, document))
    return GivenEvent(item)


def _watermark(value: Any, place: tuple[str, int], document: Document, problems: list[Diagnostic]) -> GivenWatermark | None:
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return GivenWatermark(value)
        return GivenWatermark(parse_instant(value if isinstance(value, str) else repr(value)))
    except ValueError as error:
        problems.append(
            _invalid(
                document.file,
                document.locate((*place, "watermark")),
                f"given[{place[1]}].watermark",
                str(error),
                "write an instant such as 2026-08-30T10:00:00Z",
            )
        )
        return None


def _flat(row: dict[str, Any], place: tuple[str | int, ...], document: Document) -> Iterator[Diagnostic]:
    for column, value in row.items():
        if isinstance(value, (dict, list)):
            field = ".".join(map(str, (*place, column)))
            yield _invalid(document.file, document.locate((*place, column)), field, "is nested", "write one value for each column")


def _expected(item: dict[str, Any], index: int, document: Document, problems: list[Diagnostic]) -> ExpectedRecord | None:
    place = ("expect", index)
    op = item.get("op")
    if not isinstance(op, str) or op not in OPERATIONS:
        cause = "has no op" if op is None else f"has the op `{op}`"
        problems.append(_invalid(document.file, document.locate(place), f"expect[{index}]", cause, "write op: insert, update or delete"))
        return None
    columns = {name: value for name, value in item.items() if name != "op"}
    problems.extend(_flat(columns, place, document))
    return ExpectedRecord(OPERATIONS[op], columns)


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
    for index, record in enumerate(fixture.expect):
        missing = [name for name in names if name not in record.columns]
        unknown = [name for name in record.columns if name not in names]
        if missing or unknown:
            cause = f"without `{missing[0]}`" if missing else f"with `{unknown[0]}`, which the model does not emit"
            yield problem(
                "SF702",
                path=fixture.path,
                where=Location(fixture.path),
                file=fixture.path,
                model=fixture.model,
                item=f"expect[{index}]",
                cause=cause,
                known=listed(names),
            )


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
