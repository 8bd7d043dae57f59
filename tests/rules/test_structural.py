"""Structural identity: each rewrite with a pair that it alone explains, what is never equal, and what the proofs do to a diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from streamform.diff.compare import compare
from streamform.diff.match import hints_of
from streamform.diff.model import Classification, Diff
from streamform.diff.proofs import Proofs
from streamform.identity.keys import IDENTITIES, KEY_BYTES, fingerprint
from streamform.identity.manifest import build_manifest
from streamform.identity.mapping import StreamMapping, between, check_mapping
from streamform.identity.rewrites import REWRITES
from streamform.identity.structure import structure_of
from streamform.plan.usage import state_columns
from tests.conftest import ProjectBuilder

from .test_rules import KAFKA, SOURCES, UPSERT, Side

GROUPED = "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM {source} GROUP BY k"
UNFILTERED = GROUPED.format(source="source('e')")


def sunk(sql: str, **config: Any) -> Side:
    return Side({"m": sql}, {"m": {**UPSERT, "sink": KAFKA, **config}})


def two(below: str, above: str, name: str = "b", **config: Any) -> Side:
    """A model without a sink, and the model that reads it."""
    return Side({name: below, "m": above}, {"m": {**UPSERT, "sink": KAFKA}, **({name: config} if config else {})})


def grouped(source: str) -> str:
    return GROUPED.format(source=source)


def filtered(condition: str) -> Side:
    return sunk(f"SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') WHERE {condition} GROUP BY k")


class Pair(NamedTuple):
    """Two ways to write the same, and the rewrites between them."""

    rewrites: str
    before: Side
    after: Side


PAIRS = (
    Pair("W1", filtered("v > 1 AND s = 'paid'"), filtered("s = 'paid' AND v > 1")),
    Pair("W1", filtered("v > 1 AND (s = 'paid' AND k > 2)"), filtered("(v > 1 AND s = 'paid') AND k > 2")),
    Pair("W2", filtered("v > 1 OR s = 'paid'"), filtered("s = 'paid' OR v > 1")),
    Pair("W3", filtered("v > 1"), filtered("1 < v")),
    Pair("W3", filtered("s = 'paid'"), filtered("'paid' = s")),
    Pair("W3", filtered("v IS DISTINCT FROM k"), filtered("k IS DISTINCT FROM v")),
    Pair("W4 W5 W8", sunk(UNFILTERED), sunk(grouped("(SELECT k, v FROM source('e')) AS x"))),
    Pair("W5", filtered("v > 1 AND s = 'paid'"), sunk(grouped("(SELECT * FROM source('e') WHERE v > 1) AS x WHERE s = 'paid'"))),
    Pair("W6", two("SELECT k, v FROM source('e')", grouped("ref('b')")), two("SELECT k, v FROM source('e')", grouped("ref('c')"), "c")),
    Pair("W4 W5 W6 W8", two("SELECT k, v FROM source('e')", grouped("ref('b')")), sunk(UNFILTERED)),
    Pair("W7", sunk(UNFILTERED), sunk(UNFILTERED)._replace(sources=SOURCES.replace("s: string,", "s: string, unread: string,"))),
    Pair("W4 W8", sunk(grouped("(SELECT k, v FROM source('e')) AS x")), sunk(grouped("(SELECT k, v, s FROM source('e')) AS x"))),
    Pair(
        "W8 W9",
        sunk(grouped("(SELECT k, v FROM source('e')) AS x")),
        sunk("SELECT k, SUM(w) AS t, COUNT(*) AS n FROM (SELECT k, v AS w FROM source('e')) AS x GROUP BY k"),
    ),
    Pair("W9", sunk(UNFILTERED), sunk("SELECT k, t, n FROM (SELECT k, COUNT(*) AS n, SUM(v) AS t FROM source('e') GROUP BY k) AS x")),
    Pair(
        "W1",
        sunk(f"{UNFILTERED} HAVING SUM(v) > 1 AND COUNT(*) > 2"),
        sunk(f"{UNFILTERED} HAVING COUNT(*) > 2 AND SUM(v) > 1"),
    ),
)

DIFFERENT = (
    (filtered("v > 1"), filtered("v > 2")),
    (filtered("v > 1"), filtered("v >= 1")),
    (filtered("v > 1"), filtered("1 > v")),
    (filtered("v > 1 AND k > 2"), filtered("v > 1 OR k > 2")),
    (filtered("v - 1 > k"), filtered("1 - v > k")),
    (sunk(UNFILTERED), sunk(UNFILTERED.replace("SUM(v)", "MAX(v)"))),
    (sunk(UNFILTERED), sunk(UNFILTERED.replace("SUM(v)", "SUM(DISTINCT v)"))),
    (sunk(UNFILTERED), sunk(UNFILTERED.replace("SUM(v)", "SUM(v) FILTER (WHERE v > 1)"))),
    (sunk(UNFILTERED), sunk(UNFILTERED, retention="1d")),
    (sunk(UNFILTERED, retention="1d"), sunk(UNFILTERED, retention="1d", on_expiry="delete")),
    (sunk(UNFILTERED), sunk(UNFILTERED)._replace(sources=SOURCES.replace("watermark: 1m", "watermark: 2m"))),
    (sunk(UNFILTERED), sunk(UNFILTERED)._replace(sources=SOURCES.replace("topic: events", "topic: others"))),
    (sunk(UNFILTERED), sunk(UNFILTERED)._replace(sources=SOURCES.replace('v: "decimal(12,2)"', "v: int64"))),
    (sunk(grouped("(SELECT k, v FROM source('e')) AS x")), sunk(grouped("(SELECT k, v + 1 AS v FROM source('e')) AS x"))),
    (sunk(UNFILTERED), sunk(grouped("(SELECT k, v FROM source('e') UNION ALL SELECT k, v FROM source('e')) AS x"))),
)
"""Pairs that compute different things; none of their streams may map."""


def mapped(project: ProjectBuilder, before: Side, after: Side) -> tuple[StreamMapping, Diff, Diff]:
    """The mapping of a pair, and its diff in conservative and in structural mode."""
    running = project(before.models, before.config, sources=before.sources).compiled()
    desired = project(after.models, after.config, sources=after.sources).compiled()
    assert not running.has_errors, [d.message for d in running.diagnostics]
    assert not desired.has_errors, [d.message for d in desired.diagnostics]
    hints = hints_of(desired.project)
    mapping = between(structure_of(running.plan), structure_of(desired.plan), hints.models)
    sides = build_manifest(running.plan), build_manifest(desired.plan)
    columns = state_columns(desired.plan)
    diffs = [compare(*sides, hints, state_columns=columns, proofs=Proofs(mapping, decides)) for decides in (False, True)]
    return mapping, diffs[0], diffs[1]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.rewrites)
def test_what_is_written_otherwise_keeps_its_state(project: ProjectBuilder, pair: Pair) -> None:
    mapping, conservative, structural = mapped(project, pair.before, pair.after)
    assert list(mapping.streams) == ["m::aggregate::0"]
    assert "m" in mapping.outputs
    assert structural.verdict == Classification.SAFE
    assert conservative.verdict >= structural.verdict
    found = {row.id for subject in ("m::aggregate::0", "m") for row in mapping.proofs[subject]}
    assert found >= set(pair.rewrites.split()), "the proof names what lies between the two texts"


def test_every_rewrite_has_a_pair() -> None:
    assert {row for pair in PAIRS for row in pair.rewrites.split()} == {row.id for row in REWRITES}


@pytest.mark.parametrize(("before", "after"), DIFFERENT)
def test_what_computes_something_else_never_maps(project: ProjectBuilder, before: Side, after: Side) -> None:
    mapping, conservative, structural = mapped(project, before, after)
    assert mapping.streams == {}
    assert "m" not in mapping.outputs
    assert structural.verdict == conservative.verdict > Classification.SAFE


def test_a_condition_that_is_true_of_any_pair_of_texts_is_symmetric(project: ProjectBuilder) -> None:
    forwards, _, _ = mapped(project, PAIRS[0].before, PAIRS[0].after)
    backwards, _, _ = mapped(project, PAIRS[0].after, PAIRS[0].before)
    assert forwards.streams == backwards.streams


def test_conservative_mode_says_what_structural_identity_proves(project: ProjectBuilder) -> None:
    _, conservative, _ = mapped(project, PAIRS[0].before, PAIRS[0].after)
    assert [(note.kind, note.subject, note.rewrites) for note in conservative.notes] == [
        ("proved", "m::filter::0", "W1 the order of conditions"),
        ("proved", "m::aggregate::0", "W1 the order of conditions"),
    ]
    assert conservative.verdict == Classification.BACKFILL_REQUIRED


def test_a_model_that_looks_renamed_is_named_with_its_hint(project: ProjectBuilder) -> None:
    renamed = Side({"z": UNFILTERED}, {"z": {**UPSERT, "sink": KAFKA}})
    mapping, conservative, structural = mapped(project, sunk(UNFILTERED), renamed)
    assert mapping.candidates == {"z": "m"}
    assert [note.kind for note in conservative.notes] == ["renamed"]
    assert structural.verdict == Classification.BACKFILL_REQUIRED, "another name is another identity until a hint says otherwise"
    hinted = Side({"z": UNFILTERED}, {"z": {**UPSERT, "sink": KAFKA, "renamed_from": "m"}})
    mapping, _, structural = mapped(project, sunk(UNFILTERED), hinted)
    assert (mapping.streams, structural.verdict) == ({"z::aggregate::0": "m::aggregate::0"}, Classification.SAFE)


def test_two_models_that_could_be_the_renamed_one_are_none(project: ProjectBuilder) -> None:
    twins = Side({"y": UNFILTERED, "z": UNFILTERED}, {"y": UPSERT, "z": UPSERT})
    mapping, _, _ = mapped(project, sunk(UNFILTERED), twins)
    assert mapping.candidates == {}


def test_accumulators_under_other_names_are_paired(project: ProjectBuilder) -> None:
    before = sunk("SELECT k, SUM(w) AS t, COUNT(*) AS n FROM (SELECT k, v AS w FROM source('e')) AS x GROUP BY k")
    mapping, _, _ = mapped(project, before, sunk(UNFILTERED))
    assert mapping.slots == {"m::aggregate::0": {"sum(v)": "sum(w)", "count(*)": "count(*)"}}


def test_a_column_that_the_state_does_not_read_raises_nothing(project: ProjectBuilder) -> None:
    below = "SELECT k, v FROM source('e')"
    before = two(below, UNFILTERED.replace("source('e')", "ref('b')"))
    after = two("SELECT k, v, s FROM source('e')", UNFILTERED.replace("source('e')", "ref('b')").replace(", COUNT(*) AS n", ""))
    _, conservative, structural = mapped(project, before, after)
    assert conservative.verdict == Classification.BACKFILL_REQUIRED
    assert structural.verdict == Classification.STATE_MIGRATION_REQUIRED, "only the accumulator that is gone counts"


def test_an_input_that_changed_raises_in_both_modes(project: ProjectBuilder) -> None:
    above = UNFILTERED.replace("source('e')", "ref('b')")
    before = two("SELECT k, v FROM source('e')", above)
    after = two("SELECT k, v + 1 AS v FROM source('e')", above.replace(", COUNT(*) AS n", ""))
    _, conservative, structural = mapped(project, before, after)
    assert conservative.verdict == structural.verdict == Classification.BACKFILL_REQUIRED


def test_a_keyed_stream_that_moved_to_another_model_starts_cold(project: ProjectBuilder) -> None:
    below = "SELECT k, SUM(v) AS t FROM source('e') GROUP BY k"
    before = Side({"b": below, "m": "SELECT k, t FROM ref('b')"}, {"b": UPSERT, "m": {**UPSERT, "sink": KAFKA}})
    after = sunk(below)
    mapping, _, structural = mapped(project, before, after)
    assert mapping.streams == {}
    assert structural.verdict == Classification.BACKFILL_REQUIRED


def test_proven_counterparts_come_before_positions(project: ProjectBuilder) -> None:
    least = "SELECT k, MIN(v) AS t FROM source('e') GROUP BY k"
    largest = "SELECT k, MAX(v) AS t FROM source('e') GROUP BY k"
    over = "SELECT k, COUNT(*) AS t FROM ({} UNION ALL {}) AS x GROUP BY k"
    before, after = sunk(over.format(least, largest)), sunk(over.format(largest, least))
    mapping, _, structural = mapped(project, before, after)
    assert mapping.streams == {"m::aggregate::0": "m::aggregate::1", "m::aggregate::1": "m::aggregate::0"}
    counterparts = {node.id: (node.counterpart, node.rule) for node in structural.changed_nodes}
    assert counterparts["m::aggregate::0"] == ("m::aggregate::1", "I1")
    assert counterparts["m::aggregate::1"] == ("m::aggregate::0", "I1")
    assert structural.verdict == Classification.BACKFILL_REQUIRED, "the order of a union is in no rewrite"


BROKEN = {
    "taken twice": lambda m: replace(m, streams={**m.streams, "m::aggregate::9": next(iter(m.streams.values()))}),
    "no stream of the running plan": lambda m: replace(m, streams=dict.fromkeys(m.streams, "m::aggregate::7")),
    "no stream of the desired plan": lambda m: replace(m, streams={"m::aggregate::7": "m::aggregate::0"}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_mapping_that_is_wrong_is_refused_before_anything_moves(project: ProjectBuilder, broken: str) -> None:
    plans = [structure_of(project(s.models, s.config, sources=s.sources).compiled().plan) for s in (PAIRS[0].before, PAIRS[0].after)]
    mapping = between(plans[0], plans[1], {})
    check_mapping(mapping, plans[0], plans[1], {})
    with pytest.raises(AssertionError):
        check_mapping(BROKEN[broken](mapping), plans[0], plans[1], {})


def test_a_mapping_between_different_states_is_refused(project: ProjectBuilder) -> None:
    one, other = DIFFERENT[0]
    plans = [structure_of(project(s.models, s.config, sources=s.sources).compiled().plan) for s in (one, other)]
    with pytest.raises(AssertionError, match="hold different state"):
        check_mapping(StreamMapping({"m::aggregate::0": "m::aggregate::0"}), plans[0], plans[1], {})


def test_keys_have_128_bits_and_a_domain_of_their_own() -> None:
    key = fingerprint("state", ["a"])
    assert len(bytes.fromhex(key)) == KEY_BYTES == 16
    assert key != fingerprint("input", ["a"])
    assert fingerprint("state", ["a", "b"]) != fingerprint("state", ["a,b"])


def test_each_kind_of_identity_is_what_its_row_says(project: ProjectBuilder) -> None:
    def structure(side: Side) -> Any:
        return structure_of(project(side.models, side.config, sources=side.sources).compiled().plan)

    base, reordered, changed = (structure(side) for side in (PAIRS[0].before, PAIRS[0].after, DIFFERENT[0][1]))
    across = {row.name for row in IDENTITIES if row.across_plans}
    assert across == {"DefinitionKey", "StateKey", "InputKey", "OutputKey", "OccurrenceKey"}
    assert base.definition == reordered.definition != changed.definition
    streams = [side.streams["m::aggregate::0"] for side in (base, reordered, changed)]
    assert streams[0].state_key == streams[1].state_key != streams[2].state_key
    assert streams[0].input_key == streams[1].input_key != streams[2].input_key
    assert base.outputs["m"].key == reordered.outputs["m"].key != changed.outputs["m"].key
    assert [stream.node for stream in streams] == ["m::aggregate::0"] * 3, "the occurrence persists while its text changes"


def test_renaming_an_intermediate_leaves_the_definition_equal(project: ProjectBuilder) -> None:
    above = grouped("ref('b')")
    sides = two("SELECT k, v FROM source('e')", above), two("SELECT k, v FROM source('e')", above.replace("'b'", "'c'"), "c")
    first, second = (structure_of(project(s.models, s.config, sources=s.sources).compiled().plan) for s in sides)
    assert first.definition == second.definition


def test_a_manifest_alone_is_compared_conservatively_and_says_so(project: ProjectBuilder) -> None:
    side: Mapping[str, Any] = PAIRS[0].after.config
    desired = project(PAIRS[0].after.models, side, sources=SOURCES).compiled()
    running = project(PAIRS[0].before.models, side, sources=SOURCES).compiled()
    diff = compare(build_manifest(running.plan), build_manifest(desired.plan), proofs=Proofs(decides=True, is_known=False))
    assert diff.verdict == Classification.BACKFILL_REQUIRED
    assert [note.kind for note in diff.notes] == ["unknown"]
