"""Project: what a team declared, frozen, with defaults filled in and nothing resolved against SQL yet."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from streamform.values.rows import Schema

Connector = Literal["kafka", "file", "iceberg", "sqlite"]
Materialized = Literal["append", "upsert"]
Backend = Literal["flink", "embedded"]
LateEvents = Literal["drop", "keep", "quarantine"]
WindowType = Literal["tumbling", "hopping", "cumulating", "session"]


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where events come from or changes go to."""

    connector: Connector
    format: str = "json"
    topic: str | None = None
    path: str | None = None
    table: str | None = None

    @property
    def address(self) -> str:
        """The topic, file or table, as definitions show it."""
        if self.connector == "kafka":
            return self.topic or ""
        if self.connector == "file":
            return self.path or ""
        return f"{self.path} {self.table}" if self.connector == "sqlite" else self.table or ""

    @property
    def destination(self) -> tuple[str, ...]:
        """What two endpoints share when they are the same place."""
        return (self.connector, self.topic or "", self.path or "", self.table or "")


class Contract(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that each event of a source must meet: columns that must have a value, or a condition."""

    name: str
    not_null: tuple[str, ...] | None = None
    check: str | None = None


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """A declared input. Columns are in alphabetical order, as manifests keep them."""

    name: str
    endpoint: Endpoint
    schema: Schema = ()
    key: tuple[str, ...] = ()
    event_time: str | None = None
    watermark_ms: int | None = None
    late_events: LateEvents | None = None
    idle_timeout_ms: int | None = None
    contracts: tuple[Contract, ...] = ()
    quarantine_topic: str | None = None

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.schema]


class Window(Struct, frozen=True, forbid_unknown_fields=True):
    """How an aggregate cuts time into pieces."""

    type: WindowType
    size_ms: int
    """Of a session: the gap that ends it."""
    step_ms: int = 0
    """Of hopping windows the slide, of cumulating ones the step; 0 for the others."""


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """A model: its SQL and its declared contract with readers."""

    name: str
    path: str
    sql: str
    materialized: Materialized = "append"
    key: tuple[str, ...] = ()
    sink: Endpoint | None = None
    retention_ms: int | None = None
    window: Window | None = None
    renamed_from: str | None = None
    node_hints: tuple[tuple[str, str], ...] = ()
    """Pairs of (`<kind>.<ordinal>` of this model, the running node id that it was)."""
    on_expiry: Literal["keep", "delete"] = "keep"
    """Whether a key whose retention has passed leaves its row where it is, or takes it out."""


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """Who must agree before a target changes."""

    above: str = "SAFE"
    """The highest verdict that needs no approval."""
    expires_ms: int = 86_400_000
    approvers: tuple[str, ...] = ()
    """User names, groups already resolved; empty means anybody."""
    min_approvals: int = 1
    allow_self: bool = True
    trust_os_user: bool = False


class FlinkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How a Flink cluster is reached. Addresses may hold ${NAME} references."""

    gateway: str
    rest: str | None = None
    savepoint_dir: str | None = None
    checkpoint_interval_ms: int | None = None
    plans: str | None = None


class KafkaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The brokers of a target."""

    bootstrap_servers: str
    startup: Literal["earliest", "latest"] = "earliest"


class IcebergSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The catalog of a target."""

    catalog: str
    warehouse: str | None = None
    s3_endpoint: str | None = None


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    """A place where the project is deployed."""

    name: str
    backend: Backend
    flink: FlinkSettings | None = None
    kafka: KafkaSettings | None = None
    iceberg: IcebergSettings | None = None
    state: str | None = None
    """The embedded backend's state database, relative to the project folder."""
    store: str = ".streamform"
    approvals: Policy | None = None
    sources: tuple[tuple[str, Endpoint], ...] = ()
    sinks: tuple[tuple[str, Endpoint], ...] = ()


class Project(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Everything that was declared. Models and sources are sorted by name, targets keep their order."""

    root: str
    name: str
    version: int
    models: tuple[Model, ...] = ()
    sources: tuple[Source, ...] = ()
    targets: tuple[Target, ...] = ()
    identity: Literal["conservative", "structural"] = "conservative"
    """What the plan diff goes by: places alone, or also what is computed."""
    emit_unchanged: bool = True
    """Whether fixtures list updates that change nothing; concerns their comparison alone."""

    def model(self, name: str) -> Model | None:
        """The model of this name."""
        return self._models.get(name)

    def source(self, name: str) -> Source | None:
        """The source of this name."""
        return self._sources.get(name)

    def target(self, name: str) -> Target | None:
        """The target of this name."""
        return next((t for t in self.targets if t.name == name), None)

    @cached_property
    def _models(self) -> dict[str, Model]:
        return {model.name: model for model in self.models}

    @cached_property
    def _sources(self) -> dict[str, Source]:
        return {source.name: source for source in self.sources}


def for_target(project: Project, target: Target) -> Project:
    """The project as it is on this target: sources and sinks moved to where its overrides say."""
    sources, sinks = dict(target.sources), dict(target.sinks)
    if not sources and not sinks:
        return project
    return replace(
        project,
        sources=tuple(replace(s, endpoint=sources.get(s.name, s.endpoint)) for s in project.sources),
        models=tuple(replace(m, sink=sinks.get(m.name, m.sink)) for m in project.models),
    )
