"""The status sensor: looks at what runs, and writes an event where that became another state. Every tick says what it found."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

import json
from collections.abc import Mapping

import dagster as dg

from streamform_dagster.metadata import cut_text, key
from streamform_dagster.project import StreamformProject
from streamform_dagster.running import TARGET, Look, look

CURSOR_VERSION = 1
INTERVAL_S = 30


def build_status_sensor(project: StreamformProject) -> dg.SensorDefinition:
    """The sensor of a project. It is on where jobs run by themselves, and off on an embedded target."""
    runs_alone = project.catalog.backend == "flink"

    @dg.sensor(
        name=project.job_name("status_sensor"),
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING if runs_alone else dg.DefaultSensorStatus.STOPPED,
        description="Shows on the `running` check when what runs becomes another state.",
    )
    def status_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, project)

    return status_sensor


def _tick(context: dg.SensorEvaluationContext, project: StreamformProject) -> dg.SensorResult:
    before, found = read_states(context.cursor), look(project)
    if found.busy is not None:
        return dg.SensorResult(skip_reason=f"The target is being changed: {found.busy}.", cursor=context.cursor)
    states = states_now(before or {}, found.states)
    now = json.dumps({"v": CURSOR_VERSION, "states": states}, sort_keys=True)
    if states == (before or {}):
        return dg.SensorResult(skip_reason=f"Nothing changed: {found.text.rstrip('.')}.", cursor=now)
    text = transition_text(before or {}, states)
    return dg.SensorResult(asset_events=_events(project, found, text), skip_reason=f"Written to the events: {text}.", cursor=now)


def read_states(cursor: str | None) -> dict[str, str] | None:
    """The states that were written last; a cursor that can't be read is none, and the states are written once more."""
    try:
        document = json.loads(cursor or "")
        if document.get("v") != CURSOR_VERSION:
            return None
        return {str(unit): state for unit, state in document["states"].items() if isinstance(state, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def states_now(before: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """The states to remember. While a target can't be looked at, its units keep theirs: nothing is known about them."""
    return {**before, **found} if TARGET in found else dict(found)


def transition_text(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What became of each unit whose state is another one."""
    changed = [unit for unit in sorted({*before, *now}) if before.get(unit) != now.get(unit)]
    return ", ".join(_transition(unit, before.get(unit), now.get(unit, "gone")) for unit in changed)


def _transition(unit: str, before: str | None, now: str) -> str:
    if unit == TARGET:
        return "the target can be looked at again" if now == "gone" else f"the target can't be looked at ({now})"
    return f"{unit} is {now}" if before is None else f"{unit} is {now}, was {before}"


def _events(
    project: StreamformProject, found: Look, text: str
) -> list[dg.AssetObservation | dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    observed = dg.AssetObservation(project.record_key, description=cut_text(text), metadata={**found.metadata, key("transition"): text})
    return [observed, found.evaluation(project)]


__all__ = ["build_status_sensor", "read_states", "transition_text"]
