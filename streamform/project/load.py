"""The text of a project's files to a Project.

Every document that does not load is reported in the same run; nothing is checked here beyond the documents' own shape.
"""

from __future__ import annotations

from msgspec import Struct, field

from streamform.codes import problem
from streamform.diagnostics import Diagnostic, Diagnostics, Location
from streamform.errors import ProjectError
from streamform.project import documents as d
from streamform.project import model as m
from streamform.project.files import MODELS_FOLDER, PROJECT_FILE, SOURCES_FILE, ProjectFiles
from streamform.project.tree import Document, TreeError, parse_tree


class Loaded(Struct, frozen=True):
    """A project with the documents that know where its parts stand."""

    project: m.Project
    files: ProjectFiles
    documents: dict[str, Document] = field(default_factory=dict)
    notes: tuple[Diagnostic, ...] = ()

    def locate(self, file: str, *path: str | int, key: bool = False) -> Location:
        """The place of a value, or of its key, in one of the project's documents."""
        document = self.documents.get(file)
        return Location(file) if document is None else document.locate(path, key=key)


def load_project(files: ProjectFiles) -> Loaded:
    """The project that these files declare.

    Raises: ProjectError with every document problem found.
    """
    problems = Diagnostics(list(files.problems))
    problems.raise_errors()
    trees = {name: tree for name in (PROJECT_FILE, SOURCES_FILE) if (tree := _tree(files, name, problems)) is not None}
    project = _validate(d.ProjectDocument, trees, PROJECT_FILE, problems)
    sources = _validate(d.SourcesDocument, trees, SOURCES_FILE, problems) if SOURCES_FILE in files.texts else None
    if project is not None and project.version != 1:
        where = trees[PROJECT_FILE].locate(("version",))
        problems.add(problem("SF007", path=PROJECT_FILE, where=where, file=PROJECT_FILE, version=project.version))
    for name, model in (project.models or {}).items() if project is not None else ():
        if model is not None and model.window is not None:
            problems.extend(list(d.window_problems(model.window, trees[PROJECT_FILE], ("models", name, "window"))))
    if problems.has_errors or project is None:
        raise ProjectError([files.shown(item) for item in problems.items if item.severity == "error"])
    return Loaded(_project(files, project, sources, problems), files, trees, tuple(problems.items))


def _tree(files: ProjectFiles, name: str, problems: Diagnostics) -> Document | None:
    if name not in files.texts:
        return None
    try:
        document = parse_tree(files.texts[name], name)
    except TreeError as error:
        problems.add(error.diagnostic)
        return None
    return Document(name, document.text, {}, None) if document.value is None and name == SOURCES_FILE else document


def _validate(kind: type[d.T], trees: dict[str, Document], name: str, problems: Diagnostics) -> d.T | None:
    if name not in trees:
        return None
    result = d.validate(kind, trees[name])
    if isinstance(result, list):
        problems.extend(result)
        return None
    return result


def _project(files: ProjectFiles, doc: d.ProjectDocument, sources: d.SourcesDocument | None, problems: Diagnostics) -> m.Project:
    configured = {name: config or d.ModelDocument() for name, config in (doc.models or {}).items()}
    paths = _model_paths(files, problems)
    models = [d.to_model(name, path, files.texts[path], configured.get(name, d.ModelDocument())) for name, path in paths.items()]
    for name in configured:
        if name not in paths:
            problems.add(problem("SF101", path=PROJECT_FILE, model=name))
    return m.Project(
        files.root,
        doc.name,
        doc.version,
        tuple(sorted(models, key=lambda model: model.name)),
        d.to_sources(sources) if sources else (),
        tuple(d.to_target(name, target, doc.groups) for name, target in (doc.targets or {}).items()),
        doc.identity,
        doc.emit_unchanged,
    )


def _model_paths(files: ProjectFiles, problems: Diagnostics) -> dict[str, str]:
    paths: dict[str, str] = {}
    for path in files.under(MODELS_FOLDER, ".sql"):
        name = path.rsplit("/", 1)[1].removesuffix(".sql")
        if name in paths:
            problems.add(problem("SF121", path=path, where=Location(path), model=name, first=paths[name], second=path))
            continue
        paths[name] = path
    return paths
