"""Traces: what each column and each row of a compiled plan is, down to the sources, so that positions and names do not matter.

A trace's texts are digests: two are equal exactly when the same is computed from the same columns of the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from streamform.backends.flink.exec_plan import ExecNode, ExecPlan, NotProvable
from streamform.identity.fingerprint import canonical_json, digest

_WINDOW_FIELDS = frozenset({"type", "size", "slide", "step", "maxSize", "offset", "gap"})
_WINDOWING_FIELDS = frozenset({"strategy", "window", "timeAttributeType", "timeAttributeIndex", "isRowtime"})
_CALL_FIELDS = frozenset({"name", "syntax", "internalName", "argList", "filterArg", "distinct", "approximate", "ignoreNulls", "type"})
_REX_KINDS = frozenset({"CALL", "INPUT_REF", "LITERAL"})


class Trace(Struct):
    """A compiled plan with what its columns, rows and states are."""

    plan: ExecPlan
    columns: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """What each column of a node's rows is."""
    rows: dict[int, str] = field(default_factory=dict)
    """Which rows a node hands on, columns aside."""
    parts: dict[int, dict[str, str]] = field(default_factory=dict)
    """What a keyed node's state depends on, by what it is called in messages."""
    ttl: dict[int, str] = field(default_factory=dict)
    """The times to live of a keyed node's states."""

    def state_of(self, node: ExecNode, *, with_ttl: bool) -> str:
        """What a keyed node's state is."""
        return digest(canonical_json([self.parts[node.id], self.ttl[node.id] if with_ttl else ""]))

    def input_of(self, node: ExecNode) -> int:
        """The only input of a node."""
        if len(node.inputs) != 1:
            raise NotProvable(f"{node.description} has {len(node.inputs)} inputs")
        return node.inputs[0]


def trace_plan(plan: ExecPlan) -> Trace:
    """The trace of a plan. Raises: NotProvable for an expression, window or call of a form that is not known."""
    trace = Trace(plan)
    for node in plan.nodes:
        try:
            _TRACERS[node.type](trace, node)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise NotProvable(f"{node.description} has a form that is not known: {error!r}") from None
        if node.id in trace.columns and len(trace.columns[node.id]) != len(node.columns):
            raise NotProvable(f"{node.description} has a form that is not known: {len(node.columns)} columns")
    return trace


def _mark(*parts: Any) -> str:
    return digest(canonical_json(list(parts)))


def _scan(trace: Trace, node: ExecNode) -> None:
    names = dict(enumerate(name for name, _ in node.columns))
    watermarks = [_watermark(a) for a in node.fields["scanTableSource"].get("abilities", ()) if a["type"] == "WatermarkPushDown"]
    trace.rows[node.id] = _mark("scan", node.table, watermarks)
    trace.columns[node.id] = tuple(_mark("column", node.table, names[place], type_) for place, (_, type_) in enumerate(node.columns))


def _watermark(ability: Mapping[str, Any]) -> Any:
    """A watermark by the names of its columns, because positions move when a table gets another column."""
    produced = ability["producedType"]
    names = [str(column["name"]) for column in produced["fields"]]
    expressions = [_expression(ability[name], names) for name in ("watermarkExpr", "rowtimeExpr")]
    rest = {name: value for name, value in ability.items() if name not in ("watermarkExpr", "rowtimeExpr", "producedType")}
    return [expressions, rest]


def _calc(trace: Trace, node: ExecNode) -> None:
    below = trace.input_of(node)
    columns = trace.columns[below]
    trace.columns[node.id] = tuple(_column(item, columns) for item in node.fields["projection"])
    condition = node.fields.get("condition")
    trace.rows[node.id] = trace.rows[below] if condition is None else _mark("filter", trace.rows[below], _conjuncts(condition, columns))


def _column(item: Mapping[str, Any], columns: Sequence[str]) -> str:
    """What a projected column is: one that is handed on stays what it was."""
    return columns[item["inputIndex"]] if item["kind"] == "INPUT_REF" else _mark(_expression(item, columns))


def _conjuncts(condition: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The parts of a condition that must all hold, in an order of their own."""
    if condition["kind"] == "CALL" and condition["internalName"] == "$AND$1":
        return sorted({part for operand in condition["operands"] for part in _conjuncts(operand, columns)})
    return [_mark(_expression(condition, columns))]


def _expression(rex: Any, columns: Sequence[str]) -> Any:
    """An expression with what its columns are in the place of their positions."""
    if isinstance(rex, list):
        return [_expression(item, columns) for item in rex]
    if not isinstance(rex, dict):
        return rex
    kind = rex.get("kind")
    if kind not in _REX_KINDS:
        raise NotProvable(f"an expression has a part of a kind that is not known: {kind}")
    if kind == "INPUT_REF":
        return ["column", columns[rex["inputIndex"]], rex["type"]]
    if kind == "LITERAL":
        return rex
    known = {"kind", "syntax", "internalName", "operands", "type"}
    if set(rex) - known or "internalName" not in rex:
        raise NotProvable(f"a function has a field that is not known: {sorted(set(rex) - known)}")
    return ["call", rex["internalName"], _expression(rex["operands"], columns), rex["type"]]


def _exchange(trace: Trace, node: ExecNode) -> None:
    below = trace.input_of(node)
    trace.columns[node.id], trace.rows[node.id] = trace.columns[below], trace.rows[below]


def _union(trace: Trace, node: ExecNode) -> None:
    trace.rows[node.id] = _mark("union", [[trace.rows[name], trace.columns[name]] for name in node.inputs])
    trace.columns[node.id] = tuple(_mark("united", trace.rows[node.id], place, type_) for place, (_, type_) in enumerate(node.columns))


def _group_aggregate(trace: Trace, node: ExecNode) -> None:
    parts = _keyed_parts(trace, node)
    retraction = [node.fields["aggCallNeedRetractions"], node.fields["needRetraction"]]
    states = node.fields["state"]
    if any(set(state) != {"index", "ttl", "name"} for state in states):
        raise NotProvable(f"{node.description} has a state of a form that is not known")
    named = [[state["index"], state["name"]] for state in states]
    trace.parts[node.id] = {**parts, "retraction": _mark(retraction), "states": _mark(named)}
    trace.ttl[node.id] = _mark([state["ttl"] for state in states])
    _hand_on(trace, node, node.fields["generateUpdateBefore"])


def _window_aggregate(trace: Trace, node: ExecNode) -> None:
    columns = trace.columns[trace.input_of(node)]
    windowing = node.fields["windowing"]
    if set(windowing) != _WINDOWING_FIELDS or windowing["strategy"] != "TimeAttribute" or set(windowing["window"]) - _WINDOW_FIELDS:
        raise NotProvable(f"{node.description} has a window of a form that is not known")
    window = {**windowing, "timeAttributeIndex": columns[windowing["timeAttributeIndex"]]}
    parts = _keyed_parts(trace, node)
    trace.parts[node.id] = {
        **parts,
        "window": _mark(window, node.fields["namedWindowProperties"]),
        "retraction": _mark(node.fields["needRetraction"]),
    }
    trace.ttl[node.id] = ""
    _hand_on(trace, node, None)


def _keyed_parts(trace: Trace, node: ExecNode) -> dict[str, str]:
    below = trace.input_of(node)
    columns = trace.columns[below]
    calls = [_call(call, columns, node) for call in node.fields["aggCalls"]]
    keys = [columns[place] for place in node.fields["grouping"]]
    return {
        "kind": node.type,
        "keys": _mark(keys),
        "aggregates": _mark(calls),
        "rows read": trace.rows[below],
        "settings": _mark(node.fields["configuration"]),
    }


def _call(call: Mapping[str, Any], columns: Sequence[str], node: ExecNode) -> list[Any]:
    """An aggregate call, its label aside; the order of calls is the order in which Flink stores their values."""
    if set(call) - _CALL_FIELDS:
        raise NotProvable(f"{node.description} has an aggregate of a form that is not known")
    arguments = [columns[place] for place in call["argList"]]
    condition = None if call["filterArg"] < 0 else columns[call["filterArg"]]
    flags = [call[name] for name in ("distinct", "approximate", "ignoreNulls")]
    return [call["internalName"], arguments, condition, flags, call["type"]]


def _hand_on(trace: Trace, node: ExecNode, updates: Any) -> None:
    """What an aggregate emits: columns of its state, and changes that depend on its time to live."""
    state = _mark(trace.parts[node.id], trace.ttl[node.id])
    trace.rows[node.id] = _mark("changes", state, updates)
    trace.columns[node.id] = tuple(_mark("result", state, place, type_) for place, (_, type_) in enumerate(node.columns))


def _sink(trace: Trace, node: ExecNode) -> None:
    trace.rows[node.id] = _mark("sink", node.table)


_TRACERS = {
    "stream-exec-table-source-scan_1": _scan,
    "stream-exec-calc_1": _calc,
    "stream-exec-exchange_1": _exchange,
    "stream-exec-union_1": _union,
    "stream-exec-group-aggregate_1": _group_aggregate,
    "stream-exec-window-aggregate_1": _window_aggregate,
    "stream-exec-sink_1": _sink,
}
"""How each kind of KINDS is traced."""

TRACED = frozenset(_TRACERS)
"""The kinds that can be traced; a test holds them against KINDS."""
