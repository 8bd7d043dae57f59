"""What is wrong with a project apart from its SQL: names, sources, sinks, targets, hints, windows and retention.

Each function checks one thing and yields what it finds; check_project runs those that need no plan, check_planned
those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from streamform.codes import listed, problem, suggest
from streamform.diagnostics import Diagnostic, Location
from streamform.plan.graph import Graph
from streamform.plan.nodes import AggregateSpec, Node, Plan, ProjectSpec, SinkSpec, SourceSpec, UnionSpec
from streamform.project.files import PROJECT_FILE, SOURCES_FILE
from streamform.project.hints import REFERENCE, check_hints
from streamform.project.load import Loaded
from streamform.project.model import Endpoint, Model, Project, Source, Target
from streamform.project.store_address import EXAMPLE, AddressProblem, is_database, parse_store_address
from streamform.sql.expressions import ColumnRef
from streamform.sql.parse import Statement, input_calls
from streamform.values.instants import render_duration
from streamform.values.types import TIMESTAMP

WINDOW_COLUMNS = ("window_start", "window_end")


def check_project(loaded: Loaded, project: Project, graph: Graph, statements: Mapping[str, Statement]) -> Iterator[Diagnostic]:
    """Everything that can be said before models are planned."""
    yield from _check_names(loaded, project)
    for source in project.sources:
        yield from _check_source(loaded, source)
        yield from _check_contracts(loaded, source)
    for model in project.models:
        yield from _check_reads(project, graph, model, statements.get(model.name))
        yield from _check_time(loaded, project, graph, model)
        if model.sink is not None:
            yield from _check_endpoint(model, model.sink)
    yield from _check_unused(project, graph)
    yield from _check_targets(loaded)
    yield from check_hints(loaded)


def _check_names(loaded: Loaded, project: Project) -> Iterator[Diagnostic]:
    if not project.name.strip():
        yield problem("SF512", where=loaded.locate(PROJECT_FILE, "name"))
    if not project.models:
        yield problem("SF150")
    names = {source.name for source in project.sources}
    for model in project.models:
        if model.name in names:
            yield problem("SF102", path=model.path, name=model.name, model=model.name)


def _check_source(loaded: Loaded, source: Source) -> Iterator[Diagnostic]:
    columns = source.column_names
    at = _Places(loaded, SOURCES_FILE, ("sources", source.name))
    if source.endpoint.connector == "kafka" and not source.endpoint.topic:
        yield problem("SF301", where=at("connector"), source=source.name)
    if source.endpoint.connector == "file" and not source.endpoint.path:
        yield problem("SF302", where=at("connector"), source=source.name)
    if source.endpoint.connector not in ("kafka", "file"):
        yield problem("SF303", where=at("connector"), source=source.name, connector=source.endpoint.connector)
    if not source.schema:
        yield problem("SF353", where=at(), source=source.name)
    for column in source.key:
        if column not in columns:
            yield problem("SF304", where=at("key"), source=source.name, column=column, known=listed(columns))
    yield from _check_event_time(source, at)


def _check_event_time(source: Source, at: _Places) -> Iterator[Diagnostic]:
    if source.event_time is None:
        declared = (
            ("SF307", "watermark", source.watermark_ms),
            ("SF308", "late_events", source.late_events),
            ("SF309", "idle_timeout", source.idle_timeout_ms),
        )
        for code, field, value in declared:
            if value is not None:
                yield problem(code, where=at(field), source=source.name)
        return
    column = next((c for c in source.schema if c.name == source.event_time), None)
    if column is None:
        yield problem("SF305", where=at("event_time"), source=source.name, column=source.event_time, known=listed(source.column_names))
    elif column.type != TIMESTAMP:
        yield problem("SF306", where=at("event_time"), source=source.name, column=source.event_time, type=column.type)


def _check_contracts(loaded: Loaded, source: Source) -> Iterator[Diagnostic]:
    at = _Places(loaded, SOURCES_FILE, ("sources", source.name))
    if source.contracts and source.quarantine_topic is None:
        yield problem("SF316", where=at("contracts"), source=source.name)
    if source.late_events == "quarantine" and source.quarantine_topic is None:
        yield problem("SF319", where=at("late_events"), source=source.name)
    if source.quarantine_topic is not None and not source.contracts and source.late_events != "quarantine":
        yield problem("SF317", where=at("quarantine"), source=source.name)
    if source.quarantine_topic is not None and source.quarantine_topic == source.endpoint.topic:
        yield problem("SF318", where=at("quarantine"), source=source.name, topic=source.quarantine_topic)
    names: set[str] = set()
    for index, contract in enumerate(source.contracts):
        place = at("contracts", index)
        if not contract.name:
            yield problem("SF311", where=place, source=source.name, contract=contract.name)
        if contract.name in names:
            yield problem("SF312", where=place, source=source.name, contract=contract.name)
        names.add(contract.name)
        if (contract.not_null is None) == (contract.check is None):
            yield problem("SF310", where=place, source=source.name, contract=contract.name)
        elif contract.not_null is not None and not contract.not_null:
            yield problem("SF313", where=place, source=source.name, contract=contract.name)
        for column in contract.not_null or ():
            if column not in source.column_names:
                yield problem(
                    "SF314", where=place, source=source.name, contract=contract.name, column=column, known=listed(source.column_names)
                )


def _check_reads(project: Project, graph: Graph, model: Model, statement: Statement | None) -> Iterator[Diagnostic]:
    reads = graph.reads[model.name]
    places = _call_places(statement)
    for name in reads.sources:
        if project.source(name) is None:
            sources = [s.name for s in project.sources]
            yield problem(
                "SF106",
                path=model.path,
                where=places.get(("source", name)),
                model=model.name,
                name=name,
                suggestion=suggest(name, sources),
                known=listed(sources),
            )
    for name in reads.models:
        where = places.get(("ref", name))
        if name == model.name:
            yield problem("SF105", path=model.path, where=where, model=model.name)
        elif project.model(name) is None:
            models = [m.name for m in project.models]
            yield problem(
                "SF104", path=model.path, where=where, model=model.name, name=name, suggestion=suggest(name, models), known=listed(models)
            )


def _call_places(statement: Statement | None) -> dict[tuple[str, str], Location]:
    places: dict[tuple[str, str], Location] = {}
    for function, name, node in input_calls(statement) if statement else ():
        places.setdefault((function, name), statement.place(node) if statement else Location(""))
    return places


def _upstream_sources(project: Project, graph: Graph, model: str) -> list[Source]:
    """The declared sources that feed a model, directly or through others."""
    seen: set[str] = set()
    names: set[str] = set()
    pending = [model]
    while pending:
        name = pending.pop()
        if name in seen or name not in graph.reads:
            continue
        seen.add(name)
        names.update(graph.reads[name].sources)
        pending.extend(graph.reads[name].models)
    return [source for source in project.sources if source.name in names]


def _check_time(loaded: Loaded, project: Project, graph: Graph, model: Model) -> Iterator[Diagnostic]:
    at = _Places(loaded, PROJECT_FILE, ("models", model.name))
    sources = _upstream_sources(project, graph, model.name)
    named = ", ".join(f"`{s.name}`" for s in sources) or "its source"
    if model.retention_ms is not None:
        yield from _check_expiring_sources(at, model, sources)
        if model.retention_ms == 0:
            yield problem("SF410", where=at("retention"), model=model.name, retention=render_duration(0))
    elif model.on_expiry == "delete":
        yield problem("SF413", where=at("on_expiry"), model=model.name)
    if model.window is not None:
        yield from _check_window(at, model, sources, named)


def _check_expiring_sources(at: _Places, model: Model, sources: list[Source]) -> Iterator[Diagnostic]:
    """Each row must say when it happened, so each source needs event time, not only one of several."""
    without = ", ".join(f"`{source.name}`" for source in sources if source.event_time is None)
    if not any(source.event_time for source in sources):
        yield problem(
            "SF401", where=at("retention"), model=model.name, cause="no source upstream has event time", sources=without or "its source"
        )
    elif without:
        yield problem("SF401", where=at("retention"), model=model.name, cause=f"{without} upstream has no event time", sources=without)


def _check_window(at: _Places, model: Model, sources: list[Source], named: str) -> Iterator[Diagnostic]:
    window = model.window
    assert window is not None
    if not any(source.event_time for source in sources):
        yield problem("SF402", where=at("window"), model=model.name, sources=named)
    if model.materialized != "append":
        yield problem("SF403", where=at("materialized"), model=model.name)
    if window.size_ms == 0:
        yield problem("SF406", where=at("window"), model=model.name, size=render_duration(0))
    elif window.type in ("hopping", "cumulating") and (window.step_ms == 0 or window.size_ms % window.step_ms):
        name = "slide" if window.type == "hopping" else "step"
        size, step = render_duration(window.size_ms), render_duration(window.step_ms)
        yield problem("SF412", where=at("window"), model=model.name, size=size, name=name, step=step)
    if model.retention_ms is not None:
        yield problem("SF407", where=at("retention"), model=model.name)
    for source in sources:
        yield from _check_windowed_source(at, model, source)


def _check_windowed_source(at: _Places, model: Model, source: Source) -> Iterator[Diagnostic]:
    if source.late_events == "keep":
        yield problem("SF408", where=at("window"), model=model.name, source=source.name)
    clash = next((c for c in source.column_names if c in WINDOW_COLUMNS), None)
    if clash is not None:
        yield problem("SF409", where=at("window"), model=model.name, source=source.name, column=clash)
    if source.event_time is None:
        return
    if source.endpoint.connector == "kafka" and source.idle_timeout_ms is None:
        yield problem("SF450", path=SOURCES_FILE, model=model.name, source=source.name)
    if not any(source.event_time in (c.not_null or ()) for c in source.contracts):
        yield problem("SF451", path=SOURCES_FILE, model=model.name, source=source.name, column=source.event_time)


def _check_endpoint(model: Model, sink: Endpoint) -> Iterator[Diagnostic]:
    if sink.connector == "kafka" and not sink.topic:
        yield problem("SF501", path=PROJECT_FILE, model=model.name)
    if sink.connector in ("file", "sqlite") and not sink.path:
        yield problem("SF502", path=PROJECT_FILE, model=model.name, connector=sink.connector)
    example = "namespace.table" if sink.connector == "iceberg" else "NAME"
    if sink.connector in ("iceberg", "sqlite") and not sink.table:
        yield problem("SF503", path=PROJECT_FILE, model=model.name, connector=sink.connector, example=example)
    elif sink.connector == "iceberg" and not _is_iceberg_table(sink.table or ""):
        yield problem(
            "SF504", path=PROJECT_FILE, model=model.name, table=sink.table, expected="namespace.table", example="table: namespace.table"
        )


def _is_iceberg_table(table: str) -> bool:
    parts = table.split(".")
    return len(parts) == 2 and all(parts)


def _check_unused(project: Project, graph: Graph) -> Iterator[Diagnostic]:
    read = {name for reads in graph.reads.values() for name in reads.sources}
    for source in project.sources:
        if source.name not in read:
            yield problem("SF352", path=SOURCES_FILE, source=source.name)


def _check_targets(loaded: Loaded) -> Iterator[Diagnostic]:
    """Targets are checked against what was declared, whichever target the project is compiled for."""
    project = loaded.project
    for target in project.targets:
        at = _Places(loaded, PROJECT_FILE, ("targets", target.name))
        yield from _check_overrides(at, project, target)
        yield from _check_sections(at, project, target)
        yield from _check_store(at, target)
        yield from _check_policy(at, target)


def _check_overrides(at: _Places, project: Project, target: Target) -> Iterator[Diagnostic]:
    sources, models = [s.name for s in project.sources], [m.name for m in project.models]
    for kind, names, known in (("source", target.sources, sources), ("sink", target.sinks, models)):
        for name, endpoint in names:
            if name not in known:
                yield problem(
                    "SF513",
                    where=at(f"{kind}s", name),
                    target=target.name,
                    kind=kind,
                    name=name,
                    suggestion=suggest(name, known),
                    known=listed(known),
                )
            elif kind == "sink":
                yield from _check_endpoint(Model(name, "", ""), endpoint)


def _check_sections(at: _Places, project: Project, target: Target) -> Iterator[Diagnostic]:
    sources, sinks = dict(target.sources), dict(target.sinks)
    users = [(f"source `{s.name}`", sources.get(s.name, s.endpoint)) for s in project.sources]
    users += [(f"model `{m.name}`", sink) for m in project.models if (sink := sinks.get(m.name, m.sink)) is not None]
    if target.backend == "flink":
        if target.flink is None:
            yield problem("SF505", where=at(), target=target.name)
        else:
            yield from _check_addresses(at, target)
    for connector, section, code in (("kafka", target.kafka, "SF506"), ("iceberg", target.iceberg, "SF507")):
        user = next((name for name, endpoint in users if endpoint.connector == connector), None)
        if user is not None and section is None:
            yield problem(code, where=at(), target=target.name, user=user)
    yield from _check_feasible(at, target, users)
    diverted = [s.name for s in project.sources if s.late_events == "quarantine"]
    if target.backend == "flink" and diverted:
        user, cause = f"late_events: quarantine of source `{diverted[0]}`", "it can only drop or keep late events"
        instead = "declare late_events: drop or keep, or deploy this project to embedded targets"
        yield problem("SF509", where=at(), target=target.name, backend="flink", user=user, cause=cause, instead=instead)
    expiring = [m.name for m in project.models if m.on_expiry == "delete"]
    if target.backend == "flink" and expiring:
        user, cause = f"on_expiry: delete of model `{expiring[0]}`", "Flink drops expired state without a record of it"
        instead = "remove it, or deploy this project to embedded targets"
        yield problem("SF509", where=at(), target=target.name, backend="flink", user=user, cause=cause, instead=instead)


UNFEASIBLE = {
    "flink": {"sqlite": "Flink has no sqlite connector"},
    "embedded": dict.fromkeys(("iceberg", "kafka"), "it reads files, and writes files and sqlite tables"),
}
"""Connectors that a backend can't run, with the reason."""


def _check_feasible(at: _Places, target: Target, users: list[tuple[str, Endpoint]]) -> Iterator[Diagnostic]:
    for user, endpoint in users:
        cause = UNFEASIBLE[target.backend].get(endpoint.connector)
        if cause is not None:
            instead = f"override it under targets.{target.name}.sinks or .sources"
            yield problem(
                "SF509",
                where=at(),
                target=target.name,
                backend=target.backend,
                user=f"{user} on {endpoint.connector}",
                cause=cause,
                instead=instead,
            )
        if target.backend == "embedded" and endpoint.format != "json":
            cause, instead = "it reads and writes json", "set format: json, or override it for this target"
            named = f"{user} in {endpoint.format}"
            yield problem("SF509", where=at(), target=target.name, backend="embedded", user=named, cause=cause, instead=instead)


def _check_addresses(at: _Places, target: Target) -> Iterator[Diagnostic]:
    assert target.flink is not None
    for field, url in (("gateway", target.flink.gateway), ("rest", target.flink.rest)):
        cause = None if url is None or "${" in url else _address_problem(url)
        if cause is not None:
            shown = url if cause != _CREDENTIALS else "a URL with credentials"
            yield problem("SF508", where=at("flink", field), target=target.name, field=f"flink.{field}", url=shown, cause=cause)


_CREDENTIALS = "and credentials don't belong in a URL"


def _address_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "which is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "which is not an http:// or https:// URL"
    return _CREDENTIALS if parts.username or parts.password else None


def _check_store(at: _Places, target: Target) -> Iterator[Diagnostic]:
    found = parse_store_address(target.store) if is_database(target.store) else None
    if not isinstance(found, AddressProblem):
        return
    where, url, cause = at("store"), found.shown, found.cause
    if found.is_secret:
        yield problem("SF516", where=where, target=target.name, url=url, cause=cause)
    else:
        yield problem("SF515", where=where, target=target.name, url=url, cause=cause, example=EXAMPLE)


def _check_policy(at: _Places, target: Target) -> Iterator[Diagnostic]:
    policy = target.approvals
    if policy is None:
        return
    if policy.expires_ms == 0:
        yield problem(
            "SF514", where=at("approvals", "expires"), target=target.name, cause="expire at once", expected="declare a longer time"
        )
    if policy.approvers and len(policy.approvers) < policy.min_approvals:
        cause = f"need {policy.min_approvals} of {len(policy.approvers)} approvers"
        yield problem("SF514", where=at("approvals", "min_approvals"), target=target.name, cause=cause, expected="name more approvers")


def check_planned(loaded: Loaded, project: Project, plan: Plan) -> Iterator[Diagnostic]:
    """What needs the plan: order within groups, hints for nodes that do not exist, destinations."""
    yield from check_group_order(plan, plan.nodes)
    yield from _check_hinted_nodes(loaded, project, plan)
    yield from _check_destinations(plan)
    yield from _check_flink_names(loaded, project, plan)


def _check_flink_names(loaded: Loaded, project: Project, plan: Plan) -> Iterator[Diagnostic]:
    """Columns of sources and models that Flink has no way to write, where a target is Flink. Names that nobody sees are replaced."""
    target = next((target for target in project.targets if target.backend == "flink"), None)
    if target is None:
        return
    named: dict[str, str] = {}
    for node in plan.nodes:
        if isinstance(node.spec, (SourceSpec, SinkSpec)):
            owner = f"source {node.spec.source.name!r}" if isinstance(node.spec, SourceSpec) else f"model {node.model!r}"
            named |= {column.name: f"column {column.name!r} of {owner}" for column in node.schema if column.name not in named}
    broken = next((user for name, user in named.items() if "\n" in name or "\r" in name), None)
    if broken is not None:
        where = _Places(loaded, PROJECT_FILE, ("targets", target.name))()
        cause = "a name with a line break can't be written in its SQL"
        yield problem("SF509", where=where, target=target.name, backend="flink", user=broken, cause=cause, instead="rename it")


def check_group_order(plan: Plan, nodes: Iterable[Node]) -> Iterator[Diagnostic]:
    """Warn where events of one group may come from several partitions; a window's result does not depend on their order."""
    for node in nodes:
        if isinstance(node.spec, AggregateSpec) and node.spec.window is None:
            yield from _group_order(plan, node, node.spec)


def _group_order(plan: Plan, node: Node, spec: AggregateSpec) -> Iterator[Diagnostic]:
    for source, origins in _origins(plan, node, [key.name for key in spec.keys]):
        if source.endpoint.connector != "kafka" and not source.key:
            continue
        if not source.key:
            yield problem("SF350", path=SOURCES_FILE, model=node.model, source=source.name)
        elif not set(source.key) <= origins:
            yield problem("SF351", path=SOURCES_FILE, model=node.model, source=source.name, key=", ".join(source.key))


def _origins(plan: Plan, node: Node, columns: list[str]) -> Iterator[tuple[Source, set[str]]]:
    """For each source below a node, the source columns that these columns are without change."""
    pending = [(below, tuple(columns)) for below in reversed(plan.inputs_of(node))]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while pending:
        below, named = pending.pop()
        if (below.id, named) in seen:
            continue
        seen.add((below.id, named))
        if isinstance(below.spec, SourceSpec):
            yield below.spec.source, set(named)
        elif not isinstance(below.spec, AggregateSpec):
            pending += [(inner, _named_below(below, inner, named)) for inner in reversed(plan.inputs_of(below))]


def _named_below(node: Node, below: Node, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of an input that a node hands on unchanged under these names."""
    if isinstance(node.spec, ProjectSpec):
        named = {o.name: o.expression.name for o in node.spec.outputs if isinstance(o.expression, ColumnRef)}
        return tuple(named[column] for column in columns if column in named)
    if isinstance(node.spec, UnionSpec):
        names = [column.name for column in node.schema]
        return tuple(below.schema[names.index(column)].name for column in columns)
    return columns


def _check_hinted_nodes(loaded: Loaded, project: Project, plan: Plan) -> Iterator[Diagnostic]:
    planned = {m.name for m in plan.models}
    for model in project.models:
        if model.name not in planned:
            continue
        known = [node.id.removeprefix(model.name + "::").replace("::", ".") for node in plan.nodes_of(model.name)]
        for reference, _ in model.node_hints:
            if reference not in known and REFERENCE.fullmatch(reference):
                at = _Places(loaded, PROJECT_FILE, ("models", model.name, "nodes"))
                yield problem("SF606", where=at(reference), model=model.name, node=reference, known=listed(known))


def _check_destinations(plan: Plan) -> Iterator[Diagnostic]:
    """Two models on one destination, and a sink onto a source that feeds it."""
    writers: dict[tuple[str, ...], str] = {}
    for node in plan.nodes:
        if not isinstance(node.spec, SinkSpec) or node.spec.endpoint is None:
            continue
        destination = node.spec.endpoint.destination
        shown = f"{node.spec.endpoint.connector} {node.spec.endpoint.address}"
        if destination in writers:
            yield problem("SF510", path=PROJECT_FILE, model=node.model, other=writers[destination], destination=shown)
        writers[destination] = node.model
        for above in plan.upstream(node):
            if isinstance(above.spec, SourceSpec) and above.spec.source.endpoint.destination == destination:
                yield problem("SF511", path=PROJECT_FILE, model=node.model, source=above.spec.source.name, destination=shown)


class _Places:
    """Places in one part of a document."""

    def __init__(self, loaded: Loaded, file: str, base: tuple[str, ...]) -> None:
        self.loaded, self.file, self.base = loaded, file, base

    def __call__(self, *path: str | int) -> Location:
        return self.loaded.locate(self.file, *self.base, *path)
