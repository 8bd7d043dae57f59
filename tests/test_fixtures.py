"""What a fixture can say beyond the published format, and the ways to run fixtures other than `streamform test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streamform import api
from streamform.testing import open_model

from .conftest import ProjectBuilder, ProjectFolder, environment

SOURCES = """
sources:
  e: {connector: file, path: data/e.jsonl, schema: {k: int64, v: "decimal(10,2)", at: timestamp}, event_time: at, watermark: 1m}
  f: {connector: file, path: data/f.jsonl, schema: {k: int64, v: "decimal(10,2)"}}
"""
TOTALS = "SELECT k, SUM(v) AS total FROM source('e') GROUP BY k"
CONFIG = {"m": {"materialized": "upsert", "key": ["k"]}}
GIVEN = """
given:
- {k: 1, v: 1.00, at: "2026-08-30T10:00:00Z"}
- {k: 2, v: 5.00, at: "2026-08-30T10:00:00Z"}
- {k: 1, v: 2.50, at: "2026-08-30T10:00:01Z"}
"""


@pytest.fixture
def totals(project: ProjectBuilder) -> ProjectFolder:
    return project({"m": TOTALS}, CONFIG, sources=SOURCES)


def outcome(folder: ProjectFolder, fixture: str) -> str:
    """`passed`, or the text of the failure."""
    folder.write("tests/f.yml", "model: m\n" + fixture)
    done = folder.run("test")
    assert done.code in (0, 1), done.stderr
    return "passed" if done.code == 0 else done.stdout


def test_the_table_at_the_end_is_compared_in_any_order(totals: ProjectFolder) -> None:
    assert outcome(totals, GIVEN + "expect_final: [{k: 2, total: 5}, {k: 1, total: 3.50}]") == "passed"
    text = outcome(totals, GIVEN + "expect_final: [{k: 2, total: 5}, {k: 1, total: 3.00}]")
    assert "the rows at the end, in any order" in text
    assert "^ total: expected 3, got 3.5" in text


def test_without_expect_the_changelog_is_not_compared_where_the_table_is(totals: ProjectFolder) -> None:
    assert outcome(totals, GIVEN + "expect_final: [{k: 1, total: 3.50}, {k: 2, total: 5}]") == "passed"
    assert "unexpected: the fixture ends before this record" in outcome(totals, GIVEN)


def test_records_in_any_order(totals: ProjectFolder) -> None:
    records = "[{op: update, k: 1, total: 3.5}, {op: insert, k: 2, total: 5}, {op: insert, k: 1, total: 1}]"
    assert outcome(totals, GIVEN + f"match: unordered\nexpect: {records}") == "passed"
    assert "missing" not in outcome(totals, GIVEN + f"expect: {records}")
    assert "no record of the fixture is left" in outcome(totals, GIVEN + "match: unordered\nexpect: [{op: insert, k: 2, total: 5}]")


def test_partial_records_compare_the_columns_that_are_written(totals: ProjectFolder) -> None:
    records = "[{op: insert, k: 1}, {op: insert, total: 5}, {op: update, k: 1}]"
    assert outcome(totals, GIVEN + f"match: partial\nexpect: {records}") == "passed"
    assert "k: expected 2, got 1" in outcome(totals, GIVEN + f"match: partial\nexpect: {records.replace('update, k: 1', 'update, k: 2')}")
    assert totals.write("tests/f.yml", f"model: m\n{GIVEN}expect: {records}").codes().count("SF702") == 3


def test_the_row_before_an_update_is_compared_where_it_is_written(totals: ProjectFolder) -> None:
    records = "[{op: insert, k: 1, total: 1}, {op: insert, k: 2, total: 5}, {op: update, k: 1, total: 3.5, before: {k: 1, total: 1}}]"
    assert outcome(totals, GIVEN + f"expect: {records}") == "passed"
    wrong = records.replace("before: {k: 1, total: 1}", "before: {k: 1, total: 2}")
    assert "before, total: expected 2, got 1" in outcome(totals, GIVEN + f"expect: {wrong}")
    assert totals.write("tests/f.yml", "model: m\nexpect: [{op: insert, k: 1, total: 1, before: {k: 1, total: 1}}]").codes() == ["SF005"]


def test_a_column_that_is_called_op(project: ProjectBuilder) -> None:
    sources = "sources: {e: {connector: file, path: x, schema: {op: string, before: int64}}}"
    folder = project({"m": "SELECT op, before FROM source('e')"}, sources=sources)
    fixture = "given: [{event: {op: x, before: 1}}]\nexpect: [{op: insert, row: {op: x, before: 1}}]"
    assert outcome(folder, fixture) == "passed"


def test_an_error_that_is_expected(project: ProjectBuilder) -> None:
    folder = project({"m": "SELECT 1 / k AS r FROM source('f')"}, sources=SOURCES)
    assert outcome(folder, "given: [{k: 0}]\nexpect_error: division by zero") == "passed"
    assert "and there was none" in outcome(folder, "given: [{k: 1}]\nexpect_error: division by zero")
    assert "got:" in outcome(folder, "given: [{k: 0}]\nexpect_error: something else")


def test_events_of_several_sources_and_their_watermarks(project: ProjectBuilder) -> None:
    sql = "SELECT k, COUNT(*) AS n FROM (SELECT k FROM source('e') UNION ALL SELECT k FROM source('f')) GROUP BY k"
    folder = project({"m": sql}, CONFIG, sources=SOURCES)
    fixture = """
given:
- {source: e, event: {k: 1, at: "2026-08-30T10:00:00Z"}}
- {source: f, event: {k: 1}}
- {source: e, watermark: "2026-08-30T11:00:00Z"}
- {source: e, event: {k: 1, at: "2026-08-30T10:59:59Z"}}
- {source: f, event: {k: 1}}
expect_final: [{k: 1, n: 3}]
late: [{_source: e, k: 1, at: "2026-08-30T10:59:59Z"}]
"""
    assert outcome(folder, fixture) == "passed"


def test_rows_of_a_file_are_read_as_the_source_reads_them(totals: ProjectFolder) -> None:
    totals.write(
        "tests/rows.jsonl", '{"k": 1, "v": 1.00, "at": "2026-08-30T10:00:00"}\n{"k": 1, "v": "2.5", "at": "2026-08-30T10:00:01.5"}'
    )
    assert outcome(totals, "given: [{rows: tests/rows.jsonl}]\nexpect_final: [{k: 1, total: 3.5}]") == "passed"
    totals.write("tests/rows.jsonl", '{"k": 1.5}\n')
    assert "tests/rows.jsonl, line 1: k is" in outcome(totals, "given: [{rows: tests/rows.jsonl}]")
    assert "can't read tests/none.jsonl" in outcome(totals, "given: [{rows: tests/none.jsonl}]")


def test_rows_of_a_csv_file_are_read_by_its_header(totals: ProjectFolder) -> None:
    totals.write("tests/rows.csv", "at,v,k\n2026-08-30T10:00:00,1.00,1\n2026-08-30T10:00:01.5,,1\n2026-08-30 10:00:02,2.50,1\n")
    assert outcome(totals, "given: [{rows: tests/rows.csv}]\nexpect_final: [{k: 1, total: 3.5}]") == "passed"
    totals.write("tests/rows.csv", "at,v,k\n2026-08-30T10:00:00,1.00,one\n")
    assert 'tests/rows.csv, line 2: k is "one", which is no int64' in outcome(totals, "given: [{rows: tests/rows.csv}]")
    totals.write("tests/rows.csv", "at,v,nobody\n")
    assert "tests/rows.csv names `nobody`" in outcome(totals, "given: [{rows: tests/rows.csv}]")


UPGRADE = """
upgrade:
  project: ../before
  verdict: {verdict}
  given: [{{k: 1, v: 10.00, at: "2026-08-30T10:00:02Z"}}]
"""


def upgraded(project: ProjectBuilder, before: str, after: str, rest: str, verdict: str) -> str:
    project({"m": before}, CONFIG, sources=SOURCES).root.rename(project({}).root.parent / "before")
    return outcome(project({"m": after}, CONFIG, sources=SOURCES), GIVEN + UPGRADE.format(verdict=verdict) + rest)


def test_an_upgrade_that_continues_keeps_its_totals(project: ProjectBuilder) -> None:
    after = "SELECT k, SUM(v) AS total FROM source('e') GROUP BY k HAVING SUM(v) > 4"
    rest = "expect: [{op: insert, k: 1, total: 13.5}]\nexpect_final: [{k: 1, total: 13.5}, {k: 2, total: 5}]"
    assert upgraded(project, TOTALS, after, rest, "COMPATIBLE") == "passed"


def test_an_upgrade_that_needs_a_backfill_shows_what_a_fresh_run_has(project: ProjectBuilder) -> None:
    after = "SELECT k, SUM(v) AS total FROM source('e') WHERE v > 2 GROUP BY k"
    rest = "expect_final: [{k: 1, total: 12.5}, {k: 2, total: 5}]"
    assert upgraded(project, TOTALS, after, rest, "BACKFILL REQUIRED") == "passed"


def test_an_upgrade_with_another_verdict_fails(project: ProjectBuilder) -> None:
    assert "the plan says SAFE, expected COMPATIBLE" in upgraded(project, TOTALS, TOTALS, "", "COMPATIBLE")


def test_an_upgrade_from_a_git_revision(totals: ProjectFolder) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "before"]):
        subprocess.run([*git, *arguments], cwd=totals.root, check=True)
    totals.write("models/m.sql", TOTALS.replace("GROUP", "WHERE v > 2 GROUP"))
    fixture = GIVEN + UPGRADE.format(verdict="BACKFILL REQUIRED").replace("../before", "git:HEAD")
    assert outcome(totals, fixture + "expect_final: [{k: 1, total: 12.5}, {k: 2, total: 5}]") == "passed"
    totals.write("tests/f.yml", "model: m\n" + fixture.replace("git:HEAD", "git:nowhere"))
    done = totals.run("test")
    assert (done.code, done.stderr.count("\n")) == (2, 2)
    assert "no revision `nowhere`" in done.stderr


def test_no_fixture_at_all_is_said_and_fails_when_strict(totals: ProjectFolder) -> None:
    assert (totals.run("test").code, totals.run("test").stdout) == (0, "ok: no fixtures under tests/\n")
    assert (totals.run("test", "--strict").code, totals.run("test", "--strict").stdout) == (1, "failed: no fixtures under tests/\n")


def test_coverage_names_the_side_of_a_filter_that_no_row_takes(project: ProjectBuilder) -> None:
    folder = project({"m": TOTALS.replace("GROUP", "WHERE v > 2 GROUP"), "n": "SELECT k FROM source('f')"}, CONFIG, sources=SOURCES)
    folder.write("tests/f.yml", "model: m\ngiven: [{k: 1, v: 5.00, at: '2026-08-30T10:00:00Z'}]\nexpect: [{op: insert, k: 1, total: 5}]")
    text = folder.run("test", "--coverage").stdout
    assert "m::filter::0 (v > 2): every row passes" in text
    assert "no fixture has a late event of `e`" in text
    assert "n: 0 fixtures\n    no fixture touches it" in text
    (m, n) = json.loads(folder.run("test", "--coverage", "--json").stdout)["coverage"]
    assert (m["covered"], m["filters"][0]["kept"], m["filters"][0]["dropped"], n["covered"]) == (False, 1, 0, False)


def test_junit_has_a_case_for_each_fixture(totals: ProjectFolder, tmp_path: Path) -> None:
    totals.write("tests/good.yml", "model: m\n" + GIVEN + "expect_final: [{k: 1, total: 3.50}, {k: 2, total: 5}]")
    totals.write("tests/wrong.yml", "model: m\n" + GIVEN + "expect_final: [{k: 1, total: 3.50}]")
    assert totals.run("test", "--junit", str(tmp_path / "report.xml")).code == 1
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]
    missing = totals.run("test", "--junit", str(tmp_path / "no" / "report.xml"))
    assert (missing.code, "can't write" in missing.stderr) == (2, True)


def test_pytest_collects_fixtures(totals: ProjectFolder) -> None:
    totals.write("tests/good.yml", "model: m\n" + GIVEN + "expect_final: [{k: 1, total: 3.50}, {k: 2, total: 5}]")
    totals.write("tests/wrong.yml", "model: m\n" + GIVEN + "expect_final: [{k: 1, total: 3.50}]")
    totals.write("tests/other/broken.yml", "model: nobody\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=totals.root, env=environment(), capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "unexpected" in done.stdout
    assert "SF701" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_model_is_tested_from_python(totals: ProjectFolder) -> None:
    with open_model(totals.root, "m") as model:
        assert model.push(k=1, v="1.00", at="2026-08-30T10:00:00Z") == [{"op": "insert", "columns": {"k": 1, "total": "1"}}]
        (record,) = model.push(k=1, v="0.50", at="2026-08-30T10:00:00Z")
        assert record == {"op": "update", "columns": {"k": 1, "total": "1.5"}, "before": {"k": 1, "total": "1"}}
        assert model.watermark("2026-08-30T12:00:00Z") == []
        assert model.push(k=1, v="9.00", at="2026-08-30T10:00:00Z") == []
        assert model.late() == [{"at": "2026-08-30T10:00:00.000Z", "k": 1, "v": "9"}]
        assert model.rows() == [{"k": 1, "total": "1.5"}]


def test_a_model_over_several_sources_is_tested_from_python(project: ProjectBuilder) -> None:
    folder = project({"m": "SELECT k FROM source('e') UNION ALL SELECT k FROM source('f')"}, sources=SOURCES)
    with open_model(folder.root, "m") as model:
        assert model.push("f", k=7) == [{"op": "insert", "columns": {"k": 7}}]


def test_fixtures_that_the_api_runs_say_what_they_reached(totals: ProjectFolder) -> None:
    totals.write("tests/f.yml", "model: m\n" + GIVEN + "expect_final: [{k: 1, total: 3.50}, {k: 2, total: 5}]")
    (report,) = api.test(totals.root).fixtures
    assert report.reached is not None
    assert report.reached.models == {"m"}
