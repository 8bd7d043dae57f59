"""A loaded project to a plan, in one pass over the models in dependency order.

Everything that is wrong is collected; a model that does not compile is left out, and so are its readers.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamform.codes import problem
from streamform.diagnostics import Diagnostic, Diagnostics
from streamform.plan.build import BuiltModel, Upstream, build_model
from streamform.plan.check import check_group_order, check_planned, check_project
from streamform.plan.compiled import Compiled
from streamform.plan.graph import Graph, Reads, build_graph
from streamform.plan.nodes import BoundContract, Node, Plan
from streamform.project.load import Loaded
from streamform.project.model import Contract, Model, Project, Source
from streamform.sql.bind import Catalog, bind_condition, bind_statement
from streamform.sql.expressions import Call, ColumnRef, Expression
from streamform.sql.functions import FUNCTIONS
from streamform.sql.parse import SqlProblem, Statement, calls_in_text, input_calls, parse_condition, parse_model
from streamform.values.types import BOOLEAN


def compile_project(loaded: Loaded, project: Project | None = None) -> Compiled:
    """The compiled project; `project` replaces the loaded one where a target moves its sources and sinks."""
    compiler = _Compiler(loaded, project or loaded.project)
    return compiler.compile()


class _Compiler:
    def __init__(self, loaded: Loaded, project: Project) -> None:
        self.loaded, self.project = loaded, project
        self.problems = Diagnostics(list(loaded.notes))
        self.statements: dict[str, Statement] = {}
        self.broken: set[str] = set()
        self.contracts: dict[str, tuple[BoundContract, ...]] = {}
        self.built: dict[str, BuiltModel] = {}
        self.refused: list[BuiltModel] = []
        self.upstream = Upstream({s.name: s for s in self.project.sources}, self.contracts, self.built)

    def compile(self) -> Compiled:
        reads = {model.name: self.parse(model) for model in self.project.models}
        graph = build_graph(reads)
        self.problems.extend(check_project(self.loaded, self.project, graph, self.statements))
        self.bind_contracts()
        self.report_cycles(graph)
        for name in graph.order or self.outside_cycles(graph):
            model = self.project.model(name)
            assert model is not None
            self.build(model, graph.reads[name])
        nodes = tuple(node for built in self.built.values() for node in built.nodes)
        plan = Plan(self.project.name, tuple(built.model for built in self.built.values()), nodes)
        plan.check_invariants()
        self.problems.extend(check_planned(self.loaded, self.project, plan))
        for refused in self.refused:
            self.problems.extend(check_group_order(Plan("", (refused.model,), (*nodes, *refused.nodes)), refused.nodes))
        found = tuple(self.loaded.files.shown(item) for item in self.problems.items)
        return Compiled(self.project, graph, plan, found)

    def parse(self, model: Model) -> Reads:
        """Parse a model and list what it reads; what is wrong with its inputs is reported here once."""
        if not model.sql.strip():
            self.problems.add(problem("SF108", path=model.path, model=model.name))
        try:
            statement = parse_model(model)
        except SqlProblem as failure:
            self.problems.add(failure.diagnostic)
            self.broken.add(model.name)
            return _reads(calls_in_text(model.sql))
        self.statements[model.name] = statement
        found: list[Diagnostic] = []
        reads = _reads([(function, name) for function, name, _ in input_calls(statement, found)])
        if found:
            self.problems.extend(found)
            self.broken.add(model.name)
        return reads

    def bind_contracts(self) -> None:
        """Bind each source's contracts; a source whose condition does not bind is not read by any model."""
        for source in self.project.sources:
            bound = [self.bind_contract(source, contract) for contract in source.contracts]
            complete = tuple(c for c in bound if c is not None)
            self.contracts[source.name] = complete

    def bind_contract(self, source: Source, contract: Contract) -> BoundContract | None:
        if contract.check is None:
            columns = {c.name: c for c in source.schema}
            known = [columns[name] for name in contract.not_null or () if name in columns]
            condition = _all_not_null([ColumnRef(c.name, c.type) for c in known])
            return None if condition is None else BoundContract(contract.name, condition)
        try:
            result = bind_condition(parse_condition(source.name, "sources.yml", contract.check), source.schema, source.name)
        except SqlProblem as found:
            result = [found.diagnostic]
        if isinstance(result, list):
            cause = result[0].message.removeprefix(f"model `{source.name}` ").removeprefix(f"model `{source.name}`: ")
            where = self.loaded.locate("sources.yml", "sources", source.name, "contracts", source.contracts.index(contract), "check")
            self.problems.add(
                problem(
                    "SF315", path="sources.yml", where=where, source=source.name, contract=contract.name, check=contract.check, cause=cause
                )
            )
            self.broken.add(f"source {source.name}")
            return None
        return BoundContract(contract.name, result)

    def report_cycles(self, graph: Graph) -> None:
        for cycle in graph.cycles:
            if len(cycle) > 2:
                model = self.project.model(cycle[0])
                assert model is not None
                self.problems.add(problem("SF103", path=model.path, cycle=" reads ".join(cycle), model=cycle[0]))
        for name in {name for cycle in graph.cycles for name in cycle}:
            model = self.project.model(name)
            assert model is not None
            self.problems.add(problem("SF118", path=model.path, model=name, cause="it is part of a cycle"))

    def outside_cycles(self, graph: Graph) -> list[str]:
        """When there is a cycle: every model that neither is on one nor reads from one, in dependency order."""
        blocked = {name for cycle in graph.cycles for name in cycle}
        rest = {name: reads for name, reads in graph.reads.items() if name not in blocked}
        return list(build_graph(rest).order)

    def build(self, model: Model, reads: Reads) -> None:
        if model.name in self.broken or self.unplanned(model, reads):
            return
        relation = bind_statement(self.statements[model.name], self.catalog(reads), windowed=model.window is not None)
        if isinstance(relation, list):
            self.problems.extend(relation)
            return
        built = build_model(model, relation, self.upstream)
        self.problems.extend(built.diagnostics)
        if any(d.severity == "error" for d in built.diagnostics):
            self.refused.append(built)
        else:
            self.built[model.name] = built

    def unplanned(self, model: Model, reads: Reads) -> bool:
        """Report that an input of the model has no plan; True when one has none."""
        missing = next((m for m in reads.models if m not in self.built), None)
        if missing is None:
            missing = next((s for s in reads.sources if self.project.source(s) is None or f"source {s}" in self.broken), None)
        if missing is None:
            return False
        self.problems.add(problem("SF118", path=model.path, model=model.name, cause=f"it reads `{missing}`, which is not planned"))
        return True

    def catalog(self, reads: Reads) -> Catalog:
        sources = {name: self.upstream.sources[name].schema for name in reads.sources}
        return Catalog(sources, {name: self.sink(name).schema for name in reads.models})

    def sink(self, name: str) -> Node:
        return self.built[name].nodes[-1]


def _reads(calls: list[tuple[str, str]]) -> Reads:
    names = {kind: tuple(dict.fromkeys(name for function, name in calls if function == kind)) for kind in ("source", "ref")}
    return Reads(names["source"], names["ref"])


def _all_not_null(columns: Iterable[ColumnRef]) -> Expression | None:
    condition: Expression | None = None
    for column in columns:
        test = Call(FUNCTIONS["IS NOT NULL"], (column,), (column.type,), BOOLEAN)
        condition = test if condition is None else Call(FUNCTIONS["AND"], (condition, test), (BOOLEAN, BOOLEAN), BOOLEAN)
    return condition
