"""Record the compiled plans of tests/backends/carry_projects.py from a real gateway: python -m integration.record_plans ENDPOINTS [NAME..]."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from integration.stack import Stack
from streamform import api
from streamform.adapters.gateway import Gateway
from streamform.adapters.http import HttpService
from streamform.backends.flink.layout import kept_layouts, layouts_of, possible_layouts
from streamform.backends.flink.script import compile_statement, definitions_of, emit_unit, settings_of
from streamform.plan.nodes import Plan
from streamform.project.model import Target
from tests.backends.carry_projects import PROJECTS, write_project
from tests.conftest import REPOSITORY

RECORDED = REPOSITORY / "tests" / "golden" / "compiled"


def record(stack: Stack, name: str) -> None:
    """Compile one project and write what the gateway made of it."""
    plan, target = compiled_project(name)
    layouts, before = None, PROJECTS[name].get("takes_over")
    if before is not None:
        kept = kept_layouts(plan, layouts_of(compiled_project(before)[0]), {node.id: node.id for node in plan.nodes})
        layouts = possible_layouts(kept, layouts_of(plan))[PROJECTS[name].get("layouts", 0)]
    statements = emit_unit("carry", target, "unit", plan, layouts)
    session = Gateway(HttpService("the SQL Gateway", stack.gateway_url, "")).session(settings_of(statements))
    for statement in definitions_of(statements):
        session.define(statement)
    place = Path(urlsplit(stack.savepoint_dir).path) / f"recorded-{name}.json"
    place.unlink(missing_ok=True)
    session.query(compile_statement(f"file://{place}", statements))
    session.close()
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / f"{name}.json").write_text(json.dumps(json.loads(place.read_text()), indent=1) + "\n")


def compiled_project(name: str) -> tuple[Plan, Target]:
    """One project's plan on its target."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, target = api.compile_for_target(write_project(Path(folder) / "project", name), "prod")
    return compiled.plan, target


if __name__ == "__main__":
    attached = Stack.attach(sys.argv[1])
    for wanted in sys.argv[2:] or PROJECTS:
        record(attached, wanted)
