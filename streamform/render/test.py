"""The test report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamform.render.words import counted
from streamform.simulator.compare import Record, RowReport
from streamform.simulator.run import FixtureReport, ListedReport

if TYPE_CHECKING:
    from streamform.results import TestReport
    from streamform.simulator.coverage import ModelCoverage

REPORT_VERSION = 1


def render_test(report: TestReport) -> str:
    """Each fixture with its outcome, failures as tables, and a summary."""
    if not report.fixtures:
        where = f"for model `{report.model}`" if report.model else "under tests/"
        return "\n".join([*_coverage(report), f"{'ok' if report.passed else 'failed'}: no fixtures {where}"]) + "\n"
    failed = sum(not f.passed for f in report.fixtures)
    passed = len(report.fixtures) - failed
    summary = f"ok: {counted(passed, 'fixture')} passed" if not failed else f"failed: {counted(failed, 'fixture')} failed, {passed} passed"
    return "\n".join([*map(render_fixture, report.fixtures), *_coverage(report), summary]) + "\n"


def _coverage(report: TestReport) -> list[str]:
    """What no fixture touches, a line for each gap."""
    if report.coverage is None:
        return []
    lines = ["coverage"]
    for model in report.coverage:
        lines.append(
            f"  {model.model}: {counted(model.fixtures, 'fixture')}" + (f", {model.touched} of its readers" if model.touched else "")
        )
        if not model.fixtures and not model.touched:
            lines.append("    no fixture touches it")
            continue
        lines += [f"    {f.node} {f.definition}: {f.gap}" for f in model.filters if f.gap]
        lines += [f"    no fixture has a late event of `{source}`" for source in model.never_late]
    return [*lines, ""]


def render_fixture(report: FixtureReport) -> str:
    """One fixture: its outcome, and what differs as tables."""
    lines = [f"{report.model}  {report.path}", "", "PASS" if report.passed else "FAIL", ""]
    if report.error is not None:
        return "\n".join([*lines, f"  {report.error}", ""])
    if any(row.problem for row in report.rows):
        lines += [*_table([_row_cells(row, report.columns) for row in report.rows], ("#", "expected", "actual")), ""]
    if any(row.problem for row in report.final):
        lines += ["  the rows at the end, in any order", ""]
        lines += [*_table([_row_cells(row, report.columns, final=True) for row in report.final], ("#", "expected", "actual")), ""]
    for name, listed in (("late", report.late), ("quarantined", report.quarantined)):
        if any(item.problem for item in listed):
            happened = "dropped" if name == "late" else "quarantined"
            lines += [*_table([_listed_cells(item) for item in listed], ("#", f"{name}: listed", happened)), ""]
    if report.verdict is not None:
        lines.append(f"verdict of the change: {report.verdict}")
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


def _row_cells(row: RowReport, columns: tuple[str, ...], *, final: bool = False) -> Cells:
    left, right = (_record(side, columns, "(nothing)", with_op=not final) for side in (row.expected, row.actual))
    return str(row.index + 1), left, right, row.problem


def _record(record: Record | None, columns: tuple[str, ...], nothing: str, *, with_op: bool) -> str:
    if record is None:
        return nothing
    values = record["columns"]
    shown = [f"{name}={_value(values[name])}" for name in columns or values if name in values]
    return " ".join([record["op"].ljust(6), *shown] if with_op else shown)


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
    document = {"report_version": REPORT_VERSION, "passed": report.passed, "fixtures": [fixture_document(f) for f in report.fixtures]}
    if report.coverage is not None:
        document["coverage"] = [coverage_document(model) for model in report.coverage]
    return document


def coverage_document(model: ModelCoverage) -> dict[str, Any]:
    """What the fixtures reach of one model."""
    filters = [{"node": f.node, "definition": f.definition, "kept": f.kept, "dropped": f.dropped, "gap": f.gap} for f in model.filters]
    counts = {"fixtures": model.fixtures, "fixtures_of_readers": model.touched}
    return {"model": model.model, **counts, "covered": model.is_covered, "filters": filters, "never_late": list(model.never_late)}


def fixture_document(report: FixtureReport) -> dict[str, Any]:
    """One fixture of the report; counts and lists that are empty are left out."""
    document: dict[str, Any] = {"model": report.model, "path": report.path, "passed": report.passed}
    if report.error is not None:
        document["error"] = report.error
    document |= {"events_processed": report.events_processed, "changes_emitted": report.changes_emitted}
    document["rows"] = [_sides(row) for row in report.rows]
    if report.verdict is not None:
        document["verdict"] = report.verdict
    if report.final:
        document["final"] = [_sides(row) for row in report.final]
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
