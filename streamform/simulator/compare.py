"""What came out beside what a fixture expects: records in order or in any order, whole rows or the columns that are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from streamform.runtime.records import DELETE, INSERT, OPERATION_NAMES, Change
from streamform.simulator.fixture import ExpectedRecord, Match, event_row, expected_row
from streamform.values.rows import Row, Schema, document_value, render_value

Record = dict[str, Any]
"""Shape: {op, columns, before?} as test reports hold it."""

UNEXPECTED = "unexpected: the fixture ends before this record"
UNLISTED = "unexpected: no record of the fixture is left that it could be"
MISSING = "missing: the model emitted nothing here"


class RowReport(Struct, frozen=True):
    """One expected record beside the one that was emitted at its place."""

    index: int
    expected: Record | None
    actual: Record | None
    problem: str | None


class Wanted(Struct, frozen=True):
    """An expected record with its values in the output's types. Only columns in `compared` matter."""

    op: int
    row: Row
    before: Row | None
    compared: frozenset[str]
    compared_before: frozenset[str] = frozenset()


def wanted_record(record: ExpectedRecord, schema: Schema, item: str, match: Match) -> Wanted:
    """The record in the output's types. Raises: FixtureError."""
    names = frozenset(column.name for column in schema)
    before = None if record.before is None else expected_row(record.before, schema, f"{item}.before")
    compared = names & set(record.columns) if match == "partial" else names
    compared_before = names & set(record.before or ()) if match == "partial" else names
    return Wanted(record.op, expected_row(record.columns, schema, item), before, compared, compared_before)


def compare_records(expected: Sequence[ExpectedRecord], actual: Sequence[Change], schema: Schema, match: Match) -> list[RowReport]:
    """Expected and emitted records side by side; a problem where they differ."""
    wanted = [wanted_record(record, schema, f"expect[{index}]", match) for index, record in enumerate(expected)]
    pairs: Iterable[tuple[Wanted | None, Change | None]] = zip_longest(wanted, actual)
    if match == "unordered":
        pairs = _matched(wanted, actual, schema)
    return [_report(index, left, right, schema, match) for index, (left, right) in enumerate(pairs)]


def compare_final(expected: Sequence[dict[str, Any]], actual: Sequence[Row], schema: Schema, match: Match) -> list[RowReport]:
    """The rows that are left, in any order, beside those that are expected to be."""
    how: Match = "partial" if match == "partial" else "exact"
    wanted = [wanted_record(ExpectedRecord(INSERT, row), schema, f"expect_final[{i}]", how) for i, row in enumerate(expected)]
    pairs = _matched(wanted, [(INSERT, row, None) for row in actual], schema)
    return [_report(index, left, right, schema, "unordered") for index, (left, right) in enumerate(pairs)]


def final_rows(changes: Iterable[Change], key: Sequence[str], schema: Schema, *, upserts: bool) -> list[Row]:
    """The rows that a changelog leaves: by key where rows have one, else every row."""
    if not upserts:
        return [row for _, row, _ in changes]
    names = [column.name for column in schema]
    positions = [names.index(name) for name in key]
    rows: dict[tuple[object, ...], Row] = {}
    for op, row, before in changes:
        if before is not None:
            rows.pop(tuple(before[p] for p in positions), None)
        found = tuple(row[p] for p in positions)
        rows.pop(found, None)
        if op != DELETE:
            rows[found] = row
    return list(rows.values())


def _matched(wanted: Sequence[Wanted], actual: Sequence[Change], schema: Schema) -> Iterator[tuple[Wanted | None, Change | None]]:
    """Each expected record with one that equals it, those that none equals beside what is left over."""
    left_over = list(actual)
    unmatched: list[Wanted] = []
    found: list[tuple[Wanted | None, Change | None]] = []
    for record in wanted:
        change = next((change for change in left_over if _difference(record, change, schema) is None), None)
        if change is None:
            unmatched.append(record)
        else:
            left_over.remove(change)
            found.append((record, change))
    yield from found
    yield from zip_longest(unmatched, left_over)


def _report(index: int, wanted: Wanted | None, change: Change | None, schema: Schema, match: Match) -> RowReport:
    shown = None if wanted is None else record_document(wanted.op, wanted.row, wanted.before, schema, wanted.compared)
    actual = None if change is None else record_document(*change, schema)
    if wanted is None:
        return RowReport(index, None, actual, UNLISTED if match == "unordered" else UNEXPECTED)
    problem = MISSING if change is None else _difference(wanted, change, schema)
    return RowReport(index, shown, actual, problem)


def record_document(op: int, row: Row, before: Row | None, schema: Schema, shown: frozenset[str] | None = None) -> Record:
    """A record as test reports hold it."""
    result: Record = {"op": OPERATION_NAMES[op], "columns": row_document(row, schema, shown)}
    if before is not None:
        result["before"] = row_document(before, schema)
    return result


def row_document(row: Row, schema: Schema, shown: frozenset[str] | None = None) -> dict[str, Any]:
    """Values by column, columns in alphabetical order."""
    cells = sorted(zip(schema, row, strict=True), key=lambda pair: pair[0].name)
    return {c.name: document_value(v, c.type) for c, v in cells if shown is None or c.name in shown}


def _difference(wanted: Wanted, change: Change, schema: Schema) -> str | None:
    op, row, before = change
    if wanted.op != op:
        return f"op: expected {OPERATION_NAMES[wanted.op]}, got {OPERATION_NAMES[op]}"
    found = _different_column(wanted.row, row, schema, wanted.compared)
    if found is None and wanted.before is not None and before is not None:
        found = _different_column(wanted.before, before, schema, wanted.compared_before)
        return None if found is None else f"before, {found}"
    return found


def _different_column(expected: Row, actual: Row, schema: Schema, compared: frozenset[str]) -> str | None:
    for column, left, right in zip(schema, expected, actual, strict=True):
        if column.name in compared and left != right and not (left != left and right != right):
            return f"{column.name}: expected {render_value(left)}, got {render_value(right)}"
    return None


def same_listed(listed: dict[str, Any], row: Row, contract: str | None, schema: Schema, source: str) -> bool:
    """Whether a listed late or quarantined event is this one."""
    hidden = ("_source",) if contract is None else ("_contract", "_source")
    if contract is not None and listed.get("_contract") != contract:
        return False
    columns = {name: value for name, value in listed.items() if name not in hidden}
    try:
        return event_row(columns, schema, source, "it") == row
    except ValueError:
        return False
