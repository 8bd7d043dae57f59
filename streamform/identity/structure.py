"""The normal form of a plan: what each keyed stream and each model computes, whatever way it is written.

Stateless operators are unfolded: a keyed stream is described by its branches, each an origin (a source, or another keyed
stream), the conditions that rows must meet, and expressions over the origin's columns. What a rewrite of REWRITES may
change is left out of the description and is kept as evidence, which says afterwards which rewrites made two texts equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from streamform.identity.keys import DefinitionKey, InputKey, OutputKey, StateKey, fingerprint
from streamform.plan.nodes import AggregateSpec, FilterSpec, Node, Plan, ProjectSpec, SinkSpec, SourceSpec, UnionSpec
from streamform.sql.expressions import AggregateCall, Call, Cast, ColumnRef, Expression, render_literal

FLIPPED = {">": "<", ">=": "<="}
"""Comparisons that are written the other way round."""
SYMMETRIC = frozenset({"=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"})
FLATTENED = frozenset({"AND", "OR"})

COMPARISONS = "flipped comparisons"
Evidence = dict[str, list[str]]
"""By rewrite: what the text had there, in its order."""


class Term(Struct, frozen=True):
    """An expression over the columns of an origin. `parts` are the operands of a chain of AND or OR, whose order does not matter."""

    key: str
    chain: str = ""
    parts: frozenset[str] = frozenset()

    def parts_of(self, chain: str) -> frozenset[str]:
        """The operands as a part of this chain."""
        return self.parts if self.chain == chain else frozenset({self.key})


class Branch(Struct, frozen=True):
    """One way in which rows reach a node: from an origin, if they meet every condition."""

    origin: str
    conditions: frozenset[str]
    columns: Mapping[str, Term]

    def description(self) -> list[Any]:
        """What rows pass, without their columns."""
        return [self.origin, sorted(self.conditions)]


class Stream(Struct, frozen=True):
    """A keyed node: what it holds and how that came about."""

    node: str
    model: str
    state_key: StateKey
    input_key: InputKey
    accumulators: tuple[tuple[str, str], ...]
    """Name and key of each, in the node's order."""
    evidence: Mapping[str, tuple[str, ...]]

    @property
    def by_name(self) -> dict[str, str]:
        """Keys of accumulators by name."""
        return dict(self.accumulators)


class Output(Struct, frozen=True):
    """What a model shows. It is internal when nothing outside sees it."""

    model: str
    key: OutputKey
    is_internal: bool
    evidence: Mapping[str, tuple[str, ...]]


class Structure(Struct, frozen=True):
    """The structural keys of a plan."""

    definition: DefinitionKey
    streams: Mapping[str, Stream]
    """By node id."""
    outputs: Mapping[str, Output]
    """By model."""


def structure_of(plan: Plan) -> Structure:
    """The structural keys of every keyed stream and every model, and of the whole."""
    return _Describer(plan).structure()


class _Describer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.branches: dict[str, tuple[Branch, ...]] = {}
        self.evidence: dict[str, Evidence] = {}
        self.streams: dict[str, Stream] = {}
        self.outputs: dict[str, Output] = {}
        self.noted: Evidence = {}
        """Evidence of the node at hand."""

    def structure(self) -> Structure:
        read = {name for node in self.plan.nodes for name in node.inputs if self.plan.by_id[name].model != node.model}
        for node in self.plan.nodes:
            self.noted = {}
            for name in node.inputs:
                for rewrite, found in self.evidence[name].items():
                    self.noted.setdefault(rewrite, []).extend(found)
            self.note("shape", node.kind if node.kind in ("filter", "project", "aggregate", "union") else "")
            self.note("inlining", node.model)
            self.branches[node.id] = self.through(node)
            # What lies before a keyed stream is that stream's evidence, not that of what reads it.
            self.evidence[node.id] = {} if node.state is not None else self.noted
            if isinstance(node.spec, SinkSpec):
                self.outputs[node.model] = self.output(node, node.spec, is_read=node.id in read)
        shown = sorted([o.model, o.key] for o in self.outputs.values() if not o.is_internal)
        return Structure(DefinitionKey(fingerprint("definition", shown)), self.streams, self.outputs)

    def note(self, rewrite: str, text: str) -> None:
        if text and (rewrite != "inlining" or self.noted.get(rewrite, [""])[-1] != text):
            self.noted.setdefault(rewrite, []).append(text)

    def collected(self) -> dict[str, tuple[str, ...]]:
        """The evidence at hand; comparisons count by which way round they stand, and not by their order."""
        return {rewrite: tuple(sorted(found) if rewrite == COMPARISONS else found) for rewrite, found in self.noted.items()}

    def through(self, node: Node) -> tuple[Branch, ...]:
        """The ways in which rows leave a node."""
        if isinstance(node.spec, SourceSpec):
            return (self.source(node, node.spec),)
        below = [branch for name in node.inputs for branch in self.branches[name]]
        if isinstance(node.spec, FilterSpec):
            return tuple(self.filtered(branch, node.spec.predicate) for branch in below)
        if isinstance(node.spec, ProjectSpec):
            outputs = node.spec.outputs
            self.note("pass-through", f"{len(outputs)} of {len(below[0].columns)}")
            for output in outputs:
                self.note("aliases", output.name)
            return tuple(Branch(b.origin, b.conditions, {o.name: self.term(o.expression, b) for o in outputs}) for b in below)
        if isinstance(node.spec, UnionSpec):
            return tuple(self.united(node, name, branch) for name in node.inputs for branch in self.branches[name])
        if isinstance(node.spec, AggregateSpec):
            return (self.aggregated(node, node.spec, below),)
        return tuple(below)

    def source(self, node: Node, spec: SourceSpec) -> Branch:
        source = spec.source
        clock = [source.event_time, source.watermark_ms, source.late_events, source.idle_timeout_ms]
        columns = {c.name: Term(fingerprint("column", [c.name, str(c.type)])) for c in source.schema}
        self.note("unused columns", ", ".join(columns))
        raw = Branch("", frozenset(), columns)
        contracts = [sorted(self.term(c.condition, raw).parts_of("AND")) for c in spec.contracts]
        place = [source.name, source.endpoint.connector, source.endpoint.address, list(source.key)]
        return Branch(fingerprint("source", [place, clock, contracts]), frozenset(), columns)

    def filtered(self, branch: Branch, predicate: Expression) -> Branch:
        term = self.term(predicate, branch)
        return Branch(branch.origin, branch.conditions | term.parts_of("AND"), branch.columns)

    def united(self, node: Node, name: str, branch: Branch) -> Branch:
        below = self.plan.by_id[name].schema
        columns = {u.name: branch.columns[c.name] for u, c in zip(node.schema, below, strict=True)}
        return Branch(branch.origin, branch.conditions, columns)

    def aggregated(self, node: Node, spec: AggregateSpec, below: list[Branch]) -> Branch:
        keys = [[*b.description(), *([self.term(key, b).key, str(key.type)] for key in spec.keys)] for b in below]
        time = [] if spec.window is None else [b.columns[spec.window.time].key for b in below]
        calls = [(call.name, self.accumulator(call, below)) for call in spec.calls]
        for name, _ in calls:
            self.note("equation order", name)
        for key in spec.keys:
            self.note("aliases", key.name)
        window = None if spec.window is None else [spec.window.type, spec.window.size_ms, spec.window.step_ms, time]
        input_key = InputKey(fingerprint("input", keys))
        held = [input_key, sorted(key for _, key in calls), window, spec.retention_ms, spec.deletes_expired]
        state_key = StateKey(fingerprint("state", held))
        evidence = self.collected()
        self.streams[node.id] = Stream(node.id, node.model, state_key, input_key, tuple(calls), evidence)
        places = {key.name: fingerprint("key", [place]) for place, key in enumerate(spec.keys)}
        found = {**places, **dict(calls)}
        columns = {c.name: Term(found.get(c.name) or fingerprint("bound", [c.name])) for c in node.schema}
        return Branch(fingerprint("stream", [state_key]), frozenset(), columns)

    def accumulator(self, call: AggregateCall, below: Iterable[Branch]) -> str:
        """The key of one accumulator over every branch."""
        folded = []
        for branch in below:
            argument = None if call.argument is None else self.term(call.argument, branch).key
            condition = [] if call.condition is None else sorted(self.term(call.condition, branch).parts_of("AND"))
            folded.append([argument, condition, call.condition is None])
        return fingerprint("accumulator", [call.function, str(call.type), call.distinct, folded])

    def output(self, node: Node, spec: SinkSpec, *, is_read: bool) -> Output:
        endpoint = None if spec.endpoint is None else list(spec.endpoint.destination)
        columns = [[b.description(), [[c.name, str(c.type), b.columns[c.name].key] for c in node.schema]] for b in self.branches[node.id]]
        key = OutputKey(fingerprint("output", [columns, spec.materialized, list(spec.key), endpoint]))
        evidence = self.collected()
        return Output(node.model, key, endpoint is None and is_read, evidence)

    # expressions

    def term(self, expression: Expression, branch: Branch) -> Term:
        """An expression in the columns of its origin."""
        if isinstance(expression, ColumnRef):
            return branch.columns[expression.name]
        if isinstance(expression, Cast):
            return _term("cast", [expression.safe, str(expression.type), self.term(expression.operand, branch).key])
        if isinstance(expression, Call):
            return self.call(expression, [self.term(arg, branch) for arg in expression.args])
        return _term(
            "literal", [render_literal(expression), str(expression.type), None if expression.exact is None else str(expression.exact)]
        )

    def call(self, call: Call, args: list[Term]) -> Term:
        name = call.function.name
        if name in FLATTENED:
            self.note(name, " ".join(arg.key for arg in args))
            parts = frozenset(part for arg in args for part in arg.parts_of(name))
            return Term(fingerprint("chain", [name, sorted(parts)]), name, parts)
        operands = [[str(type_), arg.key] for type_, arg in zip(call.operands, args, strict=True)]
        if name in FLIPPED or (name in SYMMETRIC and operands != sorted(operands)):
            operands.reverse()
        if name in SYMMETRIC or name in FLIPPED or name in FLIPPED.values():
            self.note(COMPARISONS, f"{name} {args[0].key}")
        return _term("call", [FLIPPED.get(name, name), str(call.type), operands])


def _term(domain: str, descriptor: list[Any]) -> Term:
    return Term(fingerprint(domain, descriptor))
