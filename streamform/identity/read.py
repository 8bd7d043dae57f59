"""Manifests and records from outside, read strictly: other versions, unknown fields and other kinds are refused."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from streamform.errors import DocumentError
from streamform.identity.manifest import MANIFEST_VERSION, Manifest, check_structure, manifest_of
from streamform.identity.record import RECORD_VERSION, AppliedRecord, record_of

_REMEDY = "use a manifest (`streamform inspect-plan --json`) or an applied record"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Column(_Strict):
    name: str
    type: str


class _Changelog(_Strict):
    mode: str
    key: list[str]


class _Window(_Strict):
    type: str
    time: str
    size: str
    slide: str | None = None
    step: str | None = None
    alignment: str
    emission: str


class _Stateless(_Strict):
    kind: Literal["stateless"]


class _Keyed(_Strict):
    kind: Literal["keyed"]
    keys: list[str]
    accumulators: list[_Column]
    retention: str
    digest: str
    window: _Window | None = None


_State = Annotated[
    Annotated[_Stateless, Tag("stateless")] | Annotated[_Keyed, Tag("keyed")],
    Discriminator(lambda value: value.get("kind") if isinstance(value, dict) else None),
]


class _Node(_Strict):
    id: str
    model: str
    operator: str
    inputs: list[str]
    definition: str
    columns: list[_Column] = Field(alias="schema")
    schema_digest: str
    boundedness: str
    changelog: _Changelog
    state: _State
    time: str | None = None


class _Model(_Strict):
    name: str
    materialized: str
    key: list[str]
    output: str


class ManifestDocument(_Strict):
    """A plan manifest."""

    manifest_version: int
    application_digest: str
    models: list[_Model]
    nodes: list[_Node]


class RecordDocument(_Strict):
    """An applied record."""

    record_version: int
    target: str
    applied_at: str
    streamform_version: str
    backend: str
    jobs: list[str]
    manifest: ManifestDocument
    artifact_digest: str | None = None
    attempt: str | None = None
    job_name: str | None = None
    restored_from: str | None = None


def parse_json(text: str, file: str) -> dict[str, Any]:
    """The JSON object of a text. Raises: DocumentError for anything else, duplicate keys included."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{file} is not a JSON document: {error}", _REMEDY) from None
    if not isinstance(value, dict):
        raise DocumentError(f"{file} is neither a manifest nor a record", _REMEDY)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def parse_running(text: str, file: str) -> Manifest | AppliedRecord:
    """A manifest or a record, told apart by its version field. Raises: DocumentError."""
    document = parse_json(text, file)
    if "record_version" in document:
        return read_record(document, file)
    if "manifest_version" in document:
        return read_manifest(document, file)
    raise DocumentError(f"{file} is neither a manifest nor a record: it has no version field", _REMEDY)


def read_manifest(document: dict[str, Any], file: str) -> Manifest:
    """The manifest that a document holds. Raises: DocumentError."""
    _check_version(document, "manifest_version", MANIFEST_VERSION, file)
    _validate(ManifestDocument, document, file)
    manifest = manifest_of(document)
    check_structure(manifest, file)
    return manifest


def read_record(document: dict[str, Any], file: str) -> AppliedRecord:
    """The record that a document holds. Raises: DocumentError."""
    _check_version(document, "record_version", RECORD_VERSION, file)
    inner = document.get("manifest")
    if isinstance(inner, dict):
        _check_version(inner, "manifest_version", MANIFEST_VERSION, file)
    _validate(RecordDocument, document, file)
    record = record_of(document)
    check_structure(record.manifest, file)
    return record


def _check_version(document: dict[str, Any], field: str, supported: int, file: str) -> None:
    version = document.get(field)
    if version != supported or isinstance(version, bool):
        raise DocumentError(f"{file} has {field} {version!r}; this streamform reads version {supported}", "use the release that wrote it")


def _validate(kind: type[BaseModel], document: dict[str, Any], file: str) -> None:
    try:
        kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        cause = "is not a field" if first["type"] == "extra_forbidden" else first["msg"][0].lower() + first["msg"][1:]
        raise DocumentError(f"{file}: `{where}` {cause}", _REMEDY) from None
