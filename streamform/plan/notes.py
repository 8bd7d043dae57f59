"""Advice: what is not wrong and still worth knowing. Never counted, never failing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from streamform.codes import problem
from streamform.diagnostics import Diagnostic
from streamform.plan.compiled import Compiled


def advise(compiled: Compiled, tested: Set[str], unread: Iterable[str]) -> Iterator[Diagnostic]:
    """Notes on a project; `tested` holds the names of the models that have fixtures, `unread` files that are no models."""
    for path in unread:
        yield problem(
            "SF151", path=path, file=path, expected="a model is a file models/NAME.sql; settings stand in streamform.yml and sources.yml"
        )
    read = {name for reads in compiled.graph.reads.values() for name in reads.models}
    for model in compiled.project.models:
        if model.sink is None and model.name not in read:
            yield problem("SF801", path=model.path, model=model.name)
        if model.name not in tested:
            yield problem("SF802", path=model.path, model=model.name)
