"""Tables: a source's events as the plan sees them, and the places where rows go.

Everything is TEMPORARY, so that a compiled plan names tables and holds none of their options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from streamform.backends.flink.expression import emit_expression
from streamform.backends.flink.nulls import proves_value
from streamform.backends.flink.query import insert, model_source, view
from streamform.backends.flink.text import (
    Reference,
    constant,
    identifier,
    interval_sql,
    names,
    options_sql,
    relation,
    type_sql,
    visible_identifier,
)
from streamform.errors import Refused
from streamform.plan.clock import source_clock
from streamform.plan.nodes import Node, Plan, SinkSpec, SourceSpec
from streamform.project.model import Endpoint, KafkaSettings, Source, Target
from streamform.values.rows import Column, Schema
from streamform.values.types import STRING

ICEBERG_CATALOG = "iceberg"


class Tables(Struct, frozen=True):
    """Statements that make tables and views, and statements that fill a table beside the models' own."""

    tables: tuple[str, ...]
    inserts: tuple[str, ...] = ()


class Place(Struct, frozen=True):
    """Where a unit runs: its target, and the consumer group of its sources."""

    target: Target
    group: str

    @property
    def kafka(self) -> KafkaSettings:
        """The brokers. Raises: Refused where the target declares none; check has seen to it for all but quarantine topics."""
        if self.target.kafka is None:
            raise Refused(f"target `{self.target.name}` has no kafka section, and a quarantine topic needs its brokers", "declare one")
        return self.target.kafka

    def address(self, kind: Literal["sources", "sinks"], name: str, endpoint: Endpoint) -> str:
        """The topic or path of a source or a model's sink; a reference in it counts where the target declares it."""
        text = endpoint.topic if endpoint.connector == "kafka" else endpoint.path
        declared = self.target.sources if kind == "sources" else self.target.sinks
        return Reference(text or "") if name in dict(declared) else text or ""


def source_tables(spec: SourceSpec, place: Place) -> Tables:
    """A source's events under its name: labelled by its contracts, without late events where they are dropped."""
    return _SourceTables(spec, place).build()


class _SourceTables:
    def __init__(self, spec: SourceSpec, place: Place) -> None:
        self.source, self.contracts, self.place = spec.source, spec.contracts, place
        self.clock = source_clock(self.source)
        self.columns = [column.name for column in self.source.schema]
        self.time = self.clock.column if self.clock else None
        self.is_guarded = self.time is not None and any(proves_value(c.condition, self.time) for c in self.contracts)
        """Whether a contract takes care of events without event time, so that they must not stop the job."""
        self.clock_column = _unused("event_time", self.columns) if self.is_guarded else self.time
        self.label = _unused("contract", self.columns)

    def build(self) -> Tables:
        drops = self.clock is not None and self.clock.late == "drop"
        name = self.source.name
        if not drops and not self.contracts:
            return Tables((self.table(relation(name)),))
        raw = relation(name, "raw")
        statements, inserts, read = [self.table(raw)], [], raw
        if self.contracts:
            read = relation(name, "checked")
            statements += [self.checked(raw, read), self.quarantine_table()]
            inserts.append(self.quarantine(read))
        statements.append(self.passed(read))
        return Tables(tuple(statements), tuple(inserts))

    def table(self, name: str) -> str:
        """The table on the source's own topic or file."""
        lines = _column_lines(self.source.schema, f"source `{self.source.name}`")
        if self.is_guarded:
            lines.append(
                f"{self.clock_sql} AS COALESCE({identifier(self.time or '')}, CAST(TIMESTAMP '1970-01-01 00:00:00' AS TIMESTAMP(3)))"
            )
        if self.clock is not None:
            delay = f" - {interval_sql(self.clock.delay_ms)}" if self.clock.delay_ms else ""
            lines.append(f"WATERMARK FOR {self.clock_sql} AS {self.clock_sql}{delay}")
        return _table(name, lines, source_options(self.source, self.place))

    @property
    def clock_sql(self) -> str:
        return identifier(self.clock_column or "")

    def checked(self, raw: str, name: str) -> str:
        """Every event with the name of the first contract that it breaks; NULL for one that breaks none."""
        branches = "".join(f" WHEN ({emit_expression(c.condition)}) IS NOT TRUE THEN {constant(c.name)}" for c in self.contracts)
        columns = [*self.columns, self.clock_column] if self.is_guarded and self.clock_column else self.columns
        label = f"CASE{branches} ELSE CAST(NULL AS STRING) END AS {identifier(self.label)}"
        return view(name, f"SELECT\n  {names(list(columns))},\n  {label}\nFROM {raw}")

    def quarantine_table(self) -> str:
        schema = (*self.source.schema, Column(self.label, STRING))
        lines = _column_lines(schema, f"source `{self.source.name}`")
        return _table(self.quarantine_name, lines, kafka_sink_options(self.source.quarantine_topic or "", "json", self.place.kafka))

    @property
    def quarantine_name(self) -> str:
        return relation(self.source.name, "quarantine")

    def quarantine(self, checked: str) -> str:
        columns = [*self.columns, self.label]
        items = ", ".join(self.shown(column) for column in columns)
        query = f"SELECT {items}\nFROM {checked}\nWHERE {identifier(self.label)} IS NOT NULL"
        return insert(self.quarantine_name, columns, query)

    def shown(self, column: str) -> str:
        is_clock = column == self.time and not self.is_guarded
        return f"CAST({identifier(column)} AS TIMESTAMP(3))" if is_clock else identifier(column)

    def passed(self, read: str) -> str:
        """The events that models see."""
        items = [f"{self.clock_sql} AS {identifier(c)}" if self.is_guarded and c == self.time else identifier(c) for c in self.columns]
        conditions = [f"{identifier(self.label)} IS NULL"] if self.contracts else []
        if self.clock is not None and self.clock.late == "drop":
            watermark = f"CURRENT_WATERMARK({self.clock_sql})"
            conditions.append(f"({watermark} IS NULL OR {self.clock_sql} >= {watermark})")
        where = "\n  AND ".join(conditions)
        return view(relation(self.source.name), f"SELECT\n  {', '.join(items)}\nFROM {read}\nWHERE {where}")


def source_options(source: Source, place: Place) -> dict[str, str]:
    """The options of a source's own table."""
    endpoint, address = source.endpoint, place.address("sources", source.name, source.endpoint)
    idle = {} if source.idle_timeout_ms is None else {"scan.watermark.idle-timeout": f"{source.idle_timeout_ms} ms"}
    if endpoint.connector == "file":
        return {"connector": "filesystem", "path": address, **_format_options(endpoint.format)}
    kafka = place.kafka
    return {
        "connector": "kafka",
        "topic": address,
        "properties.bootstrap.servers": Reference(kafka.bootstrap_servers),
        "properties.group.id": place.group,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": f"{kafka.startup}-offset",
        **idle,
        **_format_options(endpoint.format),
    }


def kafka_sink_options(topic: str, format_: str, kafka: KafkaSettings) -> dict[str, str]:
    """The options of a topic to which rows are only added."""
    return {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": Reference(kafka.bootstrap_servers),
        **_format_options(format_, writes=True),
    }


def _format_options(name: str, *, writes: bool = False, prefix: str = "") -> dict[str, str]:
    """The format with its options: plain decimals, ISO 8601 instants."""
    options = {f"{prefix}format": name}
    if name == "json":
        options[f"{prefix}json.timestamp-format.standard"] = "ISO-8601"
        if writes:
            options[f"{prefix}json.encode.decimal-as-plain-number"] = "true"
    elif writes:
        options[f"{prefix}csv.write-bigdecimal-in-scientific-notation"] = "false"
    return options


def sink_tables(plan: Plan, node: Node, spec: SinkSpec, place: Place) -> Tables:
    """The table of a model's sink, and the statement that fills it. Raises: Refused where Flink can't write it."""
    endpoint = spec.endpoint
    assert endpoint is not None, "a model without a sink outside"
    columns = [column.name for column in node.schema]
    statements = _SINKS[endpoint.connector](node, spec, endpoint, place)
    table = iceberg_table(endpoint) if endpoint.connector == "iceberg" else relation(node.model, "sink")
    return Tables(statements, (insert(table, columns, f"SELECT {names(columns)}\nFROM {model_source(plan, node)}"),))


def _kafka_sink(node: Node, spec: SinkSpec, endpoint: Endpoint, place: Place) -> tuple[str, ...]:
    lines, topic = _sink_lines(node), place.address("sinks", node.model, endpoint)
    if spec.materialized == "append":
        return (_table(relation(node.model, "sink"), lines, kafka_sink_options(topic, endpoint.format, place.kafka)),)
    lines.append(_primary_key(node, spec))
    options = {
        "connector": "upsert-kafka",
        "topic": topic,
        "properties.bootstrap.servers": Reference(place.kafka.bootstrap_servers),
        **_format_options(endpoint.format, writes=True, prefix="key."),
        **_format_options(endpoint.format, writes=True, prefix="value."),
    }
    return (_table(relation(node.model, "sink"), lines, options),)


def _file_sink(node: Node, spec: SinkSpec, endpoint: Endpoint, place: Place) -> tuple[str, ...]:
    if spec.materialized == "upsert":
        raise Refused(
            f"model `{node.model}` is an upsert, and Flink can only add rows to files",
            "give it a kafka sink on this target, or materialize it as append",
        )
    path = place.address("sinks", node.model, endpoint)
    options = {"connector": "filesystem", "path": path, **_format_options(endpoint.format, writes=True)}
    return (_table(relation(node.model, "sink"), _sink_lines(node), options),)


def _iceberg_sink(node: Node, spec: SinkSpec, endpoint: Endpoint, place: Place) -> tuple[str, ...]:
    lines, options = _sink_lines(node), {"format-version": "2"}
    if spec.materialized == "upsert":
        lines.append(_primary_key(node, spec))
        options["write.upsert.enabled"] = "true"
    table = iceberg_table(endpoint)
    columns = ",\n  ".join(lines)
    return (
        f"CREATE DATABASE IF NOT EXISTS {table.rsplit('.', 1)[0]}",
        f"CREATE TABLE IF NOT EXISTS {table} (\n  {columns}\n) {options_sql(options)}",
    )


def iceberg_table(endpoint: Endpoint) -> str:
    """The table in its catalog; check has made sure that its name is `namespace.table` in plain words."""
    return ".".join(map(identifier, (ICEBERG_CATALOG, *(endpoint.table or "").split(".", 1))))


def _primary_key(node: Node, spec: SinkSpec) -> str:
    if not spec.key:
        raise Refused(
            f"model `{node.model}` has no key, and a row of an upsert {'table' if spec.endpoint and spec.endpoint.table else 'topic'}"
            " needs one; Flink can't write it",
            "group by a column, or keep the model without a sink and read it from another one",
        )
    return f"PRIMARY KEY ({names(list(spec.key))}) NOT ENFORCED"


def _no_sink(node: Node, spec: SinkSpec, endpoint: Endpoint, place: Place) -> tuple[str, ...]:
    raise Refused(f"model `{node.model}` has a {endpoint.connector} sink, and Flink has no such connector", "override it for this target")


_SINKS: Mapping[str, Callable[[Node, SinkSpec, Endpoint, Place], tuple[str, ...]]] = {
    "kafka": _kafka_sink,
    "file": _file_sink,
    "iceberg": _iceberg_sink,
    "sqlite": _no_sink,
}


def iceberg_catalog(target: Target) -> str:
    """The statement that makes the catalog of a target known."""
    settings = target.iceberg
    assert settings is not None, "a target without a catalog"
    options = {"type": "iceberg", "catalog-type": "rest", "uri": Reference(settings.catalog)}
    if settings.warehouse is not None:
        options["warehouse"] = Reference(settings.warehouse)
    if settings.s3_endpoint is not None:
        options |= {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": Reference(settings.s3_endpoint),
            "s3.path-style-access": "true",
        }
    return f"CREATE CATALOG IF NOT EXISTS {identifier(ICEBERG_CATALOG)} {options_sql(options)}"


def _sink_lines(node: Node) -> list[str]:
    return _column_lines(node.schema, f"model `{node.model}`")


def _column_lines(schema: Schema, owner: str) -> list[str]:
    return [f"{visible_identifier(column.name, owner)} {type_sql(column.type)}" for column in schema]


def _table(name: str, lines: list[str], options: Mapping[str, str]) -> str:
    columns = ",\n  ".join(lines)
    return f"CREATE TEMPORARY TABLE {name} (\n  {columns}\n) {options_sql(options)}"


def _unused(name: str, columns: list[str]) -> str:
    while name in columns:
        name += "_"
    return name
