"""Makes the events that the example project ships: two weeks of orders of a small shop, the same on every run.

    python -m tests.tools.make_orders > streamform/templates/shop/data/orders.jsonl

Events arrive roughly in order: most within minutes, some hours late. There are refunds, test orders, orders without a
customer and orders without an amount. Timestamps are written without a zone, as files and topics hold them.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

SEED = 20260830
ORDERS = 3_000
CUSTOMERS = 240
START = datetime(2026, 8, 17, 6, 0, 0)


def orders() -> list[dict[str, Any]]:
    """The events in the order in which they arrive."""
    rng = random.Random(SEED)
    arriving = sorted(_events(rng), key=lambda pair: pair[0])
    return [event for _, event in arriving]


def _events(rng: random.Random) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Each event with the time at which it arrives."""
    moment = START
    paid: list[dict[str, Any]] = []
    for order_id in range(100_001, 100_001 + ORDERS):
        moment += timedelta(seconds=rng.expovariate(1 / 390))
        kind = rng.random()
        if kind < 0.07 and paid:
            event = _refund(rng, order_id, moment, paid)
        else:
            event = _order(rng, order_id, moment, kind)
            if event["status"] == "paid" and event["customer_id"] is not None and event["amount"] is not None:
                paid.append(event)
        yield moment + _delay(rng), event


def _order(rng: random.Random, order_id: int, moment: datetime, kind: float) -> dict[str, Any]:
    customer = 1000 + min(int(rng.paretovariate(0.9)), CUSTOMERS)
    amount = Decimal(str(round(rng.lognormvariate(3.6, 0.9), 2)))
    event = _event(order_id, customer, amount, "paid", moment)
    if kind > 0.985:
        event["status"] = "test"
    elif kind > 0.975:
        event["customer_id"] = None
    elif kind > 0.965:
        event["amount"] = None
    return event


def _refund(rng: random.Random, order_id: int, moment: datetime, paid: list[dict[str, Any]]) -> dict[str, Any]:
    original = paid.pop(rng.randrange(max(0, len(paid) - 200), len(paid)))
    return _event(order_id, original["customer_id"], -original["amount"], "refunded", moment)


def _event(order_id: int, customer: int, amount: Decimal, status: str, moment: datetime) -> dict[str, Any]:
    ordered_at = moment.isoformat(timespec="milliseconds")
    return {"order_id": order_id, "customer_id": customer, "amount": amount, "status": status, "ordered_at": ordered_at}


def _delay(rng: random.Random) -> timedelta:
    """Mostly seconds, sometimes minutes, now and then hours."""
    luck = rng.random()
    if luck < 0.90:
        return timedelta(seconds=rng.uniform(0, 20))
    return timedelta(minutes=rng.uniform(1, 12)) if luck < 0.985 else timedelta(hours=rng.uniform(1, 6))


def line(event: dict[str, Any]) -> str:
    """One event as a line of JSON; the amount keeps its two digits."""
    amount = event["amount"]
    text = json.dumps({**event, "amount": None if amount is None else "AMOUNT"})
    return text if amount is None else text.replace('"AMOUNT"', f"{amount:.2f}")


if __name__ == "__main__":
    sys.stdout.writelines(line(event) + "\n" for event in orders())
