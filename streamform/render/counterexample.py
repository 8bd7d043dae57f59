"""Counterexamples as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamform.render.words import columns, counted
from streamform.simulator.counterexample import Counterexample
from streamform.simulator.histories import Event
from streamform.values.rows import Row, Schema, document_value


def render_counterexamples(searches: Sequence[Counterexample]) -> str:
    """For each model the history, and the rows that each way makes of it."""
    return "".join("\n" + _search(search) for search in searches)


def _search(search: Counterexample) -> str:
    if search.found is None:
        return f"counterexample for `{search.model}`: none found in {search.tries} histories; the verdict may be stricter than needed\n"
    found = search.found
    lines = [f"counterexample for `{search.model}`, made as small as can be:"]
    for when, events in (("before", found.before), ("after", found.after)):
        lines += [f"  {when} the change  {event.source}  {_shown_event(search, event)}" for event in events] or [
            f"  {when} the change  nothing"
        ]
    names = tuple(column.name for column in search.schema)
    for title, rows in (("going on from the old state", found.continued), ("a fresh run", found.fresh)):
        lines.append(f"  {title}: {counted(len(rows), 'row')}")
        if rows:
            lines += columns([names, *(_texts(row, search.schema) for row in rows)], indent="    ")
    return "\n".join(lines) + "\n"


def _texts(row: Row, schema: Schema) -> tuple[str, ...]:
    return tuple("NULL" if value is None else str(document_value(value, column.type)) for value, column in zip(row, schema, strict=True))


def _shown_event(search: Counterexample, event: Event) -> str:
    schema = next(source.schema for source in search.sources if source.name == event.source)
    return ", ".join(f"{column.name}: {text}" for column, text in zip(schema, _texts(event.row, schema), strict=True))


def counterexamples_document(searches: Sequence[Counterexample]) -> list[dict[str, Any]]:
    """One object a model; `found` is null where no history made a difference."""
    return [{"model": search.model, "tries": search.tries, "found": _found(search)} for search in searches]


def _found(search: Counterexample) -> dict[str, Any] | None:
    found = search.found
    if found is None:
        return None
    schemas = {source.name: source.schema for source in search.sources}
    events = {
        part: [{"source": e.source, "event": _row(e.row, schemas[e.source])} for e in getattr(found, part)] for part in ("before", "after")
    }
    return {**events, **{part: [_row(row, search.schema) for row in getattr(found, part)] for part in ("continued", "fresh")}}


def _row(row: Row, schema: Schema) -> dict[str, Any]:
    return {column.name: document_value(value, column.type) for value, column in zip(row, schema, strict=True)}
