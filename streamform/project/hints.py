"""Identity hints in streamform.yml: renamed_from and nodes.<kind>.<ordinal>.was."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from streamform.codes import problem
from streamform.diagnostics import Diagnostic
from streamform.project.files import PROJECT_FILE
from streamform.project.load import Loaded
from streamform.project.model import Model

_KINDS = "source|filter|aggregate|project|union|sink"
REFERENCE = re.compile(rf"({_KINDS})\.(0|[1-9][0-9]*)", re.ASCII)
_NODE_ID = re.compile(rf"(.+)::({_KINDS})::(0|[1-9][0-9]*)", re.ASCII | re.DOTALL)


def split_node_id(text: str) -> tuple[str, str, int] | None:
    """Model, kind and ordinal of a node id, or None when the text is none."""
    match = _NODE_ID.fullmatch(text)
    return None if match is None else (match.group(1), match.group(2), int(match.group(3)))


def check_hints(loaded: Loaded) -> Iterator[Diagnostic]:
    """What is wrong with the hints, one model at a time and across models."""
    models = loaded.project.models
    for model in models:
        yield from _check_renamed(loaded, model)
        for reference, was in model.node_hints:
            yield from _check_node_hint(loaded, model, reference, was)
    yield from _check_claims(loaded)


def _check_renamed(loaded: Loaded, model: Model) -> Iterator[Diagnostic]:
    if model.renamed_from is None:
        return
    where = loaded.locate(PROJECT_FILE, "models", model.name, "renamed_from")
    if model.renamed_from == model.name:
        yield problem("SF604", where=where, model=model.name)
    elif loaded.project.model(model.renamed_from) is not None:
        yield problem("SF605", where=where, model=model.name, was=model.renamed_from)
    elif not model.renamed_from.strip() or "::" in model.renamed_from:
        yield problem("SF608", where=where, model=model.name, was=model.renamed_from)


def _check_node_hint(loaded: Loaded, model: Model, reference: str, was: str) -> Iterator[Diagnostic]:
    where = loaded.locate(PROJECT_FILE, "models", model.name, "nodes", reference)
    named = REFERENCE.fullmatch(reference)
    if named is None:
        yield problem("SF601", where=where, model=model.name, node=reference)
    running = split_node_id(was)
    if running is None:
        yield problem("SF602", where=where, model=model.name, node=reference, was=was)
    elif named is not None and running[1] != named.group(1):
        yield problem("SF607", where=where, model=model.name, node=reference, was=was, kind=named.group(1))


def _check_claims(loaded: Loaded) -> Iterator[Diagnostic]:
    """Two hints on one running node, within a model and across models."""
    claims: dict[str, list[str]] = defaultdict(list)
    for model in loaded.project.models:
        if model.renamed_from is not None:
            claims[model.renamed_from].append(model.name)
        for _, was in model.node_hints:
            claims[was].append(model.name)
    for was, models in claims.items():
        if len(models) > 1:
            named = " and ".join(f"`{name}`" for name in dict.fromkeys(models))
            yield problem("SF603", path=PROJECT_FILE, models=named, was=was, model=models[0])
