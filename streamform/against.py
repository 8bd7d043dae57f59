"""What `plan --against` names: a manifest or a record in a file, a git revision, or another target. Part of the facade; see api.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from streamform.compiling import choose_target, load, without_errors
from streamform.diff.model import Side
from streamform.errors import UsageError
from streamform.identity.manifest import Manifest, build_manifest
from streamform.identity.read import parse_running
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.deployed import read_deployed
from streamform.plan.nodes import Plan
from streamform.project.model import Project, for_target

if TYPE_CHECKING:
    from streamform.project.model import Target

GIT, TARGET = "git:", "target:"


class RunningSide(Struct, frozen=True):
    """What the desired plan is compared with."""

    manifest: Manifest
    side: Side | None = None
    """Who applied it and when, where that is known."""
    plan: Plan | None = None
    """None where only a manifest is known."""


def read_running(project_dir: Path, project: Project, target: Target, against: str) -> RunningSide:
    """The named side. Raises: UsageError, ProjectError, DocumentError when it can't be read."""
    if against.startswith(GIT):
        return _revision(project_dir, target, against)
    if against.startswith(TARGET):
        return _other_target(project_dir, project, against.removeprefix(TARGET))
    from streamform.fixtures import read_text

    running = parse_running(read_text(Path(against)), against)
    return _recorded(running) if isinstance(running, AppliedRecord) else RunningSide(running)


def _recorded(record: AppliedRecord) -> RunningSide:
    manifest = record.manifest
    side = Side(manifest.application_digest, record.applied_at, record.streamform_version, record.jobs)
    return RunningSide(manifest, side)


def _revision(project_dir: Path, target: Target, against: str) -> RunningSide:
    """The project as it is in a git revision, on the same target where that revision has it."""
    from streamform.adapters.revision import open_revision
    from streamform.plan.compile import compile_project

    with open_revision(project_dir, against) as folder:
        loaded = load(folder)
        there = loaded.project.target(target.name)
        moved = loaded.project if there is None else for_target(loaded.project, there)
        plan = without_errors(compile_project(loaded, moved)).plan
    return RunningSide(build_manifest(plan), plan=plan)


def _other_target(project_dir: Path, project: Project, name: str) -> RunningSide:
    from streamform.session import open_store

    other = choose_target(project, name)
    deployed = read_deployed(open_store(project_dir, project, other))
    if deployed.record is None:
        raise UsageError(f"nothing is applied to target `{name}`", "apply to it first, or compare with a file or a git revision")
    return _recorded(deployed.record)
