"""The outcome of a compile, as a value that can be kept: it needs no parser to be read again."""

from __future__ import annotations

from msgspec import Struct

from streamform.diagnostics import Diagnostic
from streamform.plan.graph import Graph
from streamform.plan.nodes import Plan
from streamform.project.model import Project


class Compiled(Struct, frozen=True):
    """A project with its graph, the plan of every model that compiles, and all that is wrong."""

    project: Project
    graph: Graph
    plan: Plan
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self.diagnostics)
