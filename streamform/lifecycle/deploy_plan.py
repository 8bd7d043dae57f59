"""Deploy plans, version 1: plans that were saved to be applied as they are, read back and held against what is so now.

A saved plan permits nothing: apply assesses every unit again and carries a plan out only where its id is still the one that was
saved, through the same gate. The digest finds a document that was changed; it is no signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from streamform.errors import DocumentError, Refused
from streamform.identity.fingerprint import canonical_json, digest, short
from streamform.lifecycle.approval import plan_id_of
from streamform.lifecycle.journal import Attempt
from streamform.lifecycle.situation import UnitPlan

DEPLOY_PLAN_VERSION = 1
FIELDS = frozenset(
    {"deploy_plan_version", "plan_id", "created_at", "streamform_version", "application", "target", "backend", "action", "fresh"}
    | {"artifact_digest", "job_name", "application_digest", "verdict", "changes", "preconditions", "consequences", "notes"}
    | {"units", "digest"}
)
DeployAction = Literal["no-op", "restore", "initial", "upgrade", "rebuild"]
"""What applying a plan comes to, from nothing to everything."""

_REMEDY = "write it again with `streamform plan --out`"


class SavedUnit(Struct, frozen=True):
    """One unit of a saved plan: its plan id, and the situation that the id stands for."""

    name: str
    plan_id: str
    subject: Mapping[str, Any]


class DeployPlan(Struct, frozen=True):
    """A saved plan as it was read."""

    file: str
    application: str
    target: str
    units: tuple[SavedUnit, ...]


# writing


def unit_action(unit: UnitPlan) -> DeployAction:
    """What applying a unit's plan comes to."""
    if not unit.staging.changes:
        return "no-op"
    stages = {stage.kind: stage for stage in unit.staging.stages}
    submit = stages.get("submit")
    if submit is not None and submit.fact("restore"):
        return "restore"
    if "rebuild" in stages or (submit is not None and any(c.kind == "state-discarded" for c in unit.staging.consequences)):
        return "rebuild"
    return "initial" if submit is not None or "initialize" in stages else "upgrade"


def action_of(units: Sequence[UnitPlan]) -> DeployAction:
    """What applying the plans of several units comes to."""
    return max(map(unit_action, units), key=get_args(DeployAction).index, default="no-op")


def application_plan_id(units: Sequence[UnitPlan]) -> str:
    """What names the situation of several units together."""
    return plan_id_of({unit.name: unit.plan_id for unit in units})


def document_digest(document: Mapping[str, Any]) -> str:
    """The digest of everything in a document but its digest."""
    return digest(canonical_json({name: value for name, value in document.items() if name != "digest"}))


# reading


def read_deploy_plan(text: str, file: str) -> DeployPlan:
    """The plan that a file holds. Raises: DocumentError when it is none, of another version, or was changed."""
    document = _object(text, file)
    version = document.get("deploy_plan_version")
    if version is None:
        raise DocumentError(f"{file} is not a deploy plan: it has no deploy_plan_version", _REMEDY)
    if version != DEPLOY_PLAN_VERSION or isinstance(version, bool):
        found = f"{file} has deploy_plan_version {version!r}; this streamform reads version {DEPLOY_PLAN_VERSION}"
        raise DocumentError(found, "use the release that wrote it, or write it again")
    unknown = next((name for name in document if name not in FIELDS), None)
    if unknown is not None:
        raise DocumentError(f"{file}: `{unknown}` is not a field of a deploy plan", _REMEDY)
    if "digest" not in document or "units" not in document:
        raise DocumentError(f"{file} has no units or no digest; another tool wrote it", _REMEDY)
    if document["digest"] != document_digest(document):
        raise DocumentError(f"{file} was changed after it was written: its digest is not that of its content", _REMEDY)
    try:
        units = tuple(SavedUnit(str(unit["name"]), str(unit["plan_id"]), dict(unit["subject"])) for unit in document["units"])
        plan = DeployPlan(file, str(document["application"]), str(document["target"]), units)
    except (KeyError, TypeError, ValueError):
        raise DocumentError(f"{file} is not a deploy plan: a field is missing or is of another kind", _REMEDY) from None
    wrong = next((unit.name for unit in units if plan_id_of(unit.subject) != unit.plan_id), None)
    if wrong is not None:
        raise DocumentError(f"{file}: the plan id of unit `{wrong}` is not that of its subject", _REMEDY)
    return plan


def _object(text: str, file: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{file} is not a JSON document: {error}", _REMEDY) from None
    if not isinstance(value, dict):
        raise DocumentError(f"{file} is not a deploy plan", _REMEDY)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def check_place(plan: DeployPlan, application: str, target: str) -> None:
    """Refuse a plan of another project or target. Raises: DocumentError."""
    if plan.application != application:
        raise DocumentError(f"{plan.file} is a plan of project `{plan.application}`, and this is `{application}`", "pass --project")
    if plan.target != target:
        raise DocumentError(f"{plan.file} is a plan for target `{plan.target}`, not for `{target}`", f"pass --target {plan.target}")


# what has moved since


def due_units(plan: DeployPlan, units: Sequence[UnitPlan], newest: Mapping[str, Attempt]) -> list[UnitPlan]:
    """The units whose saved plans are still to be carried out. Raises: Refused when some unit is not what it was when they were saved."""
    now = {unit.name: unit for unit in units}
    saved = [unit for unit in plan.units if not _is_begun(unit, newest)]
    moves = [f"unit `{name}` is new" for name in now if name not in {unit.name for unit in plan.units}]
    moves += [move for unit in saved if (move := _move(unit, now.get(unit.name))) is not None]
    if moves:
        raise Refused(f"{plan.file} is stale: {'; '.join(moves)}", f"look at what is so now: streamform plan --out {plan.file}")
    return [now[unit.name] for unit in saved]


def refuse_applied(plan: DeployPlan, due: Sequence[UnitPlan], newest: Mapping[str, Attempt]) -> None:
    """Refuse a plan that was carried out already. Raises: Refused."""
    attempts = [newest[unit.name] for unit in plan.units if _is_begun(unit, newest)]
    if attempts and not any(attempt.is_open for attempt in attempts) and not any(unit.staging.changes for unit in due):
        raise Refused(f"{plan.file} was applied already, by attempt {attempts[0].attempt}", "`streamform apply` consumes what is new")


def _is_begun(unit: SavedUnit, newest: Mapping[str, Attempt]) -> bool:
    """Whether the unit's newest attempt carried out the saved plan, or was cut off while it did."""
    attempt = newest.get(unit.name)
    return attempt is not None and attempt.plan_id == unit.plan_id and attempt.outcome != "failed"


def _move(saved: SavedUnit, now: UnitPlan | None) -> str | None:
    if now is None:
        return f"unit `{saved.name}` is gone"
    if now.plan_id == saved.plan_id:
        return None
    subject = json.loads(canonical_json(now.subject))
    found = list(_differences(saved.subject, subject)) or ["this release would do something else"]
    return f"unit `{saved.name}`: {', '.join(found)}"


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """In words, what two situations of a unit do not share."""
    if saved.get("desired") != now["desired"]:
        yield f"the desired side moved ({_side(saved.get('desired'), now['desired'])})"
    if saved.get("running") != now["running"]:
        yield f"the running side moved ({_side(saved.get('running'), now['running'])})"
    if saved.get("replaced") != now["replaced"]:
        yield "it takes over other units"
    if saved.get("sequence") != now["sequence"]:
        yield f"another attempt was made (number {now['sequence']})"
    elif saved.get("previous") != now["previous"]:
        yield "its journal was replaced"
    if saved.get("observed") != now["observed"]:
        yield f"observed as {now['observed']}, before as {saved.get('observed')}"
    if saved.get("addresses") != now["addresses"]:
        names = sorted(name for name, address in now["addresses"].items() if address != (saved.get("addresses") or {}).get(name))
        yield f"addresses moved ({', '.join(names)})" if names else "addresses moved"
    if saved.get("policy") != now["policy"]:
        yield "the policy changed"


def _side(before: Any, after: Any) -> str:
    """`5938ae08ce3d → 06fd7fa8c755`; where the plans are equal, what else is not."""
    old, new = (short(side["manifest"]) if isinstance(side, dict) else "none" for side in (before, after))
    return f"{old} → {new}" if old != new else "deployment facts"


__all__ = ["DeployAction", "DeployPlan", "action_of", "due_units", "read_deploy_plan", "refuse_applied", "unit_action"]
