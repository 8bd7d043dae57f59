"""The situation of each unit: desired and running side, what was observed, the stages, and the plan id of all that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from streamform.diff.compare import compare
from streamform.diff.deployment import compare_deployment, deployment_facts
from streamform.diff.match import Hints, Matching, hints_of, match_nodes
from streamform.diff.model import Classification, DeploymentChange, Diff, Side
from streamform.diff.proofs import Proofs
from streamform.identity.manifest import Manifest, build_manifest, manifest_parts
from streamform.identity.mapping import StreamMapping, between, merged
from streamform.identity.structure import structure_of
from streamform.lifecycle.approval import plan_id_of
from streamform.lifecycle.deployed import Deployed
from streamform.lifecycle.ports import Backend, DesiredUnit, Observation, RunningUnit
from streamform.lifecycle.stages import Carrying, Observed, Staging, UnitSituation, build_stages
from streamform.lifecycle.store import artifact_digest
from streamform.plan.compiled import Compiled
from streamform.plan.nodes import Plan, SourceSpec, joined
from streamform.plan.units import Unit, keyed_sources, match_units, plan_components
from streamform.plan.usage import state_columns
from streamform.project.model import Project, Target

if TYPE_CHECKING:
    from streamform.lifecycle.journal import Attempt


class UnitPlan(Struct, frozen=True):
    """Everything that apply needs to know about one unit, and everything that plan shows."""

    name: str
    models: tuple[str, ...]
    unit: DesiredUnit | None
    """None for a unit whose models are gone."""
    running: RunningUnit | None
    replaced: tuple[RunningUnit, ...]
    diff: Diff
    observation: Observation
    staging: Staging
    carry: Mapping[str, str]
    sequence: int
    previous: str | None
    subject: Mapping[str, Any]
    plan_id: str
    open_attempt: Attempt | None


class Situation(Struct, frozen=True):
    """A whole target: the diff of all models, and each unit's plan."""

    project: Project
    target: Target
    desired: Manifest
    diff: Diff
    units: tuple[UnitPlan, ...]


PlanOf = Callable[[str], Plan | None]
"""The typed plan of a running unit, None where only its manifest is known."""


def assess(
    compiled: Compiled, target: Target, deployed: Deployed, backend: Backend, store_address: str, *, plan_of: PlanOf, observe: bool
) -> Situation:
    """The situation of every unit. Without `observe` what is recorded is assumed to be so, and nothing is contacted."""
    return _Assessment(compiled, target, deployed, backend, store_address, plan_of=plan_of, observe=observe).situation()


class _Assessment:
    def __init__(
        self,
        compiled: Compiled,
        target: Target,
        deployed: Deployed,
        backend: Backend,
        store_address: str,
        *,
        plan_of: PlanOf,
        observe: bool,
    ) -> None:
        self.compiled, self.target, self.deployed, self.backend = compiled, target, deployed, backend
        self.store_address, self.plan_of, self.observe = store_address, plan_of, observe
        self.project = compiled.project
        self.hints: Hints = hints_of(self.project)
        self.desired = build_manifest(compiled.plan)
        self.running = deployed.manifest
        self.kept: set[str] = set()
        """Names of running units that go on."""

    def situation(self) -> Situation:
        names = {name: unit.models for name, unit in self.deployed.units.items()}
        units, gone = match_units(plan_components(self.compiled.plan), names, self.hints.models)
        self.kept = {unit.name for unit in units}
        manifests = manifest_parts(self.desired, [unit.models for unit in units])
        built = [(unit, self.desired_unit(unit, manifest)) for unit, manifest in zip(units, manifests, strict=True)]
        deployment = {unit.name: self.deployment(unit, desired) for unit, desired in built}
        columns = state_columns(self.compiled.plan)
        every = tuple(dict.fromkeys(change for changes in deployment.values() for change in changes))
        self.proofs = self.prove(built)
        diff = compare(
            self.running, self.desired, self.hints, state_columns=columns, deployment=every, side=self.side(), proofs=self.proofs
        )
        plans = [self.unit_plan(unit, desired, diff, deployment[unit.name]) for unit, desired in built]
        plans.sort(key=lambda plan: self.is_split_off(plan))
        plans += [self.gone_plan(name, diff) for name in gone]
        return Situation(self.project, self.target, self.desired, diff, tuple(plans))

    def prove(self, built: list[tuple[Unit, DesiredUnit]]) -> Proofs:
        """What structural identity says of each unit that runs and differs; nothing is taken apart where nothing does."""
        mappings: list[StreamMapping] = []
        is_known = True
        for unit, desired in built:
            running = [self.deployed.units[name] for name in unit.was]
            if not running or (len(running) == 1 and _is_unchanged(desired, running[0])):
                continue
            plans = [self.plan_of(name) for name in unit.was]
            known = [plan for plan in plans if plan is not None]
            is_known = is_known and len(known) == len(plans)
            if len(known) == len(plans):
                mappings.append(between(structure_of(joined(known)), structure_of(desired.plan), self.hints.models))
        return Proofs(merged(mappings), decides=self.project.identity == "structural", is_known=is_known)

    def carry(self, running: RunningUnit | None, desired: DesiredUnit) -> dict[str, str]:
        """Which running node each desired one goes on from; a new reader of a source joins another one's clock."""
        if running is None:
            return {}
        known = {node.id for node in running.manifest.nodes}
        proven = {node: was for node, was in self.proofs.counterparts.items() if was in known and node in desired.plan.by_id}
        found = dict(match_nodes(running.manifest, desired.manifest, self.hints, proven).nodes)
        readers = [node for node in running.manifest.nodes if node.operator == "source"]
        for node in desired.plan.nodes:
            if isinstance(node.spec, SourceSpec) and node.id not in found:
                name = f"{node.spec.source.name} ("
                same = next((reader.id for reader in readers if reader.definition.startswith(name)), None)
                found.update({} if same is None else {node.id: same})
        return found

    def is_split_off(self, plan: UnitPlan) -> bool:
        """Whether its models still run in a unit that goes on without them, and so has to be applied first."""
        models = {self.hints.models.get(name, name) for name in plan.models}
        return any(name in self.kept and name != plan.name and models & set(unit.models) for name, unit in self.deployed.units.items())

    def side(self) -> Side | None:
        record = self.deployed.record
        if record is None or self.running is None:
            return None
        return Side(self.running.application_digest, record.applied_at, record.streamform_version, record.jobs)

    def desired_unit(self, unit: Unit, manifest: Manifest) -> DesiredUnit:
        return build_unit(self.compiled, self.target, unit, manifest, self.backend)

    def deployment(self, unit: Unit, desired: DesiredUnit) -> tuple[DeploymentChange, ...]:
        before = [self.deployed.units[name].facts for name in unit.was]
        if not before or any(facts is None for facts in before):
            return ()
        merged = {subject: fields for facts in before for subject, fields in (facts or {}).items()}
        keyed = {f"source {name}" for name in keyed_sources(desired.plan)}
        return compare_deployment(merged, desired.facts, keyed)

    def unit_plan(self, unit: Unit, desired: DesiredUnit, diff: Diff, deployment: tuple[DeploymentChange, ...]) -> UnitPlan:
        running = self.deployed.units.get(unit.name) if unit.name in unit.was else None
        moved = [name for name in unit.was if name != unit.name]
        replaced = tuple(self.deployed.units[name] for name in moved if name not in self.kept)
        before = {model for name in unit.was for model in self.deployed.units[name].models}
        part = diff.part(set(unit.models), before, deployment)
        observation = self.look(unit.name, running)
        regrouped = bool(moved) or (running is not None and self.is_split(unit))
        matching = None if running is None else match_nodes(running.manifest, desired.manifest, self.hints)
        carrying: Carrying | None = None
        if running is not None and matching is not None and not regrouped and self.may_carry(running, part, observation):
            desired, carrying = self.backend.carry(desired, running, _claim(matching, running, part), observe=self.observe)
        situation = UnitSituation(
            desired.plan,
            part,
            observation.word,
            unchanged=running is not None and not regrouped and _is_unchanged(desired, running),
            has_state=running is not None or bool(moved),
            startup=_startup(self.target),
            has_savepoint=running is not None and running.savepoint is not None,
            is_regrouped=regrouped,
            replaced=tuple(u.name for u in replaced),
            slots={n: names for n, names in self.proofs.mapping.slots.items() if self.proofs.decides and n in desired.plan.by_id},
            carrying=carrying,
        )
        carry = self.carry(running, desired)
        return self.finish(unit.name, unit.models, desired, running, replaced, part, observation, situation, carry)

    def may_carry(self, running: RunningUnit, part: Diff, observation: Observation) -> bool:
        """Whether it is to be asked if the running job's state fits the changed query."""
        if self.backend.capabilities.carries_state != "where-proved":
            return False
        is_there = observation.word == "running" or (observation.word == "stopped" and running.savepoint is not None)
        return is_there and Classification.SAFE < part.verdict <= Classification.STATE_MIGRATION_REQUIRED

    def is_split(self, unit: Unit) -> bool:
        """Whether some model of the running unit is now deployed in another unit."""
        elsewhere = {self.hints.models.get(m.name, m.name) for m in self.compiled.plan.models if m.name not in unit.models}
        return bool(set(self.deployed.units[unit.name].models) & elsewhere)

    def gone_plan(self, name: str, diff: Diff) -> UnitPlan:
        running = self.deployed.units[name]
        part = diff.part(set(), set(running.models), ())
        observation = self.look(name, running)
        situation = UnitSituation(None, part, observation.word, unchanged=False, has_state=True)
        return self.finish(name, running.models, None, running, (), part, observation, situation, {})

    def look(self, name: str, running: RunningUnit | None) -> Observation:
        return self.backend.observe(name, running) if self.observe else Observation(assumed(running))

    def finish(
        self,
        name: str,
        models: tuple[str, ...],
        unit: DesiredUnit | None,
        running: RunningUnit | None,
        replaced: tuple[RunningUnit, ...],
        part: Diff,
        observation: Observation,
        situation: UnitSituation,
        carry: Mapping[str, str],
    ) -> UnitPlan:
        staging = build_stages(situation, self.backend.capabilities)
        subject = self.subject(name, unit, running, replaced, part, observation, staging)
        return UnitPlan(
            name,
            models,
            unit,
            running,
            replaced,
            part,
            observation,
            staging,
            carry,
            self.deployed.sequence(name),
            self.deployed.previous(name),
            subject,
            plan_id_of(subject),
            self.deployed.open_attempt(name),
        )

    def subject(
        self,
        name: str,
        unit: DesiredUnit | None,
        running: RunningUnit | None,
        replaced: tuple[RunningUnit, ...],
        part: Diff,
        observation: Observation,
        staging: Staging,
    ) -> dict[str, Any]:
        """What an approval is bound to; nothing measured and nothing of another unit."""
        return {
            "project": self.project.name,
            "target": self.target.name,
            "unit": name,
            "backend": self.backend.capabilities.backend,
            "desired": None if unit is None else {"manifest": unit.manifest.application_digest, "artifact": artifact_digest(unit)},
            "running": None if running is None else {"manifest": running.manifest.application_digest, "artifact": running.artifact},
            "replaced": sorted(u.name for u in replaced),
            "sequence": self.deployed.sequence(name),
            "previous": self.deployed.previous(name),
            "addresses": {name: _as_text(a) for name, a in {**self.backend.addresses(), "store": self.store_address}.items()},
            "observed": observation.word,
            **staged_subject(staging),
            "nodes": {node.id: node.classification.text for node in part.changed_nodes},
            "deployment": [[c.subject, c.field, c.before, c.after] for c in part.deployment],
            "policy": None if self.target.approvals is None else to_builtins(self.target.approvals),
        }


def _claim(matching: Matching, running: RunningUnit, part: Diff) -> Carrying:
    """What a changed query asks of the state: whose it is, and whether its retention changed."""
    known = set(running.models)
    models = {name: was for name, was in matching.models.items() if was in known}
    retention = any(change.field == "retention" for node in part.changed_nodes for change in node.fields)
    return Carrying(models, matching.nodes, retention)


def staged_subject(staging: Staging) -> dict[str, Any]:
    """What an approval is bound to of what will be done."""
    return {
        "stages": [{"kind": stage.kind, **dict(stage.facts)} for stage in staging.stages],
        "consequences": [{"kind": c.kind, "subject": c.subject} for c in staging.consequences],
    }


def build_unit(compiled: Compiled, target: Target, unit: Unit, manifest: Manifest, backend: Backend) -> DesiredUnit:
    """A unit of a compiled project, with what would be submitted for it."""
    plan = compiled.plan.part(unit.models)
    facts = deployment_facts(plan, target)
    desired = DesiredUnit(unit.name, unit.models, plan, manifest, facts)
    return replace(desired, statements=backend.statements(compiled.project, target, desired))


def _as_text(address: str) -> str:
    """An address that can be written down, also of a path that is no text."""
    return address.encode("utf-8", "backslashreplace").decode()


def assumed(running: RunningUnit | None) -> Observed:
    """What is observed when what is recorded is so."""
    if running is None:
        return "none"
    words: dict[str, Observed] = {"applied": "running", "stopped": "stopped", "discarded": "missing"}
    return words[running.status]


def _is_unchanged(desired: DesiredUnit, running: RunningUnit) -> bool:
    same_facts = running.facts is None or {k: dict(v) for k, v in running.facts.items()} == {k: dict(v) for k, v in desired.facts.items()}
    return same_facts and running.manifest.application_digest == desired.manifest.application_digest


def _startup(target: Target) -> Literal["earliest", "latest"]:
    return target.kafka.startup if target.kafka is not None else "earliest"
