"""Scripts: what is submitted for a unit, and the file that `build` writes for a whole application.

Every statement is a text of its own; nothing ever splits a script. A unit is one statement set, so one job.
"""

from __future__ import annotations

import re

from msgspec import Struct

from streamform.backends.flink.nulls import can_be_null
from streamform.backends.flink.query import ModelQuery
from streamform.backends.flink.table import Place, Tables, iceberg_catalog, sink_tables, source_tables
from streamform.backends.flink.text import quoted
from streamform.plan.nodes import AggregateSpec, Node, Plan, SinkSpec, SourceSpec
from streamform.plan.units import plan_components
from streamform.project.model import Target
from streamform.values.instants import render_duration

SETTINGS: dict[str, str] = {
    "table.local-time-zone": "UTC",
    "table.exec.sink.not-null-enforcer": "ERROR",
    "table.exec.sink.upsert-materialize": "NONE",
    "table.optimizer.agg-phase-strategy": "ONE_PHASE",
}
"""What decides how Flink plans a query. A row without its key is an error; keys are the grouping columns, so nothing is sorted again."""

DEFAULT_CHECKPOINT_INTERVAL_MS = 10_000
ICEBERG_CHECKPOINT_INTERVAL_MS = 60_000
_SET = "SET "


class Script(Struct, frozen=True):
    """Statements in the order in which they must run, the same as a file, and what somebody should know before running them."""

    statements: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statements as a file for Flink's SQL client."""
        return "".join(f"{statement};\n\n" for statement in self.statements).rstrip("\n") + "\n"


def emit_unit(application: str, target: Target, name: str, plan: Plan) -> tuple[str, ...]:
    """What is submitted for one unit: settings, tables, views, and its statement set last.

    References to the environment stay as they are. Empty for a unit without a sink: there is nothing to run.
    Raises: Refused where Flink can't express a model.
    """
    tables, inserts = _parts(plan, Place(target, consumer_group(application, target, name)))
    if not inserts:
        return ()
    settings = [set_statement(key, value) for key, value in SETTINGS.items()]
    catalogs = [iceberg_catalog(target)] if has_iceberg(plan) else []
    return (*settings, *catalogs, *tables, statement_set(inserts))


def emit_application(application: str, target: Target, plan: Plan) -> Script:
    """The script of a whole application, unit by unit. Raises: Refused where Flink can't express a model."""
    statements: list[str] = [set_statement(key, value) for key, value in SETTINGS.items()]
    statements.append(set_statement("execution.checkpointing.interval", f"{checkpoint_interval_ms(target, plan)} ms"))
    if has_iceberg(plan):
        statements.append(iceberg_catalog(target))
    shared: dict[str, SourceSpec] = {}
    for models in plan_components(plan):
        part = plan.part(models)
        tables, inserts = _parts(part, Place(target, consumer_group(application, target, models[0])))
        again = {name: spec for name, spec in _sources(part).items() if name in shared}
        statements += [drop for spec in again.values() for drop in _drops(source_tables(spec, Place(target, "")))]
        shared |= _sources(part)
        statements += tables
        if inserts:
            statements += [set_statement("pipeline.name", job_name(application, target.name, models[0])), statement_set(inserts)]
    return Script(tuple(statements), tuple(_warnings(plan)))


def _parts(plan: Plan, place: Place) -> tuple[list[str], list[str]]:
    """The tables and views of a unit, and its inserts, which come last."""
    tables: list[str] = []
    inserts: list[str] = []
    for spec in _sources(plan).values():
        made = source_tables(spec, place)
        tables += made.tables
        inserts += made.inserts
    for model in plan.models:
        tables += ModelQuery(plan, model).statements()
    for node, sink in _sinks(plan):
        made = sink_tables(plan, node, sink, place)
        tables += [statement for statement in made.tables if statement not in tables]
        inserts += made.inserts
    return tables, inserts


def _sources(plan: Plan) -> dict[str, SourceSpec]:
    """Each source once, by name, in order of its name."""
    found = {node.spec.source.name: node.spec for node in plan.nodes if isinstance(node.spec, SourceSpec)}
    return dict(sorted(found.items()))


def _sinks(plan: Plan) -> list[tuple[Node, SinkSpec]]:
    """The sinks that write outside."""
    return [(node, node.spec) for node in plan.nodes if isinstance(node.spec, SinkSpec) and node.spec.endpoint is not None]


_MADE = re.compile(r"CREATE TEMPORARY (TABLE|VIEW) (`(?:[^`]|``)*`)")


def _drops(made: Tables) -> list[str]:
    """Take away the tables and views of a source, last one first, so that another unit can have its own."""
    names = [match for statement in reversed(made.tables) if (match := _MADE.match(statement))]
    return [f"DROP TEMPORARY {match[1]} {match[2]}" for match in names]


def set_statement(key: str, value: str) -> str:
    """A setting of the session."""
    return f"{_SET}{quoted(key)} = {quoted(value)}"


def settings_of(statements: tuple[str, ...]) -> dict[str, str]:
    """The settings among a unit's statements, as values of a session. They are ours, so their quoting is known."""
    pairs = [statement.removeprefix(_SET).split(" = ", 1) for statement in statements if statement.startswith(_SET)]
    return {key[1:-1].replace("''", "'"): value[1:-1].replace("''", "'") for key, value in pairs}


def definitions_of(statements: tuple[str, ...]) -> tuple[str, ...]:
    """The statements that make tables and views."""
    return tuple(s for s in statements[:-1] if not s.startswith(_SET))


def compile_statement(plan_path: str, statements: tuple[str, ...]) -> str:
    """The statement that compiles a unit's statement set into a file."""
    return f"COMPILE PLAN {quoted(plan_path)} FOR {statements[-1].removeprefix('EXECUTE ')}"


def execute_statement(plan_path: str) -> str:
    """The statement that runs a compiled plan."""
    return f"EXECUTE PLAN {quoted(plan_path)}"


def statement_set(inserts: list[str]) -> str:
    """All inserts as one job."""
    return "EXECUTE STATEMENT SET\nBEGIN\n" + "".join(f"{statement};\n" for statement in inserts) + "END"


def consumer_group(application: str, target: Target, unit: str) -> str:
    """The consumer group under which a unit commits its offsets."""
    return f"streamform-{application}-{target.name}-{unit}"


def job_name(application: str, target: str, unit: str) -> str:
    """What a job is called in Flink's dashboard; nothing is ever found by it."""
    return f"streamform/{application}/{target}/{unit}"


def has_iceberg(plan: Plan) -> bool:
    """Whether some model is written to an iceberg table."""
    return any(sink.endpoint is not None and sink.endpoint.connector == "iceberg" for _, sink in _sinks(plan))


def checkpoint_interval_ms(target: Target, plan: Plan) -> int:
    """How often a job of the plan takes a checkpoint on the target."""
    declared = target.flink.checkpoint_interval_ms if target.flink is not None else None
    if declared is not None:
        return declared
    return ICEBERG_CHECKPOINT_INTERVAL_MS if has_iceberg(plan) else DEFAULT_CHECKPOINT_INTERVAL_MS


def _warnings(plan: Plan) -> list[str]:
    read = {plan.by_id[name].model for node in plan.nodes for name in node.inputs if plan.by_id[name].model != node.model}
    written = {node.model for node, _ in _sinks(plan)}
    found = [f"model `{m.name}` has no sink and nothing reads it" for m in plan.models if m.name not in read | written]
    found += retention_warnings(plan)
    found += _quarantine_warnings(plan)
    found += [
        f"{user} has the relative path `{path}`, which each Flink process takes from its own folder; write file:///.."
        for user, path in _paths(plan)
        if "://" not in path and not path.startswith(("/", "${"))
    ]
    for node, sink in _sinks(plan):
        nullable = [key for key in sink.key if sink.materialized == "upsert" and can_be_null(plan, node, key)]
        if nullable:
            columns = ", ".join(f"`{key}`" for key in nullable)
            found.append(f"a row of `{node.model}` without {columns} stops the job; filter with IS NOT NULL")
    return found


def _quarantine_warnings(plan: Plan) -> list[str]:
    """One line for each source whose broken events are written more than once."""
    parts = [_sources(plan.part(models)) for models in plan_components(plan)]
    units = {name: sum(name in part for part in parts) for name, spec in _sources(plan).items() if spec.contracts}
    return [
        f"{number} units read source `{name}`, and each of them writes the events that break a contract to the quarantine topic"
        for name, number in units.items()
        if number > 1
    ]


def _paths(plan: Plan) -> list[tuple[str, str]]:
    """The paths of sources and sinks, each with whose it is."""
    used = {f"source `{name}`": spec.source.endpoint for name, spec in _sources(plan).items()}
    used |= {f"the sink of `{node.model}`": sink.endpoint for node, sink in _sinks(plan) if sink.endpoint is not None}
    return [(user, endpoint.path or "") for user, endpoint in used.items() if endpoint.connector == "file"]


def retention_warnings(plan: Plan) -> list[str]:
    """One line for each model whose state expires."""
    return [
        f"retention of `{node.model}` ({render_duration(node.spec.retention_ms)}) is approximate on Flink: it counts wall-clock time, not event time"
        for node in plan.nodes
        if isinstance(node.spec, AggregateSpec) and node.spec.retention_ms is not None
    ]
