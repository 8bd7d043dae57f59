"""Generations in the state database: making one, carrying one to another plan, and dropping one.

Node ids change with renames and inserted operators; state is filed under numbers, so that a rename rewrites no state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from streamform.adapters.state_database import StateDatabase
from streamform.backends.embedded.encoding import decode_entry, encode_entry
from streamform.errors import StateError
from streamform.plan.nodes import Node, Plan, SourceSpec
from streamform.runtime.clock import NEVER
from streamform.runtime.keyed import entry_layout


class UnitRow(Struct, frozen=True):
    """What the database says about a unit."""

    generation: int
    artifact: str | None
    attempt: str | None


def read_unit(database: StateDatabase, name: str) -> UnitRow | None:
    """The unit's row."""
    found = database.all("SELECT generation, artifact, attempt FROM unit WHERE name = ?", name)
    return UnitRow(*found[0]) if found else None


def write_unit(database: StateDatabase, name: str, generation: int, artifact: str | None, attempt: str) -> None:
    """Make this generation the unit's."""
    database.run("INSERT OR REPLACE INTO unit VALUES (?, ?, ?, ?)", name, generation, artifact, attempt)


def create_generation(database: StateDatabase, unit: str, attempt: str, plan: Plan) -> int:
    """An empty generation of a plan."""
    identity = database.run("INSERT INTO generation (unit, attempt) VALUES (?, ?)", unit, attempt).lastrowid
    assert identity is not None
    for node in _kept_nodes(plan):
        _add_node(database, identity, node.id, database.next_number(), _layout(plan, node))
    return identity


def candidate(database: StateDatabase, unit: str, attempt: str) -> int | None:
    """The generation that an attempt is building beside the one in use."""
    used = read_unit(database, unit)
    found = database.all("SELECT id FROM generation WHERE unit = ? AND attempt = ?", unit, attempt)
    return next((i for (i,) in found if used is None or i != used.generation), None)


def node_numbers(database: StateDatabase, generation: int) -> dict[str, int]:
    """Numbers by node id."""
    return dict(database.all("SELECT id, number FROM node WHERE generation = ?", generation))


def carry_generation(database: StateDatabase, generation: int, plan: Plan, carry: Mapping[str, str]) -> int:
    """Bring a generation under another plan; the number of entries that were rewritten.

    Raises: StateError when an accumulator that the plan needs was never stored, which no diff that continues asks for.
    """
    before = {i: (n, layout) for i, n, layout in database.all("SELECT id, number, layout FROM node WHERE generation = ?", generation)}
    database.run("DELETE FROM node WHERE generation = ?", generation)
    rewritten, kept = 0, set()
    for node in _kept_nodes(plan):
        layout = _layout(plan, node)
        number, old = before.get(carry.get(node.id, ""), (None, layout))
        if number is None:
            number = database.next_number()
            _copy_clock(database, generation, plan, node, number)
        elif old != layout:
            rewritten += _rearrange(database, node.id, number, json.loads(old), json.loads(layout))
        _add_node(database, generation, node.id, number, layout)
        kept.add(number)
    for number, _ in before.values():
        if number not in kept:
            _drop_node(database, number)
    return rewritten


def drop_generation(database: StateDatabase, generation: int) -> None:
    """Forget a generation."""
    for number in node_numbers(database, generation).values():
        _drop_node(database, number)
    for table in ("node", "position", "fresh", "spool", "quarantined"):
        database.run(f"DELETE FROM {table} WHERE generation = ?", generation)  # noqa: S608 - constants
    database.run("DELETE FROM generation WHERE id = ?", generation)


def drop_others(database: StateDatabase, unit: str, keep: int | None) -> None:
    """Forget every generation of a unit but one."""
    for (identity,) in database.all("SELECT id FROM generation WHERE unit = ?", unit):
        if identity != keep:
            drop_generation(database, identity)


def _kept_nodes(plan: Plan) -> list[Node]:
    """Nodes that something is stored about: keyed ones and sources."""
    return [node for node in plan.nodes if node.state is not None or isinstance(node.spec, SourceSpec)]


def _layout(plan: Plan, node: Node) -> str:
    return json.dumps([] if node.state is None else entry_layout(node, plan.inputs_of(node)[0]))


def _add_node(database: StateDatabase, generation: int, node_id: str, number: int, layout: str) -> None:
    database.run("INSERT INTO node VALUES (?, ?, ?, ?)", generation, node_id, number, layout)


def _drop_node(database: StateDatabase, number: int) -> None:
    database.run("DELETE FROM entry WHERE node = ?", number)
    database.run("DELETE FROM clock WHERE node = ?", number)


def _copy_clock(database: StateDatabase, generation: int, plan: Plan, node: Node, number: int) -> None:
    """A new reader of a source that is read already joins at the source's watermark, so that all of them drop the same events."""
    if not isinstance(node.spec, SourceSpec):
        return
    name = node.spec.source.name
    same = [n.id for n in plan.nodes if isinstance(n.spec, SourceSpec) and n.spec.source.name == name and n.id != node.id]
    marks = [
        w
        for other in same
        for (w,) in database.all(
            "SELECT watermark FROM clock JOIN node ON node.number = clock.node WHERE node.generation = ? AND node.id = ?", generation, other
        )
    ]
    database.run("INSERT OR REPLACE INTO clock VALUES (?, ?, 0, 0, 0)", number, max(marks, default=NEVER))


def _rearrange(database: StateDatabase, node_id: str, number: int, before: list[tuple[str, int]], after: list[tuple[str, int]]) -> int:
    """Put the slots of every entry into another order, a few entries at a time."""
    places: dict[str, range] = {}
    position = 0
    for name, slots in before:
        places[name] = range(position, position + slots)
        position += slots
    if any(name not in places or len(places[name]) != slots for name, slots in after):
        raise StateError(
            f"the stored state of {node_id} holds other accumulators than its plan needs",
            "run `streamform stop --discard-state` and apply again, which computes it anew",
        )
    order = [place for name, _ in after for place in places[name]]
    count, last = 0, ""
    while rows := database.all("SELECT key, value FROM entry WHERE node = ? AND key > ? ORDER BY key LIMIT 5000", number, last):
        changed = [(encode_entry([entry[p] for p in order]), number, key) for key, value in rows for entry in (decode_entry(value),)]
        database.many("UPDATE entry SET value = ? WHERE node = ? AND key = ?", changed)
        count, last = count + len(rows), rows[-1][0]
    return count
