"""What runs, as the `running` check and the status sensor show it. Which state is how bad is the core's table of health."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

from collections.abc import Mapping
from typing import Any, NamedTuple

import dagster as dg

from streamform import api
from streamform.errors import ProjectError, StoreError, StreamformError
from streamform.results import StatusResult
from streamform_dagster.events import problems_text
from streamform_dagster.metadata import RawMetadata, cut_text, fenced, key, markdown
from streamform_dagster.project import StreamformProject

TARGET = "_target"
"""Where the state of a target stands that can't be looked at; no model has this name."""


class Look(NamedTuple):
    """What a look at a target found."""

    states: Mapping[str, str]
    """By unit."""
    passed: bool
    severity: dg.AssetCheckSeverity
    text: str
    metadata: RawMetadata
    busy: str | None = None
    """Who changes the target at this moment."""

    def evaluation(self, project: StreamformProject) -> dg.AssetCheckEvaluation:
        """The result of the check."""
        check = project.running_check_key
        return dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            passed=self.passed,
            severity=self.severity,
            description=cut_text(self.text),
            metadata=self.metadata,
        )


def look(project: StreamformProject) -> Look:
    """Look at the target. What can't be looked at is a warning, because nothing is known to be wrong then."""
    try:
        return _seen(api.status(project.dir, target=project.target))
    except ProjectError as error:
        text = "The project does not compile, so what runs can't be looked at"
        return _unseen("unreadable", dg.AssetCheckSeverity.WARN, text, {key("problems"): markdown(fenced(problems_text(error)))})
    except StoreError as error:
        return _unseen("drift", dg.AssetCheckSeverity.ERROR, error.message, {key("help"): error.help} if error.help else {})
    except StreamformError as error:
        return _unseen("unreachable", dg.AssetCheckSeverity.WARN, error.message, {key("help"): error.help} if error.help else {})


def _unseen(state: str, severity: dg.AssetCheckSeverity, text: str, metadata: RawMetadata) -> Look:
    return Look({TARGET: state}, passed=False, severity=severity, text=text, metadata={key("state"): state, **metadata})


def _seen(status: StatusResult) -> Look:
    worst = {found.severity for found in status.health}
    wrong = [f"{found.unit}: {found.text}" for found in status.health if found.severity != "ok"]
    units = len(status.health)
    fine = f"{units} unit{'s run' if units != 1 else ' runs'}"
    return Look(
        {found.unit: found.state for found in status.health},
        passed=bool(units) and worst == {"ok"},
        severity=dg.AssetCheckSeverity.ERROR if "error" in worst else dg.AssetCheckSeverity.WARN,
        text="; ".join(wrong) or (fine if units else "Nothing was applied yet"),
        metadata=_metadata(status),
        busy=None if status.holder is None else status.holder.shown(),
    )


def _metadata(status: StatusResult) -> RawMetadata:
    metadata: RawMetadata = {key("state"): ", ".join(sorted({found.state for found in status.health})) or "none"}
    rows = [_row(status, found.unit, found.state, found.text) for found in status.health]
    if rows:
        metadata[key("units")] = dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=_SCHEMA)
    if status.deployed.record is not None:
        metadata[key("applied_at")] = status.deployed.record.applied_at
    return metadata


_COLUMNS = ("unit", "state", "text", "jobs", "tasks", "since", "digest")
_SCHEMA = dg.TableSchema([dg.TableColumn(name, "string") for name in _COLUMNS])


def _row(status: StatusResult, unit: str, state: str, text: str) -> dict[str, Any]:
    """One unit, as a row of the table of units; what its backend does not know is empty."""
    observation = status.observations.get(unit)
    jobs = [] if observation is None else observation.jobs
    values = (
        unit,
        state,
        text,
        ", ".join(f"{job.job_id} {(job.backend_status or job.state).lower()}" for job in jobs),
        ", ".join(f"{job.tasks[0]} of {job.tasks[1]}" for job in jobs if job.tasks is not None),
        ", ".join(job.start_time for job in jobs if job.start_time is not None),
        status.deployed.units[unit].manifest.application_digest[:12],
    )
    return dict(zip(_COLUMNS, values, strict=True))


def build_running_check(project: StreamformProject) -> dg.AssetChecksDefinition:
    """The check of what runs. It never fails its run: what can't be looked at is its result."""
    check = project.running_check_key
    spec = dg.AssetCheckSpec(check.name, asset=check.asset_key, description="Whether what was applied runs, and nothing else does.")

    @dg.multi_asset_check(name=project.op_name("running"), specs=[spec])
    def running() -> dg.AssetCheckResult:
        found = look(project)
        return dg.AssetCheckResult(passed=found.passed, severity=found.severity, description=cut_text(found.text), metadata=found.metadata)

    return running


__all__ = ["Look", "build_running_check", "look"]
