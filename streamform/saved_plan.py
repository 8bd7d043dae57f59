"""Plans that are saved to a file and applied from it. Part of the facade: api.py has the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamform import api
from streamform.errors import OutcomeUnknown
from streamform.results import ApplyResult, PlanResult, SavedPlan

if TYPE_CHECKING:
    from streamform.lifecycle.ports import Progress
    from streamform.project.model import Policy


def save_plan(project_dir: Path, out: Path, *, target: str | None = None, by: str, policy: Policy | None = None) -> SavedPlan:
    """Look at the target, write what apply would do into a file, and register plans that need an approval.

    Raises: OutcomeUnknown while an attempt is unfinished, Unreachable when what runs can't be observed, UsageError when the
    file can't be written.
    """
    from streamform.adapters.clock import SystemClock
    from streamform.adapters.plan_file import write_plan_file
    from streamform.render.deploy_plan import deploy_plan_document, deploy_plan_text

    result = api.plan(project_dir, target=target, observe=True, policy=policy, requested_by=by)
    _refuse_unfinished(result)
    document = deploy_plan_document(result, SystemClock().now_ms())
    write_plan_file(out, deploy_plan_text(document))
    return SavedPlan(result, str(out), document)


def _refuse_unfinished(result: PlanResult) -> None:
    """A plan is bound to what an unfinished attempt is still going to change."""
    assert result.situation is not None
    unfinished = [unit.name for unit in result.situation.units if unit.open_attempt is not None]
    if unfinished:
        raise OutcomeUnknown(
            f"the last attempt of unit `{unfinished[0]}` is unfinished; no plan is saved before its outcome is known",
            "finish it with `streamform apply`",
        )


def apply_saved_plan(
    project_dir: Path,
    file: Path,
    *,
    target: str | None = None,
    unit: str | None = None,
    by: str,
    policy: Policy | None = None,
    progress: Callable[[Progress], None] = lambda event: None,
    on_plan: Callable[[PlanResult], None] = lambda result: None,
) -> ApplyResult:
    """Apply exactly the plans that a file holds, through the gate; the target is the file's where none is named.

    Raises: DocumentError for a file that is no plan of this project and target or was changed, Refused when something has moved
    since it was written; nothing is changed then.
    """
    from streamform.fixtures import read_text
    from streamform.lifecycle.deploy_plan import read_deploy_plan

    saved = read_deploy_plan(read_text(file), str(file))
    chosen = saved.target if target is None else target
    return api.apply(project_dir, target=chosen, unit=unit, by=by, policy=policy, progress=progress, on_plan=on_plan, saved=saved)
