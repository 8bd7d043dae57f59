"""What every command begins with: the project in a folder, compiled, on a target. Part of the facade; see api.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamform.codes import listed, suggest
from streamform.errors import ProjectError, UsageError

if TYPE_CHECKING:
    from streamform.plan.compiled import Compiled
    from streamform.project.files import ProjectFiles
    from streamform.project.load import Loaded
    from streamform.project.model import Project, Target


def load(project_dir: Path, *, tests: bool = False) -> Loaded:
    """The project in a folder. Raises: ProjectError when its documents do not load."""
    from streamform.project.files import read_project_files
    from streamform.project.load import load_project

    return load_project(read_project_files(project_dir, tests=tests))


def compile(project_dir: Path, target: str | None = None) -> Compiled:
    """The compiled project, as it is on a target where one is named. Raises: ProjectError when it has errors."""
    from streamform.plan.compile import compile_project
    from streamform.project.model import for_target

    loaded = load(project_dir)
    project = loaded.project if target is None else for_target(loaded.project, choose_target(loaded.project, target))
    return without_errors(compile_project(loaded, project))


def without_errors(compiled: Compiled) -> Compiled:
    """The same. Raises: ProjectError where it has errors."""
    if compiled.has_errors:
        raise ProjectError([d for d in compiled.diagnostics if d.severity == "error"])
    return compiled


def compile_for_target(project_dir: Path, target: str | None) -> tuple[Compiled, Target]:
    """The project as it is on a target, compiled or found in the cache. Raises: ProjectError, UsageError."""
    from streamform.adapters.compile_cache import cache_key, read_entry, write_entry
    from streamform.project.files import read_project_files

    files = read_project_files(project_dir)
    key = cache_key(files, target)
    entry = None if files.problems else read_entry(key)
    if entry is None:
        entry = _compile_for_target(files, target)
        write_entry(key, entry)
    return entry


def _compile_for_target(files: ProjectFiles, target: str | None) -> tuple[Compiled, Target]:
    from streamform.plan.compile import compile_project
    from streamform.project.load import load_project
    from streamform.project.model import for_target

    loaded = load_project(files)
    base = without_errors(compile_project(loaded))
    chosen = choose_target(loaded.project, target)
    moved = for_target(loaded.project, chosen)
    return (base if moved is loaded.project else without_errors(compile_project(loaded, moved))), chosen


def chosen_models(compiled: Compiled, model: str | None) -> list[str]:
    """The models that a command is about: one, or all in dependency order. Raises: UsageError for an unknown one."""
    names = [m.name for m in compiled.plan.models]
    if model is None:
        return names
    if model not in names:
        raise UsageError(f"there is no model `{model}`{suggest(model, names)}", f"models are {listed(names)}")
    return [model]


def choose_target(project: Project, name: str | None) -> Target:
    """The named target, or the only one. Raises: UsageError listing them."""
    names = [target.name for target in project.targets]
    if name is None and len(names) == 1:
        return project.targets[0]
    if name is None:
        problem = "the project has several targets" if names else "the project declares no target"
        raise UsageError(problem, f"pass --target with one of {listed(names)}" if names else "declare one under targets: in streamform.yml")
    target = project.target(name)
    if target is None:
        raise UsageError(f"there is no target `{name}`{suggest(name, names)}", f"targets are {listed(names)}")
    return target
