"""Aggregates, DISTINCT and UNION ALL over rows that change: the changelog adds up to what a fresh computation gives."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamform.plan.compiled import Compiled
from streamform.runtime.dataflow import Dataflow
from streamform.runtime.records import DELETE, INSERT, UPDATE, Change

from .conftest import ProjectBuilder, play

TOTALS = "SELECT customer_id, SUM(amount) AS total, COUNT(*) AS orders FROM source('orders') GROUP BY customer_id"
BY_ORDERS = """
SELECT orders, COUNT(*) AS customers, SUM(total) AS spent, MIN(total) AS least, MAX(total) AS most, COUNT(DISTINCT total) AS different,
  COUNT(*) FILTER (WHERE total > 5) AS big
FROM ref('totals') GROUP BY orders
"""
UPSERT = {"materialized": "upsert"}
CONFIG = {"totals": {**UPSERT, "key": ["customer_id"]}, "m": {**UPSERT, "key": ["orders"]}}

Event = tuple[int | None, Decimal | None]
EVENTS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(1, 4)), st.one_of(st.none(), st.integers(-300, 900).map(lambda n: Decimal(n).scaleb(-2)))),
    max_size=40,
)


def changes_of(compiled: Compiled, events: list[Event], model: str, batch: int) -> list[Change]:
    """Everything that the model emits."""
    dataflow = Dataflow(compiled.plan)
    (node,) = dataflow.source_nodes("orders")
    rows: list[Any] = [(amount, customer, None, None) for customer, amount in events]
    for start in range(0, len(rows), batch):
        dataflow.push(node, rows[start : start + batch])
    sink = next(m.output for m in compiled.plan.models if m.name == model)
    return dataflow.drain().changes.get(sink, [])


def folded(changes: list[Change]) -> Counter[Any]:
    """The rows that are left, each change checked against what it claims to replace."""
    rows: Counter[Any] = Counter()
    for op, row, before in changes:
        gone = row if op == DELETE else before
        if op != INSERT:
            assert rows[gone] > 0, f"{gone} was not there"
            rows[gone] -= 1
        if op != DELETE:
            rows[row] += 1
        assert op != UPDATE or row != before, "an update that changes nothing"
    return +rows


def totals(events: list[Event]) -> dict[Any, tuple[Decimal | None, int]]:
    found: dict[Any, list[Decimal | None]] = {}
    for customer, amount in events:
        found.setdefault(customer, []).append(amount)
    sums = {c: [a for a in amounts if a is not None] for c, amounts in found.items()}
    return {c: (sum(sums[c], Decimal("0.00")) if sums[c] else None, len(found[c])) for c in found}


@pytest.fixture
def nested(project: ProjectBuilder) -> Compiled:
    compiled = project({"totals": TOTALS, "m": BY_ORDERS}, CONFIG).compiled()
    assert not compiled.diagnostics
    return compiled


def test_an_aggregate_over_a_grouped_model_is_upsert_with_its_own_key(nested: Compiled) -> None:
    sink = nested.plan.by_id["m::sink::0"]
    assert str(sink.changelog) == "upsert(orders)"


def test_a_customer_that_moves_on_leaves_its_old_group(nested: Compiled) -> None:
    given_events = "\n".join(
        f"  - event: {{customer_id: {c}, amount: {a}}}" for c, a in ((1, "1.00"), (2, "1.00"), (1, "2.00"), (2, "1.00"))
    )
    records = play(nested, given_events).records
    assert records == [
        "insert orders=1 customers=1 spent=1 least=1 most=1 different=1 big=0",
        "update orders=1 customers=2 spent=2 least=1 most=1 different=1 big=0",
        "update orders=1 customers=1 spent=1 least=1 most=1 different=1 big=0",
        "insert orders=2 customers=1 spent=3 least=3 most=3 different=1 big=0",
        "delete orders=1 customers=1 spent=1 least=1 most=1 different=1 big=0",
        "update orders=2 customers=2 spent=5 least=2 most=3 different=2 big=0",
    ]


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, batch=st.integers(1, 7))
def test_totals_of_totals_equal_a_fresh_computation(nested_module: Compiled, events: list[Event], batch: int) -> None:
    rows = folded(changes_of(nested_module, events, "m", batch))
    expected: Counter[Any] = Counter()
    by_orders: dict[int, list[Decimal | None]] = {}
    for total, orders in totals(events).values():
        by_orders.setdefault(orders, []).append(total)
    for orders, found in by_orders.items():
        known = [total for total in found if total is not None]
        expected[
            (
                orders,
                len(found),
                sum(known, Decimal(0)) if known else None,
                min(known, default=None),
                max(known, default=None),
                len(set(known)),
                sum(total > 5 for total in known),
            )
        ] += 1
    assert rows == expected


@settings(max_examples=100, deadline=None)
@given(events=EVENTS, batch=st.integers(1, 7))
def test_a_union_of_updated_and_new_rows_is_counted_exactly(union_module: Compiled, events: list[Event], batch: int) -> None:
    rows = folded(changes_of_two(union_module, events, batch))
    values = [total for total, _ in totals(events).values()] + [amount for _, amount in events]
    assert rows == Counter(dict.fromkeys(Counter(values).items(), 1))


def changes_of_two(compiled: Compiled, events: list[Event], batch: int) -> list[Change]:
    dataflow = Dataflow(compiled.plan)
    rows: list[Any] = [(amount, customer, None, None) for customer, amount in events]
    for start in range(0, len(rows), batch):
        for node in dataflow.source_nodes("orders"):
            dataflow.push(node, rows[start : start + batch])
    return dataflow.drain().changes.get("m::sink::0", [])


UNION = """
SELECT value, COUNT(*) AS times FROM (
  SELECT total AS value FROM ref('totals') UNION ALL SELECT CAST(amount AS DECIMAL(38, 2)) AS value FROM source('orders')
) GROUP BY value
"""


@pytest.fixture(scope="module")
def union_module(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return _compiled(tmp_path_factory, {"totals": TOTALS, "m": UNION}, {"m": {**UPSERT, "key": ["value"]}})


@pytest.fixture(scope="module")
def nested_module(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return _compiled(tmp_path_factory, {"totals": TOTALS, "m": BY_ORDERS}, {})


def _compiled(factory: pytest.TempPathFactory, models: dict[str, str], config: dict[str, Any]) -> Compiled:
    from .conftest import ORDERS, ProjectFolder

    folder = ProjectFolder(factory.mktemp("project"))
    folder.write("streamform.yml", {"name": "shop", "version": 1, "models": {**CONFIG, **config}}).write("sources.yml", ORDERS)
    for name, sql in models.items():
        folder.write(f"models/{name}.sql", sql)
    compiled = folder.compiled()
    assert not compiled.has_errors, [d.message for d in compiled.diagnostics]
    return compiled


def test_distinct_over_updated_rows_shows_each_value_once(project: ProjectBuilder) -> None:
    config = {"totals": {**UPSERT, "key": ["customer_id"]}, "m": {**UPSERT, "key": ["orders"]}}
    folder = project({"totals": TOTALS, "m": "SELECT DISTINCT orders FROM ref('totals')"}, config)
    events = [f"  - event: {{customer_id: {customer}, amount: 1.00}}" for customer in (1, 2, 1, 2)]
    assert play(folder, "\n".join(events)).records == ["insert orders=1", "insert orders=2", "delete orders=1"]


def test_rows_without_a_key_are_no_output(project: ProjectBuilder) -> None:
    united = "SELECT total FROM ref('totals') UNION ALL SELECT total FROM ref('totals')"
    config = {"totals": {**UPSERT, "key": ["customer_id"]}, "m": {**UPSERT, "key": ["total"]}}
    assert project({"totals": TOTALS, "m": united}, config).codes() == ["SF209"]
    assert project({"totals": TOTALS, "m": "SELECT total FROM ref('totals')"}, config).codes() == ["SF207"]


def test_a_dropped_key_does_not_matter_below_an_aggregate(project: ProjectBuilder) -> None:
    sql = "SELECT total, COUNT(*) AS customers FROM (SELECT total FROM ref('totals')) GROUP BY total"
    config = {"totals": {**UPSERT, "key": ["customer_id"]}, "m": {**UPSERT, "key": ["total"]}}
    assert project({"totals": TOTALS, "m": sql}, config).codes() == []


def test_an_aggregate_over_state_that_expires_is_refused(project: ProjectBuilder) -> None:
    """An expired key emits nothing, so a later row of it would be counted twice."""
    config = {"totals": {**UPSERT, "key": ["customer_id"], "retention": "1d"}, "m": {**UPSERT, "key": ["orders"]}}
    sources = """
sources:
  orders:
    connector: file
    path: data/orders.jsonl
    schema: {customer_id: int64, amount: "decimal(12,2)", status: string, ordered_at: timestamp}
    event_time: ordered_at
    watermark: 1m
"""
    assert project({"totals": TOTALS, "m": BY_ORDERS}, config, sources=sources).codes() == ["SF206"]


EXPIRING = """
sources:
  orders:
    connector: file
    path: data/orders.jsonl
    schema: {customer_id: int64, amount: "decimal(12,2)", status: string, ordered_at: timestamp}
    event_time: ordered_at
"""


def test_a_key_that_expires_is_deleted_where_the_model_says_so(project: ProjectBuilder) -> None:
    config = {"m": {**UPSERT, "key": ["customer_id"], "retention": "10ms", "on_expiry": "delete"}}
    folder = project({"m": TOTALS}, config, sources=EXPIRING)
    events = (
        "- {customer_id: 2, amount: 1, ordered_at: 0}\n- {customer_id: 1, amount: 1, ordered_at: 1}\n- {customer_id: 2, ordered_at: 11}"
    )
    assert play(folder, events).records == [
        "insert customer_id=2 total=1 orders=1",
        "insert customer_id=1 total=1 orders=1",
        "update customer_id=2 total=1 orders=2",
        "delete customer_id=1 total=1 orders=1",
    ]


def test_totals_over_rows_that_are_deleted_when_they_expire_are_allowed_and_right(project: ProjectBuilder) -> None:
    config = {
        "totals": {**UPSERT, "key": ["customer_id"], "retention": "10ms", "on_expiry": "delete"},
        "m": {**UPSERT, "key": ["orders"]},
    }
    folder = project({"totals": TOTALS, "m": BY_ORDERS}, config, sources=EXPIRING)
    events = "- {customer_id: 2, amount: 1, ordered_at: 0}\n- {customer_id: 1, amount: 9, ordered_at: 20}\n- {customer_id: 2, amount: 3, ordered_at: 21}"
    assert [record.split(" least")[0] for record in play(folder, events).records] == [
        "insert orders=1 customers=1 spent=1",
        "update orders=1 customers=2 spent=10",
        "update orders=1 customers=1 spent=9",
        "update orders=1 customers=2 spent=12",
    ]
