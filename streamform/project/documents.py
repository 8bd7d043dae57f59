"""The documents that people write, read strictly with pydantic and turned at once into the frozen model.

Shape: streamform.yml is ProjectDocument, sources.yml is SourcesDocument, a file under tests/ is FixtureDocument.
Unknown fields and wrong types are refused with their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from streamform.codes import problem, suggest
from streamform.diagnostics import Diagnostic
from streamform.project import model as m
from streamform.project.tree import Document
from streamform.values.instants import parse_duration
from streamform.values.rows import Column
from streamform.values.types import parse_type

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Duration = Annotated[str, Field(pattern=r"^[0-9]{1,15}(ms|s|m|h|d)$")]
DataTypeText = Annotated[
    str,
    Field(pattern=r"^(int32|int64|float64|decimal(\( *[0-9]{1,2} *, *[0-9]{1,2} *\))?|string|boolean|timestamp)$"),
    AfterValidator(lambda text: str(parse_type(text)) and text),
]
Connector = Literal["kafka", "file", "iceberg", "sqlite"]
Format = Literal["json", "csv"]
Verdict = Literal["SAFE", "COMPATIBLE", "STATE MIGRATION REQUIRED", "BACKFILL REQUIRED", "STATE INCOMPATIBLE"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EndpointDocument(_Strict):
    """Where a source or a sink lives; which of topic, path and table it needs depends on the connector."""

    connector: Connector
    format: Format = "json"
    topic: str | None = None
    path: str | None = None
    table: str | None = None


class SinkDocument(EndpointDocument):
    """Where a model's changelog goes."""


class WindowDocument(_Strict):
    """How a model's aggregate cuts time into pieces. Which fields belong to a type is in WINDOW_PARTS."""

    type: m.WindowType
    size: Duration | None = None
    slide: Duration | None = None
    step: Duration | None = None
    gap: Duration | None = None


WINDOW_PARTS: dict[str, tuple[str, ...]] = {
    "tumbling": ("size",),
    "hopping": ("size", "slide"),
    "cumulating": ("size", "step"),
    "session": ("gap",),
}
"""The fields of each type of window: its length first."""


class NodeHintDocument(_Strict):
    """Which running node a node was."""

    was: str


class ModelDocument(_Strict):
    """The declared contract of one model."""

    materialized: Literal["append", "upsert"] = "append"
    key: list[str] | None = None
    sink: SinkDocument | None = None
    retention: Duration | None = None
    on_expiry: Literal["keep", "delete"] | None = None
    window: WindowDocument | None = None
    renamed_from: str | None = None
    nodes: dict[str, NodeHintDocument] | None = None


class FlinkDocument(_Strict):
    """How a Flink cluster is reached."""

    gateway: str
    rest: str | None = None
    savepoint_dir: str | None = None
    checkpoint_interval: Duration | None = None
    plans: str | None = None


class KafkaDocument(_Strict):
    """The brokers of a target."""

    bootstrap_servers: str
    startup: Literal["earliest", "latest"] = "earliest"


class IcebergDocument(_Strict):
    """The catalog of a target."""

    catalog: str
    warehouse: str | None = None
    s3_endpoint: str | None = None


class EmbeddedDocument(_Strict):
    """Where the embedded backend keeps its state."""

    state: str


class ApprovalsDocument(_Strict):
    """Who must agree before a target changes."""

    above: Verdict = "SAFE"
    expires: Duration = "24h"
    approvers: list[str] = []
    min_approvals: Annotated[int, Field(ge=1, le=100)] = 1
    allow_self: bool = True
    trust_os_user: bool = False


class TargetDocument(_Strict):
    """A place where the project is deployed."""

    backend: Literal["flink", "embedded"]
    flink: FlinkDocument | None = None
    kafka: KafkaDocument | None = None
    iceberg: IcebergDocument | None = None
    embedded: EmbeddedDocument | None = None
    store: str = ".streamform"
    approvals: ApprovalsDocument | None = None
    sources: dict[str, EndpointDocument] = {}
    sinks: dict[str, SinkDocument] = {}


class ProjectDocument(_Strict):
    """streamform.yml."""

    name: str
    version: int
    identity: Literal["conservative", "structural"] = "conservative"
    emit_unchanged: bool = True
    groups: dict[str, list[str]] = {}
    models: dict[str, ModelDocument | None] | None = None
    targets: dict[str, TargetDocument] | None = None


class ContractDocument(_Strict):
    """A rule that each event of a source must meet."""

    name: str
    not_null: list[str] | None = None
    check: str | None = None


class QuarantineDocument(_Strict):
    """Where events that break a contract go."""

    topic: str


class SourceDocument(_Strict):
    """A declared input."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    connector: Connector
    format: Format = "json"
    topic: str | None = None
    path: str | None = None
    columns: dict[str, DataTypeText] | None = Field(default=None, alias="schema")
    key: list[str] | None = None
    event_time: str | None = None
    watermark: Duration | None = None
    late_events: m.LateEvents | None = None
    idle_timeout: Duration | None = None
    contracts: list[ContractDocument] | None = None
    quarantine: QuarantineDocument | None = None


class SourcesDocument(_Strict):
    """sources.yml."""

    sources: dict[str, SourceDocument] | None = None


class UpgradeDocument(_Strict):
    """The change of project that a fixture is about: `given` ran under another revision, this is what comes after it."""

    project: str
    """The revision before: a folder, or `git:REF` of this project."""
    verdict: Verdict | None = None
    given: list[Any] | None = None


class FixtureDocument(_Strict):
    """A file under tests/. Items keep the scalars as they were written."""

    model: str
    given: list[Any] | None = None
    expect: list[dict[str, Any]] | None = None
    match: Literal["exact", "unordered", "partial"] = "exact"
    expect_final: list[dict[str, Any]] | None = None
    expect_error: str | None = None
    upgrade: UpgradeDocument | None = None
    late: list[dict[str, Any]] | None = None
    quarantined: list[dict[str, Any]] | None = None


T = TypeVar("T", bound=BaseModel)


def validate(kind: type[T], document: Document) -> T | list[Diagnostic]:
    """The document as this kind, or one diagnostic for each field that is wrong."""
    try:
        return kind.model_validate(document.value)
    except ValidationError as error:
        return [_explain(kind, document, item) for item in error.errors(include_url=False)]


def _explain(kind: type[BaseModel], document: Document, error: ErrorDetails) -> Diagnostic:
    path = tuple(step for step in error["loc"] if step != "[key]")
    name = ".".join(map(str, path)) or "the document"
    if error["type"] == "extra_forbidden":
        known = _fields(kind, path[:-1])
        parent = ".".join(map(str, path[:-1])) or document.file
        expected = f"fields are {', '.join(known)}{suggest(str(path[-1]), known)}" if known else "remove it"
        where = document.locate(path, key=True)
        return problem("SF004", path=document.file, where=where, field=f"`{path[-1]}`", parent=parent, expected=expected)
    where = document.locate(path)
    if error["type"] == "missing":
        cause, expected = "required, but missing", f"add `{path[-1]}:`"
    else:
        cause, expected = f"{_shown(error['input'])} is not valid here", _expected(error)
    return problem("SF005", path=document.file, where=where, field=name, cause=cause, expected=expected)


def _shown(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text[:60]}`" if not isinstance(value, (dict, list)) else ("a mapping" if isinstance(value, dict) else "a list")


_EXPECTED = {
    "string_type": "write text",
    "int_type": "write a whole number",
    "bool_type": "write true or false",
    "list_type": "write a list: [..]",
    "dict_type": "write a mapping",
    "model_type": "write a mapping of fields",
    "model_attributes_type": "write a mapping of fields",
}


def _expected(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"write {error['ctx']['expected']}"
    if error["type"] == "string_pattern_mismatch":
        if "ms|s" in error["ctx"]["pattern"]:
            return "write a duration: a whole number and ms, s, m, h or d, such as 5m"
        return "types are int32, int64, float64, decimal(p,s), string, boolean and timestamp"
    if error["type"] in _EXPECTED:
        return _EXPECTED[error["type"]]
    message = error["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _fields(kind: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The field names of the document part at this path."""
    schema = kind.model_json_schema(by_alias=True)
    part: Any = schema
    for step in path:
        part = _resolve(schema, part)
        part = part.get("properties", {}).get(step) or part.get("additionalProperties") or part.get("items") or {}
    return list(_resolve(schema, part).get("properties", {}))


def _resolve(schema: dict[str, Any], part: Any) -> dict[str, Any]:
    for option in part.get("anyOf", []) if isinstance(part, dict) else []:
        if option.get("type") != "null":
            part = option
    reference = part.get("$ref") if isinstance(part, dict) else None
    return schema["$defs"][reference.rsplit("/", 1)[1]] if reference else part if isinstance(part, dict) else {}


def to_sources(document: SourcesDocument) -> tuple[m.Source, ...]:
    """The declared sources by name, columns in alphabetical order."""
    declared = document.sources or {}
    return tuple(_source(name, declared[name]) for name in sorted(declared))


def _source(name: str, doc: SourceDocument) -> m.Source:
    return m.Source(
        name,
        m.Endpoint(doc.connector, doc.format, doc.topic, doc.path),
        tuple(Column(column, parse_type(text)) for column, text in sorted((doc.columns or {}).items())),
        tuple(doc.key or ()),
        doc.event_time,
        _ms(doc.watermark),
        doc.late_events,
        _ms(doc.idle_timeout),
        tuple(m.Contract(c.name, None if c.not_null is None else tuple(c.not_null), c.check) for c in doc.contracts or ()),
        doc.quarantine.topic if doc.quarantine else None,
    )


def to_model(name: str, path: str, sql: str, doc: ModelDocument) -> m.Model:
    """The model of this file under its declared contract."""
    return m.Model(
        name,
        path,
        sql,
        doc.materialized,
        tuple(doc.key or ()),
        to_endpoint(doc.sink),
        _ms(doc.retention),
        None if doc.window is None else to_window(doc.window),
        doc.renamed_from,
        tuple((node, hint.was) for node, hint in sorted((doc.nodes or {}).items())),
        doc.on_expiry or "keep",
    )


def window_problems(doc: WindowDocument, document: Document, place: tuple[str | int, ...]) -> Iterator[Diagnostic]:
    """Fields that a window lacks, and fields that belong to another type."""
    wanted = WINDOW_PARTS[doc.type]
    for name in ("size", "slide", "step", "gap"):
        present = getattr(doc, name) is not None
        if present == (name in wanted):
            continue
        where = document.locate((*place, name) if present else place)
        cause = f"does not belong to a {doc.type} window" if present else "required, but missing"
        expected = f"a {doc.type} window has {' and '.join(f'`{part}`' for part in wanted)}" if present else f"add `{name}:`"
        field = ".".join(map(str, (*place, name)))
        yield problem("SF005", path=document.file, where=where, field=field, cause=cause, expected=expected)


def to_window(doc: WindowDocument) -> m.Window:
    """The window; parts that it lacks count as 0, which window_problems has reported."""
    main, *step = (parse_duration(getattr(doc, name) or "0s") for name in WINDOW_PARTS[doc.type])
    return m.Window(doc.type, main, *step)


def to_endpoint(doc: EndpointDocument | None) -> m.Endpoint | None:
    """The endpoint, or None where none is declared."""
    return None if doc is None else m.Endpoint(doc.connector, doc.format, doc.topic, doc.path, doc.table)


def to_target(name: str, doc: TargetDocument, groups: dict[str, list[str]]) -> m.Target:
    """The target; approvers that name a group are replaced by its members."""
    return m.Target(
        name,
        doc.backend,
        m.FlinkSettings(doc.flink.gateway, doc.flink.rest, doc.flink.savepoint_dir, _ms(doc.flink.checkpoint_interval), doc.flink.plans)
        if doc.flink
        else None,
        m.KafkaSettings(doc.kafka.bootstrap_servers, doc.kafka.startup) if doc.kafka else None,
        m.IcebergSettings(doc.iceberg.catalog, doc.iceberg.warehouse, doc.iceberg.s3_endpoint) if doc.iceberg else None,
        doc.embedded.state if doc.embedded else None,
        doc.store,
        _policy(doc.approvals, groups) if doc.approvals else None,
        tuple((source, _endpoint(doc.sources[source])) for source in sorted(doc.sources)),
        tuple((model, _endpoint(doc.sinks[model])) for model in sorted(doc.sinks)),
    )


def _endpoint(doc: EndpointDocument) -> m.Endpoint:
    return m.Endpoint(doc.connector, doc.format, doc.topic, doc.path, doc.table)


def _policy(doc: ApprovalsDocument, groups: dict[str, list[str]]) -> m.Policy:
    members = [member for name in doc.approvers for member in groups.get(name, [name])]
    return m.Policy(
        doc.above, parse_duration(doc.expires), tuple(dict.fromkeys(members)), doc.min_approvals, doc.allow_self, doc.trust_os_user
    )


def _ms(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)
