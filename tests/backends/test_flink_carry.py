"""What of a running job's state a changed query may take over: compiled plans recorded from a real gateway, fitted to each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamform.backends.flink.carry import Claim, Fit, fit_plan, highest_id
from streamform.backends.flink.exec_plan import KINDS, NotProvable, read_exec_plan
from streamform.backends.flink.exec_trace import TRACED
from tests.backends.carry_projects import PROJECTS
from tests.conftest import REPOSITORY

RECORDED = REPOSITORY / "tests" / "golden" / "compiled"
MODELS = {name: name for name in ("clean", "totals", "big", "w", "counts", "sizes")}
AGGREGATE = "stream-exec-group-aggregate_1"


def plan(name: str) -> str:
    return (RECORDED / f"{name}.json").read_text()


def fit(running: str, desired: str, **claim: Any) -> Fit:
    return fit_plan(plan(running), plan(desired), Claim(MODELS, **claim))


def edited(name: str, type_: str, **fields: Any) -> str:
    """A recorded plan with fields of every node of a type replaced."""
    document = json.loads(plan(name))
    for node in document["nodes"]:
        if node["type"] == type_:
            node |= fields
    return json.dumps(document)


def ids(text: str, role: str) -> dict[str, int]:
    return {node.description: node.id for node in read_exec_plan(text).of_role(role)}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_plan_takes_over_its_own_state_under_the_same_ids(name: str) -> None:
    found = fit(name, name)
    assert found.dropped == ()
    for role in ("source", "keyed", "sink"):
        assert ids(found.text, role) == ids(plan(name), role)


@pytest.mark.parametrize(
    ("running", "desired"),
    [
        ("base", "threshold"),
        ("base", "renamed_columns"),
        ("base", "conjuncts_swapped"),
        ("base", "wider_source"),
        ("wider_source", "base"),
        ("windows", "windows_output"),
        ("base", "removed_from_shop"),
        ("totals", "reordered_laid_out"),
        ("totals", "removed_laid_out"),
        ("totals", "first_removed_laid_out"),
        ("windows_two", "windows_removed_laid_out"),
    ],
)
def test_state_goes_on_where_the_same_is_computed_from_the_same_rows(running: str, desired: str) -> None:
    found = fit(running, desired)
    assert found.dropped == ()
    kept, now = json.loads(plan(running)), json.loads(found.text)
    for type_ in ("stream-exec-table-source-scan_1", AGGREGATE, "stream-exec-window-aggregate_1", "stream-exec-sink_1"):
        assert sorted(n["id"] for n in kept["nodes"] if n["type"] == type_) == sorted(n["id"] for n in now["nodes"] if n["type"] == type_)


@pytest.mark.parametrize(
    ("running", "desired", "part"),
    [
        ("totals", "sum_to_max", "aggregates"),
        ("totals", "reordered", "aggregates"),
        ("totals", "added", "aggregates"),
        ("totals", "removed", "aggregates"),
        ("totals", "filtered_call", "aggregates"),
        ("totals", "other_key", "keys"),
        ("base", "other_filter", "rows read"),
        ("windows", "windows_larger", "window"),
        ("totals", "windows", "no counterpart"),
    ],
)
def test_state_that_would_be_wrong_is_refused_by_what_differs(running: str, desired: str, part: str) -> None:
    with pytest.raises(NotProvable, match=part):
        fit(running, desired)


def test_a_source_with_other_watermarks_is_refused() -> None:
    with pytest.raises(NotProvable, match="other watermarks"):
        fit("base", "other_watermark")


def test_a_time_to_live_may_differ_only_where_the_diff_says_so() -> None:
    assert fit("totals", "retention", ttl_may_change=True).dropped == ()
    with pytest.raises(NotProvable, match="time to live"):
        fit("totals", "retention")


def test_two_states_that_differ_in_their_time_to_live_only_are_not_mixed_up() -> None:
    document = json.loads(plan("totals"))
    twins(document, "1 h", "2 h")
    running = json.dumps(document)
    assert fit_plan(running, running, Claim(MODELS, ttl_may_change=True)).dropped == ()
    twins(document, "3 h", "4 h")
    with pytest.raises(NotProvable, match="more than one state"):
        fit_plan(running, json.dumps(document), Claim(MODELS, ttl_may_change=True))


def twins(document: dict[str, Any], *lives: str) -> None:
    """Two aggregates that differ in how long they keep their state."""
    first = next(node for node in document["nodes"] if node["type"] == AGGREGATE)
    if not any(node["id"] == 9999 for node in document["nodes"]):
        document["nodes"].append({**first, "id": 9999})
        document["edges"] += [{**edge, "target": 9999} for edge in document["edges"] if edge["target"] == first["id"]]
    for node, life in zip((node for node in document["nodes"] if node["type"] == AGGREGATE), lives, strict=True):
        node["state"] = [{**node["state"][0], "ttl": life}]


def test_a_model_that_is_gone_leaves_its_state_and_its_sink() -> None:
    found = fit("base", "totals")
    assert [text.split("(")[0] for text in found.dropped] == ["Sink", "GroupAggregate", "Sink"]
    assert set(ids(found.text, "keyed").values()) < set(ids(plan("base"), "keyed").values())


def test_sinks_follow_the_renames_of_their_models() -> None:
    renamed = plan("base").replace("totals/sink", "sums/sink")
    assert fit_plan(plan("base"), renamed, Claim({**MODELS, "sums": "totals"})).dropped == ()
    (lost,) = fit_plan(plan("base"), renamed, Claim(MODELS)).dropped
    assert "totals/sink" in lost


def test_new_operators_get_ids_that_were_never_used() -> None:
    found = json.loads(fit("base", "threshold", highest_id=5000).text)
    known = {node["id"] for node in json.loads(plan("base"))["nodes"]}
    fresh = [node["id"] for node in found["nodes"] if node["id"] not in known]
    assert fresh
    assert min(fresh) > 5000
    assert {edge["source"] for edge in found["edges"]} | {edge["target"] for edge in found["edges"]} == {n["id"] for n in found["nodes"]}
    assert highest_id(json.dumps(found)) == fit("base", "threshold", highest_id=5000).highest_id


def test_only_ids_and_edges_of_the_desired_plan_are_changed() -> None:
    def plain(text: str) -> list[dict[str, Any]]:
        return [{**node, "id": None} for node in json.loads(text)["nodes"]]

    assert plain(fit("base", "threshold").text) == plain(plan("threshold"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"needRetraction": True}, "retraction"),
        ({"aggCallNeedRetractions": [True, False]}, "retraction"),
        ({"configuration": {"table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.size": "5"}}, "settings"),
        ({"state": [{"index": 0, "ttl": "0 ms", "name": "another"}]}, "states"),
        ({"grouping": [1]}, "keys"),
        ({"type": "stream-exec-group-aggregate_2"}, "nothing is known"),
        ({"novelty": 1}, "novelty"),
        ({"state": [{"index": 0, "ttl": "0 ms", "name": "groupAggregateState", "novelty": 1}]}, "form that is not known"),
    ],
)
def test_every_part_of_an_aggregate_that_its_state_depends_on_is_compared(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(NotProvable, match=message):
        fit_plan(plan("totals"), edited("totals", AGGREGATE, **fields), Claim(MODELS))


@pytest.mark.parametrize("name", ["internalName", "argList", "filterArg", "distinct", "approximate", "ignoreNulls", "type"])
def test_every_field_of_an_aggregate_call_is_compared_but_its_label(name: str) -> None:
    document = json.loads(plan("totals"))
    (aggregate,) = (node for node in document["nodes"] if node["type"] == AGGREGATE)
    call = aggregate["aggCalls"][0]
    values = {"argList": [0], "filterArg": 0, "type": "DECIMAL(37, 2)", "internalName": "$MIN$1"}
    call[name] = values.get(name, not call[name])
    with pytest.raises(NotProvable, match="aggregates"):
        fit_plan(plan("totals"), json.dumps(document), Claim(MODELS))
    document = json.loads(plan("totals"))
    next(node for node in document["nodes"] if node["type"] == AGGREGATE)["aggCalls"][0]["name"] = "another label"
    assert fit_plan(plan("totals"), json.dumps(document), Claim(MODELS)).dropped == ()


def test_whether_updates_are_handed_on_in_two_parts_does_not_matter_to_the_state_itself() -> None:
    assert fit_plan(plan("totals"), edited("totals", AGGREGATE, generateUpdateBefore=True), Claim(MODELS)).dropped == ()


def test_a_column_of_another_type_is_another_state() -> None:
    wider = plan("totals").replace("DECIMAL(12, 2)", "DECIMAL(14, 2)")
    with pytest.raises(NotProvable, match="aggregates"):
        fit_plan(plan("totals"), wider, Claim(MODELS))


def test_a_table_that_is_read_twice_is_refused() -> None:
    document = json.loads(plan("totals"))
    source = next(node for node in document["nodes"] if node["type"].startswith("stream-exec-table-source"))
    document["nodes"].append({**source, "id": 9999})
    with pytest.raises(NotProvable, match="more than one"):
        fit_plan(json.dumps(document), plan("totals"), Claim(MODELS))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"INPUT_REF"', '"FIELD_ACCESS"', "kind that is not known"),
        ('"flinkVersion": "2.2"', '"flinkVersion": "2.3"', "2.3"),
        ('"WatermarkPushDown"', '"LimitPushDown"', "not known"),
        ('"stream-exec-exchange_1"', '"stream-exec-rank_1"', "nothing is known"),
        ('"nodes"', '"none"', "can't be read"),
        ("{", "", "can't be read"),
    ],
)
def test_what_is_not_known_is_refused(before: str, after: str, message: str) -> None:
    changed = plan("base").replace(before, after)
    assert changed != plan("base")
    with pytest.raises(NotProvable, match=message):
        fit_plan(plan("base"), changed, Claim(MODELS))


def test_every_kind_is_traced() -> None:
    assert {kind.type for kind in KINDS} == TRACED
