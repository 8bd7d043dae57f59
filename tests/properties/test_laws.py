"""Laws that hold for every project and history: identity, changelogs, clocks, snapshots, documents."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamform.diff.compare import compare
from streamform.errors import DocumentError
from streamform.identity.manifest import Manifest, build_manifest, manifest_document
from streamform.identity.read import read_manifest
from streamform.plan.compiled import Compiled
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import DELETE, INSERT, Change
from streamform.runtime.windows import node_deadline
from tests.conftest import ProjectFolder

SOURCES = """
sources:
  e:
    connector: kafka
    topic: t
    key: [k]
    schema: {k: int64, v: "decimal(10,2)", s: string, at: timestamp}
    event_time: at
    watermark: 10ms
"""
FILTERS = ("", " WHERE v > 1", " WHERE s = 'a' AND v IS NOT NULL", " WHERE v > 1 OR k < 3")
CALLS = ("SUM(v)", "COUNT(*)", "MIN(v)", "MAX(v)", "AVG(v)", "COUNT(DISTINCT s)", "SUM(v) FILTER (WHERE s = 'a')")
ABOVE = ("", " WHERE c0 IS NOT NULL", " WHERE k > 2")


@st.composite
def projects(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """A model over the source, one that groups it, one above that; and what is declared of them."""
    calls = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True))
    named = ", ".join(f"{call} AS c{n}" for n, call in enumerate(calls))
    models = {
        "a": f"SELECT k, v, s FROM source('e'){draw(st.sampled_from(FILTERS))}",
        "b": f"SELECT k, {named} FROM ref('a') GROUP BY k",
        "c": f"SELECT k, c0 FROM ref('b'){draw(st.sampled_from(ABOVE))}",
        "d": "SELECT c0, COUNT(*) AS n FROM ref('c') GROUP BY c0",
    }
    upsert = {"materialized": "upsert", "key": ["k"]}
    return models, {"b": upsert, "c": upsert, "d": {"materialized": "upsert", "key": ["c0"]}}


EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 5), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-300, 900))),
    max_size=30,
)


def compiled(folder: Path, models: dict[str, str], config: dict[str, Any], sources: str = SOURCES) -> Compiled:
    project = ProjectFolder(folder)
    for old in (folder / "models").glob("*.sql") if (folder / "models").exists() else ():
        old.unlink()
    project.write("streamform.yml", {"name": "p", "version": 1, "models": config}).write("sources.yml", sources)
    for name, sql in models.items():
        project.write(f"models/{name}.sql", sql)
    result = project.compiled()
    assert not result.has_errors, [d.message for d in result.diagnostics]
    return result


def rows(events: list[tuple[Any, ...]]) -> list[Any]:
    """Source rows, columns in alphabetical order."""
    return [(at, k, s, None if v is None else Decimal(v).scaleb(-2)) for at, k, s, v in events]


def run(plan: Any, events: list[Any], batch: int = 1) -> dict[str, list[Change]]:
    dataflow = Dataflow(plan)
    for start in range(0, len(events), batch):
        for node in dataflow.source_nodes("e"):
            dataflow.push(node, events[start : start + batch])
    return {name.split("::")[0]: changes for name, changes in dataflow.drain().changes.items()}


def table(changes: list[Change]) -> Counter[Any]:
    """What a changelog leaves, each change checked against what is there."""
    left: Counter[Any] = Counter()
    for op, row, before in changes:
        gone = row if op == DELETE else before
        if op != INSERT:
            assert left[gone] > 0
            left[gone] -= 1
        if op != DELETE:
            left[row] += 1
    return +left


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


@settings(max_examples=40, deadline=None)
@given(project=projects())
def test_a_plan_beside_itself_is_safe(scratch: Path, project: tuple[dict[str, str], dict[str, Any]]) -> None:
    manifest = build_manifest(compiled(scratch, *project).plan)
    diff = compare(manifest, manifest)
    assert (diff.verdict.text, diff.changed_nodes) == ("SAFE", [])


@settings(max_examples=60, deadline=None)
@given(before=projects(), after=projects())
def test_compare_answers_for_any_two_plans(scratch: Path, before: Any, after: Any) -> None:
    running, desired = (build_manifest(compiled(scratch, *project).plan) for project in (before, after))
    diff = compare(running, desired)
    nodes = [node.classification for node in diff.changed_nodes]
    assert diff.verdict == max([*nodes, *(model.verdict for model in diff.models)], default=diff.verdict)
    assert (diff.verdict.text == "SAFE") == (running.application_digest == desired.application_digest)


@settings(max_examples=30, deadline=None)
@given(project=projects(), seed=st.integers(0, 1_000))
def test_order_case_and_spaces_of_files_leave_digests_alone(scratch: Path, project: Any, seed: int) -> None:
    models, config = project
    digest = build_manifest(compiled(scratch, models, config).plan).application_digest
    chosen = random.Random(seed)
    names = list(config)
    chosen.shuffle(names)
    spaced = {
        name: sql.replace(" ", chosen.choice(("  ", "\n", "\t"))).replace("SELECT", "select -- words\n") for name, sql in models.items()
    }
    again = compiled(scratch, spaced, {name: dict(reversed(list(config[name].items()))) for name in names})
    assert build_manifest(again.plan).application_digest == digest


@settings(max_examples=80, deadline=None)
@given(project=projects(), events=EVENTS, batch=st.integers(2, 9))
def test_batches_and_single_events_give_the_same_changelog(scratch: Path, project: Any, events: Any, batch: int) -> None:
    plan = compiled(scratch, *project).plan
    assert run(plan, rows(events)) == run(plan, rows(events), batch)


@settings(max_examples=80, deadline=None)
@given(project=projects(), events=EVENTS)
def test_a_changelog_adds_up_and_filtering_it_is_filtering_its_table(scratch: Path, project: Any, events: Any) -> None:
    models, config = project
    changes = run(compiled(scratch, models, config).plan, rows(events))
    tables = {name: table(found) for name, found in changes.items()}
    below = tables.get("b", Counter())
    condition = models["c"].partition(" WHERE ")[2]
    kept = [row for row in below if condition == "" or (row[1] is not None if "c0" in condition else row[0] > 2)]
    assert tables.get("c", Counter()) == Counter((row[0], row[1]) for row in kept)
    counted = Counter(row[1] for row in kept)
    assert tables.get("d", Counter()) == Counter((value, number) for value, number in counted.items())


@settings(max_examples=60, deadline=None)
@given(events=EVENTS)
def test_the_watermark_never_goes_down_and_keeping_late_events_adds_only_those(scratch: Path, events: Any) -> None:
    models = {"a": "SELECT k, v, s, at FROM source('e')"}
    drop, keep = (compiled(scratch, models, {}, SOURCES + extra).plan for extra in ("", "    late_events: keep\n"))
    dataflow = Dataflow(drop)
    (node,) = dataflow.source_nodes("e")
    marks = []
    for row in rows(events):
        dataflow.push(node, [row])
        marks.append(dataflow.sources[node].watermark_ms)
    assert marks == sorted(marks)
    out = dataflow.drain()
    on_time, late = [change[1] for change in out.changes.get("a::sink::0", [])], out.late.get(node, [])
    assert Counter(change[1] for change in run(keep, rows(events)).get("a", [])) == Counter(on_time) + Counter(
        (k, v, s, at) for at, k, s, v in late
    )


@settings(max_examples=40, deadline=None)
@given(project=projects(), events=EVENTS, seed=st.integers(0, 100))
def test_orders_in_which_nothing_is_late_end_in_the_same_tables(scratch: Path, project: Any, events: Any, seed: int) -> None:
    plan = compiled(scratch, *project, SOURCES.replace("watermark: 10ms", "watermark: 1h")).plan
    shuffled = list(events)
    random.Random(seed).shuffle(shuffled)
    first, second = ({name: table(found) for name, found in run(plan, rows(order)).items()} for order in (events, shuffled))
    assert {name: found for name, found in first.items() if found} == {name: found for name, found in second.items() if found}


@settings(max_examples=60, deadline=None)
@given(project=projects(), events=EVENTS, cut=st.integers(0, 30))
def test_state_that_is_written_down_and_read_again_goes_on_as_if_nothing_had_happened(
    scratch: Path, project: Any, events: Any, cut: int
) -> None:
    from streamform.backends.embedded.encoding import decode_entry, decode_key, encode_entry, encode_key
    from streamform.runtime.state import MemoryStore

    plan = compiled(scratch, *project).plan
    first = Dataflow(plan)
    for row in rows(events)[:cut]:
        for node in first.source_nodes("e"):
            first.push(node, [row])
    kept = first.drain()

    def restored(node: Any) -> MemoryStore:
        store = MemoryStore(node_deadline(node))
        before = first.operators[node.id].store  # type: ignore[union-attr]
        store.live = {decode_key(encode_key(key)): decode_entry(encode_entry(entry)) for key, entry in before.live.items()}
        return store

    second = Dataflow(plan, restored)
    for node, source in second.sources.items():
        if source.clock is not None:
            source.clock.watermark_ms = first.sources[node].watermark_ms
    for row in rows(events)[cut:]:
        for node in second.source_nodes("e"):
            second.push(node, [row])
    whole = Dataflow(plan)
    for row in rows(events):
        for node in whole.source_nodes("e"):
            whole.push(node, [row])
    expected = whole.drain().changes
    after = second.drain().changes
    assert {name: kept.changes.get(name, []) + after.get(name, []) for name in expected} == expected


def corruptions(document: Any) -> list[Any]:
    """The document with one field taken away, renamed, or of another type."""
    found: list[Any] = []

    def walk(value: Any, rebuild: Any) -> None:
        if isinstance(value, dict):
            for name in value:
                rest = {k: v for k, v in value.items() if k != name}
                found.append(rebuild({**rest, f"{name}_": value[name]}))
                found.append(rebuild({**rest, name: [value[name]] if not isinstance(value[name], list) else 5}))
                walk(value[name], lambda inner, rest=rest, name=name: rebuild({**rest, name: inner}))
        elif isinstance(value, list) and value:
            walk(value[0], lambda inner: rebuild([inner, *value[1:]]))

    walk(document, lambda whole: whole)
    return found


@settings(max_examples=8, deadline=None)
@given(project=projects())
def test_manifests_come_back_byte_for_byte_and_every_corruption_is_refused(scratch: Path, project: Any) -> None:
    manifest: Manifest = build_manifest(compiled(scratch, *project).plan)
    document = manifest_document(manifest)
    text = json.dumps(document)
    assert json.dumps(manifest_document(read_manifest(json.loads(text), "m.json"))) == text
    for broken in corruptions(copy.deepcopy(document)):
        with pytest.raises(DocumentError):
            read_manifest(broken, "m.json")
