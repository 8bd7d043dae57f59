"""Counterexamples: found where a verdict is needed, as small as can be, and none where nothing differs."""

from __future__ import annotations

import json
import subprocess

import pytest

from streamform.diff.match import Hints, match_nodes
from streamform.identity.manifest import build_manifest
from streamform.identity.mapping import between
from streamform.identity.structure import structure_of
from streamform.simulator.carry import Carry
from streamform.simulator.counterexample import Counterexample, find_counterexample
from tests.conftest import ProjectBuilder

from .test_rules import SOURCES, TOTAL, Side, sunk
from .test_structural import PAIRS


def search(project: ProjectBuilder, before: Side, after: Side, tries: int = 200) -> Counterexample:
    plans = [project(s.models, s.config, sources=s.sources).compiled().plan for s in (before, after)]
    mapping = between(*map(structure_of, plans), {})
    nodes = match_nodes(*map(build_manifest, plans), Hints(), mapping.streams).nodes
    return find_counterexample(Carry(plans[0], plans[1], nodes, mapping.slots, forced=True), "m", tries=tries)


NEEDED = {
    "a filter": (sunk(TOTAL), sunk(TOTAL.replace("GROUP", "WHERE v > 1 GROUP"))),
    "a bound": (sunk(TOTAL.replace("GROUP", "WHERE v > 100 GROUP")), sunk(TOTAL.replace("GROUP", "WHERE v >= 100 GROUP"))),
    "text": (sunk(TOTAL.replace("GROUP", "WHERE s = 'paid' GROUP")), sunk(TOTAL.replace("GROUP", "WHERE s = 'sent' GROUP"))),
    "an accumulator": (sunk(TOTAL), sunk(TOTAL.replace("AS n", "AS n, MAX(v) AS m"))),
    "the watermark": (sunk(TOTAL), sunk(TOTAL)._replace(sources=SOURCES.replace("watermark: 1m", "watermark: 2h"))),
}


@pytest.mark.parametrize("change", NEEDED)
def test_a_change_that_needs_its_backfill_has_a_small_counterexample(project: ProjectBuilder, change: str) -> None:
    found = search(project, *NEEDED[change]).found
    assert found is not None
    assert found.continued != found.fresh
    assert 1 <= len(found.before) + len(found.after) <= 3


def test_no_event_of_it_can_be_left_out(project: ProjectBuilder) -> None:
    found = search(project, *NEEDED["a filter"]).found
    assert found is not None
    assert (len(found.before), len(found.after)) == (1, 0)


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_ways_to_write_the_same_have_none(project: ProjectBuilder, number: int) -> None:
    pair = PAIRS[number]
    if "m" in pair.before.models and len(pair.before.models) == len(pair.after.models) == 1:
        assert search(project, pair.before, pair.after, tries=40).found is None


def test_the_same_search_finds_the_same(project: ProjectBuilder) -> None:
    assert search(project, *NEEDED["a bound"]) == search(project, *NEEDED["a bound"])


def test_plan_shows_it_beside_a_git_revision(project: ProjectBuilder) -> None:
    files = SOURCES.replace("connector: kafka", "connector: file").replace("topic: events", "path: e.jsonl")
    folder = project({"m": TOTAL}, {"m": {"materialized": "upsert", "key": ["k"]}}, sources=files, targets={"t": {"backend": "embedded"}})
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "before")):
        subprocess.run([*git, *arguments], cwd=folder.root, check=True)
    folder.write("models/m.sql", TOTAL.replace("GROUP", "WHERE v > 1 GROUP"))
    shown = folder.run("plan", "--against", "git:HEAD", "--counterexample")
    assert shown.code == 1
    assert "counterexample for `m`, made as small as can be:" in shown.stdout
    document = json.loads(folder.run("plan", "--against", "git:HEAD", "--counterexample", "--json").stdout)
    (found,) = document["counterexamples"]
    assert found["found"]["continued"] != found["found"]["fresh"]
    missing = folder.run("plan", "--against", "git:nowhere")
    assert (missing.code, "git has no revision `nowhere`" in missing.stderr) == (2, True)
    assert folder.run("plan", "--against", "target:t").code == 2
