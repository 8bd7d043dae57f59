"""The check report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from streamform.project.model import Endpoint
from streamform.render.problems import diagnostic_document, render_diagnostics
from streamform.render.words import columns, counted

if TYPE_CHECKING:
    from streamform.results import CheckReport

CHECK_VERSION = 1


def render_check(report: CheckReport) -> str:
    """Models, sources, fixtures, every problem, and a summary line."""
    blocks: list[str] = []
    if report.project is not None:
        blocks.append(f"{report.project.name} (schema version {report.project.version})")
        blocks += _sections(report)
    if report.diagnostics:
        blocks.append(render_diagnostics(report.diagnostics))
    if report.notes:
        blocks.append(render_diagnostics(report.notes))
    blocks.append(_summary(report))
    return "\n\n".join(blocks) + "\n"


def _sections(report: CheckReport) -> list[str]:
    project = report.project
    assert project is not None
    models = [(m.name, m.materialized, m.path) for m in project.models]
    sources = [
        (s.name, f"{s.endpoint.connector}/{s.endpoint.format}", endpoint_text(s.endpoint), counted(len(s.schema), "column"))
        for s in project.sources
    ]
    fixtures = [(f.model, f.path, f"{len(f.given)} given, {len(f.expect or f.expect_final or ())} expect") for f in report.fixtures]
    return ["\n".join([name, *columns(rows)]) for name, rows in (("models", models), ("sources", sources), ("fixtures", fixtures)) if rows]


def _summary(report: CheckReport) -> str:
    counts = Counter(d.severity for d in report.diagnostics)
    project = report.project
    parts = (
        [counted(len(project.models), "model"), counted(len(project.sources), "source"), counted(len(report.fixtures), "fixture")]
        if project
        else []
    )
    parts += [counted(counts["error"], "error"), counted(counts["warning"], "warning")]
    return f"{'ok' if report.passed else 'failed'}: {', '.join(parts)}"


def check_document(report: CheckReport) -> dict[str, Any]:
    """The published document; advice stands under `notes`."""
    project = report.project
    document: dict[str, Any] = {
        "check_version": CHECK_VERSION,
        "loaded": project is not None,
        "passed": report.passed,
        "strict": report.strict,
    }
    if project is not None:
        document["project"] = {"name": project.name, "schema_version": project.version, "root": project.root}
    document["models"] = (
        []
        if project is None
        else [
            {
                "name": m.name,
                "path": m.path,
                "materialized": m.materialized,
                "key": list(m.key),
                **({"sink": endpoint_document(m.sink)} if m.sink else {}),
            }
            for m in project.models
        ]
    )
    document["sources"] = (
        [] if project is None else [{"name": s.name, **endpoint_document(s.endpoint), "columns": len(s.schema)} for s in project.sources]
    )
    document["fixtures"] = [
        {"model": f.model, "path": f.path, "given": len(f.given), "expect": len(f.expect or f.expect_final or ())} for f in report.fixtures
    ]
    document["diagnostics"] = [diagnostic_document(d) for d in report.diagnostics]
    document["notes"] = [diagnostic_document(d) for d in report.notes]
    return document


def endpoint_document(endpoint: Endpoint) -> dict[str, Any]:
    """Connector, format and where."""
    document: dict[str, Any] = {"connector": endpoint.connector, "format": endpoint.format}
    for name in ("topic", "path", "table"):
        value = getattr(endpoint, name)
        if value is not None:
            document[name] = value
    return document


def endpoint_text(endpoint: Endpoint) -> str:
    """`topic=orders`, `path=data/x.json`, `path=out.db table=t`."""
    return " ".join(f"{name}={value}" for name in ("topic", "path", "table") if (value := getattr(endpoint, name)) is not None)
