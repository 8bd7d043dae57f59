"""The fixtures that the event time page walks through, and what happens to late events."""

from __future__ import annotations

import pytest

from .conftest import ProjectBuilder, ProjectFolder

SOURCES = """
sources:
  orders:
    connector: kafka
    topic: orders
    schema: {customer_id: int64, amount: "decimal(12,2)", ordered_at: timestamp}
    event_time: ordered_at
    watermark: 5m
"""
SQL = "SELECT customer_id, SUM(amount) AS total_spend FROM source('orders') GROUP BY customer_id"


def event(customer: int, amount: int, time: str) -> str:
    return f'  - event: {{ customer_id: {customer}, amount: {amount}, ordered_at: "2026-08-30T{time}Z" }}\n'


def record(op: str, customer: int, total: int) -> str:
    return f"  - {{ op: {op}, customer_id: {customer}, total_spend: {total} }}\n"


def shop(project: ProjectBuilder, sources: str = SOURCES, **model: str) -> ProjectFolder:
    config = {"customer_metrics": {"materialized": "upsert", "key": ["customer_id"], **model}}
    return project({"customer_metrics": SQL}, config, sources=sources)


def outcome_of(folder: ProjectFolder, given: str, expect: str, rest: str = "") -> str:
    folder.write("tests/f.yml", f"model: customer_metrics\ngiven:\n{given}expect:\n{expect}{rest}")
    return folder.run("test").stdout


LATE = event(42, 10, "10:00:00") + event(42, 20, "10:10:00") + event(42, 5, "10:01:00") + event(42, 1, "10:06:00")
LISTED = 'late:\n  - { customer_id: 42, amount: 5, ordered_at: "2026-08-30T10:01:00Z" }\n'


def test_a_late_event_is_dropped_counted_and_acknowledged(project: ProjectBuilder) -> None:
    expect = record("insert", 42, 10) + record("update", 42, 30) + record("update", 42, 31)
    folder = shop(project)
    text = outcome_of(folder, LATE, expect, LISTED)
    assert "PASS\n\n3 events processed\n3 changelog records emitted\n1 late event dropped\n" in text
    unlisted = outcome_of(folder, LATE, expect)
    assert 'amount=5 customer_id=42 ordered_at="2026-08-30T10:01:00.000Z"' in unlisted
    assert "set `late_events: keep` on the source" in unlisted
    kept = expect.replace("total_spend: 31", "total_spend: 35") + record("update", 42, 36)
    assert "PASS" in outcome_of(shop(project, SOURCES + "    late_events: keep\n"), LATE, kept)


def test_the_watermark_advances_by_events_and_by_items_and_never_backwards(project: ProjectBuilder) -> None:
    given = (
        event(1, 1, "10:00:00")
        + event(1, 1, "09:57:00")
        + '  - watermark: "2026-08-30T10:20:00Z"\n'
        + event(1, 1, "10:15:00")
        + '  - watermark: "2026-08-30T10:00:00Z"\n'
        + event(1, 1, "10:19:00")
        + event(1, 1, "10:30:00")
        + event(1, 1, "10:24:00")
        + event(1, 1, "10:26:00")
    )
    expect = record("insert", 1, 1) + "".join(record("update", 1, total) for total in (2, 3, 4))
    late = "late:\n" + "".join(
        f'  - {{ customer_id: 1, amount: 1, ordered_at: "2026-08-30T{time}Z" }}\n' for time in ("10:15:00", "10:19:00", "10:24:00")
    )
    text = outcome_of(shop(project), given, expect, late)
    assert "PASS\n\n4 events processed\n4 changelog records emitted\n3 late events dropped\n" in text


def test_state_expires_after_its_retention_and_the_key_starts_over(project: ProjectBuilder) -> None:
    given = (
        event(42, 10, "10:00:00")
        + event(7, 3, "10:08:00")
        + '  - watermark: "2026-08-30T10:10:00Z"\n'
        + event(42, 5, "10:11:00")
        + event(7, 1, "10:12:00")
    )
    expect = record("insert", 42, 10) + record("insert", 7, 3) + record("insert", 42, 5) + record("update", 7, 4)
    assert "PASS" in outcome_of(shop(project, retention="10m"), given, expect)


QUARANTINED = 'quarantined:\n  - { _contract: late, customer_id: 42, amount: 5, ordered_at: "2026-08-30T10:01:00Z" }\n'


def test_a_late_event_goes_into_quarantine_where_the_source_says_so(project: ProjectBuilder) -> None:
    folder = shop(project, SOURCES + "    late_events: quarantine\n    quarantine: {topic: late-orders}\n")
    expect = record("insert", 42, 10) + record("update", 42, 30) + record("update", 42, 31)
    assert "PASS\n\n3 events processed\n3 changelog records emitted\n1 event quarantined\n" in outcome_of(folder, LATE, expect, QUARANTINED)
    assert "late=quarantine" in folder.run("inspect-plan").stdout


@pytest.mark.parametrize("rest", ["    late_events: quarantine\n"])
def test_late_events_need_a_place_to_go(project: ProjectBuilder, rest: str) -> None:
    assert "SF319" in shop(project, SOURCES + rest).codes()
