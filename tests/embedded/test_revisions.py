"""Revisions: `history` counts accepted plans, and accepted sources and sinks; the counters never go back and decide nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from streamform import api
from streamform.identity.manifest import Manifest, ManifestNode
from streamform.lifecycle.journal import Attempt
from streamform.lifecycle.revisions import count_revisions, interface_digest

from .conftest import Shop
from .test_verdicts import SOURCES, events

ENTRY = Attempt("m", "prod", 1, None, "a", "apply", "ann", 5, None, "SAFE", "SAFE", "one", ("m",), outcome="applied", record_digest="r")
STOPPED = replace(ENTRY, action="stop", outcome="stopped", artifact=None)
REMOVED = replace(ENTRY, action="remove", outcome="removed", artifact=None)
FAILED = replace(ENTRY, outcome="failed", record_digest=None)
OTHER = replace(ENTRY, artifact="two")
LOST = replace(ENTRY, artifact="lost")
INTERFACES = {"one": "i", "same": "i", "two": "j"}

CASES: dict[str, tuple[list[Attempt], list[tuple[int, int | None]]]] = {
    "nothing was applied": ([], []),
    "the first plan brings the first interface": ([ENTRY], [(1, 1)]),
    "another plan with the same ends": ([ENTRY, replace(ENTRY, artifact="same")], [(1, 1), (2, 1)]),
    "other ends": ([ENTRY, OTHER], [(1, 1), (2, 2)]),
    "back to the first ends is a change too": ([ENTRY, OTHER, ENTRY], [(1, 1), (2, 2), (3, 3)]),
    "what failed before the record was not accepted": ([FAILED, ENTRY, replace(FAILED, artifact="two")], [(0, 0), (1, 1), (1, 1)]),
    "what failed behind the record was": ([replace(ENTRY, outcome="failed")], [(1, 1)]),
    "an open attempt counts from its record on": ([replace(FAILED, outcome="open"), replace(ENTRY, outcome="open")], [(0, 0), (1, 1)]),
    "a stop counts nothing, the start after it is a plan": ([ENTRY, STOPPED, ENTRY], [(1, 1), (1, 1), (2, 1)]),
    "after a removal nothing is in use": ([ENTRY, REMOVED, ENTRY], [(1, 1), (1, 1), (2, 2)]),
    "an artifact that is lost leaves the interface unknown": ([ENTRY, LOST, ENTRY], [(1, 1), (2, None), (3, None)]),
}


@pytest.mark.parametrize("case", CASES)
def test_counters_of_a_chain(case: str) -> None:
    entries, expected = CASES[case]
    assert [(found.plan, found.interface) for found in count_revisions(entries, INTERFACES.get)] == expected


SOURCE = ManifestNode("m::source::0", "m", "source", (), "e (kafka topic e)", (("k", "int64"),), "d", "unbounded", "append", (), None)
FILTER = replace(SOURCE, id="m::filter::0", operator="filter", definition="k > 1")
SINK = replace(SOURCE, id="m::sink::0", operator="sink", definition="kafka topic m", mode="upsert", key=("k",))
FACTS = {
    "source e": {"source format": "json", "idle timeout": "none"},
    "model m": {"sink format": "json"},
    "kafka": {"startup": "earliest", "bootstrap servers": "a:1,b:1"},
}


def interface(*nodes: ManifestNode, facts: dict[str, dict[str, str]] = FACTS) -> str:
    return interface_digest(Manifest("", (), nodes), facts)


HERE = interface(SOURCE, FILTER, SINK)

SAME = {
    "another computation": interface(SOURCE, replace(FILTER, definition="k > 2"), SINK),
    "a second reader": interface(SOURCE, replace(SOURCE, id="n::source::0", model="n"), SINK),
    "another start and timeout": interface(
        SOURCE,
        SINK,
        facts={
            **FACTS,
            "source e": {"source format": "json", "idle timeout": "1s"},
            "kafka": {"startup": "latest", "bootstrap servers": "b:1, a:1"},
        },
    ),
}
CHANGED = {
    "another topic": interface(replace(SOURCE, definition="e (kafka topic f)"), SINK),
    "another column": interface(replace(SOURCE, schema=(("k", "int32"),)), SINK),
    "another key": interface(SOURCE, replace(SINK, key=())),
    "another clock": interface(replace(SOURCE, time="k, delay 5s"), SINK),
    "no sink": interface(SOURCE),
    "another format": interface(SOURCE, SINK, facts={**FACTS, "model m": {"sink format": "csv"}}),
    "another broker": interface(SOURCE, SINK, facts={**FACTS, "kafka": {"startup": "earliest", "bootstrap servers": "c:1"}}),
}


@pytest.mark.parametrize("change", SAME)
def test_what_is_between_the_ends_is_no_part_of_the_interface(change: str) -> None:
    assert SAME[change] == HERE


@pytest.mark.parametrize("change", CHANGED)
def test_what_is_read_and_written_is_the_interface(change: str) -> None:
    assert CHANGED[change] != HERE


@pytest.fixture
def made(make_project: Callable[..., Shop]) -> Shop:
    config = "models:\n  m: {sink: {connector: file, path: out/m.jsonl}}\n"
    made = make_project(config, SOURCES, {"m": "SELECT k, g FROM source('e')"}, {"data/e.jsonl": events(9), "data/d.jsonl": ""})
    made.apply()
    return made


def counted(made: Shop) -> list[tuple[int, int | None]]:
    """Both counters of each entry, as history prints them."""
    entries = json.loads(made.run("history", "--json").stdout)["entries"]
    return [(entry["plan_revision"], entry["interface_revision"]) for entry in entries]


def test_history_counts_plans_and_interfaces_of_what_was_applied(made: Shop) -> None:
    made.change("models/m.sql", "SELECT k, g FROM source('e')", "SELECT k, g FROM source('e') WHERE k > 1")
    made.apply()
    made.change("models/m.sql", "SELECT k, g", "SELECT k, g, f")
    made.apply()
    made.apply()
    assert counted(made) == [(1, 1), (2, 1), (3, 2)]
    assert [line.split()[-3] for line in made.run("history").stdout.splitlines()] == ["REVISION", "1.1", "2.1", "3.2"]


def test_history_without_its_artifacts_says_what_is_not_known(made: Shop) -> None:
    shutil.rmtree(made.folder / ".streamform" / "artifacts")
    assert counted(made) == [(1, None)]
    assert "1.?" in made.run("history").stdout


def test_the_facade_gives_both_by_unit_and_sequence(made: Shop) -> None:
    ((place, found),) = api.revisions(made.folder).items()
    assert (place, found.plan, found.interface) == (("m", 1), 1, 1)
