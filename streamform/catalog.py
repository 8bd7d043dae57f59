"""The catalog: what a project declares on a target, as an orchestrator shows it. Part of the facade.

Models that do not compile are left out, and what is wrong with them stands under `problems`.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from streamform.diagnostics import Diagnostic
from streamform.errors import ProjectError
from streamform.identity.manifest import build_manifest
from streamform.plan.compiled import Compiled
from streamform.plan.nodes import Plan
from streamform.plan.units import plan_components
from streamform.project.model import Model, Source, Target
from streamform.values.rows import Schema

Columns = tuple[tuple[str, str], ...]
"""Pairs of column name and rendered type."""


class CatalogSource(Struct, frozen=True):
    """A declared source."""

    name: str
    connector: str
    address: str
    columns: Columns


class CatalogModel(Struct, frozen=True):
    """A model that compiles."""

    name: str
    path: str
    sql: str
    operators: str
    """What the compiler made of it, as `explain` shows it."""
    materialized: str
    key: tuple[str, ...]
    changelog: str
    columns: Columns
    sources: tuple[str, ...]
    models: tuple[str, ...]
    """What it reads."""
    sink: tuple[str, str] | None
    """Connector and address, None for a model that only others read."""


class CatalogUnit(Struct, frozen=True):
    """Models that are deployed together; named after the first one, whatever the running unit is called."""

    name: str
    models: tuple[str, ...]
    digest: str
    """The application digest of the unit's manifest."""


class Catalog(Struct, frozen=True):
    """A project on a target."""

    project: str
    target: str
    backend: str
    units: tuple[CatalogUnit, ...] = ()
    models: tuple[CatalogModel, ...] = ()
    """In dependency order."""
    sources: tuple[CatalogSource, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    """Errors alone."""


def build_catalog(project_dir: Path, target: str | None) -> Catalog:
    """The catalog, from the compile cache where the project is unchanged.

    Raises: ProjectError when the documents do not load, UsageError for a target that does not exist.
    """
    from streamform.api import compile_for_target

    try:
        return _catalog(*compile_for_target(project_dir, target))
    except ProjectError as error:
        return _catalog(*_partly_compiled(project_dir, target), error.diagnostics)


def _partly_compiled(project_dir: Path, target: str | None) -> tuple[Compiled, Target]:
    """What compiles of a project that has errors."""
    from streamform.api import choose_target, load
    from streamform.plan.compile import compile_project

    loaded = load(project_dir)
    return compile_project(loaded), choose_target(loaded.project, target)


def _catalog(compiled: Compiled, target: Target, problems: tuple[Diagnostic, ...] = ()) -> Catalog:
    project, plan = compiled.project, compiled.plan
    units = tuple(CatalogUnit(group[0], group, build_manifest(plan.part(group)).application_digest) for group in plan_components(plan))
    models = tuple(_model(model, compiled) for planned in plan.models if (model := project.model(planned.name)) is not None)
    return Catalog(project.name, target.name, target.backend, units, models, tuple(map(_source, project.sources)), problems)


def _source(source: Source) -> CatalogSource:
    return CatalogSource(source.name, source.endpoint.connector, source.endpoint.address, _columns(source.schema))


def _model(model: Model, compiled: Compiled) -> CatalogModel:
    from streamform.render.explain import render_explain

    plan: Plan = compiled.plan
    output = plan.nodes_of(model.name)[-1]
    reads = compiled.graph.reads[model.name]
    sink = None if model.sink is None else (model.sink.connector, model.sink.address)
    return CatalogModel(
        model.name,
        model.path,
        model.sql,
        render_explain(plan, [model.name]),
        model.materialized,
        model.key,
        str(output.changelog),
        _columns(output.schema),
        reads.sources,
        reads.models,
        sink,
    )


def _columns(schema: Schema) -> Columns:
    return tuple((column.name, str(column.type)) for column in schema)
