"""Every row of the rules: the smallest pair of projects that it decides, and all the rows that such a pair meets.

What a pair is not listed for it does not meet, so each case is also the counterexample of every other row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from streamform.diff.compare import compare
from streamform.diff.deployment import DEPLOYMENT, DEPLOYMENT_BY_ID, compare_deployment, deployment_facts
from streamform.diff.match import hints_of
from streamform.diff.model import Classification, Diff, NodeDiff
from streamform.diff.rules import RULE_BY_ID, RULES, sentence
from streamform.identity.manifest import Manifest, build_manifest, sealed
from streamform.lifecycle.approval import DecisionEntry, DecisionWord, PendingPlan, Request
from streamform.lifecycle.gate import GATE, GateInput, GateRule, Open, Shut, decide, needs_approval
from streamform.plan.changelog import MODES
from streamform.plan.clock import CLOCK_RULES, ClockRule
from streamform.plan.units import keyed_sources
from streamform.plan.usage import state_columns
from streamform.project.model import Policy
from tests.conftest import ProjectBuilder, ProjectFolder, play

SAFE, COMPATIBLE, MIGRATION, BACKFILL, INCOMPATIBLE = Classification

SOURCES = """
sources:
  e:
    connector: kafka
    topic: events
    schema: {k: int64, v: "decimal(12,2)", s: string, at: timestamp}
    event_time: at
    watermark: 1m
"""
COPY = "SELECT k, v FROM source('e')"
PAID = f"{COPY} WHERE s = 'paid'"
TOTAL = "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') GROUP BY k"
PER_WINDOW = "SELECT k, window_start, window_end, COUNT(*) AS n FROM source('e') GROUP BY k, window_start, window_end"
UPSERT: Mapping[str, Any] = {"materialized": "upsert", "key": ["k"]}
KAFKA: Mapping[str, Any] = {"connector": "kafka", "topic": "out"}


class Side(NamedTuple):
    """One side of a comparison."""

    models: Mapping[str, str]
    config: Mapping[str, Any]
    sources: str = SOURCES


def model(sql: str, config: Mapping[str, Any] | None = None, sources: str = SOURCES) -> Side:
    """A side with one model, `m`."""
    return Side({"m": sql}, {"m": dict(config)} if config else {}, sources)


class Case(NamedTuple):
    """A pair of sides, and each changed node with the row that decides it."""

    rule: str
    before: Side
    after: Side
    decided: tuple[str, ...]
    """`<node id without the model> <row>`, in order."""


def windowed(size: str) -> Side:
    return model(PER_WINDOW, {"window": {"type": "tumbling", "size": size}})


def sunk(sql: str, **config: Any) -> Side:
    return model(sql, {**UPSERT, "sink": KAFKA, **config})


CONTRACT = f"{SOURCES}    quarantine: {{topic: bad}}\n    contracts: [{{name: positive, check: v > 0}}]\n"
CHECKED = model(COPY, sources=CONTRACT)
OTHER = Side({"o": COPY}, {})


def with_model(side: Side, name: str, sql: str) -> Side:
    """A side with one more model that has a key."""
    return side._replace(models={**side.models, name: sql}, config={**side.config, name: dict(UPSERT)})


CASES = (
    Case("K2", windowed("5m"), windowed("10m"), ("aggregate::0 K2",)),
    Case(
        "K3",
        sunk(TOTAL),
        sunk(TOTAL.replace("k,", "k, s,").replace("BY k", "BY k, s"), key=["k", "s"]),
        ("aggregate::0 K3", "project::0 N2", "sink::0 S1"),
    ),
    Case(
        "K4",
        sunk(TOTAL),
        sunk(TOTAL)._replace(sources=SOURCES.replace("k: int64", "k: int32")),
        ("source::0 N2", "aggregate::0 K4", "project::0 N2", "sink::0 S3"),
    ),
    Case(
        "K5",
        sunk(TOTAL),
        sunk(TOTAL)._replace(sources=SOURCES.replace('"decimal(12,2)"', "int64")),
        ("source::0 N2", "aggregate::0 K5", "project::0 N2", "sink::0 S3"),
    ),
    Case("K6", sunk(TOTAL), sunk(TOTAL.replace("AS n", "AS n, MAX(v) AS m")), ("aggregate::0 K6", "project::0 N2", "sink::0 S3")),
    Case("P1", sunk(TOTAL), sunk(TOTAL.replace("GROUP", "WHERE v > 1 GROUP")), ("filter::0 A1", "aggregate::0 P1")),
    Case("K7", sunk(TOTAL), sunk(TOTAL.replace(", COUNT(*) AS n", "")), ("aggregate::0 K7", "project::0 N2", "sink::0 S3")),
    Case("K8", sunk(TOTAL, retention="1d"), sunk(TOTAL, retention="2d"), ("aggregate::0 K8",)),
    Case(
        "K9",
        sunk(f"{TOTAL} HAVING SUM(v) > 1 AND COUNT(*) > 1"),
        sunk("SELECT k, COUNT(*) AS n, SUM(v) AS t FROM source('e') GROUP BY k HAVING SUM(v) > 1 AND COUNT(*) > 1"),
        ("aggregate::0 K9", "filter::0 N2", "project::0 N2", "sink::0 S3"),
    ),
    Case("S1", sunk(COPY), sunk(COPY, key=["v"]), ("sink::0 S1",)),
    Case("S2", sunk(COPY), sunk(COPY, sink={**KAFKA, "topic": "other"}), ("sink::0 S2",)),
    Case("S3", sunk(COPY), sunk(COPY.replace("v", "v, s")), ("project::0 N2", "sink::0 S3")),
    Case("S4", sunk(COPY), sunk(COPY.replace("v", "v AS paid")), ("project::0 N3", "sink::0 S4")),
    Case("S5", model(COPY), model(f"{COPY} UNION ALL {COPY}"), ("source::1 A1", "project::1 A1", "union::0 A1", "sink::0 S5")),
    Case("N1", CHECKED, CHECKED._replace(sources=CONTRACT.replace("v > 0", "v > 1")), ("source::0 N1",)),
    Case("N2", model(COPY), model(COPY.replace("v", "v, s")), ("project::0 N2", "sink::0 S3")),
    Case("N3", model(COPY), model(COPY.replace("v", "v AS paid")), ("project::0 N3", "sink::0 S4")),
    Case("N4", model(PAID), model(PAID.replace("paid", "sent")), ("filter::0 N4",)),
    Case("A1", model(COPY), model(PAID), ("filter::0 A1", "project::0 N4")),
    Case("A2", OTHER, with_model(OTHER, "m", TOTAL), ("source::0 A1", "aggregate::0 A2", "project::0 A1", "sink::0 A1")),
    Case("R1", model(PAID), model(COPY), ("project::0 N4", "filter::0 R1")),
    Case("R2", with_model(OTHER, "m", TOTAL), OTHER, ("source::0 R1", "aggregate::0 R2", "project::0 R1", "sink::0 R1")),
)
"""Every row but K1, which no two projects meet: a node's id names its kind, and a hint to another kind is refused.

The rows of structural identity are in test_structural.py.
"""


def build(project: ProjectBuilder, side: Side) -> tuple[ProjectFolder, Manifest]:
    folder = project(side.models, side.config, sources=side.sources)
    compiled = folder.compiled()
    assert not compiled.has_errors, [d.message for d in compiled.diagnostics]
    return folder, build_manifest(compiled.plan)


def compared(project: ProjectBuilder, before: Side, after: Side) -> Diff:
    _, running = build(project, before)
    folder, desired = build(project, after)
    compiled = folder.compiled()
    return compare(running, desired, hints_of(compiled.project), state_columns=state_columns(compiled.plan))


def decided(diff: Diff) -> tuple[str, ...]:
    return tuple(f"{node.id.split('::', 1)[1]} {node.rule}" for node in diff.changed_nodes)


def node_of(diff: Diff, rule: str) -> NodeDiff:
    return next(node for node in diff.changed_nodes if node.rule == rule)


# RULES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_row_decides_its_pair(project: ProjectBuilder, case: Case) -> None:
    diff = compared(project, case.before, case.after)
    assert decided(diff) == case.decided
    assert diff.verdict == max(RULE_BY_ID[decision.split()[1]].classification for decision in case.decided)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_side_beside_itself_meets_no_row(project: ProjectBuilder, case: Case) -> None:
    for side in (case.before, case.after):
        diff = compared(project, side, side)
        assert (decided(diff), diff.verdict) == ((), SAFE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_going_back_changes_the_same_nodes(project: ProjectBuilder, case: Case) -> None:
    there, back = compared(project, case.before, case.after), compared(project, case.after, case.before)
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert {(n.id, n.change) for n in back.changed_nodes} == {(n.id, opposite[n.change]) for n in there.changed_nodes}
    changes = {(n.id, f.field): (f.before, f.after) for n in there.changed_nodes for f in n.fields}
    assert {(n.id, f.field): (f.after, f.before) for n in back.changed_nodes for f in n.fields} == changes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_what_a_sentence_names_is_among_the_facts(project: ProjectBuilder, case: Case) -> None:
    node = node_of(compared(project, case.before, case.after), case.rule)
    named = [value for name, value in node.facts if f"{{{name}}}" in RULE_BY_ID[node.rule].sentence]
    text = sentence(node.rule, node.facts)
    assert "{" not in text
    assert [value for value in named if value not in text] == []


@pytest.mark.parametrize("keyed_before", [True, False])
def test_a_node_that_kept_its_id_and_not_its_state_is_incompatible(project: ProjectBuilder, keyed_before: bool) -> None:
    manifest = build(project, sunk(TOTAL))[1]
    nodes = tuple(replace(node, state=None) if node.operator == "aggregate" else node for node in manifest.nodes)
    stateless = sealed(manifest.models, nodes)
    diff = compare(manifest, stateless) if keyed_before else compare(stateless, manifest)
    assert decided(diff) == ("aggregate::0 K1",)
    assert diff.verdict == INCOMPATIBLE


def test_every_row_has_a_case() -> None:
    assert [rule.id for rule in RULES if rule.id not in ("K1", "I1", "I2", "I3")] == [
        case.rule for case in sorted(CASES, key=lambda c: list(RULE_BY_ID).index(c.rule))
    ]


class Precedence(NamedTuple):
    """An edit of one aggregate to which several rows apply, and the one that decides."""

    edit: str
    after: Side
    rule: str


SEVERAL = (
    Precedence("an accumulator comes and another goes", sunk(TOTAL.replace("COUNT(*) AS n", "MAX(v) AS n")), "K6"),
    Precedence(
        "an accumulator goes, and other rows come in",
        sunk(TOTAL.replace(", COUNT(*) AS n", "").replace("GROUP", "WHERE v > 1 GROUP")),
        "P1",
    ),
    Precedence(
        "an accumulator comes, and other rows come in",
        sunk(TOTAL.replace("AS n", "AS n, MAX(v) AS m").replace("GROUP", "WHERE v > 1 GROUP")),
        "K6",
    ),
    Precedence(
        "another key, and other rows come in",
        sunk(TOTAL.replace("k,", "s,").replace("BY k", "BY s").replace("GROUP", "WHERE v > 1 GROUP"), key=["s"]),
        "K3",
    ),
    Precedence("retention, and an accumulator goes", sunk(TOTAL.replace(", COUNT(*) AS n", ""), retention="1d"), "K7"),
    Precedence("a window comes and the key changes", windowed("5m"), "K2"),
)


@pytest.mark.parametrize("case", SEVERAL, ids=lambda case: case.edit)
def test_of_several_rows_the_most_severe_decides_and_of_equals_the_first(project: ProjectBuilder, case: Precedence) -> None:
    diff = compared(project, sunk(TOTAL), case.after)
    assert next(node.rule for node in diff.changed_nodes if node.operator == "aggregate") == case.rule


# P1, across models


def test_a_change_reaches_state_in_models_that_read_the_changed_one(project: ProjectBuilder) -> None:
    before = Side({"a": PAID, "m": TOTAL.replace("source('e')", "ref('a')")}, {"m": dict(UPSERT)})
    diff = compared(project, before, before._replace(models={**before.models, "a": PAID.replace("paid", "sent")}))
    found = {node.id: (node.rule, dict(node.facts).get("upstream")) for node in diff.changed_nodes}
    assert found["m::aggregate::0"] == ("P1", "a::filter::0")


def test_a_column_that_nobody_reads_does_not_count(project: ProjectBuilder) -> None:
    side = sunk(TOTAL)
    diff = compared(project, side, side._replace(sources=SOURCES.replace("s: string", "s: int64, more: string")))
    assert decided(diff) == ("source::0 N2",)


@pytest.mark.parametrize("edit", [("watermark: 1m", "watermark: 2m"), ("event_time: at\n    watermark: 1m", "")])
def test_another_clock_decides_other_late_events_so_state_is_computed_anew(project: ProjectBuilder, edit: tuple[str, str]) -> None:
    side = sunk(TOTAL)
    diff = compared(project, side, side._replace(sources=SOURCES.replace(*edit)))
    assert decided(diff) == ("source::0 N4", "aggregate::0 P1")


def test_a_renamed_model_is_the_same_with_a_hint_and_new_without(project: ProjectBuilder) -> None:
    before = Side({"m": TOTAL}, {"m": dict(UPSERT)})
    renamed = Side({"n": TOTAL}, {"n": {**UPSERT, "renamed_from": "m"}})
    assert compared(project, before, renamed).verdict == SAFE
    without = compared(project, before, Side({"n": TOTAL}, {"n": dict(UPSERT)}))
    assert {model.name: model.change for model in without.models} == {"n": "added", "m": "removed"}
    assert without.verdict == BACKFILL


# DEPLOYMENT


TARGET: Mapping[str, Any] = {
    "backend": "flink",
    "flink": {"gateway": "http://localhost:8083"},
    "kafka": {"bootstrap_servers": "one:9092,two:9092", "startup": "earliest"},
}


class Fact(NamedTuple):
    """A row, the edit of source, sink or brokers that meets it, and what it costs a keyed model and another one."""

    rule: str
    source: str
    sink: Mapping[str, Any]
    kafka: Mapping[str, Any]
    keyed: Classification
    stateless: Classification


FACTS = (
    Fact("D1", "    format: csv\n", {}, {}, COMPATIBLE, COMPATIBLE),
    Fact("D2", "", {"format": "csv"}, {}, COMPATIBLE, COMPATIBLE),
    Fact("D3", "", {}, {"startup": "latest"}, COMPATIBLE, COMPATIBLE),
    Fact("D4", "    idle_timeout: 1m\n", {}, {}, BACKFILL, COMPATIBLE),
    Fact("D5", "", {}, {"bootstrap_servers": "two:9092,three:9092"}, COMPATIBLE, COMPATIBLE),
    Fact("D6", "", {}, {"bootstrap_servers": "three:9092"}, BACKFILL, COMPATIBLE),
)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "stateless"])
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.rule)
def test_a_fact_that_no_manifest_holds_costs_what_its_row_says(project: ProjectBuilder, fact: Fact, keyed: bool) -> None:
    def side(source: str, sink: Mapping[str, Any], kafka: Mapping[str, Any]) -> ProjectFolder:
        config = {"m": {**(UPSERT if keyed else {}), "sink": {**KAFKA, **sink}}}
        target = {**TARGET, "kafka": {**TARGET["kafka"], **kafka}}
        return project(TOTAL if keyed else COPY, config, sources=SOURCES + source, targets={"t": target})

    before, after = (folder.compiled() for folder in (side("", {}, {}), side(fact.source, fact.sink, fact.kafka)))
    facts = [deployment_facts(c.plan, c.project.targets[0]) for c in (before, after)]
    subjects = {f"source {name}" for name in keyed_sources(after.plan)}
    (change,) = compare_deployment(facts[0], facts[1], subjects)
    assert (change.rule, change.classification) == (fact.rule, fact.keyed if keyed else fact.stateless)
    assert compare_deployment(facts[1], facts[1], subjects) == ()
    assert build_manifest(before.plan) == build_manifest(after.plan)


def test_every_deployment_row_has_a_case_of_its_own_cost() -> None:
    assert [fact.rule for fact in FACTS] == [row.id for row in DEPLOYMENT]
    for fact in FACTS:
        assert (fact.stateless, fact.keyed) == (DEPLOYMENT_BY_ID[fact.rule].classification, DEPLOYMENT_BY_ID[fact.rule].keyed)


# GATE


NOW, HOUR = 1_000_000_000, 3_600_000
PLAN = PendingPlan(
    "p1", "shop", "prod", "m", "BACKFILL REQUIRED", "BACKFILL REQUIRED", "BACKFILL REQUIRED", {}, "", 0, (Request("ann", 0),)
)
POLICY = Policy(above="COMPATIBLE", expires_ms=HOUR)


def with_decisions(*decisions: tuple[DecisionWord, str, int], plan: PendingPlan = PLAN) -> PendingPlan:
    return replace(plan, decisions=tuple(DecisionEntry(word, by, at, "seen") for word, by, at in decisions))


APPROVED = with_decisions(("approve", "bob", NOW - 1))
QUESTIONS: Mapping[str, GateInput] = {
    "G1": GateInput("p1", INCOMPATIBLE, None, None, NOW),
    "G2": GateInput("p1", COMPATIBLE, POLICY, None, NOW),
    "G3": GateInput("p1", BACKFILL, POLICY, replace(APPROVED, consumed_by="attempt"), NOW),
    "G4": GateInput("p1", BACKFILL, POLICY, with_decisions(("approve", "bob", NOW - 2), ("reject", "eve", NOW - 1)), NOW),
    "G5": GateInput("p1", BACKFILL, POLICY, APPROVED, NOW + HOUR),
    "G6": GateInput("p1", BACKFILL, POLICY, replace(APPROVED, superseded_by="p2"), NOW),
    "G7": GateInput("p1", BACKFILL, POLICY, APPROVED, NOW),
    "G8": GateInput("p1", BACKFILL, POLICY, PLAN, NOW),
}


@pytest.mark.parametrize("row", GATE, ids=lambda row: row.id)
def test_a_row_of_the_gate_decides_its_question(row: GateRule) -> None:
    decision = decide(QUESTIONS[row.id])
    assert decision.rule == row.id
    assert isinstance(decision, Open if row.opens else Shut)


def test_the_gate_holds_the_approvals_that_opened_it() -> None:
    opened = decide(QUESTIONS["G7"])
    assert isinstance(opened, Open)
    assert [entry.by for entry in opened.approvals] == ["bob"]
    without = decide(QUESTIONS["G2"])
    assert isinstance(without, Open)
    assert without.approvals == ()


def test_nobody_but_the_gate_makes_a_permission() -> None:
    with pytest.raises(AssertionError, match="made by decide alone"):
        Open("p1", "G7", (), object())


def test_an_approval_of_another_plan_opens_nothing() -> None:
    with pytest.raises(AssertionError, match="another plan"):
        decide(QUESTIONS["G7"]._replace(plan_id="p2"))


@pytest.mark.parametrize("requires", list(Classification))
@pytest.mark.parametrize("above", [c.text for c in Classification])
def test_whether_an_approval_is_needed_depends_on_the_policy_alone(requires: Classification, above: str) -> None:
    policy = Policy(above=above)
    assert needs_approval(requires, policy) == isinstance(decide(GateInput("p1", requires, policy, None, NOW)), Shut)
    assert not needs_approval(requires, None)


PEOPLE = Policy(above="SAFE", expires_ms=HOUR, approvers=("bob", "eve"), min_approvals=2, allow_self=False, trust_os_user=True)


@pytest.mark.parametrize(
    ("policy", "decisions", "opens"),
    [
        (PEOPLE, [("approve", "bob", NOW), ("approve", "eve", NOW)], True),
        (PEOPLE, [("approve", "bob", NOW), ("approve", "bob", NOW)], False),
        (PEOPLE, [("approve", "bob", NOW), ("approve", "joe", NOW)], False),
        (PEOPLE, [("approve", "bob", NOW - HOUR), ("approve", "eve", NOW)], False),
        (PEOPLE, [("approve", "bob", NOW), ("revoke", "bob", NOW), ("approve", "eve", NOW)], False),
        (PEOPLE, [("approve", "bob", NOW), ("reject", "joe", NOW), ("approve", "eve", NOW), ("approve", "bob", NOW)], True),
        (replace(PEOPLE, trust_os_user=False), [("approve", "bob", NOW), ("approve", "eve", NOW)], False),
        (replace(PEOPLE, approvers=(), min_approvals=1), [("approve", "ann", NOW)], False),
        (replace(PEOPLE, approvers=(), min_approvals=1), [("approve", "joe", NOW)], True),
        (replace(PEOPLE, approvers=(), min_approvals=1, allow_self=True), [("approve", "ann", NOW)], True),
        (POLICY, [("approve", "", NOW)], True),
        (replace(PEOPLE, min_approvals=1, approvers=("",)), [("approve", "", NOW)], False),
        (POLICY, [("approve", "bob", NOW + 1)], False),
    ],
)
def test_the_gate_counts_the_approvals_that_the_policy_counts(
    policy: Policy, decisions: list[tuple[DecisionWord, str, int]], opens: bool
) -> None:
    decision = decide(GateInput("p1", BACKFILL, policy, with_decisions(*decisions), NOW))
    assert isinstance(decision, Open) == opens


@pytest.mark.parametrize(("asked", "opens"), [(["system"], False), (["system", "ann"], True), ([], False), ([""], False)])
def test_a_request_by_the_system_alone_is_nobodys(asked: list[str], opens: bool) -> None:
    plan = replace(PLAN, requests=tuple(Request(by, 0) for by in asked))
    policy = Policy(above="SAFE", expires_ms=HOUR, allow_self=False, trust_os_user=True)
    decision = decide(GateInput("p1", BACKFILL, policy, with_decisions(("approve", "bob", NOW), plan=plan), NOW))
    assert isinstance(decision, Open) == opens


# MODES


class Emitted(NamedTuple):
    """A row, a project that meets it, the node that it is about, and what that emits."""

    rule: str
    side: Side
    node: str
    changelog: str


UNKEYED = "SELECT t FROM (SELECT k, SUM(v) AS t FROM source('e') GROUP BY k) AS g"
EMITTED = (
    Emitted("M1", model(COPY), "m::source::0", "append"),
    Emitted("M2", model(PAID), "m::filter::0", "append"),
    Emitted("M2", sunk(f"{TOTAL} HAVING COUNT(*) > 1"), "m::filter::0", "upsert(k)"),
    Emitted("M3", model(COPY), "m::project::0", "append"),
    Emitted("M3", sunk(TOTAL.replace("k,", "k AS id,"), key=["id"]), "m::project::0", "upsert(id)"),
    Emitted("M8", sunk(f"SELECT t AS k, COUNT(*) AS n FROM ({UNKEYED}) AS h GROUP BY t"), "m::project::1", "retract"),
    Emitted("M4", sunk(TOTAL), "m::aggregate::0", "upsert(k)"),
    Emitted("M4", model("SELECT COUNT(*) AS n FROM source('e')", {"materialized": "upsert"}), "m::aggregate::0", "upsert"),
    Emitted("M5", windowed("5m"), "m::aggregate::0", "append"),
    Emitted("M7", model(f"{COPY} UNION ALL {COPY}"), "m::union::0", "append"),
    Emitted("M9", sunk(f"SELECT u.t AS k, COUNT(*) AS n FROM ({UNKEYED} UNION ALL {UNKEYED}) AS u GROUP BY u.t"), "m::union::0", "retract"),
    Emitted("M6", sunk(TOTAL), "m::sink::0", "upsert(k)"),
    Emitted("M6", model(COPY), "m::sink::0", "append"),
)


@pytest.mark.parametrize("case", EMITTED, ids=lambda case: f"{case.rule} {case.changelog}")
def test_a_node_emits_what_its_row_says(project: ProjectBuilder, case: Emitted) -> None:
    compiled = build(project, case.side)[0].compiled()
    assert str(compiled.plan.by_id[case.node].changelog) == case.changelog


def test_every_mode_has_a_case() -> None:
    assert {case.rule for case in EMITTED} == {row.id for row in MODES}


# CLOCK_RULES


EARLY, LATER = "2026-08-30T10:00:00Z", "2026-08-30T10:10:00Z"
CLOCKS: Mapping[str, tuple[Side, Side]] = {
    "E1": (model(COPY), model(COPY, sources=SOURCES.partition("    event_time")[0])),
    "E2": (model(COPY), model(COPY, sources=SOURCES.replace("1m", "15m"))),
    "E3": (model(COPY), model(COPY, sources=f"{SOURCES}    late_events: keep\n")),
    "E4": (sunk(TOTAL, retention="5m"), sunk(TOTAL)),
    "E5": (windowed("5m"), windowed("30m")),
}
"""For each row two declarations with which a model over an early, a later, a late and a later event sees other events or says other things."""


@pytest.mark.parametrize("row", CLOCK_RULES, ids=lambda row: row.id)
def test_a_declaration_decides_what_a_model_sees(project: ProjectBuilder, row: ClockRule) -> None:
    given = "\n".join(f'  - {{k: {k}, v: 1, s: a, at: "{at}"}}' for k, at in ((1, EARLY), (2, LATER), (2, EARLY), (1, LATER)))
    first, second = (play(build(project, side)[0], given) for side in CLOCKS[row.id])
    assert first.error is second.error is None
    assert first != second
