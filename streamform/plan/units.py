"""Units of deployment: connected components of models, and which running unit each one was.

Edges are ref()s; sharing a source connects nothing. A change in one unit never restarts another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from streamform.plan.graph import components
from streamform.plan.nodes import Plan, SourceSpec


class Unit(Struct, frozen=True):
    """A set of models that are deployed together, under a name that it keeps."""

    name: str
    models: tuple[str, ...]
    was: tuple[str, ...] = ()
    """The running units that it takes over, by name: one, or several where units were merged or split."""


def plan_components(plan: Plan) -> list[tuple[str, ...]]:
    """The models of a plan grouped by what ref() connects."""
    reads: dict[str, set[str]] = {model.name: set() for model in plan.models}
    for node in plan.nodes:
        reads[node.model].update(plan.by_id[name].model for name in node.inputs)
    return components(reads, reads)


def match_units(
    groups: Sequence[tuple[str, ...]], running: Mapping[str, Iterable[str]], renamed: Mapping[str, str]
) -> tuple[list[Unit], list[str]]:
    """The desired units, named after the running unit that they were, and the running units that are gone.

    `running` maps a running unit's name to its models; `renamed` maps a desired model to the running model that it was.
    A name goes to the first unit that shares a model with it; others take the name of their first model.
    """
    owner = {model: name for name, models in running.items() for model in models}
    units: list[Unit] = []
    taken: set[str] = set()
    for group in groups:
        was = tuple(dict.fromkeys(owner[m] for name in group if (m := renamed.get(name, name)) in owner))
        name = next((candidate for candidate in was if candidate not in taken), None) or _fresh(group, taken | set(running))
        taken.add(name)
        units.append(Unit(name, group, was))
    kept = {name for unit in units for name in unit.was}
    return units, [name for name in running if name not in kept]


def _fresh(group: tuple[str, ...], taken: set[str]) -> str:
    return next((model for model in group if model not in taken), f"{group[0]}+")


def unit_sources(plan: Plan) -> set[str]:
    """The declared sources that a plan reads."""
    return {node.spec.source.name for node in plan.nodes if isinstance(node.spec, SourceSpec)}


def keyed_sources(plan: Plan) -> set[str]:
    """The declared sources from which some keyed state is computed."""
    found: set[str] = set()
    for node in plan.nodes:
        if node.state is not None:
            found |= {u.spec.source.name for u in plan.upstream(node) if isinstance(u.spec, SourceSpec)}
    return found
