"""Upgrade fixtures: events before a change of the project, the plan's verdict, events after, and the table at the end.

The verdict is carried out as the embedded backend does: where state continues it is taken over node by node, else
everything is computed again from the first event.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from streamform.diff.carry import can_carry
from streamform.diff.compare import compare
from streamform.diff.match import Hints, match_nodes
from streamform.diff.proofs import Proofs
from streamform.errors import DataError
from streamform.identity.manifest import build_manifest
from streamform.identity.mapping import between
from streamform.identity.structure import structure_of
from streamform.plan.nodes import Plan
from streamform.plan.usage import state_columns
from streamform.runtime.dataflow import Dataflow, Drained
from streamform.simulator.carry import Carry, carried
from streamform.simulator.fixture import Fixture, FixtureError
from streamform.simulator.run import FixtureReport, RowsOf, Simulation, failed, judge_error, merged, no_files, upstream_part
from streamform.values.rows import Row


class Revisions(Struct, frozen=True):
    """The project before and after."""

    before: Plan
    after: Plan
    hints: Hints
    is_structural: bool = False
    """Whether the diff goes by structural identity."""


def run_upgrade(fixture: Fixture, revisions: Revisions, *, emit_unchanged: bool = True, rows_of: RowsOf = no_files) -> FixtureReport:
    """Run the events before under the old plan, carry out the verdict, and run the events after under the new one."""
    assert fixture.upgrade is not None
    model = revisions.hints.models.get(fixture.model, fixture.model)
    if model not in {m.name for m in revisions.before.models}:
        return failed(fixture, f"the revision before, {fixture.upgrade.project}, has no model `{model}`")
    upgrade = _Upgrade(fixture, model, revisions, emit_unchanged=emit_unchanged, rows_of=rows_of)
    try:
        report = upgrade.run()
    except (FixtureError, DataError) as error:
        return judge_error(fixture, str(error))
    if fixture.upgrade.verdict not in (None, upgrade.verdict):
        return failed(fixture, f"the plan says {upgrade.verdict}, expected {fixture.upgrade.verdict}")
    if fixture.expect_error is not None:
        return failed(fixture, f"expected an error with `{fixture.expect_error}`, and there was none")
    return replace(report, verdict=upgrade.verdict)


class _Upgrade:
    def __init__(self, fixture: Fixture, model: str, revisions: Revisions, *, emit_unchanged: bool, rows_of: RowsOf) -> None:
        self.fixture, self.emit_unchanged, self.rows_of = fixture, emit_unchanged, rows_of
        self.before, self.after = upstream_part(revisions.before, model), upstream_part(revisions.after, fixture.model)
        running, desired = build_manifest(self.before), build_manifest(self.after)
        mapping = between(structure_of(self.before), structure_of(self.after), revisions.hints.models)
        proofs = Proofs(mapping, decides=revisions.is_structural)
        diff = compare(running, desired, revisions.hints, state_columns=state_columns(self.after), proofs=proofs)
        self.verdict, self.continues = diff.verdict.text, can_carry(diff, self.after)
        nodes = match_nodes(running, desired, revisions.hints, proofs.counterparts).nodes
        self.carry = Carry(self.before, self.after, nodes, mapping.slots if proofs.decides else {})
        self.old_fixture = replace(fixture, model=model)

    def run(self) -> FixtureReport:
        old = self.simulation(self.before, self.old_fixture)
        old.deliver(self.fixture.given)
        new = self.continued(old) if self.continues else self.simulation(self.after, self.fixture)
        if not self.continues:
            new.deliver(self.fixture.given)
        seen, new.out = new.out, Drained()
        assert self.fixture.upgrade is not None
        new.deliver(self.fixture.upgrade.given)
        return self.report(old, new, seen)

    def simulation(self, part: Plan, fixture: Fixture, dataflow: Dataflow | None = None) -> Simulation:
        return Simulation(part, fixture, emit_unchanged=self.emit_unchanged, rows_of=self.rows_of, dataflow=dataflow)

    def continued(self, old: Simulation) -> Simulation:
        """The new plan on the state and the clocks of the old one."""
        return self.simulation(self.after, self.fixture, carried(old.dataflow, self.carry, emit_unchanged=self.emit_unchanged))

    def report(self, old: Simulation, new: Simulation, seen: Drained) -> FixtureReport:
        """Records are those after the change; the table at the end, late and quarantined events are those of both parts."""
        changes = new.out.changes.get(new.sink.id, [])
        expect = replace(new.fixture, expect_final=None, late=(), quarantined=())
        records = self.judged(new, expect, Drained({new.sink.id: changes}))
        whole = replace(new.fixture, expect=None)
        before = Drained({new.sink.id: [(op, _reshaped(row, old, new), None) for op, row, _ in old.out.changes.get(old.sink.id, [])]})
        for after_id, was in self.carry.nodes.items():
            for part in ("late", "quarantined"):
                if was in getattr(old.out, part):
                    getattr(before, part)[after_id] = getattr(old.out, part)[was]
        final = self.judged(new, whole, merged(before if self.continues else seen, new.out))
        return replace(final, passed=records.passed and final.passed, rows=records.rows, changes_emitted=len(changes))

    def judged(self, simulation: Simulation, fixture: Fixture, out: Drained) -> FixtureReport:
        simulation.fixture, simulation.out = fixture, merged(out, Drained())
        return simulation.report()


def _reshaped(row: Row, old: Simulation, new: Simulation) -> Row:
    """A row that was written before, as readers see it among the new columns."""
    values = {column.name: value for column, value in zip(old.sink.schema, row, strict=True)}
    return tuple(values.get(column.name) for column in new.sink.schema)


__all__ = ["Revisions", "run_upgrade"]
