"""Plan and Node: the typed form of an application, which everything after the compiler reads.

A node has any number of inputs. What it computes is its `spec`; what manifests and digests hold is its `definition`,
the canonical text of the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from streamform.project.model import Endpoint, Materialized, Source, WindowType
from streamform.sql.expressions import AggregateCall, ColumnRef, Expression, Output
from streamform.values.instants import render_duration
from streamform.values.rows import Schema

NodeKind = Literal["source", "filter", "aggregate", "project", "union", "sink"]
NODE_KINDS: tuple[NodeKind, ...] = ("source", "filter", "aggregate", "project", "union", "sink")
UNBOUNDED_RETENTION = "unbounded"
UNTIL_CLOSE = "until-close"
DELETE_EXPIRED = "on_expiry=delete"
"""What is added to a retention whose expired keys are deleted from the output."""


class Changelog(Struct, frozen=True):
    """What kind of changes a node emits, and the columns that identify a row where rows are updated."""

    mode: Literal["append", "upsert", "retract"]
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.mode}({', '.join(self.key)})" if self.key else self.mode

    @property
    def is_updating(self) -> bool:
        return self.mode != "append"


APPEND = Changelog("append")
RETRACT = Changelog("retract")


class WindowContract(Struct, frozen=True):
    """A window over the time attribute, whose result is emitted once. Fixed windows are aligned to the epoch."""

    time: str
    size_ms: int
    """Of a session: the gap that ends it."""
    type: WindowType = "tumbling"
    step_ms: int = 0
    """Of hopping windows the slide, of cumulating ones the step; 0 for the others."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """What manifests and fingerprints say, in order."""
        size = render_duration(self.size_ms)
        if self.type == "session":
            return ("type", self.type), ("time", self.time), ("size", size), ("alignment", "session"), ("emission", "final")
        step = {"hopping": "slide", "cumulating": "step"}.get(self.type)
        stepped = () if step is None else ((step, render_duration(self.step_ms)),)
        return ("type", self.type), ("time", self.time), ("size", size), *stepped, ("alignment", "epoch"), ("emission", "final")

    def __str__(self) -> str:
        return window_text(self.fields)


def window_text(fields: Iterable[tuple[str, str]]) -> str:
    """A window as definitions show it: `tumbling(time=at size=5m align=epoch emit=final)`."""
    named = dict(fields)
    short = {"alignment": "align", "emission": "emit"}
    return f"{named.pop('type')}({' '.join(f'{short.get(name, name)}={value}' for name, value in named.items())})"


class KeyedState(Struct, frozen=True):
    """What an aggregate keeps for each key."""

    keys: tuple[str, ...]
    accumulators: Schema
    retention: str = UNBOUNDED_RETENTION
    window: WindowContract | None = None


class BoundContract(Struct, frozen=True):
    """A source's contract over typed columns; an event meets it when the condition is true."""

    name: str
    condition: Expression


class SourceSpec(Struct, frozen=True):
    """Reads a source's events."""

    source: Source
    contracts: tuple[BoundContract, ...] = ()


class FilterSpec(Struct, frozen=True):
    """Keeps the rows for which the predicate is true."""

    predicate: Expression


class ProjectSpec(Struct, frozen=True):
    """Computes outputs from each row."""

    outputs: tuple[Output, ...]


class AggregateSpec(Struct, frozen=True):
    """Folds rows into one row a key, or one row a key and window."""

    keys: tuple[ColumnRef, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowContract | None = None
    retention_ms: int | None = None
    deletes_expired: bool = False
    """Whether a key that expires is deleted from the output, too."""


class UnionSpec(Struct, frozen=True):
    """Hands on the rows of every input, column by column in order."""


class SinkSpec(Struct, frozen=True):
    """Hands a model's changelog to its readers, and to an endpoint where one is declared."""

    materialized: Materialized
    key: tuple[str, ...]
    endpoint: Endpoint | None


Spec = SourceSpec | FilterSpec | ProjectSpec | AggregateSpec | UnionSpec | SinkSpec


class Node(Struct, frozen=True):
    """One operator of the plan."""

    id: str
    model: str
    kind: NodeKind
    inputs: tuple[str, ...]
    definition: str
    schema: Schema
    boundedness: Literal["bounded", "unbounded"]
    changelog: Changelog
    state: KeyedState | None
    time: str | None
    spec: Spec


class PlannedModel(Struct, frozen=True):
    """A model's declared contract and the node whose output it is."""

    name: str
    materialized: Materialized
    key: tuple[str, ...]
    output: str


class Plan(Struct, frozen=True, dict=True):
    """An application: its models in dependency order, and their nodes in the same order.

    Invariants: ids are unique; inputs come before the nodes that read them; each model's output is its sink.
    """

    application: str
    models: tuple[PlannedModel, ...]
    nodes: tuple[Node, ...]

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    def nodes_of(self, model: str) -> list[Node]:
        """A model's nodes in plan order."""
        return list(self._by_model.get(model, ()))

    def inputs_of(self, node: Node) -> list[Node]:
        """The nodes that a node reads."""
        return [self.by_id[name] for name in node.inputs]

    def upstream(self, node: Node) -> Iterator[Node]:
        """Every node that feeds this one, across models, each once."""
        seen: set[str] = set()
        pending = list(node.inputs)
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                yield self.by_id[name]
                pending.extend(self.by_id[name].inputs)

    def part(self, models: Iterable[str]) -> Plan:
        """The plan of some models only, which must include what they read."""
        names = set(models)
        chosen = sorted((self._places[name], name) for name in names if name in self._places)
        nodes = tuple(node for _, name in chosen for node in self._by_model.get(name, ()))
        return Plan(self.application, tuple(self.models[place] for place, _ in chosen), nodes)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {model.name: place for place, model in enumerate(self.models)}

    @cached_property
    def _by_model(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.model, []).append(node)
        return found

    def check_invariants(self) -> None:
        """Fail loudly when the plan is not one: a fault of ours, never of the project."""
        seen: set[str] = set()
        for node in self.nodes:
            assert node.id not in seen, f"{node.id} occurs twice"
            assert all(name in seen for name in node.inputs), f"{node.id} comes before its inputs"
            assert (node.kind == "source") == (not node.inputs), f"{node.id} has {len(node.inputs)} inputs"
            seen.add(node.id)
        for model in self.models:
            assert self.by_id[model.output].kind == "sink", f"{model.output} is not a sink"


def joined(plans: Sequence[Plan]) -> Plan:
    """Several plans that read nothing of each other as one."""
    if len(plans) == 1:
        return plans[0]
    models, nodes = (m for plan in plans for m in plan.models), (n for plan in plans for n in plan.nodes)
    return Plan(plans[0].application, tuple(models), tuple(nodes))


def node_id(model: str, kind: str, ordinal: int) -> str:
    """`<model>::<kind>::<ordinal>`."""
    return f"{model}::{kind}::{ordinal}"
