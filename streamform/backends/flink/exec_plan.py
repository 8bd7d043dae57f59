"""Compiled plans: Flink's JSON read into nodes, and KINDS, the table of what is known about each kind of node."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

Role = Literal["source", "keyed", "sink", "stateless"]
"""What a node keeps: a position, state by key, what a writer keeps, or nothing."""


class NotProvable(Exception):
    """State can't be shown to be right for a plan; the text says why."""


class Kind(NamedTuple):
    """One row: a kind of node in one version."""

    type: str
    role: Role
    compared: tuple[str, ...]
    """Fields that decide what the node computes or keeps; carry compares what they mean."""
    ignored: tuple[str, ...]
    """Fields that change neither."""
    why: str
    """For the documentation."""


_COMMON = ("id", "type", "description", "inputProperties", "outputType")

KINDS: tuple[Kind, ...] = (
    Kind(
        "stream-exec-table-source-scan_1",
        "source",
        ("scanTableSource",),
        (),
        "table, watermark and its settings; columns are compared where they are used",
    ),
    Kind("stream-exec-calc_1", "stateless", ("projection", "condition"), (), "expressions, traced back to columns of sources"),
    Kind("stream-exec-exchange_1", "stateless", (), (), "moves rows, and changes none"),
    Kind("stream-exec-union_1", "stateless", (), (), "its inputs in their order"),
    Kind(
        "stream-exec-group-aggregate_1",
        "keyed",
        ("configuration", "grouping", "aggCalls", "aggCallNeedRetractions", "needRetraction", "state"),
        ("generateUpdateBefore",),
        "keys, aggregate calls in their order with arguments, filters and types, retraction, names of its states, settings, the rows that it reads; "
        "the time to live where retention did not change",
    ),
    Kind(
        "stream-exec-window-aggregate_1",
        "keyed",
        ("configuration", "grouping", "aggCalls", "windowing", "namedWindowProperties", "needRetraction"),
        (),
        "as a group aggregate, and the window with its time column",
    ),
    Kind(
        "stream-exec-sink_1",
        "sink",
        ("dynamicTableSink",),
        ("configuration", "inputChangelogMode", "inputUpsertKey"),
        "the model that it belongs to; a Kafka writer's state does not depend on rows",
    ),
)
"""Anything that is not here, another version of a kind included, can't be shown to be right."""

KIND_BY_TYPE = {kind.type: kind for kind in KINDS}
_ABILITIES = frozenset({"WatermarkPushDown", "ProjectPushDown"})


class ExecNode(Struct, frozen=True):
    """One node of a compiled plan."""

    id: int
    type: str
    role: Role
    fields: Mapping[str, Any]
    inputs: tuple[int, ...]
    columns: tuple[tuple[str, Any], ...]
    """Names and types of its rows."""

    @property
    def description(self) -> str:
        """How Flink describes it."""
        return str(self.fields.get("description", self.type))

    @property
    def table(self) -> str:
        """The table of a source or sink, quoted, without its catalog."""
        holder = self.fields["scanTableSource"] if self.role == "source" else self.fields["dynamicTableSink"]
        return "`" + str(holder["table"]["identifier"]).removesuffix("`").rsplit(".`", 1)[-1] + "`"


class ExecPlan(Struct, frozen=True):
    """A compiled plan; nodes come after their inputs."""

    flink_version: str
    nodes: tuple[ExecNode, ...]
    document: Mapping[str, Any]

    def of_role(self, role: Role) -> list[ExecNode]:
        """The nodes of one role."""
        return [node for node in self.nodes if node.role == role]


def read_exec_plan(text: str, *, strict: bool = True) -> ExecPlan:
    """The plan that a text holds. Raises: NotProvable for one that is none, or, when strict, that KINDS does not cover."""
    try:
        document = json.loads(text)
        inputs: dict[int, list[int]] = {node["id"]: [] for node in document["nodes"]}
        for edge in document["edges"]:
            inputs[edge["target"]].append(edge["source"])
        nodes = [_node(fields, tuple(inputs[fields["id"]]), strict=strict) for fields in document["nodes"]]
        return ExecPlan(str(document["flinkVersion"]), _ordered(nodes), document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotProvable(f"the compiled plan can't be read: {error}") from None


def _node(fields: Mapping[str, Any], inputs: tuple[int, ...], *, strict: bool) -> ExecNode:
    kind = KIND_BY_TYPE.get(fields["type"])
    if strict:
        _refuse_unknown(fields, kind)
    return ExecNode(
        fields["id"],
        fields["type"],
        "stateless" if kind is None else kind.role,
        fields,
        inputs,
        _columns(fields["outputType"]) if strict else (),
    )


def _refuse_unknown(fields: Mapping[str, Any], kind: Kind | None) -> None:
    shown = fields.get("description", fields["type"])
    if kind is None:
        raise NotProvable(f"nothing is known about the state of {shown} ({fields['type']})")
    unknown = sorted(set(fields) - {*_COMMON, *kind.compared, *kind.ignored})
    if unknown:
        raise NotProvable(f"{shown} has a field that is not known: {unknown[0]}")
    if kind.role == "source":
        scan = fields["scanTableSource"]
        abilities = {ability["type"] for ability in scan.get("abilities", ())}
        if set(scan) - {"table", "abilities"} or abilities - _ABILITIES:
            raise NotProvable(f"{shown} reads its table in a way that is not known")
        if set(scan["table"]) != {"identifier"}:
            raise NotProvable(f"{shown} is no temporary table")


def _ordered(nodes: list[ExecNode]) -> tuple[ExecNode, ...]:
    """The nodes so that inputs come first."""
    ordered: list[ExecNode] = []
    done: set[int] = set()
    waiting = nodes
    while waiting:
        ready = [node for node in waiting if done.issuperset(node.inputs)]
        if not ready:
            raise ValueError("its nodes form a circle")
        ordered += ready
        done |= {node.id for node in ready}
        waiting = [node for node in waiting if node.id not in done]
    return tuple(ordered)


_COLUMN = re.compile(r"`((?:[^`]|``)*)` ")


def _columns(row: Any) -> tuple[tuple[str, Any], ...]:
    """Names and types of a row type, which is a text or, where types have more to them, an object."""
    if isinstance(row, dict):
        return tuple((field["name"], field["fieldType"]) for field in row["fields"])
    if not (row.startswith("ROW<") and row.removesuffix(" NOT NULL").endswith(">")):
        raise ValueError(f"{row} is no row")
    body = row.removesuffix(" NOT NULL")[4:-1]
    found: list[tuple[str, Any]] = []
    while body:
        match = _COLUMN.match(body)
        if match is None:
            raise ValueError(f"{row} has columns that can't be told apart")
        end = _type_end(body, match.end())
        found.append((match[1].replace("``", "`"), body[match.end() : end]))
        body = body[end:].removeprefix(", ")
    return tuple(found)


def _type_end(text: str, start: int) -> int:
    """Where the type that begins at a place ends: at a comma outside of brackets."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] in "(<":
            depth += 1
        elif text[place] in ")>":
            depth -= 1
        elif text[place] == "," and depth == 0:
            return place
    return len(text)
