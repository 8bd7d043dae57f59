"""The StateStore port: what the embedded backend keeps on disk behaves as what the simulator keeps in memory."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamform.adapters import state_store
from streamform.adapters.state_database import StateDatabase
from streamform.adapters.state_store import SqliteStore
from streamform.errors import StateError
from streamform.runtime.records import Key
from streamform.runtime.state import Entry, MemoryStore, StateStore

RETENTION = 10


def deadline(key: Key, entry: Entry) -> int:
    """Entries end with their latest event time."""
    latest: int = entry[-1]
    return latest + RETENTION


def save_and_fail(database: StateDatabase, store: SqliteStore) -> None:
    """A checkpoint that something else ends after state was written."""
    with database.transaction():
        store.save()
        raise StateError("in the middle")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[StateDatabase]:
    opened = StateDatabase.open(tmp_path / "state.db", "shop", "local")
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, database: StateDatabase) -> StateStore:
    return MemoryStore(deadline) if request.param == "memory" else SqliteStore(database, 1, deadline)


def put(store: StateStore, key: Key, at: int, value: object = 0) -> None:
    """What an operator does with an event of this key."""
    store.load([key])
    entry = store.live.get(key)
    if entry is None:
        store.live[key] = [value, at]
        store.schedule(key, at + RETENTION)
    else:
        entry[0], entry[-1] = value, max(entry[-1], at)


def get(store: StateStore, key: Key) -> Entry | None:
    store.load([key])
    return store.live.get(key)


def test_a_key_that_was_never_seen_has_no_entry(store: StateStore) -> None:
    assert get(store, (1,)) is None
    assert store.next_deadline() is None
    assert store.due(1_000) == []


def test_entries_are_due_when_their_deadline_is_reached_and_are_gone_then(store: StateStore) -> None:
    put(store, (1,), 0)
    put(store, (2,), 5)
    assert store.due(RETENTION - 1) == []
    assert store.due(RETENTION) == [((1,), [0, 0])]
    assert (get(store, (1,)), get(store, (2,))) == (None, [0, 5])
    assert sorted(key for key, _ in store.due(1_000)) == [(2,)]


def test_an_entry_that_was_extended_lives_on(store: StateStore) -> None:
    put(store, (1,), 0)
    put(store, (1,), 7)
    assert store.due(RETENTION) == []
    assert get(store, (1,)) == [0, 7]
    assert store.due(RETENTION + 7) == [((1,), [0, 7])]


def test_the_next_deadline_is_never_after_a_real_one(store: StateStore) -> None:
    for key, at in (((1,), 9), ((2,), 4), ((1,), 30)):
        put(store, key, at)
    bound = store.next_deadline()
    assert bound is not None
    assert bound <= 4 + RETENTION


def test_a_key_that_comes_back_after_it_was_due_starts_over(store: StateStore) -> None:
    put(store, (1,), 0, "old")
    store.due(1_000)
    put(store, (1,), 2_000, "new")
    assert get(store, (1,)) == ["new", 2_000]


KEYS: tuple[Key, ...] = ((), (None,), (1,), ("1",), (Decimal("1.50"),), (True, "ä\n'"), (0.5, None))


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_keys_of_every_type_are_different_keys(store: StateStore, key: Key) -> None:
    for number, other in enumerate(KEYS):
        put(store, other, number)
    assert get(store, key) == [0, KEYS.index(key)]


# what only the database can do wrong


VALUES: tuple[Any, ...] = (None, 0, -(2**63), 1.5, Decimal("-0.00"), Decimal("9" * 38), "ä\x00'", True, {Decimal("1.0"): 2, "b": 1})


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_was_saved_is_there_for_the_next_process(database: StateDatabase, value: object) -> None:
    first = SqliteStore(database, 1, deadline)
    put(first, (1,), 3, value)
    with database.transaction():
        first.save()
    again = get(SqliteStore(database, 1, deadline), (1,))
    assert again is not None
    assert (repr(again[0]), again[1]) == (repr(value), 3)
    assert get(SqliteStore(database, 2, deadline), (1,)) is None


def test_what_was_not_saved_is_not_there(database: StateDatabase) -> None:
    first = SqliteStore(database, 1, deadline)
    put(first, (1,), 3)
    with pytest.raises(StateError, match="in the middle"):
        save_and_fail(database, first)
    assert get(SqliteStore(database, 1, deadline), (1,)) is None


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), st.integers(0, 60)),
        st.tuples(st.just("due"), st.integers(0, 80), st.just(0)),
        st.tuples(st.just("save"), st.booleans(), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 4), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(acts=ACTS)
def test_memory_and_database_hold_the_same_after_any_acts(tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[Any, ...]]) -> None:
    """Saving, letting go of what is cached and starting again in another process change nothing."""
    database = StateDatabase.open(tmp_path_factory.mktemp("state") / "state.db", "shop", "local")
    memory, disk = MemoryStore(deadline), SqliteStore(database, 1, deadline)
    watermark = 0
    try:
        for number, (act, first, second) in enumerate(acts):
            if act == "put":
                for store in (memory, disk):
                    put(store, (first,), second, number)
            elif act == "drop":
                for store in (memory, disk):
                    store.load([(first,)])
                    store.live.pop((first,), None)
            elif act == "due":
                watermark = max(watermark, first)
                assert sorted(memory.due(watermark)) == sorted(disk.due(watermark))
            else:
                disk.save()
                disk = SqliteStore(database, 1, deadline) if first else disk
            assert {(k,): get(memory, (k,)) for k in range(5)} == {(k,): get(disk, (k,)) for k in range(5)}
    finally:
        database.close()


def test_more_entries_than_fit_into_memory_are_all_there(database: StateDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "CACHED", 10)
    store = SqliteStore(database, 1, deadline)
    for key in range(1_200):
        put(store, (key,), key)
        if key % 100 == 99:
            store.save()
            assert len(store.live) <= 10
    store.load([(key,) for key in range(1_200)])
    assert store.live == {(key,): [0, key] for key in range(1_200)}
    assert len(store.due(599 + RETENTION)) == 600
