"""The Sink port: a delivery that was cut off anywhere arrives exactly once, and what somebody else wrote stays theirs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamform.adapters.file_sink import FileSink
from streamform.adapters.sink import Mark, Shape, Sink, SinkVanished
from streamform.adapters.sqlite_sink import SqliteSink
from streamform.errors import Refused, StateError
from streamform.project.model import Endpoint
from streamform.runtime.records import DELETE, INSERT, UPDATE, Change
from streamform.values.rows import Column
from streamform.values.types import parse_rendered_type

SCHEMA = (Column("k", parse_rendered_type("int64")), Column("t", parse_rendered_type("decimal(12,2)")))
FIRST: list[Change] = [(INSERT, (1, None), None), (INSERT, (2, None), None)]
THIRD: list[Change] = [(INSERT, (3, None), None)]
SECOND: list[Change] = [(UPDATE, (1, None), (1, None)), (DELETE, (2, None), None), (INSERT, (3, None), None)]


class Place:
    """A sink of one kind, and its rows as their reader finds them."""

    def __init__(self, kind: str, root: Path, *, upserts: bool) -> None:
        self.kind, self.root, self.upserts = kind, root, upserts
        endpoint = Endpoint("sqlite", path="out.db", table="m") if kind == "sqlite" else Endpoint("file", path="out.jsonl")
        self.shape = Shape("m", SCHEMA, ("k",) if upserts else (), upserts, endpoint)
        self.sink: Sink = self.open()

    def open(self) -> Sink:
        return SqliteSink(self.root, self.shape) if self.kind == "sqlite" else FileSink(self.root, self.shape)

    def reopen(self) -> None:
        """Another process."""
        self.sink.close()
        self.sink = self.open()

    def keys(self) -> list[int]:
        """The keys that are there, in order; of an upsert file as its lines leave them."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.root / "out.db")) as database:
                return sorted(key for (key,) in database.execute("SELECT k FROM m"))
        lines = [json.loads(line) for line in (self.root / "out.jsonl").read_text().splitlines()]
        if not self.upserts:
            return sorted(line["k"] for line in lines)
        left: dict[int, Any] = {}
        for line in lines:
            left.pop(line["key"]["k"], None)
            if line["op"] != "delete":
                left[line["key"]["k"]] = line
        return sorted(left)

    def announced(self, mark: Mark, changes: list[Change]) -> Mark:
        """The mark of one more delivery."""
        return Mark(mark.token, mark.number + 1, self.sink.length_after(mark, changes))

    def destroy(self) -> None:
        self.sink.close()
        for file in self.root.iterdir():
            file.unlink()


@pytest.fixture(params=["sqlite upsert", "sqlite append", "file upsert", "file append"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, mode = request.param.split()
    found = Place(kind, tmp_path, upserts=mode == "upsert")
    yield found
    found.sink.close()


START = Mark("token")


def delivered(place: Place) -> Mark:
    """The sink after a first delivery, which went through."""
    place.sink.prepare(START)
    mark = place.announced(START, FIRST)
    place.sink.confirm(mark, FIRST)
    return mark


def test_a_delivery_arrives(place: Place) -> None:
    delivered(place)
    assert place.keys() == [1, 2]


def test_a_delivery_that_is_confirmed_again_arrives_once(place: Place) -> None:
    mark = delivered(place)
    for _ in range(3):
        place.reopen()
        place.sink.confirm(mark, FIRST)
    assert place.keys() == [1, 2]


def test_a_delivery_that_was_announced_and_not_sent_is_sent_by_the_next_process(place: Place) -> None:
    mark = delivered(place)
    changes = SECOND if place.upserts else THIRD
    following = place.announced(mark, changes)
    place.reopen()
    place.sink.confirm(following, changes)
    place.sink.confirm(following, None)
    assert place.keys() == ([1, 3] if place.upserts else [1, 2, 3])


def test_what_was_left_as_it_should_be_is_confirmed_without_sending(place: Place) -> None:
    mark = delivered(place)
    place.reopen()
    place.sink.confirm(mark, None)
    assert place.keys() == [1, 2]


def test_a_sink_that_vanished_is_an_error_and_never_a_resend(place: Place) -> None:
    mark = delivered(place)
    place.destroy()
    place.reopen()
    with pytest.raises(SinkVanished):
        place.sink.confirm(place.announced(mark, FIRST), FIRST)


def test_a_sink_of_another_time_is_an_error(place: Place) -> None:
    mark = delivered(place)
    ahead = place.announced(place.announced(mark, FIRST), FIRST)
    with pytest.raises(StateError):
        place.sink.confirm(ahead, FIRST)
    assert place.keys() == [1, 2]


def test_a_place_with_rows_of_somebody_else_is_refused(place: Place) -> None:
    place.sink.check_free()
    delivered(place)
    with pytest.raises(Refused, match="did not write"):
        place.sink.check_free()


def test_a_rewrite_leaves_exactly_the_new_rows_and_counts_as_a_delivery(place: Place) -> None:
    mark = delivered(place)
    length = place.sink.rewrite(mark, iter([(5, None), (6, None)]))
    assert place.keys() == [5, 6]
    place.reopen()
    place.sink.confirm(Mark(mark.token, mark.number + 1, length), None)


def test_a_rewrite_that_fails_in_the_middle_leaves_the_old_rows(place: Place) -> None:
    mark = delivered(place)

    def rows() -> Iterator[tuple[int, None]]:
        yield (5, None)
        raise StateError("the source of rows broke")

    with pytest.raises(StateError, match="broke"):
        place.sink.rewrite(mark, rows())
    place.reopen()
    place.sink.confirm(mark, None)
    assert place.keys() == [1, 2]


def test_a_difference_is_delivered_once_however_often_it_is_sent(place: Place) -> None:
    mark = delivered(place)
    changes = SECOND if place.upserts else THIRD
    lengths = {place.sink.amend(mark, iter(changes)) for _ in range(2)}
    assert place.keys() == ([1, 3] if place.upserts else [1, 2, 3])
    (length,) = lengths
    place.sink.confirm(Mark(mark.token, mark.number + 1, length), None)


def test_clearing_leaves_no_row(place: Place) -> None:
    mark = delivered(place)
    place.sink.clear(mark)
    place.reopen()
    place.sink.prepare(START)
    assert place.keys() == []


# a file, cut at every byte


@pytest.mark.parametrize("upserts", [True, False])
def test_a_line_that_was_cut_at_any_byte_is_completed(tmp_path: Path, upserts: bool) -> None:
    place = Place("file", tmp_path, upserts=upserts)
    mark = delivered(place)
    changes = SECOND if upserts else FIRST
    following = place.announced(mark, changes)
    place.sink.confirm(following, changes)
    whole = (tmp_path / "out.jsonl").read_bytes()
    for cut in range(mark.length, following.length + 1):
        (tmp_path / "out.jsonl").write_bytes(whole[:cut])
        place.sink.confirm(following, changes)
        assert (tmp_path / "out.jsonl").read_bytes() == whole


@pytest.mark.parametrize("foreign", [b"x", b'{"k":9}\n'])
def test_bytes_that_are_not_ours_past_the_mark_are_refused_and_kept(tmp_path: Path, foreign: bytes) -> None:
    place = Place("file", tmp_path, upserts=False)
    mark = delivered(place)
    file = tmp_path / "out.jsonl"
    file.write_bytes(before := file.read_bytes() + foreign)
    with pytest.raises(StateError, match="did not write"):
        place.sink.confirm(place.announced(mark, FIRST), FIRST)
    assert file.read_bytes() == before
