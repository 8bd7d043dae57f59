"""Assets: one multi-asset a unit, external assets for sources and for the applied record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from streamform.catalog import CatalogUnit
from streamform.errors import UsageError
from streamform_dagster.metadata import key as metadata_key
from streamform_dagster.project import StreamformProject
from streamform_dagster.translator import DagsterStreamformTranslator, ModelProps, SourceProps

BOUND = "streamform_dagster/bound"
"""Where a spec carries what its step deploys. It never leaves the process."""
DIGEST_TAG = metadata_key("digest")


@dataclass(frozen=True)
class Bound:
    """What a step deploys: a unit of a project, and the assets of its models."""

    project: StreamformProject
    unit: CatalogUnit
    keys: Mapping[str, dg.AssetKey]
    """In dependency order, which is the order that Dagster wants their events in."""
    project_keys: frozenset[dg.AssetKey]
    """The assets of every model of the project."""


@dataclass(frozen=True)
class ProjectSpecs:
    """The specs of a project, by name."""

    models: Mapping[str, dg.AssetSpec]
    sources: Mapping[str, dg.AssetSpec]


def build_specs(project: StreamformProject, translator: DagsterStreamformTranslator) -> ProjectSpecs:
    """Every model's and source's spec, with what each model reads. Raises: StreamformError when the project does not load."""
    catalog = project.catalog
    units = {model: unit for unit in catalog.units for model in unit.models}
    sources = {s.name: translator.get_asset_spec(SourceProps(s), project) for s in catalog.sources}
    models: dict[str, dg.AssetSpec] = {}
    for model in catalog.models:
        spec = translator.get_asset_spec(ModelProps(model, units[model.name]), project)
        reads = [sources[name].key for name in model.sources] + [models[name].key for name in model.models]
        models[model.name] = spec.merge_attributes(deps=reads)
    return ProjectSpecs(models, sources)


def record_spec(project: StreamformProject) -> dg.AssetSpec:
    """The external asset that keeps the applied record."""
    return dg.AssetSpec(
        project.record_key,
        description=(
            f"What runs on target `{project.target}` of `{project.app}`: each materialization holds the applied record, "
            "and names the digest of the one before it."
        ),
        group_name=project.group,
        kinds={"streamform"},
    )


def streamform_assets(
    *,
    project: StreamformProject,
    unit: str | None = None,
    translator: DagsterStreamformTranslator | None = None,
    name: str | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Turn a function into the assets of one unit; its body is `yield from streamform.apply(context)`.

    `unit` is any of its models, and may be left out where the project has only one unit. A unit is deployed whole, so
    its assets can't be materialized apart. Other options are those of `multi_asset`.
    Raises: StreamformError when the project does not load or has no such unit.
    """
    specs = build_specs(project, translator or DagsterStreamformTranslator())
    return unit_assets(project, _choose_unit(project, unit), specs, name=name, **options)


def unit_assets(
    project: StreamformProject, unit: CatalogUnit, specs: ProjectSpecs, *, name: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The decorator for a unit whose specs are there."""
    keys = {name: spec.key for name, spec in specs.models.items()}
    bound = Bound(project, unit, {name: key for name, key in keys.items() if name in unit.models}, frozenset(keys.values()))
    return dg.multi_asset(
        name=name or project.op_name("apply", unit.name),
        specs=[specs.models[model].merge_attributes(metadata={BOUND: bound}) for model in unit.models],
        can_subset=False,
        op_tags={**options.pop("op_tags", {}), DIGEST_TAG: unit.digest},
        **options,
    )


def _choose_unit(project: StreamformProject, unit: str | None) -> CatalogUnit:
    units = project.catalog.units
    found = [u for u in units if unit is None or unit == u.name or unit in u.models]
    if len(found) == 1:
        return found[0]
    names = ", ".join(u.name for u in units)
    if unit is None:
        raise UsageError(f"`{project.app}` has {len(units)} units: {names}", "name one, or use build_streamform_defs for all of them")
    raise UsageError(f"`{project.app}` has no unit or model `{unit}`", f"units are {names}")


def bound_of(assets: dg.AssetsDefinition) -> Bound:
    """What the assets of `streamform_assets` deploy. Raises: UsageError for other assets."""
    for metadata in assets.metadata_by_key.values():
        if isinstance(found := metadata.get(BOUND), Bound):
            return found
    raise UsageError("these assets are not a unit of a streamform project", "declare them with @streamform_assets")


__all__ = ["BOUND", "DIGEST_TAG", "Bound", "ProjectSpecs", "bound_of", "build_specs", "record_spec", "streamform_assets", "unit_assets"]
