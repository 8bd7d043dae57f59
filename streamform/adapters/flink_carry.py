"""State carried between jobs: compiled plans on the cluster's storage, compared and rewritten by backends/flink/carry.py.

Whether the storage can be reached from here is seen, not assumed: a plan that the gateway has just written is there to be read,
or it is not. Nothing here ends or starts a job.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamform.adapters.environment import resolve
from streamform.backends.flink.addresses import CONNECTORS, addresses_of
from streamform.backends.flink.carry import Claim, Fit, fit_plan, highest_id
from streamform.backends.flink.exec_plan import NotProvable, read_exec_plan
from streamform.backends.flink.layout import kept_layouts
from streamform.backends.flink.script import settings_of
from streamform.errors import Refused
from streamform.lifecycle.ports import DesiredUnit, RunningUnit
from streamform.lifecycle.stages import Carrying

if TYPE_CHECKING:
    from streamform.project.model import FlinkSettings

CompileInto = Callable[[Sequence[str], str], None]
"""Has the gateway compile a unit's statements into a place on the cluster's storage."""


class CarriedPlans:
    """The compiled plans of one target's jobs."""

    def __init__(self, settings: FlinkSettings, compile_into: CompileInto) -> None:
        self.settings, self.compile_into = settings, compile_into

    def problem(self, unit: DesiredUnit, running: RunningUnit, carrying: Carrying, folder: str | None) -> str | None:
        """Why the running job's state can't be carried to a unit, None when it can. Raises: Unreachable."""
        if folder is None:
            return "the target has neither savepoint_dir nor plans, so no compiled plan is kept"
        place = f"{folder}/check-{uuid.uuid4().hex}.json"
        try:
            self.fit(unit, running, claim_of(carrying, running), place)
        except NotProvable as reason:
            return str(reason)
        finally:
            remove(place)
        return None

    def prepare(self, unit: DesiredUnit, running: RunningUnit, carrying: Carrying, place: str) -> dict[str, Any]:
        """Write the fitted plan to a place; what is remembered of it. Raises: Refused where it does not fit, Unreachable."""
        compiled = f"{place.removesuffix('.json')}.compiled.json"
        try:
            fit = self.fit(unit, running, claim_of(carrying, running), compiled)
        except NotProvable as reason:
            raise Refused(f"the state can't be carried: {reason}", "run `streamform plan` again") from None
        write(place, fit.text)
        layouts = kept_layouts(unit.plan, running.details.get("layouts") or {}, carrying.nodes)
        details = {**facts_of(place, unit.statements), "highest_id": fit.highest_id, "layouts": layouts}
        assert details.get("plan_digest") == digest_of(fit.text), "what was written is what was read back"
        return {
            "carried": list(fit.carried),
            "dropped": list(fit.dropped),
            "details": details,
            "text": f"{len(fit.carried)} operators go on",
        }

    def text(self, place: str) -> str:
        """A plan that was read before. Raises: Refused where it is gone."""
        found = read(place)
        if found is None:
            raise Refused(f"the compiled plan {place} is gone", "run `streamform plan` again")
        return found

    def fit(self, unit: DesiredUnit, running: RunningUnit, claim: Claim, place: str) -> Fit:
        """The unit's plan, compiled into a place, under the running plan's ids. Raises: NotProvable, Unreachable."""
        before = running_plan(running)
        if settings_of(running.statements) != settings_of(unit.statements):
            raise NotProvable("the job was submitted under other settings")
        self.compile_into(unit.statements, place)
        after = read(place)
        if after is None:
            raise NotProvable(
                f"the compiled plans below {place.rpartition('/')[0]} can't be read from here; set flink.plans to a place that can"
            )
        _check_tables(running, unit.statements, before, after)
        return fit_plan(before, after, claim)


def claim_of(carrying: Carrying, running: RunningUnit) -> Claim:
    """What a changed query asks of a running job."""
    return Claim(carrying.models, carrying.retention_changed, int(running.details.get("highest_id", 0)))


def running_plan(running: RunningUnit) -> str:
    """The compiled plan that a job was started from, exactly. Raises: NotProvable."""
    place, known = running.details.get("plan"), running.details.get("plan_digest")
    if not place or not known:
        raise NotProvable("it is not known which compiled plan the job was started from")
    text = read(str(place))
    if text is None:
        raise NotProvable(f"the compiled plan of the running job can't be read from here ({place})")
    if digest_of(text) != known:
        raise NotProvable(f"the compiled plan of the running job was changed after it was started ({place})")
    return text


def facts_of(place: str, statements: Sequence[str]) -> dict[str, Any]:
    """What has to be remembered of a job that was started from a plan, so that its state can be carried later."""
    text = read(place)
    if text is None:
        return {"plan": place}
    try:
        highest = highest_id(text)
    except NotProvable:
        return {"plan": place}
    return {"plan": place, "plan_digest": digest_of(text), "highest_id": highest, "addresses": address_digests(statements)}


def address_digests(statements: Sequence[str]) -> dict[str, str]:
    """For each table, a digest of where it reads or writes, references resolved. Raises: UsageError for one that is not set."""
    found = addresses_of(statements)
    return {
        table: digest_of(json.dumps({name: resolve(value) for name, value in options.items()}, sort_keys=True))
        for table, options in found.items()
    }


def _check_tables(running: RunningUnit, statements: Sequence[str], before: str, after: str) -> None:
    """Raise NotProvable unless every source that both plans read is the same place, and all tables are on Kafka."""
    known: Mapping[str, str] = running.details.get("addresses") or {}
    now, connectors = address_digests(statements), {**addresses_of(running.statements), **addresses_of(statements)}
    plans = read_exec_plan(before), read_exec_plan(after)
    for plan in plans:
        for node in (*plan.of_role("source"), *plan.of_role("sink")):
            if connectors.get(node.table, {}).get("connector") not in CONNECTORS:
                raise NotProvable(f"table {node.table} is not on Kafka")
    both = {node.table for node in plans[0].of_role("source")} & {node.table for node in plans[1].of_role("source")}
    moved = sorted(table for table in both if known.get(table) != now.get(table))
    if moved:
        raise NotProvable(f"table {moved[0]} reads from another place, or it is not known which")


def digest_of(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


# the storage


def local_path(place: str) -> Path | None:
    """A place on the cluster's storage as a path of this machine, None where it can't be one. Flink takes a path literally, % included."""
    text = resolve(place)
    path = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    return Path(path) if path.startswith("/") and not path.startswith("//") else None


def read(place: str) -> str | None:
    """A compiled plan, None where it can't be read from here."""
    path = local_path(place)
    try:
        return None if path is None else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write(place: str, text: str) -> None:
    """Put a plan where the cluster finds it, at once and durably. Raises: Refused."""
    path = local_path(place)
    assert path is not None, "a plan was read beside it"
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Refused(f"{path} can't be written: {error.strerror or error}", "let this process write where Flink keeps its plans") from None


def remove(place: str) -> None:
    """Take away a plan that was only looked at."""
    path = local_path(place)
    try:
        if path is not None:
            path.unlink(missing_ok=True)
    except OSError:
        return
