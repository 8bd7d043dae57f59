"""DOCUMENTS: every published kind of document, its JSON Schema, and which commands write and read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streamform.codes import listed, suggest
from streamform.errors import UsageError
from streamform.render import schema_derived as derived
from streamform.render import schema_output as output
from streamform.render.schema_part import Schema, assembled
from streamform.render.words import columns

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_VERSION = 1


class DocumentKind(NamedTuple):
    """One row: a kind of document, in one version."""

    name: str
    title: str
    about: str
    written: str
    read: str
    schema: Callable[[], Schema]
    version: int = SCHEMA_VERSION


DOCUMENTS: tuple[DocumentKind, ...] = (
    DocumentKind(
        "project", "streamform.yml", "the models' contracts and the targets", "you; `init`", "every command", derived.project_schema
    ),
    DocumentKind("sources", "sources.yml", "the declared inputs", "you; `init`", "every command", derived.sources_schema),
    DocumentKind(
        "fixture", "Fixture", "a test of one model, a file below tests/", "you; `init`", "`test`, `check`", derived.fixture_schema
    ),
    DocumentKind(
        "plan-manifest",
        "Plan manifest",
        "every operator with its contracts and digests",
        "`inspect-plan --json`, `build` (build/plan.json)",
        "`plan --against`",
        derived.plan_manifest_schema,
    ),
    DocumentKind(
        "diff",
        "Plan diff",
        "what differs between running and desired plan, and what apply would do",
        "`plan --json`",
        "pull request tools",
        output.diff_schema,
    ),
    DocumentKind("graph", "Graph", "sources, models, sinks and who reads whom", "`graph --json`", "tools", output.graph_schema),
    DocumentKind(
        "check-report", "Check report", "every problem of the project", "`check --json`", "editors, CI", output.check_report_schema
    ),
    DocumentKind("test-report", "Test report", "the outcome of every fixture", "`test --json`", "CI", output.test_report_schema),
    DocumentKind("status", "Status", "what runs beside what is recorded", "`status --json`", "monitoring", output.status_schema),
    DocumentKind(
        "applied-record",
        "Applied record",
        "what runs on a target",
        "`apply`, `run`, `stop`",
        "`plan`, `apply`, `status`, `plan --against`",
        derived.applied_record_schema,
    ),
    DocumentKind(
        "deploy-plan",
        "Deploy plan",
        "a plan that is saved to be applied as it is",
        "`plan --out`",
        "`apply --plan`",
        output.deploy_plan_schema,
    ),
    DocumentKind(
        "journal-entry",
        "Journal entry",
        "one attempt to change a unit",
        "`apply`, `run`, `stop`",
        "`apply`, `status`, `history`",
        derived.journal_entry_schema,
    ),
)


def document_names() -> list[str]:
    """The names of every kind."""
    return [kind.name for kind in DOCUMENTS]


def schema_document(name: str) -> Schema:
    """The JSON Schema of one kind. Raises: UsageError for an unknown one."""
    kind = next((kind for kind in DOCUMENTS if kind.name == name), None)
    if kind is None:
        names = document_names()
        raise UsageError(f"there is no document `{name}`{suggest(name, names)}", f"documents are {listed(names)}")
    head = {"$schema": DIALECT, "$id": f"urn:streamform:{name}:v{kind.version}", "title": kind.title}
    return {**head, **assembled(kind.schema())}


def render_documents() -> str:
    """A table of every kind."""
    rows = [(kind.name, f"version {kind.version}", kind.about) for kind in DOCUMENTS]
    return "\n".join(columns(rows, indent="")) + "\n"


def documents_document() -> dict[str, Any]:
    """The list as JSON."""
    return {"documents": [{"name": kind.name, "version": kind.version, "title": kind.title, "about": kind.about} for kind in DOCUMENTS]}
