"""Adoption: a first apply onto sinks that hold rows of somebody else, as a plan of its own that says so and asks for more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from streamform.diff.model import Classification
from streamform.lifecycle.approval import plan_id_of
from streamform.lifecycle.situation import UnitPlan, staged_subject
from streamform.lifecycle.stages import Consequence, Staging

FACT, KIND = "adopt", "foreign-rows"


def can_adopt(plan: UnitPlan) -> bool:
    """Whether it is the unit's first apply: later ones find sinks of their own."""
    return plan.unit is not None and plan.running is None and not plan.replaced


def with_adopted(plan: UnitPlan, models: Collection[str]) -> UnitPlan:
    """The plan that keeps what the sinks of these models hold. Its id is another one: what was approved without does not cover it."""
    if not models:
        return plan
    assert plan.unit is not None, "only what is applied adopts"
    upserts = {model.name for model in plan.unit.plan.models if model.materialized == "upsert"}
    found = tuple(Consequence(KIND, model, _text(model, upserts=model in upserts)) for model in sorted(models))
    first, *rest = plan.staging.stages
    stages = (replace(first, facts=(*first.facts, (FACT, tuple(sorted(models))))), *rest)
    requires = max(plan.staging.requires, Classification.BACKFILL_REQUIRED)
    staging = Staging(stages, (*plan.staging.consequences, *found), requires)
    subject = {**plan.subject, **staged_subject(staging)}
    return replace(plan, staging=staging, subject=subject, plan_id=plan_id_of(subject))


def _text(model: str, *, upserts: bool) -> str:
    ours = "those whose key we write are overwritten" if upserts else "ours are added behind them, until a rebuild replaces all rows"
    return f"the sink of `{model}` holds rows that this project did not write; they stay, and {ours}"


def adopted_models(stages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The models whose sinks are adopted, from the facts of stages."""
    return frozenset(model for facts in stages for model in facts.get(FACT, ()))
