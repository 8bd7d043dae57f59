"""The example project on its Flink target: how tests of the life cycle drive it, and what its sinks must hold."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import requests

from integration.stack import Stack
from integration.stack.process import until
from integration.stack.topics import TopicRecord, compacted, produce
from streamform import api
from tests.conftest import environment

ROWS_S = 60.0
Orders = list[dict[str, Any]]


@dataclass
class Shop:
    """The example project on its Flink target, with topics of its own."""

    folder: Path
    stack: Stack
    orders: str
    metrics: str
    big: str
    read: Callable[[str], list[TopicRecord]]

    def run(self, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        """A command in a process of its own."""
        command = [sys.executable, "-m", "streamform.cli", *arguments, "--project", str(self.folder), "--target", "cluster"]
        variables = environment(**({"STREAMFORM_CRASH_AT": crash_at} if crash_at else {}))
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)

    def apply(self, **options: Any) -> subprocess.CompletedProcess[str]:
        done = self.run("apply", **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def waiting(self) -> list[str]:
        """The ids of the plans that wait."""
        return [view.plan.plan_id for view in api.approvals(self.folder, target="cluster")[1] if view.status == "pending"]

    def approve(self, plan_id: str | None = None) -> None:
        """Approve a plan, or the only one that waits."""
        if plan_id is None:
            (plan_id,) = self.waiting()
        (found,) = [view.plan for view in api.approvals(self.folder, target="cluster")[1] if view.plan.plan_id == plan_id]
        words = found.acknowledge
        api.decide(self.folder, [plan_id], "approve", by="somebody", reason="wanted", acknowledge=words, target="cluster")

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.folder / file
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def jobs(self) -> list[dict[str, Any]]:
        """Every job of this project, by its labels, newest first."""
        found = requests.get(f"{self.stack.rest_url}/jobs/overview", timeout=30).json()["jobs"]
        mine = []
        for job in found:
            config = requests.get(f"{self.stack.rest_url}/jobs/{job['jid']}/config", timeout=30)
            labels = config.json().get("execution-config", {}).get("user-config", {}) if config.ok else {}
            if labels.get("streamform.project") == self.name:
                mine.append(job)
        return sorted(mine, key=lambda job: -job["start-time"])

    @property
    def name(self) -> str:
        return self.folder.name

    def active(self) -> list[str]:
        """Jobs that run, or try to, or are about to."""
        return [job["jid"] for job in self.jobs() if job["state"] not in ("FINISHED", "CANCELED", "FAILED")]

    def healthy(self) -> list[str]:
        """Jobs of which every task runs."""
        return [job["jid"] for job in self.jobs() if job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"]]

    def send(self, orders: Orders) -> None:
        produce(self.stack.bootstrap_servers, self.orders, [(None, json.dumps(order).encode()) for order in orders])

    def send_unreadable(self) -> None:
        """Write an event with a time that Flink's JSON format refuses."""
        produce(self.stack.bootstrap_servers, self.orders, [(None, b'{"order_id": 1, "ordered_at": "2026-08-30T10:00:00Z"}')])

    def change(self) -> None:
        """An edit that needs a backfill, approved."""
        self.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
        assert self.run("apply").returncode == 1
        self.approve()

    def journal(self) -> list[dict[str, Any]]:
        """What history says, oldest entry first."""
        entries: list[dict[str, Any]] = json.loads(self.run("history", "--json").stdout)["entries"]
        return entries

    def totals(self, topic: str) -> dict[int, tuple[Any, ...]]:
        """The rows of a sink: total and number of orders by customer."""
        return {key[0]: (value["total_spend"], value.get("orders")) for key, value in compacted(self.read(topic)).items()}

    def await_totals(self, expected: dict[int, tuple[Decimal, int]]) -> None:
        """Wait until the sink holds exactly these rows."""
        until(lambda: self.totals(self.metrics) == expected, ROWS_S)
        assert self.totals(self.metrics) == expected


def shipped_orders() -> Orders:
    """The events that the example ships with, in the order of their times, so that none is late anywhere."""
    file = Path(api.__file__).parent / "templates" / "shop" / "data" / "orders.jsonl"
    orders = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(orders, key=lambda order: order["ordered_at"])[:600]


def expected_totals(orders: Orders, keep: Callable[[str], bool] = lambda status: status != "test") -> dict[int, tuple[Decimal, int]]:
    """What the models compute, in a few lines of Python."""
    found: dict[int, tuple[Decimal, int]] = {}
    for order in orders:
        customer, amount, status = order.get("customer_id"), order.get("amount"), order.get("status")
        if customer is not None and amount is not None and status is not None and keep(status):
            total, number = found.get(customer, (Decimal("0.00"), 0))
            found[customer] = (total + Decimal(str(amount)), number + 1)
    return found


def is_paid(status: str) -> bool:
    """What the changed model keeps."""
    return status == "paid"


def make_shop(folder: Path, stack: Stack, new_topic: Callable[..., str], read: Callable[[str], list[TopicRecord]]) -> Shop:
    """Write the example, pointed at a stack."""
    compact = {"cleanup.policy": "compact"}
    topics = new_topic("orders"), new_topic("metrics", config=compact), new_topic("big", config=compact)
    made = Shop(folder / f"shop_{uuid.uuid4().hex[:8]}", stack, *topics, read)
    api.init(made.folder)
    for before, after in (
        ("name: shop", f"name: {made.name}"),
        ("http://localhost:8083", stack.gateway_url),
        ("http://localhost:8081", stack.rest_url),
        ("file:///opt/flink/savepoints", stack.savepoint_dir),
        ("localhost:9092", stack.bootstrap_servers),
        ("topic: orders", f"topic: {made.orders}"),
        ("topic: customer-metrics", f"topic: {made.metrics}"),
        ("topic: big-customers", f"topic: {made.big}"),
    ):
        made.edit("streamform.yml", before, after)
    return made


def untouched(shop: Shop) -> bool:
    """Whether nothing was recorded and nothing runs."""
    store = shop.folder / ".streamform"
    return not (store / "applied").exists() and not (store / "journal").exists() and shop.active() == []


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]
