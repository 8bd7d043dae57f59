"""The typed store over every adapter: what comes back is what was written, and what was changed behind our back is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from streamform.errors import DocumentError, StoreError
from streamform.identity.manifest import build_manifest
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.approval import DecisionEntry, PendingPlan, Request
from streamform.lifecycle.journal import Attempt, RunningState, StageEntry, attempt_digest
from streamform.lifecycle.ports import ANY, DesiredUnit
from streamform.lifecycle.store import Store
from tests.conftest import ProjectBuilder

STAGES = (StageEntry("submit", {"restore": True}, "done", 5, {"job": "j"}, {"job_id": "j"}), StageEntry("write-record"))
FIRST = Attempt(
    "m", "prod", 1, None, "m-1-1", "apply", "ann", 5, "p1", "SAFE", "SAFE", "a" * 64, ("m", "n"), {"m::sink::0": "m::sink::0"},
    ("old",), ({"by": "bob", "at_ms": 4},), STAGES, "applied", 9, None, RunningState(("m", "n"), "a" * 64, "a" * 64, "j"), "b" * 64,
)  # fmt: skip
PENDING = PendingPlan(
    "1a2b3c4d5e6f7081", "shop", "prod", "m", "SAFE", "BACKFILL REQUIRED", "BACKFILL REQUIRED", {"unit": "m", "nodes": {}}, "| a |", 7,
    (Request("ann", 7),), (DecisionEntry("approve", "bob", 8, "seen", True),),
)  # fmt: skip


def chain(store: Store, length: int = 3) -> list[Attempt]:
    """Entries of one unit, each following the one before."""
    written = [store.write_attempt(FIRST, replaces=None)]
    while len(written) < length:
        number = len(written) + 1
        following = replace(FIRST, sequence=number, previous=attempt_digest(written[-1]), attempt=f"m-{number}-1")
        written.append(store.write_attempt(following, replaces=None))
    return written


def path_of(store: Store, sequence: int) -> str:
    return f"journal/{store.folder}/m/{sequence:08d}.json"


def edited(store: Store, path: str, **fields: Any) -> None:
    """Change fields of a document behind the store's back."""
    content = store.documents.read(path)
    assert content is not None
    store.documents.write(path, json.dumps(json.loads(content) | fields).encode(), expected=ANY)


# journal


def test_entries_come_back_as_they_were_written_in_their_order(store: Store) -> None:
    written = chain(store, 12)
    assert store.attempts("m") == written
    assert store.newest("m") == written[-1]
    assert store.units() == ["m"]


def test_a_unit_without_entries_has_none(store: Store) -> None:
    assert (store.attempts("m"), store.newest("m"), store.units()) == ([], None, [])


@pytest.mark.parametrize("name", ["a/b", "..", ".", "ü %2F", "a" * 80])
def test_units_and_targets_of_any_name_have_a_place_of_their_own(store: Store, name: str) -> None:
    other = Store(store.documents, name)
    other.write_attempt(replace(FIRST, unit=name, target=name), replaces=None)
    assert other.units() == [name]
    assert [attempt.unit for attempt in other.attempts(name)] == [name]
    assert store.units() == []


@pytest.mark.parametrize("sequence", [1, 2])
def test_an_entry_that_was_edited_breaks_the_chain(store: Store, sequence: int) -> None:
    chain(store)
    edited(store, path_of(store, sequence), by="eve")
    with pytest.raises(StoreError, match=rf"entry {sequence + 1} of unit `m` does not follow entry {sequence}"):
        store.attempts("m")


def test_an_entry_that_was_put_in_anothers_place_breaks_the_chain(store: Store) -> None:
    chain(store)
    first = store.documents.read(path_of(store, 1))
    assert first is not None
    store.documents.write(path_of(store, 2), first, expected=ANY)
    with pytest.raises(StoreError, match="does not follow"):
        store.attempts("m")


def test_an_entry_that_is_missing_breaks_the_chain(store: Store) -> None:
    first, _, third = chain(Store(store.documents, "other"))
    for entry in (first, third):
        store.write_attempt(entry, replaces=None)
    with pytest.raises(StoreError, match="entry 3 of unit `m` does not follow entry 1"):
        store.attempts("m")


def test_of_two_who_write_the_next_entry_one_is_refused(store: Store) -> None:
    chain(store)
    with pytest.raises(StoreError, match="changed by somebody else"):
        store.write_attempt(replace(FIRST, sequence=3, by="eve"), replaces=None)
    assert [attempt.by for attempt in store.attempts("m")] == ["ann"] * 3


def test_an_entry_is_replaced_by_who_read_it_last(store: Store) -> None:
    (opened,) = chain(store, 1)
    failed = store.write_attempt(replace(opened, outcome="failed", problem="x"), replaces=opened)
    with pytest.raises(StoreError, match="changed by somebody else"):
        store.write_attempt(replace(opened, outcome="applied"), replaces=opened)
    assert store.newest("m") == failed


@pytest.mark.parametrize(
    "fields", [{"attempt_version": 2}, {"attempt_version": None}, {"stages": 5}, {"running": {}}, {"unknown": 1}, {"models": None}]
)
def test_an_entry_of_another_kind_is_refused(store: Store, fields: dict[str, Any]) -> None:
    chain(store, 1)
    edited(store, path_of(store, 1), **fields)
    with pytest.raises(DocumentError):
        store.attempts("m")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 100_000])
def test_an_entry_that_is_no_document_is_refused(store: Store, content: bytes) -> None:
    store.documents.write(path_of(store, 1), content, expected=ANY)
    with pytest.raises(DocumentError):
        store.newest("m")


# record


def unit_of(project: ProjectBuilder) -> DesiredUnit:
    plan = project("SELECT customer_id FROM source('orders')").compiled().plan
    return DesiredUnit("m", ("m",), plan, build_manifest(plan), {"kafka": {"startup": "earliest"}}, ("SELECT 1",))


def test_the_record_comes_back_and_its_digest_says_that_it_is_ours(store: Store, project: ProjectBuilder) -> None:
    assert store.read_record() is None
    record = AppliedRecord("prod", "2026-08-30T10:00:00Z", "0.1.0", "flink", ("j",), unit_of(project).manifest, "c" * 64)
    written = store.write_record(record)
    assert store.read_record() == store.read_record(frozenset({written})) == record


def test_a_record_that_was_changed_is_refused(store: Store, project: ProjectBuilder) -> None:
    record = AppliedRecord("prod", "2026-08-30T10:00:00Z", "0.1.0", "flink", ("j",), unit_of(project).manifest, "c" * 64)
    written = store.write_record(record)
    content = store.documents.read(store.record_path)
    assert content is not None
    store.documents.write(store.record_path, content.replace(b"customer_id", b"customer_ix"), expected=ANY)
    with pytest.raises(DocumentError, match="changed after it was written"):
        store.read_record(frozenset({written}))


# artifacts


def test_an_artifact_is_named_by_its_content(store: Store, project: ProjectBuilder) -> None:
    unit = unit_of(project)
    name = store.write_artifact(unit, {"models/m.sql": "a"})
    assert store.write_artifact(unit, {"models/m.sql": "b"}) == name
    assert store.artifact_manifest(name) == unit.manifest
    assert store.read_artifact(name, "project.json") == {"models/m.sql": "a"}
    assert store.write_artifact(replace(unit, statements=("SELECT 2",)), {}) != name


@pytest.mark.parametrize("file", ["manifest.json", "facts.json", "statements.json"])
def test_an_artifact_that_was_changed_is_refused(store: Store, project: ProjectBuilder, file: str) -> None:
    name = store.write_artifact(unit_of(project), {})
    path = f"artifacts/{name}/{file}"
    content = store.documents.read(path)
    assert content is not None
    store.documents.write(path, json.dumps({"x": json.loads(content)}).encode(), expected=ANY)
    with pytest.raises(StoreError, match="changed after it was written"):
        store.artifact_manifest(name)


def test_an_artifact_that_is_gone_is_an_error_and_never_an_empty_one(store: Store) -> None:
    with pytest.raises(StoreError, match="is missing"):
        store.artifact_manifest("a" * 64)


# approvals


def test_a_pending_plan_comes_back_as_it_was_written(store: Store) -> None:
    store.write_pending(PENDING, replaces=None)
    assert store.pending_plan(PENDING.plan_id) == PENDING
    assert store.pending() == [PENDING]


def test_pending_plans_are_listed_in_the_order_of_their_registration(store: Store) -> None:
    plans = [replace(PENDING, plan_id=name, registered_at_ms=at) for name, at in (("b", 3), ("a", 3), ("c", 1))]
    for plan in plans:
        store.write_pending(plan, replaces=None)
    assert [plan.plan_id for plan in store.pending()] == ["c", "a", "b"]


def test_of_two_decisions_about_the_same_plan_the_second_reads_it_again(store: Store) -> None:
    store.write_pending(PENDING, replaces=None)
    consumed = store.write_pending(replace(PENDING, consumed_by="m-1-1"), replaces=PENDING)
    with pytest.raises(StoreError, match="changed by somebody else"):
        store.write_pending(replace(PENDING, decisions=()), replaces=PENDING)
    assert store.pending_plan(PENDING.plan_id) == consumed


@pytest.mark.parametrize("plan_id", ["", "../applied/prod", "a/b", "nothing", "1a2b3c4d5e6f708 "])
def test_an_id_that_names_no_plan_finds_none(store: Store, plan_id: str) -> None:
    store.write_pending(PENDING, replaces=None)
    assert store.pending_plan(plan_id) is None


def test_approvals_of_another_target_are_not_seen(store: Store) -> None:
    Store(store.documents, "other").write_pending(replace(PENDING, target="other"), replaces=None)
    assert store.pending() == []
    assert store.pending_plan(PENDING.plan_id) is None
