"""Coverage: what of a project no fixture touches: models, one side of a filter, late events."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from streamform.plan.nodes import FilterSpec, Plan, SourceSpec
from streamform.simulator.run import FixtureReport


class FilterCoverage(Struct, frozen=True):
    """One filter: rows let through and kept out by all fixtures."""

    node: str
    definition: str
    kept: int
    dropped: int

    @property
    def gap(self) -> str | None:
        """The side that no fixture reaches."""
        if not self.kept and not self.dropped:
            return "no row reaches it"
        return None if self.kept and self.dropped else "every row passes" if self.kept else "no row passes"


class ModelCoverage(Struct, frozen=True):
    """One model."""

    model: str
    fixtures: int
    """Fixtures of this model."""
    touched: int
    """Fixtures of models that read it."""
    filters: tuple[FilterCoverage, ...]
    never_late: tuple[str, ...]
    """Sources that it reads itself, which drop late events, and of which no fixture has one."""

    @property
    def is_covered(self) -> bool:
        return bool(self.fixtures + self.touched) and not any(f.gap for f in self.filters) and not self.never_late


def measure_coverage(plan: Plan, reports: Iterable[FixtureReport]) -> list[ModelCoverage]:
    """What the fixtures that were run reach, by model in plan order."""
    ran = list(reports)
    reached = [report.reached for report in ran if report.reached is not None]
    kept: dict[str, list[int]] = {}
    for part in reached:
        for node, (passed, dropped) in part.filters.items():
            counts = kept.setdefault(node, [0, 0])
            counts[0] += passed
            counts[1] += dropped
    late = {source for part in reached for source in part.late}
    result: list[ModelCoverage] = []
    for model in plan.models:
        own = sum(report.model == model.name for report in ran)
        touched = sum(model.name in part.models for part in reached) - own
        nodes = plan.nodes_of(model.name)
        filters = tuple(FilterCoverage(n.id, n.definition, *kept.get(n.id, (0, 0))) for n in nodes if isinstance(n.spec, FilterSpec))
        sources = [n.spec.source for n in nodes if isinstance(n.spec, SourceSpec)]
        never_late = tuple(s.name for s in sources if s.event_time is not None and s.late_events != "keep" and s.name not in late)
        result.append(ModelCoverage(model.name, own, max(touched, 0), filters, never_late))
    return result
