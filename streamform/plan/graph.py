"""What reads what: models in dependency order, cycles, and units of deployment."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from msgspec import Struct


class Reads(Struct, frozen=True):
    """The inputs that one model names, in the order of its text, each once."""

    sources: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class Graph(Struct, frozen=True):
    """Models and what they read. `order` is empty when there is a cycle."""

    reads: Mapping[str, Reads]
    order: tuple[str, ...]
    cycles: tuple[tuple[str, ...], ...]


def build_graph(reads: Mapping[str, Reads]) -> Graph:
    """The graph of these models; of those that could come next, the alphabetically first does."""
    known = {name: [m for m in sorted(set(r.models)) if m in reads] for name, r in reads.items()}
    readers: dict[str, list[str]] = {name: [] for name in reads}
    for name, inputs in known.items():
        for model in inputs:
            readers[model].append(name)
    waiting = {name: len(inputs) for name, inputs in known.items()}
    ready = sorted(name for name, count in waiting.items() if count == 0)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) == len(reads):
        return Graph(reads, tuple(order), ())
    return Graph(reads, (), _cycles({name: known[name] for name in reads if name not in order}))


def _cycles(rest: Mapping[str, list[str]]) -> tuple[tuple[str, ...], ...]:
    """One cycle for each group of models that read each other, as a path that ends where it began."""
    cycles: list[tuple[str, ...]] = []
    on_cycle: set[str] = set()
    for start in sorted(rest):
        if start in on_cycle:
            continue
        path = _path_back(start, rest)
        if path:
            cycles.append(path)
            on_cycle.update(path)
    return tuple(cycles)


def _path_back(start: str, rest: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The shortest path from a model back to itself, or an empty one."""
    paths: dict[str, tuple[str, ...]] = {}
    frontier: list[tuple[str, ...]] = [(start,)]
    while frontier:
        following: list[tuple[str, ...]] = []
        for path in frontier:
            for model in rest.get(path[-1], ()):
                if model == start:
                    return (*path, start)
                if model in rest and model not in paths:
                    paths[model] = (*path, model)
                    following.append(paths[model])
        frontier = following
    return ()


def components(models: Iterable[str], reads: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Models grouped by what ref() connects, each group sorted, groups in the order of their first model."""
    names = sorted(models)
    parent = {name: name for name in names}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for name in names:
        for other in reads.get(name, ()):
            if other in parent:
                parent[max(find(name), find(other))] = min(find(name), find(other))
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(find(name), []).append(name)
    return [tuple(group) for _, group in sorted(groups.items())]
