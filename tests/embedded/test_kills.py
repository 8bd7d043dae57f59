"""A process that dies at any point of an apply: the next apply finishes it, and nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from streamform import api
from tests.conftest import REPOSITORY, environment

from .conftest import TARGET, Shop

FIRST = ("embedded-initialize", "embedded-committed", "embedded-delivered", "embedded-catch-up")
REBUILD = ("embedded-committed", "embedded-rebuild", "embedded-repaired", "embedded-repair-sink", "embedded-switch", "embedded-catch-up")
SEED = 20260830
ORDER = {"order_id": 1, "customer_id": 1001, "amount": 5.25, "status": "paid", "ordered_at": "2026-09-30T10:00:00"}


@pytest.mark.parametrize("point", FIRST)
def test_a_first_apply_that_dies_is_finished_by_the_next(shop: Shop, point: str) -> None:
    assert shop.process("apply", crash_at=point).code == -signal.SIGKILL
    shop.apply()
    assert shop.equals_a_fresh_run()
    assert len(api.history(shop.folder, target="local")[1]) == 1


@pytest.mark.parametrize("point", ["embedded-committed", "embedded-delivered", "embedded-catch-up"])
def test_a_catch_up_that_dies_doubles_nothing(shop: Shop, point: str) -> None:
    shop.apply()
    shop.add(ORDER, {**ORDER, "customer_id": 7_000_000, "amount": 2_000})
    assert shop.process("apply", crash_at=point).code == -signal.SIGKILL
    shop.apply()
    assert shop.equals_a_fresh_run()


@pytest.mark.parametrize("point", REBUILD)
def test_a_backfill_that_dies_is_finished_by_the_next_apply(shop: Shop, point: str) -> None:
    shop.apply()
    shop.change("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    shop.approve()
    assert shop.process("apply", crash_at=point).code == -signal.SIGKILL
    shop.apply()
    assert shop.equals_a_fresh_run()
    assert [entry.outcome for entry in api.history(shop.folder, target="local")[1]] == ["applied", "applied"]


def test_a_compatible_change_that_dies_keeps_its_state(shop: Shop) -> None:
    shop.apply()
    shop.change("models/big_customers.sql", "> 1000", "> 900")
    shop.approve()
    assert shop.process("apply", crash_at="embedded-continue").code == -signal.SIGKILL
    shop.add(ORDER)
    shop.apply()
    before = shop.table()
    assert "nothing new" in shop.apply()
    assert shop.table() == before


def kill_at_random(shop: Shop, chosen: random.Random, took_s: float) -> bool:
    """Start an apply and kill it before it has run as long as one that had nothing to do; whether it was still running."""
    process = start_apply(shop)
    time.sleep(chosen.uniform(0.2, 1.0) * took_s)
    process.kill()
    return process.wait() == -signal.SIGKILL


def start_apply(shop: Shop) -> subprocess.Popen[bytes]:
    """An apply in a process of its own."""
    command = [sys.executable, "-m", "streamform.cli", "apply", "--project", str(shop.folder), *TARGET]
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed_again_and_again(shop: Shop, kills: int, seed: int) -> int:
    """Kill applies at random moments while events arrive and the project changes; how many were cut off."""
    shop.apply()
    start = time.monotonic()
    assert start_apply(shop).wait() == 0
    took_s = time.monotonic() - start
    chosen = random.Random(seed)
    cut = 0
    for number in range(kills):
        shop.add(*({**ORDER, "order_id": n, "customer_id": chosen.randint(1, 9), "amount": chosen.randint(-50, 900)} for n in range(40)))
        if number % 5 == 4:
            limit = chosen.randint(500, 3_000)
            (shop.folder / "models" / "clean_orders.sql").write_text(
                f"SELECT order_id, customer_id, amount, status, ordered_at FROM source('orders') WHERE amount < {limit} AND customer_id > 0"
            )
        cut += kill_at_random(shop, chosen, took_s)
    shop.apply()
    assert shop.equals_a_fresh_run()
    return cut


def without_gate(shop: Shop) -> Shop:
    shop.change("streamform.yml", "    approvals: {above: SAFE}     # anything above SAFE waits for `streamform approve`\n", "")
    return shop


def test_random_kills_lose_and_double_nothing(shop: Shop) -> None:
    assert killed_again_and_again(without_gate(shop), 10, SEED) > 3


@pytest.mark.soak
def test_many_random_kills_lose_and_double_nothing(shop: Shop) -> None:
    kills = 200
    cut = killed_again_and_again(without_gate(shop), kills, SEED + 1)
    print(f"{kills} applies, {cut} cut off: 0 lost, 0 doubled")
