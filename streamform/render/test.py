"""The test report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamform.render.words import counted
from streamform.simulator.run import FixtureReport, ListedReport, Record, RowReport

if TYPE_CHECKING:
    from streamform.results import TestReport

REPORT_VERSION = 1


def render_test(report: TestReport) -> str:
    """Each fixture with its outcome, failures as tables, and a summary."""
    if not report.fixtures:
        where = f"for model `{report.model}`" if report.model else "under tests/"
        return f"ok: no fixtures {where}\n"
    failed = sum(not f.passed for f in report.fixtures)
    passed = len(report.fixtures) - failed
    summary = f"ok: {counted(passed, 'fixture')} passed" if not failed else f"failed: {counted(failed, 'fixture')} failed, {passed} passed"
    return "\n".join([*map(_fixture, report.fixtures), summary]) + "\n"


def _fixture(report: FixtureReport) -> str:
    lines = [f"{report.model}  {report.path}", "", "PASS" if report.passed else "FAIL", ""]
    if report.error is not None:
        return "\n".join([*lines, f"  {report.error}", ""])
    if any(row.problem for row in report.rows):
        lines += [*_table([_row_cells(row, report.columns) for row in report.rows], ("#", "expected", "actual")), ""]
    for name, listed in (("late", report.late), ("quarantined", report.quarantined)):
        if any(item.problem for item in listed):
            happened = "dropped" if name == "late" else "quarantined"
            lines += [*_table([_listed_cells(item) for item in listed], ("#", f"{name}: listed", happened)), ""]
    lines += [f"{counted(report.events_processed, 'event')} processed", f"{counted(report.changes_emitted, 'changelog record')} emitted"]
    if report.late_dropped:
        lines.append(f"{counted(report.late_dropped, 'late event')} dropped")
    if report.quarantined_events:
        lines.append(f"{counted(report.quarantined_events, 'event')} quarantined")
    return "\n".join([*lines, ""])


Cells = tuple[str, str, str, str | None]


def _table(rows: list[Cells], header: tuple[str, str, str]) -> list[str]:
    """Two sides, with a caret line below each row that differs."""
    widths = [max(len(header[i]), *(len(row[i] or "") for row in rows)) for i in range(2)]
    lines = [f"  {header[0].ljust(widths[0])}  {header[1].ljust(widths[1])}  {header[2]}"]
    for number, left, right, problem in rows:
        lines.append(f"  {number.ljust(widths[0])}  {left.ljust(widths[1])}  {right}")
        if problem:
            lines.append(f"  {' ' * widths[0]}  ^ {problem}")
    return lines


def _row_cells(row: RowReport, columns: tuple[str, ...]) -> Cells:
    return str(row.index + 1), _record(row.expected, columns, "(nothing)"), _record(row.actual, columns, "(nothing)"), row.problem


def _record(record: Record | None, columns: tuple[str, ...], nothing: str) -> str:
    if record is None:
        return nothing
    values = record["columns"]
    return " ".join([record["op"].ljust(6), *(f"{name}={_value(values[name])}" for name in columns or values)])


def _listed_cells(item: ListedReport) -> Cells:
    return str(item.index + 1), _listed(item.expected, "(not listed)"), _listed(item.actual, "(none)"), item.problem


def _listed(columns: dict[str, Any] | None, nothing: str) -> str:
    return nothing if columns is None else " ".join(f"{name}={_value(columns[name])}" for name in sorted(columns))


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and not _is_number(value) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).lstrip("-").isdigit()


def test_document(report: TestReport) -> dict[str, Any]:
    """The published document."""
    return {"report_version": REPORT_VERSION, "passed": report.passed, "fixtures": [fixture_document(f) for f in report.fixtures]}


def fixture_document(report: FixtureReport) -> dict[str, Any]:
    """One fixture of the report; counts and lists that are empty are left out."""
    document: dict[str, Any] = {"model": report.model, "path": report.path, "passed": report.passed}
    if report.error is not None:
        document["error"] = report.error
    document |= {"events_processed": report.events_processed, "changes_emitted": report.changes_emitted}
    document["rows"] = [_sides(row) for row in report.rows]
    if report.late_dropped:
        document["late_dropped"] = report.late_dropped
    if report.late:
        document["late"] = [_sides(item) for item in report.late]
    if report.quarantined_events:
        document["quarantined_events"] = report.quarantined_events
    if report.quarantined:
        document["quarantined"] = [_sides(item) for item in report.quarantined]
    return document


def _sides(row: RowReport | ListedReport) -> dict[str, Any]:
    document: dict[str, Any] = {"index": row.index}
    if row.expected is not None:
        document["expected"] = row.expected
    if row.actual is not None:
        document["actual"] = row.actual
    document["problem"] = row.problem
    return document
