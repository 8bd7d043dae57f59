"""How models and sources become asset specs. Subclass DagsterStreamformTranslator to change any of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from streamform.catalog import CatalogModel, CatalogSource, CatalogUnit
from streamform_dagster.metadata import column_schema, fenced, key

if TYPE_CHECKING:
    from streamform_dagster.project import StreamformProject

CODE_VERSION_DIGITS = 40


@dataclass(frozen=True, slots=True)
class ModelProps:
    """A model, and the unit that it is deployed in."""

    model: CatalogModel
    unit: CatalogUnit


@dataclass(frozen=True, slots=True)
class SourceProps:
    """A source."""

    source: CatalogSource


class DagsterStreamformTranslator:
    """The default: keys below the project's prefix, the project's name as group, SQL and operators as description.

    What a model reads is added to its spec afterwards, under the keys that the translator gave, so a key that a
    subclass changes is changed everywhere.
    """

    def get_asset_spec(self, props: ModelProps | SourceProps, project: StreamformProject) -> dg.AssetSpec:
        """The asset of a model, or the external asset of a source."""
        return self.get_model_spec(props, project) if isinstance(props, ModelProps) else self.get_source_spec(props, project)

    def get_model_spec(self, props: ModelProps, project: StreamformProject) -> dg.AssetSpec:
        """A model. Its code version is the digest of its unit's manifest, which moves when what is computed does."""
        model, unit = props.model, props.unit
        return dg.AssetSpec(
            project.model_key(model.name),
            description=f"{fenced(model.sql, 'sql')}\n\n{fenced(model.operators)}",
            metadata=_model_metadata(model, unit),
            code_version=unit.digest[:CODE_VERSION_DIGITS],
            group_name=project.group,
            kinds={"streamform", project.catalog.backend},
            skippable=True,
        )

    def get_source_spec(self, props: SourceProps, project: StreamformProject) -> dg.AssetSpec:
        """A source."""
        source = props.source
        return dg.AssetSpec(
            project.source_key(source.name),
            description=f"Events of source `{source.name}`: {source.connector} `{source.address}`.",
            metadata={"dagster/column_schema": column_schema(source.columns), key("address"): source.address},
            group_name=project.group,
            kinds={source.connector},
        )


def _model_metadata(model: CatalogModel, unit: CatalogUnit) -> dict[str, Any]:
    """Columns, the declared contract, and where rows go."""
    metadata: dict[str, Any] = {
        "dagster/column_schema": column_schema(model.columns),
        key("unit"): unit.name,
        key("materialized"): model.materialized,
        key("changelog"): model.changelog,
        key("path"): model.path,
    }
    if model.key:
        metadata[key("key")] = ", ".join(model.key)
    if model.sink is not None:
        metadata[key("sink")] = " ".join(model.sink)
    return metadata


__all__ = ["DagsterStreamformTranslator", "ModelProps", "SourceProps"]
