"""Generations in the state database: making one, carrying one to another plan, and dropping one.

Node ids change with renames and inserted operators; state is filed under numbers, so that a rename rewrites no state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct, field

from streamform.adapters.state_database import StateDatabase
from streamform.backends.embedded.encoding import decode_entry, decode_key, encode_entry
from streamform.errors import StateError
from streamform.plan.nodes import Node, Plan, SourceSpec
from streamform.runtime.clock import NEVER
from streamform.runtime.keyed import entry_layout
from streamform.runtime.windows import node_deadline


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


class Carry(Struct, frozen=True):
    """Which running node each desired node goes on from, and what its accumulators were called."""

    nodes: Mapping[str, str]
    slots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def carry_generation(database: StateDatabase, generation: int, plan: Plan, carry: Carry) -> dict[str, int]:
    """Bring a generation under another plan; by node, the number of entries that were rewritten.

    Raises: StateError when an accumulator that the plan needs was never stored, which no diff that continues asks for.
    """
    before = {i: (n, layout) for i, n, layout in database.all("SELECT id, number, layout FROM node WHERE generation = ?", generation)}
    database.run("DELETE FROM node WHERE generation = ?", generation)
    rewritten: dict[str, int] = {}
    kept: set[int] = set()
    for node in _kept_nodes(plan):
        layout = _layout(plan, node)
        number, old = before.get(carry.nodes.get(node.id, ""), (None, layout))
        if number is None or number in kept:
            number = _copy_clock(database, number, database.next_number())
        else:
            old = _renamed(old, carry.slots.get(node.id, {}))
            changed = _rearrange(database, node, number, (json.loads(old), json.loads(layout)))
            if changed:
                rewritten[node.id] = changed
        _add_node(database, generation, node.id, number, layout)
        kept.add(number)
    for number, _ in before.values():
        if number not in kept:
            _drop_node(database, number)
    return rewritten


def _renamed(layout: str, slots: Mapping[str, str]) -> str:
    """A stored layout under the names that the desired plan gives its accumulators."""
    names = {was: name for name, was in slots.items()}
    return json.dumps([[names.get(name, name), count] for name, count in json.loads(layout)])


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


def _copy_clock(database: StateDatabase, number: int | None, fresh: int) -> int:
    """A new reader of a source that is read already joins at the source's watermark, so that all of them drop the same events."""
    found = database.all("SELECT watermark FROM clock WHERE node = ?", number)
    database.run("INSERT OR REPLACE INTO clock VALUES (?, ?, 0, 0, 0)", fresh, found[0][0] if found else NEVER)
    return fresh


Layouts = tuple[list[tuple[str, int]], list[tuple[str, int]]]
"""What an entry holds, before and after: names, each with its number of slots."""


def _rearrange(database: StateDatabase, node: Node, number: int, layouts: Layouts) -> int:
    """Bring every entry into another layout and give it its deadline, a few entries at a time; how many were changed."""
    places: dict[str, range] = {}
    position = 0
    for name, slots in layouts[0]:
        places[name] = range(position, position + slots)
        position += slots
    if any(name not in places or len(places[name]) != slots for name, slots in layouts[1]):
        raise StateError(
            f"the stored state of {node.id} holds other accumulators than its plan needs",
            "run `streamform stop --discard-state` and apply again, which computes it anew",
        )
    order = [place for name, _ in layouts[1] for place in places[name]]
    deadline = None if node.state is None else node_deadline(node)
    count, last = 0, ""
    while rows := database.all("SELECT key, value, deadline FROM entry WHERE node = ? AND key > ? ORDER BY key LIMIT 5000", number, last):
        last = rows[-1][0]
        changed: list[tuple[str, int | None, int, str]] = []
        for key, value, due in rows:
            entry = [decode_entry(value)[place] for place in order]
            text, until = encode_entry(entry), None if deadline is None else deadline(decode_key(key), entry)
            if (text, until) != (value, due):
                changed.append((text, until, number, key))
        database.many("UPDATE entry SET value = ?, deadline = ? WHERE node = ? AND key = ?", changed)
        count += len(changed)
    return count
