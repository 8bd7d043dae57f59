"""What kept state shows of a model now: the rows that a repair compares its sink with."""

from __future__ import annotations

from collections.abc import Iterator

from streamform.adapters.generation import node_numbers
from streamform.adapters.state_database import StateDatabase
from streamform.backends.embedded.encoding import decode_entry, decode_key, encode_key, encode_row
from streamform.backends.embedded.output import key_of
from streamform.diff.carry import behind_state
from streamform.plan.nodes import Plan, SinkSpec
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import DELETE, Key
from streamform.runtime.state import Entry

CHUNK = 5_000
"""Entries that are shown at a time."""


def keep_output(database: StateDatabase, plan: Plan, generation: int, model: str) -> None:
    """Write the rows that a model shows of the kept state into `fresh`, inside the caller's transaction."""
    database.run("DELETE FROM fresh WHERE generation = ? AND model = ?", generation, model)
    sink = next(node for node in plan.nodes if node.model == model and isinstance(node.spec, SinkSpec))
    assert isinstance(sink.spec, SinkSpec)
    key = key_of(sink.schema, sink.spec.key)
    numbers = node_numbers(database, generation)
    path = list(behind_state(plan, sink))
    dataflow = Dataflow(plan)
    dataflow.limit_to({node.id for node in path})
    for node in path:
        if node.state is None:
            continue
        for entries in _entries(database, numbers[node.id]):
            dataflow.show(node.id, entries)
            changes = dataflow.drain().changes.get(sink.id, [])
            rows = [(generation, model, encode_key(key(row)), encode_row(row)) for op, row, _ in changes if op != DELETE]
            database.many("INSERT OR REPLACE INTO fresh (generation, model, key, row) VALUES (?, ?, ?, ?)", rows)


def _entries(database: StateDatabase, number: int) -> Iterator[list[tuple[Key, Entry]]]:
    last = ""
    while rows := database.all("SELECT key, value FROM entry WHERE node = ? AND key > ? ORDER BY key LIMIT ?", number, last, CHUNK):
        last = rows[-1][0]
        yield [(decode_key(key), decode_entry(value)) for key, value in rows]
