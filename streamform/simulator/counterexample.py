"""Why a change needs its verdict, shown: the smallest history on which going on from the old state differs from a fresh run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from streamform.diff.model import Classification, Diff
from streamform.errors import DataError
from streamform.plan.nodes import SinkSpec, SourceSpec
from streamform.project.model import Source
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import Change
from streamform.simulator.carry import Carry, carried
from streamform.simulator.compare import final_rows
from streamform.simulator.histories import Draws, Event, history, sources_of, value_pools
from streamform.values.rows import Row, Schema

TRIES = 400
"""Histories that are looked at before the search ends."""
LONGEST = 8
"""Events in a history before it is made smaller."""


class Found(Struct, frozen=True):
    """A history and what each way makes of it."""

    before: tuple[Event, ...]
    """What arrived before the change."""
    after: tuple[Event, ...]
    continued: tuple[Row, ...]
    """The model's rows when the old state goes on."""
    fresh: tuple[Row, ...]
    """The model's rows when the new plan reads everything."""


class Counterexample(Struct, frozen=True):
    """The outcome of a search for one model."""

    model: str
    tries: int
    schema: Schema
    sources: tuple[Source, ...]
    found: Found | None
    """None when no history made a difference."""


def find_counterexamples(diff: Diff, carry: Carry) -> tuple[Counterexample, ...]:
    """One search for each model that needs a backfill. State that can't be loaded at all has nothing to go on with."""
    known = {model.name for model in carry.after.models}
    needing = [m.name for m in diff.models if m.verdict == Classification.BACKFILL_REQUIRED and m.name in known]
    return tuple(find_counterexample(carry, model) for model in needing)


def find_counterexample(carry: Carry, model: str, *, tries: int = TRIES) -> Counterexample:
    """Search for a history that shows a difference in one model of the new plan, and make it as small as can be."""
    sources = sources_of((carry.before, carry.after))
    pools = value_pools(sources, (carry.before, carry.after))
    sink = next(node for node in carry.after.nodes if node.model == model and isinstance(node.spec, SinkSpec))

    comparison = _Comparison(carry, model, {source.name: source.schema for source in sources})
    for number in range(1, tries + 1):
        draws = Draws(f"{model}:{number}")
        events = history(sources, pools, draws, 1 + draws.below(LONGEST))
        cut = draws.below(len(events) + 1)
        found = comparison.look(events[:cut], events[cut:])
        if found is not None:
            return Counterexample(model, number, sink.schema, tuple(sources), _smallest(found, comparison.look))
    return Counterexample(model, tries, sink.schema, tuple(sources), None)


class _Comparison:
    """Both ways on one history."""

    def __init__(self, carry: Carry, model: str, schemas: Mapping[str, Schema]) -> None:
        self.carry, self.schemas = carry, schemas
        self.planned = next(m for m in carry.after.models if m.name == model)
        self.sink = carry.after.by_id[self.planned.output]
        self.was = carry.nodes.get(self.sink.id, "")
        self.same_shape = self.was in carry.before.by_id and carry.before.by_id[self.was].schema == self.sink.schema

    def look(self, before: Sequence[Event], after: Sequence[Event]) -> Found | None:
        """What differs; None where both ways agree, or where an event can't be computed."""
        try:
            old = self.pushed(Dataflow(self.carry.before), before)
            going_on = self.pushed(carried(old, self.carry), after)
            whole = self.pushed(Dataflow(self.carry.after), [*before, *after])
        except (DataError, ArithmeticError):
            return None
        written = going_on.drain().changes.get(self.sink.id, [])
        fresh = self.rows(whole.drain().changes.get(self.sink.id, []))
        if self.same_shape:
            continued = self.rows([*old.drain().changes.get(self.was, []), *written])
        else:
            continued = self.rows(written)
            keys = {self.key(row) for row in continued}
            fresh = tuple(row for row in fresh if self.key(row) in keys)
        return None if continued == fresh else Found(tuple(before), tuple(after), continued, fresh)

    def rows(self, changes: Sequence[Change]) -> tuple[Row, ...]:
        """What readers have in the end, in an order that does not depend on arrival."""
        return tuple(sorted(final_rows(changes, self.planned.key, self.sink.schema, upserts=bool(self.planned.key)), key=repr))

    def key(self, row: Row) -> tuple[object, ...]:
        """What identifies a row: its key, or all of it."""
        names = [column.name for column in self.sink.schema]
        return tuple(row[names.index(name)] for name in self.planned.key) or row

    def pushed(self, dataflow: Dataflow, events: Sequence[Event]) -> Dataflow:
        """The dataflow after these events, as its plan's sources read them."""
        declared = {n.spec.source.name: n.spec.source for n in dataflow.plan.nodes if isinstance(n.spec, SourceSpec)}
        for source, group in groupby(events, key=lambda event: event.source):
            if source in declared:
                rows = [_as_read(event.row, self.schemas[source], declared[source].schema) for event in group]
                for node in dataflow.source_nodes(source):
                    dataflow.push(node, rows)
        return dataflow


def _as_read(row: Row, written: Schema, read: Schema) -> Row:
    """A row under the columns that a revision declares; a column of another type is NULL there."""
    values = dict(zip(written, row, strict=True))
    return tuple(values.get(column) for column in read)


def _smallest(found: Found, looks: Callable[[Sequence[Event], Sequence[Event]], Found | None]) -> Found:
    """Leave out every event that is not needed."""
    smaller = True
    while smaller:
        smaller = False
        for part in ("after", "before"):
            events = list(getattr(found, part))
            for place in range(len(events)):
                fewer = events[:place] + events[place + 1 :]
                tried = looks(found.before, fewer) if part == "after" else looks(fewer, found.after)
                if tried is not None:
                    found, smaller = tried, True
                    break
    return found
