"""What the embedded backend does: state in SQLite, files and tables at the ends, no services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.engine import Engine
from streamform.adapters.file_source import FileSource
from streamform.adapters.generation import (
    Carry,
    candidate,
    carry_generation,
    create_generation,
    drop_generation,
    drop_others,
    read_unit,
    write_unit,
)
from streamform.adapters.kept_output import keep_output
from streamform.adapters.sink import SinkVanished
from streamform.adapters.sink_ledger import Owners, SinkLedger, check_places, foreign_models, place_of, recover
from streamform.adapters.state_database import StateDatabase
from streamform.errors import Refused, StateError
from streamform.identity.manifest import sink_addresses
from streamform.lifecycle.ports import Observation, Progress, RunningUnit, StageContext
from streamform.lifecycle.stages import Stage
from streamform.plan.nodes import Plan, SourceSpec
from streamform.project.model import Project, Target

POLL_S = 0.2
"""How long `run` waits before it looks at its sources again."""


class EmbeddedRunner:
    """Runs units in this process. The caller holds the target's lock while it changes anything."""

    def __init__(self, project_dir: Path, project: Project, target: Target, path: Path) -> None:
        self.project_dir, self.project, self.target, self.path = project_dir, project, target, path
        self.opened: StateDatabase | None = None

    # looking

    def observe(self, unit_name: str, running: RunningUnit | None) -> Observation:
        """Whether the state of what was applied is there."""
        database = StateDatabase.look(self.path, self.project.name, self.target.name)
        if running is None:
            if database is not None:
                database.close()
            return Observation("none")
        if database is None:
            return Observation("missing", detail=f"there is no state at {self.path}")
        with closing(database):
            row = read_unit(database, unit_name)
        if row is None:
            return Observation("missing", detail=f"{self.path} holds no state of unit `{unit_name}`")
        if running.artifact is not None and row.artifact != running.artifact:
            return Observation("missing", detail=f"{self.path} holds the state of another deployment of unit `{unit_name}`")
        return Observation("running")

    # acting

    def execute(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Carry out one stage."""
        acts = {
            "initialize": self.initialize,
            "rebuild": self.rebuild,
            "switch": self.switch,
            "catch-up": self.catch_up,
            "remove": self.remove,
        }
        acts_on_stage = {"repair-sink": self.repair, "continue": self.go_on}
        result = acts_on_stage[stage.kind](stage, context) if stage.kind in acts_on_stage else acts[stage.kind](context)
        crash_point(f"embedded-{stage.kind}")
        return result

    def preflight(self, context: StageContext) -> None:
        """Refuse, before anything is written down, sources that can't be read and places that are somebody else's."""
        if context.unit is None:
            return
        for source in _file_sources(self.project_dir, context.unit.plan):
            source.ends()
        with self.looking() as database:
            check_places(database, self.project_dir, context.unit.plan, _owners(context), context.adopted)

    def foreign_sinks(self, context: StageContext) -> tuple[str, ...]:
        """Models whose sinks hold rows that somebody else wrote."""
        with self.looking() as database:
            return foreign_models(database, self.project_dir, _plan(context), _owners(context))

    @contextmanager
    def looking(self) -> Iterator[StateDatabase | None]:
        """The state database as it is, None where there is none."""
        database = StateDatabase.look(self.path, self.project.name, self.target.name)
        try:
            yield database
        finally:
            if database is not None:
                database.close()

    def initialize(self, context: StageContext) -> Mapping[str, Any]:
        """Empty state, and empty sinks except for those that are adopted."""
        database, plan = self.database(), _plan(context)
        with closing(self.ledger(context)) as ledger:
            row = read_unit(database, context.unit_name)
            if row is None or row.attempt != context.attempt:
                with database.transaction():
                    drop_others(database, context.unit_name, None)
                    generation = create_generation(database, context.unit_name, context.attempt, plan)
                    ledger.claim(start=1)
                    ledger.forget_rows()
                    ledger.adopt(context.adopted)
                    write_unit(database, context.unit_name, generation, context.artifact, context.attempt)
            ledger.load()
            ledger.clear(but=context.adopted)
            ledger.prepare()
        return {}

    def go_on(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Keep the state under the new plan, in its layout."""
        database, plan = self.database(), _plan(context)
        rewritten: Mapping[str, int] = {}
        with closing(self.ledger(context)) as ledger:
            recover(database, self.project_dir, context.unit_name, places={place_of(shape) for shape in ledger.shapes.values()})
            row = read_unit(database, context.unit_name)
            assert row is not None, "a unit that continues was observed"
            if row.attempt != context.attempt:
                with database.transaction():
                    rewritten = carry_generation(database, row.generation, plan, Carry(context.carry, stage.fact("slots") or {}))
                    ledger.claim(start=1)
                    write_unit(database, context.unit_name, row.generation, context.artifact, context.attempt)
            ledger.load()
            ledger.prepare()
        kept = self.entries(row.generation)
        nodes = [
            {"id": n, "keys_kept": count - rewritten.get(n, 0), "keys_migrated": rewritten.get(n, 0), "events_replayed": 0}
            for n, count in kept.items()
        ]
        migrated = sum(rewritten.values())
        text = f"{sum(kept.values()) - migrated:,} keys kept" + (f", {migrated:,} migrated" if migrated else "")
        return {"text": text, "nodes": nodes}

    def rebuild(self, context: StageContext) -> Mapping[str, Any]:
        """Compute everything again beside what is in use; sinks are not touched."""
        database, plan = self.database(), _plan(context)
        with closing(self.ledger(context)) as ledger:
            places = {place_of(shape) for shape in ledger.shapes.values()}
        for unit in (context.unit_name, *(u.name for u in context.replaced)):
            recover(database, self.project_dir, unit, places=places, tolerated=(SinkVanished,))
        generation = candidate(database, context.unit_name, context.attempt)
        if generation is None:
            row = read_unit(database, context.unit_name)
            with closing(self.ledger(context)) as ledger, database.transaction():
                drop_others(database, context.unit_name, None if row is None else row.generation)
                generation = create_generation(database, context.unit_name, context.attempt, plan)
                ledger.reserve()
        engine = Engine(database, self.project_dir, plan, generation, None)
        engine.consume(lambda events, share: context.progress(Progress("rebuild", f"{events:,} events read", share)))
        events = database.one("SELECT events FROM generation WHERE id = ?", generation)[0]
        nodes = [{"id": n, "keys_kept": 0, "keys_migrated": 0, "events_replayed": events} for n in self.entries(generation)]
        return {"text": f"{events:,} events replayed", "nodes": nodes, "events_replayed": events}

    def repair(self, stage: Stage, context: StageContext) -> Mapping[str, Any]:
        """Make one sink equal to the fresh output."""
        model = str(stage.fact("model"))
        context.progress(Progress("repair-sink", f"comparing `{model}` with a fresh run"))
        generation = self.kept_output(model, context) if stage.fact("from") == "state" else self.rebuilt(context)
        with closing(self.ledger(context)) as ledger:
            rows = ledger.repair(model, generation)
        if stage.fact("from") == "state":
            self.database().run("DELETE FROM fresh WHERE generation = ?", generation)
        return {"text": f"{rows:,} row{'' if rows == 1 else 's'} of {model} repaired", "model": model, "rows": rows}

    def rebuilt(self, context: StageContext) -> int:
        """The generation that stands beside the one in use."""
        generation = candidate(self.database(), context.unit_name, context.attempt)
        assert generation is not None, "what was rebuilt is there until the switch"
        return generation

    def kept_output(self, model: str, context: StageContext) -> int:
        """Put what the kept state shows of a model beside its sink; the generation in use."""
        database, plan = self.database(), _plan(context)
        row = read_unit(database, context.unit_name)
        assert row is not None, "the state that goes on is in use"
        with database.transaction():
            keep_output(database, plan, row.generation, model)
        return row.generation

    def switch(self, context: StageContext) -> Mapping[str, Any]:
        """From here on what was rebuilt is the unit's state."""
        database = self.database()
        generation = candidate(database, context.unit_name, context.attempt)
        if generation is None:
            return {}
        replaced = [unit.name for unit in context.replaced]
        with closing(self.ledger(context)) as ledger, database.transaction():
            write_unit(database, context.unit_name, generation, context.artifact, context.attempt)
            drop_others(database, context.unit_name, generation)
            ledger.claim(start=1, taken_over=replaced)
            database.run("DELETE FROM fresh WHERE generation = ?", generation)
            database.run("DELETE FROM spool WHERE generation = ?", generation)
            for unit in replaced:
                drop_others(database, unit, None)
                database.run("DELETE FROM unit WHERE name = ?", unit)
        return {}

    def catch_up(self, context: StageContext) -> Mapping[str, Any]:
        """Consume what is new."""
        with closing(self.ledger(context)) as ledger:
            engine = self.engine(context, ledger)
            consumed = engine.consume(lambda events, share: context.progress(Progress("catch-up", f"{events:,} events read", share)))
        return {"text": consumed.text(), "events": consumed.events, "late": consumed.late, "quarantined": consumed.quarantined}

    def remove(self, context: StageContext) -> Mapping[str, Any]:
        """Forget state and positions; sinks keep their rows."""
        database = self.database()
        recover(database, self.project_dir, context.unit_name, places=self.places(context.unit_name), tolerated=(StateError,))
        with database.transaction():
            drop_others(database, context.unit_name, None)
            database.run("DELETE FROM unit WHERE name = ?", context.unit_name)
        return {}

    def follow(self, contexts: Sequence[StageContext], stop: Event) -> None:
        """Go on consuming until told to stop; each step is durable when it ends."""
        ledgers = [self.ledger(context) for context in contexts]
        try:
            engines = [self.engine(context, ledger) for context, ledger in zip(contexts, ledgers, strict=True)]
            while not stop.is_set():
                consumed = [engine.consume(should_stop=stop.is_set) for engine in engines]
                for context, result in zip(contexts, consumed, strict=True):
                    if result.events:
                        context.progress(Progress(context.unit_name, result.text()))
                if not any(result.events for result in consumed):
                    stop.wait(POLL_S)
        finally:
            for ledger in ledgers:
                ledger.close()

    def has_acted(self, stage: Stage, context: StageContext) -> bool:
        """Whether a stage that was cut off changed the unit; a rebuild stands beside until the switch."""
        row = read_unit(self.database(), context.unit_name)
        if stage.kind == "remove":
            return row is None
        return stage.kind in ("initialize", "continue") and row is not None and row.attempt == context.attempt

    def compensate(self, context: StageContext, error: Exception) -> Mapping[str, Any] | None:
        """What is in use was not disturbed; what was being rebuilt is forgotten."""
        database = self.database()
        generation = candidate(database, context.unit_name, context.attempt)
        if generation is not None:
            with database.transaction():
                drop_generation(database, generation)
        return None

    def close(self) -> None:
        """Release the state database."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    # parts

    def database(self) -> StateDatabase:
        """The state database, opened for writing."""
        if self.opened is None:
            self.opened = StateDatabase.open(self.path, self.project.name, self.target.name)
        return self.opened

    def ledger(self, context: StageContext) -> SinkLedger:
        """The unit's sinks."""
        return SinkLedger(self.database(), self.project_dir, context.unit_name, _plan(context))

    def engine(self, context: StageContext, ledger: SinkLedger) -> Engine:
        """The unit's generation in use, with its sinks as they were left."""
        database = self.database()
        recover(database, self.project_dir, context.unit_name)
        row = read_unit(database, context.unit_name)
        if row is None:
            raise Refused(
                f"there is no state of unit `{context.unit_name}` at {self.path}", "run `streamform plan`, which says what is missing"
            )
        ledger.open()
        return Engine(database, self.project_dir, _plan(context), row.generation, ledger)

    def places(self, unit: str) -> set[str]:
        """Every place that a unit writes to."""
        return {place for (place,) in self.database().all("SELECT place FROM sink WHERE unit = ?", unit)}

    def entries(self, generation: int) -> dict[str, int]:
        """Numbers of keys by keyed node."""
        return dict(
            self.database().all(
                "SELECT id, (SELECT count(*) FROM entry WHERE entry.node = node.number) FROM node WHERE generation = ? AND layout <> '[]'",
                generation,
            )
        )


def _plan(context: StageContext) -> Plan:
    assert context.unit is not None, "only units that stay run"
    return context.unit.plan


def _owners(context: StageContext) -> Owners:
    """The unit, what it was, and where it wrote."""
    running = (*((context.running,) if context.running is not None else ()), *context.replaced)
    return Owners(
        units=frozenset({context.unit_name, *(unit.name for unit in context.replaced)}),
        models={new.split("::")[0]: old.split("::")[0] for new, old in context.carry.items()},
        addresses=frozenset(address for unit in running for address in sink_addresses(unit.manifest)),
        is_running=bool(running),
    )


def _file_sources(project_dir: Path, plan: Plan) -> list[FileSource]:
    declared = {n.spec.source.name: n.spec.source for n in plan.nodes if isinstance(n.spec, SourceSpec)}
    return [FileSource(project_dir, source) for source in declared.values()]
