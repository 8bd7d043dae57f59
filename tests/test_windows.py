"""Tumbling, hopping, cumulating and session windows, held against a plain computation over the list of events."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamform.plan.compiled import Compiled
from streamform.runtime.dataflow import Dataflow

from .conftest import ProjectBuilder, ProjectFolder, play

SOURCES = """
sources:
  e:
    connector: file
    path: x
    schema: {k: int64, v: "decimal(10,2)", at: timestamp}
    event_time: at
    watermark: 3ms
    contracts: [{name: timed, not_null: [at]}]
    quarantine: {topic: bad}
"""
SQL = """
SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least, AVG(v) AS mean, COUNT(DISTINCT v) AS different
FROM source('e') GROUP BY k, window_start, window_end
"""
WINDOWS: dict[str, dict[str, str]] = {
    "tumbling": {"type": "tumbling", "size": "10ms"},
    "hopping": {"type": "hopping", "size": "10ms", "slide": "5ms"},
    "cumulating": {"type": "cumulating", "size": "12ms", "step": "4ms"},
    "session": {"type": "session", "gap": "4ms"},
}
Event = tuple[int, int, int | None]


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    found: dict[str, Compiled] = {}
    for name, window in WINDOWS.items():
        folder = ProjectFolder(tmp_path_factory.mktemp(name))
        folder.write("streamform.yml", {"name": "s", "version": 1, "models": {"m": {"window": window}}})
        found[name] = folder.write("sources.yml", SOURCES).write("models/m.sql", SQL).compiled()
        assert not found[name].has_errors, [d.message for d in found[name].diagnostics]
    return found


def fixed(kind: str, at: int) -> list[tuple[int, int]]:
    """The windows that hold an instant, by trying every one near it."""
    size, step = {"tumbling": (10, 10), "hopping": (10, 5), "cumulating": (12, 4)}[kind]
    if kind == "cumulating":
        start = at // size * size
        return [(start, end) for end in range(start + step, start + size + 1, step) if at < end]
    return [(start, start + size) for start in range((at - 40) // step * step, at + 41, step) if start <= at < start + size]


def row(key: int, start: int, end: int, values: list[int | None]) -> tuple[Any, ...]:
    known = [Decimal(v).scaleb(-2) for v in values if v is not None]
    mean = None if not known else (sum(known, Decimal(0)) / len(known)).quantize(Decimal("1e-6"), "ROUND_HALF_UP")
    return (key, start, end, len(values), sum(known, Decimal(0)) if known else None, min(known, default=None), mean, len(set(known)))


def expected(kind: str, events: list[Event]) -> Iterator[tuple[Any, ...]]:
    """Every result in order; an event is judged before it moves the watermark, and then windows close."""
    watermark, open_windows = -(10**9), {}
    for key, at, value in events:
        late = at < watermark
        if not late and kind == "session":
            merged: list[tuple[int, int | None]] = [(at, value)]
            low, high = at, at
            for (k, start, end), items in list(open_windows.items()):
                if k == key and start <= high + 4 and low <= end:
                    merged = [*items, *merged]
                    low, high = min(low, start), max(high, end - 4)
                    del open_windows[k, start, end]
            open_windows[key, low, high + 4] = merged
        elif not late:
            for start, end in fixed(kind, at):
                if end - 1 > watermark:
                    open_windows.setdefault((key, start, end), []).append((at, value))
        watermark = max(watermark, at - 3)
        closing = sorted((end, start, k) for k, start, end in open_windows if end - 1 <= watermark)
        for end, start, k in closing:
            yield row(k, start, end, [v for _, v in open_windows.pop((k, start, end))])


EVENTS = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 5))), max_size=40)


@pytest.mark.parametrize("kind", list(WINDOWS))
@settings(max_examples=120, deadline=None)
@given(events=EVENTS, batch=st.integers(1, 9), ordered=st.booleans())
def test_windows_equal_a_plain_computation(
    windowed: dict[str, Compiled], kind: str, events: list[Event], batch: int, ordered: bool
) -> None:
    if ordered:
        events = sorted(events, key=lambda event: event[1])
    dataflow = Dataflow(windowed[kind].plan)
    (node,) = dataflow.source_nodes("e")
    rows: list[Any] = [(at, key, None if value is None else Decimal(value).scaleb(-2)) for key, at, value in events]
    for start in range(0, len(rows), batch):
        dataflow.push(node, rows[start : start + batch])
    out = dataflow.drain()
    assert [change[1] for change in out.changes.get("m::sink::0", [])] == list(expected(kind, events))


def test_an_event_of_a_window_that_was_emitted_is_late(project: ProjectBuilder) -> None:
    """It is not behind the watermark, yet the window's result has gone out, and there is no second one."""
    folder = project({"m": SQL}, {"m": {"window": WINDOWS["tumbling"]}}, sources=SOURCES.replace("watermark: 3ms", "watermark: 0s"))
    played = play(folder, "- {k: 1, v: 1.00, at: 9}\n- {k: 1, v: 2.00, at: 9}\n- {k: 1, v: 3.00, at: 19}")
    assert [record.split(" total")[0][-3:] for record in played.records] == ["n=1", "n=1"]
    assert (played.late, played.delivered) == (["at=1970-01-01T00:00:00.009Z k=1 v=2"], 2)


def test_an_event_that_is_late_for_a_window_still_counts_elsewhere(project: ProjectBuilder) -> None:
    models = {
        "clean": "SELECT k, v, at FROM source('e')",
        "m": SQL.replace("source('e')", "ref('clean')"),
        "total": "SELECT k, COUNT(*) AS n FROM ref('clean') GROUP BY k",
    }
    config = {"m": {"window": WINDOWS["tumbling"]}, "total": {"materialized": "upsert", "key": ["k"]}}
    folder = project(models, config, sources=SOURCES.replace("watermark: 3ms", "watermark: 0s"))
    compiled = folder.compiled()
    dataflow = Dataflow(compiled.plan)
    (node,) = dataflow.source_nodes("e")
    dataflow.push(node, [(9, 1, None), (9, 1, None)])
    out = dataflow.drain()
    assert [change[1][3] for change in out.changes["m::sink::0"]] == [1]
    assert [change[1] for change in out.changes["total::sink::0"]] == [(1, 1), (1, 2)]
    assert out.late[node] == [(9, 1, None)]


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ({"type": "hopping", "size": "10ms"}, "models.m.window.slide: required, but missing"),
        ({"type": "tumbling", "size": "10ms", "step": "5ms"}, "models.m.window.step: does not belong to a tumbling window"),
        ({"type": "session", "size": "10ms"}, "models.m.window.gap: required, but missing"),
        ({"type": "hopping", "size": "10ms", "slide": "3ms"}, "size 10ms and slide 3ms"),
        ({"type": "cumulating", "size": "10ms", "step": "0s"}, "size 10ms and step 0s"),
    ],
)
def test_a_window_has_the_parts_of_its_type(project: ProjectBuilder, window: dict[str, str], problem: str) -> None:
    done = project({"m": SQL}, {"m": {"window": window}}, sources=SOURCES).run("check")
    assert done.code in (1, 2)
    assert problem in (done.stdout + done.stderr).replace("`", "")


def test_manifests_and_plans_show_the_window(windowed: dict[str, Compiled]) -> None:
    shown = {name: str(compiled.plan.by_id["m::aggregate::0"].state.window) for name, compiled in windowed.items()}  # type: ignore[union-attr]
    assert shown == {
        "tumbling": "tumbling(time=at size=10ms align=epoch emit=final)",
        "hopping": "hopping(time=at size=10ms slide=5ms align=epoch emit=final)",
        "cumulating": "cumulating(time=at size=12ms step=4ms align=epoch emit=final)",
        "session": "session(time=at size=4ms align=session emit=final)",
    }
