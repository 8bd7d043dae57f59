"""Carry: whether a changed query can take over a running job's state, and its compiled plan rewritten so that it does.

A compiled plan's node ids are the ids under which Flink finds state. Flink restores whatever has the right id and fits byte
by byte, also the total of a SUM into a MAX. So a node gets a running node's id only where both hold the same: the same
computation over the same rows, traced back to the sources. KINDS says what is compared of each kind; a kind, version or field
that is not in it makes the plan one that nothing is known of. No file, network or clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from streamform.backends.flink.exec_plan import ExecNode, ExecPlan, NotProvable, read_exec_plan
from streamform.backends.flink.exec_trace import Trace, trace_plan
from streamform.backends.flink.text import relation


class Claim(Struct, frozen=True):
    """What the plan of the desired unit asks of the running job's state."""

    sinks: Mapping[str, str]
    """Desired model -> running model, for models that were there before."""
    ttl_may_change: bool = False
    """Whether the diff says that retention changed, so that it may differ."""
    highest_id: int = 0
    """The highest node id that any plan of this job ever had, so that no id is used for something else."""


class Fit(Struct, frozen=True):
    """A compiled plan that takes over a running job's state."""

    text: str
    """The plan to execute, as JSON."""
    carried: tuple[str, ...]
    """Flink's descriptions of the operators whose state or position goes on."""
    dropped: tuple[str, ...]
    """Operators of the running job whose state nobody takes over."""
    highest_id: int


def fit_plan(running_text: str, desired_text: str, claim: Claim) -> Fit:
    """The desired plan under the running plan's ids. Raises: NotProvable, saying what is not the same."""
    running, desired = read_exec_plan(running_text), read_exec_plan(desired_text)
    if running.flink_version != desired.flink_version:
        raise NotProvable(f"the job was compiled by Flink {running.flink_version}, and the gateway is Flink {desired.flink_version}")
    before, after = trace_plan(running), trace_plan(desired)
    _refuse_repeated_sources(before, after)
    pairs = _sources(before, after) | _keyed(before, after, claim) | _sinks(running, desired, claim)
    return _fit(running, desired, pairs, claim)


def _refuse_repeated_sources(*traces: Trace) -> None:
    """Two operators that read one table may be at different positions, and nothing says which is which."""
    for trace in traces:
        seen: set[str] = set()
        for node in trace.plan.of_role("source"):
            table = node.table
            if table in seen:
                raise NotProvable(f"table {table} is read by more than one operator")
            seen.add(table)


def _sources(before: Trace, after: Trace) -> dict[int, int]:
    """Sources that go on where they were. One whose watermarks differ is another one, and so is what depends on it."""
    known = {before.rows[node.id]: node for node in before.plan.of_role("source")}
    pairs: dict[int, int] = {}
    for node in after.plan.of_role("source"):
        was = known.get(after.rows[node.id])
        if was is not None:
            pairs[node.id] = was.id
        elif any(other.table == node.table for other in known.values()):
            raise NotProvable(f"table {node.table} has other watermarks than in the running job")
    return pairs


def _keyed(before: Trace, after: Trace, claim: Claim) -> dict[int, int]:
    """The running node of every node that keeps state by key. Nodes that hold the same are as good as each other."""
    free = before.plan.of_role("keyed")
    pairs: dict[int, int] = {}
    for node in after.plan.of_role("keyed"):
        was = next((other for other in free if _same(before, other, after, node, with_ttl=True)), None)
        if was is not None:
            pairs[node.id] = was.id
            free.remove(was)
    left = [node for node in after.plan.of_role("keyed") if node.id not in pairs]
    for node in left:
        candidates = [other for other in free if _same(before, other, after, node, with_ttl=False)] if claim.ttl_may_change else []
        rivals = [other for other in left if after.state_of(other, with_ttl=False) == after.state_of(node, with_ttl=False)]
        if not candidates:
            raise NotProvable(_why_not(before, after, node))
        if len(candidates) > 1 or len(rivals) > 1:
            raise NotProvable(f"the running job has more than one state that {node.description} could take over, with other times to live")
        pairs[node.id] = candidates[0].id
    return pairs


def _same(before: Trace, was: ExecNode, after: Trace, node: ExecNode, *, with_ttl: bool) -> bool:
    return before.state_of(was, with_ttl=with_ttl) == after.state_of(node, with_ttl=with_ttl)


def _why_not(before: Trace, after: Trace, node: ExecNode) -> str:
    """What the most similar running node does not share with a node."""
    parts = after.parts[node.id]
    similar = [other for other in before.plan.of_role("keyed") if other.type == node.type]
    shown = f"the new operator {node.description}"
    if not similar:
        return f"{shown} has no counterpart in the running job"
    nearest = min(similar, key=lambda other: len(_differences(before.parts[other.id], parts)))
    differing = _differences(before.parts[nearest.id], parts)
    if not differing and before.ttl[nearest.id] != after.ttl[node.id]:
        differing = ["time to live"]
    if not differing:
        return f"{shown} needs a state of its own, and the running job keeps only one like it"
    return f"{shown} and the running {nearest.description} do not have the same {' and '.join(differing)}"


def _differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [name for name in other if one.get(name) != other[name]]


def _sinks(running: ExecPlan, desired: ExecPlan, claim: Claim) -> dict[int, int]:
    """Sinks of models that were there before. What a writer keeps does not depend on rows or topic."""
    known = {node.table: node.id for node in running.of_role("sink")}
    was = {relation(model, "sink"): relation(before, "sink") for model, before in claim.sinks.items()}
    pairs: dict[int, int] = {}
    for node in desired.of_role("sink"):
        name = was.get(node.table, node.table)
        if name in known and known[name] not in pairs.values():
            pairs[node.id] = known[name]
    return pairs


def _fit(running: ExecPlan, desired: ExecPlan, pairs: Mapping[int, int], claim: Claim) -> Fit:
    """The desired plan with its ids replaced: those of counterparts, and fresh ones for all else."""
    next_id = max([claim.highest_id, *(node.id for node in running.nodes), *(node.id for node in desired.nodes)]) + 1
    ids: dict[int, int] = {}
    for node in desired.nodes:
        if node.id in pairs:
            ids[node.id] = pairs[node.id]
        else:
            ids[node.id] = next_id
            next_id += 1
    assert len(set(ids.values())) == len(ids), "two operators under one id"
    taken = set(pairs.values())
    kept = [node for node in running.nodes if node.role != "stateless"]
    return Fit(
        json.dumps(_renumbered(desired.document, ids), separators=(",", ":")),
        tuple(node.description for node in kept if node.id in taken),
        tuple(node.description for node in kept if node.id not in taken),
        next_id - 1,
    )


def _renumbered(document: Mapping[str, Any], ids: Mapping[int, int]) -> dict[str, Any]:
    nodes = [{**node, "id": ids[node["id"]]} for node in document["nodes"]]
    edges = [{**edge, "source": ids[edge["source"]], "target": ids[edge["target"]]} for edge in document["edges"]]
    return {**document, "nodes": nodes, "edges": edges}


def highest_id(plan_text: str) -> int:
    """The highest node id of a compiled plan. Raises: NotProvable for a text that is none."""
    return max((node.id for node in read_exec_plan(plan_text, strict=False).nodes), default=0)


__all__ = ["Claim", "Fit", "fit_plan", "highest_id"]
