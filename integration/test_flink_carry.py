"""State that goes on when a query changes, on a real Flink: carried with its totals, or refused before anything is stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from confluent_kafka import TopicPartition

from integration.conftest import NewTopic
from integration.shop import ROWS_S, Orders, Shop, expected_totals, shipped_orders
from integration.stack.process import until
from integration.stack.topics import make_admin
from streamform.adapters.gateway import Gateway
from streamform.adapters.http import HttpService
from streamform.backends.flink.carry import Claim, fit_plan
from streamform.backends.flink.exec_plan import NotProvable
from streamform.backends.flink.script import definitions_of, settings_of

NO_NUMBER = "CAST(CAST(total_spend AS STRING) || 'x' AS BIGINT) AS total_spend\nFROM"
"""An output that fails with the first event, not before."""

METRICS, BIG = "models/customer_metrics.sql", "models/big_customers.sql"
THRESHOLD = (BIG, "> 1000", "> 1500")


def with_history_lost(shop: Shop, orders: Orders) -> None:
    """A job that read two parts of the orders, of which the first is in no topic any more.

    Totals are right only where state goes on (else the first part is missing) and sources do, too (else the second counts twice).
    """
    half = len(orders) // 2
    shop.send(orders[:half])
    shop.apply()
    shop.await_totals(expected_totals(orders[:half]))
    delete_events(shop)
    shop.send(orders[half:])
    shop.await_totals(expected_totals(orders))


def delete_events(shop: Shop) -> None:
    admin = make_admin(shop.stack.bootstrap_servers)
    for future in admin.delete_records([TopicPartition(shop.orders, 0, -1)]).values():
        future.result(30)


def apply_approved(shop: Shop, *, crash_at: str = "") -> str:
    """Apply what has to be approved first; what the plan said."""
    blocked = shop.run("apply")
    assert blocked.returncode == 1, blocked.stdout + blocked.stderr
    shop.approve()
    if crash_at:
        assert shop.run("apply", crash_at=crash_at).returncode == -9
    shop.apply()
    assert len(shop.active()) == 1
    return blocked.stdout


def test_totals_go_on_when_the_output_changes(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:200])
    shop.edit(*THRESHOLD)
    assert "assumed to fit" in shop.run("plan").stdout
    said = apply_approved(shop)
    assert "carry the state of customer_metrics::aggregate::0 and the positions of the sources: shown to fit" in said
    assert "does not carry" not in said
    shop.send(orders[200:])
    shop.await_totals(expected_totals(orders))
    assert "unchanged" in shop.apply().stdout
    assert shop.journal()[-1]["requires"] == "COMPATIBLE"


def test_what_was_carried_is_stopped_restored_and_carried_again(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:100])
    shop.edit(*THRESHOLD)
    apply_approved(shop)
    assert shop.run("stop").returncode == 0
    shop.send(orders[100:200])
    shop.apply()
    shop.await_totals(expected_totals(orders[:200]))
    assert shop.run("stop").returncode == 0
    shop.edit(BIG, "> 1500", "> 2000")
    shop.send(orders[200:])
    apply_approved(shop)
    shop.await_totals(expected_totals(orders))


def test_models_that_are_renamed_edited_and_removed_leave_the_others_state_alone(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:200])
    (shop.folder / "models" / "clean_orders.sql").rename(shop.folder / "models" / "valid_orders.sql")
    shop.edit(METRICS, "clean_orders", "valid_orders")
    shop.edit("streamform.yml", "  clean_orders:\n", "  valid_orders:\n    renamed_from: clean_orders\n")
    remove_big(shop)
    said = apply_approved(shop)
    assert "shown to fit" in said
    shop.send(orders[200:])
    shop.await_totals(expected_totals(orders))


def remove_big(shop: Shop) -> None:
    """Take the model away that reads the totals."""
    (shop.folder / BIG).unlink()
    (shop.folder / "tests" / "big_customers.yml").unlink()
    text = (shop.folder / "streamform.yml").read_text()
    start = text.index("  big_customers:\n")
    text = text[:start] + text[text.index("targets:\n") :]
    (shop.folder / "streamform.yml").write_text("\n".join(line for line in text.split("\n") if f"topic: {shop.big}" not in line))


def test_a_sink_that_moves_gets_what_comes_next(shop: Shop, new_topic: NewTopic) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:200])
    before, shop.metrics = shop.metrics, new_topic("metrics", config={"cleanup.policy": "compact"})
    shop.edit("streamform.yml", f"topic: {before}", f"topic: {shop.metrics}")
    said = apply_approved(shop)
    assert "shown to fit" in said
    shop.send(orders[200:])
    touched = {order.get("customer_id") for order in orders[200:]}
    expected = {customer: row for customer, row in expected_totals(orders).items() if customer in touched}
    until(lambda: expected.items() <= shop.totals(shop.metrics).items(), ROWS_S)
    assert shop.totals(shop.metrics).keys() <= touched


@pytest.mark.parametrize(
    "point", ["flink-carry-state", "flink-rehearse", "flink-stopping", "flink-stop-job", "flink-sent", "flink-submit", "flink-verify"]
)
def test_a_carry_that_is_killed_is_finished_with_its_totals(shop: Shop, point: str) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:200])
    shop.edit(*THRESHOLD)
    apply_approved(shop, crash_at=point)
    shop.send(orders[200:])
    shop.await_totals(expected_totals(orders))


def test_a_plan_that_was_tampered_with_is_not_trusted(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    (place,) = compiled_plans(shop)
    place.write_text(place.read_text() + " ")
    shop.edit(*THRESHOLD)
    blocked = shop.run("apply")
    assert "was changed after it was started" in blocked.stdout
    assert "BACKFILL REQUIRED" in blocked.stdout
    assert "(unit big_customers)" in blocked.stdout


def compiled_plans(shop: Shop) -> list[Path]:
    """Compiled plans of the project, oldest first."""
    folder = Path(urlsplit(shop.stack.savepoint_dir).path) / "streamform-plans" / shop.name
    return sorted(folder.rglob("*.json"), key=lambda path: path.stat().st_mtime)


def test_a_restore_that_flink_accepts_and_gets_wrong_is_refused(shop: Shop) -> None:
    """The running SUM becomes a MAX of the same type. Flink takes the totals for maxima; we compute them again."""
    orders = shipped_orders()[:300]
    shop.edit(METRICS, "SUM(amount)", "SUM(CAST(amount AS DECIMAL(38, 2)))")
    shop.send(orders[:200])
    shop.apply()
    shop.await_totals(expected_totals(orders[:200]))
    (place,) = compiled_plans(shop)
    statements = [
        statement for file in (shop.folder / ".streamform").rglob("statements.json") for statement in json.loads(file.read_text())
    ]
    shop.edit(METRICS, "SUM(CAST", "MAX(CAST")
    blocked = shop.run("apply")
    assert blocked.returncode == 1
    assert "state is not carried (the verdict is" in blocked.stdout

    changed = place.read_text().replace("$SUM$1", "$MAX$1")
    with pytest.raises(NotProvable, match="aggregates"):
        fit_plan(place.read_text(), changed, Claim({}))

    savepoint = json.loads(shop.run("stop", "--json").stdout)["units"][0]["stages"][0]["savepoint"]
    job = start_unchecked(shop, statements, changed, place.with_name("unchecked.json"), savepoint)
    shop.send(orders[200:])
    largest = largest_orders(orders)
    until(lambda: job in shop.healthy() and shop.totals(shop.metrics) != expected_totals(orders[:200]), ROWS_S)
    wrong = shop.totals(shop.metrics)
    assert any(wrong[customer][0] > largest[customer] for customer in largest), "Flink restored sums as maxima"
    requests.patch(f"{shop.stack.rest_url}/jobs/{job}?mode=cancel", timeout=30)
    until(lambda: not shop.active(), ROWS_S)

    assert shop.run("apply").returncode == 1
    shop.approve(shop.waiting()[0])
    shop.apply()
    until(lambda: {c: row[0] for c, row in shop.totals(shop.metrics).items()} == largest, ROWS_S)


def largest_orders(orders: Orders) -> dict[int, Decimal]:
    """The largest order of each customer, in a few lines of Python."""
    found: dict[int, Decimal] = {}
    for order in orders:
        customer, amount = order.get("customer_id"), order.get("amount")
        if customer is not None and amount is not None and order.get("status") not in (None, "test"):
            found[customer] = max(found.get(customer, Decimal(str(amount))), Decimal(str(amount)))
    return found


def start_unchecked(shop: Shop, statements: list[str], plan: str, place: Path, savepoint: str) -> str:
    """Restore a plan as Flink lets anybody; the job."""
    place.write_text(plan)
    session = Gateway(HttpService("the SQL Gateway", shop.stack.gateway_url, "")).session(settings_of(tuple(statements)))
    for statement in definitions_of(tuple(statements)):
        session.define(statement)
    labels = f"streamform.project:{shop.name}"
    config = {"execution.state-recovery.path": savepoint, "pipeline.global-job-parameters": labels}
    done = session.start(f"EXECUTE PLAN 'file://{place}'", config, sent=lambda: None)
    session.close()
    assert done.job_id is not None
    return done.job_id


def test_a_retention_edit_keeps_exact_totals(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    with_history_lost(shop, orders[:200])
    comment = "# one row a customer, which keeps changing\n"
    for before, after in ((comment, f"{comment}    retention: 30d\n"), ("retention: 30d", "retention: 60d")):
        shop.edit("streamform.yml", before, after)
        said = apply_approved(shop)
        assert "the new retention holds for stored keys" in said
        assert shop.journal()[-1]["requires"] == "STATE MIGRATION REQUIRED"
    shop.send(orders[200:])
    shop.await_totals(expected_totals(orders))


def test_a_removed_accumulator_leaves_the_others_exact(shop: Shop) -> None:
    orders = shipped_orders()[:400]
    with_history_lost(shop, orders[:200])
    shop.edit(METRICS, ",\n  COUNT(*) AS orders", "")
    drop_column_from_tests(shop)
    said = apply_approved(shop)
    assert "shown to fit" in said
    assert shop.journal()[-1]["requires"] == "STATE MIGRATION REQUIRED"
    shop.send(orders[200:300])
    await_spend(shop, orders[:300], orders[200:300])
    shop.edit(*THRESHOLD)
    apply_approved(shop)
    shop.send(orders[300:])
    await_spend(shop, orders, orders[200:])


def drop_column_from_tests(shop: Shop) -> None:
    (shop.folder / "tests" / "customer_metrics.yml").unlink()


def await_spend(shop: Shop, orders: Orders, since: Orders) -> None:
    """Wait until customers of the newest orders have exactly the total of all orders, and no number of orders any more."""
    touched = expected_totals(since)
    expected = {customer: (total, None) for customer, (total, _) in expected_totals(orders).items() if customer in touched}
    until(lambda: expected.items() <= shop.totals(shop.metrics).items(), ROWS_S)


def test_aggregates_in_another_order_keep_exact_totals(shop: Shop) -> None:
    """Flink would swap the values: both have the same type."""
    orders = shipped_orders()[:300]
    swapped = "COUNT(*) AS orders,\n  SUM(CAST(amount AS BIGINT)) AS total_spend"
    shop.edit(
        METRICS, "SUM(amount) AS total_spend,\n  COUNT(*) AS orders", "SUM(CAST(amount AS BIGINT)) AS total_spend,\n  COUNT(*) AS orders"
    )
    half = orders[:200]
    shop.send(half)
    shop.apply()
    until(lambda: shop.totals(shop.metrics) == whole_totals(half), ROWS_S)
    delete_events(shop)
    shop.edit(METRICS, "SUM(CAST(amount AS BIGINT)) AS total_spend,\n  COUNT(*) AS orders", swapped)
    assert "shown to fit" in apply_approved(shop)
    shop.send(orders[200:])
    until(lambda: shop.totals(shop.metrics) == whole_totals(orders), ROWS_S)


def whole_totals(orders: Orders) -> dict[int, tuple[int, int]]:
    """The totals of amounts without their cents."""
    found: dict[int, tuple[int, int]] = {}
    for order in orders:
        customer, amount = order.get("customer_id"), order.get("amount")
        if customer is not None and amount is not None and order.get("status") not in (None, "test"):
            total, number = found.get(customer, (0, 0))
            found[customer] = (total + int(amount), number + 1)
    return found


def test_a_changed_query_that_fails_is_found_before_the_running_job_is_stopped(shop: Shop) -> None:
    orders = shipped_orders()
    shop.send(orders[:200])
    shop.apply()
    before = shop.active()
    shop.edit(BIG, "total_spend\nFROM", NO_NUMBER)
    assert shop.run("apply").returncode == 1
    shop.approve()
    with sent_slowly(shop, orders[200:]) as sent:
        failed = shop.run("apply")
    assert failed.returncode == 1, failed.stdout
    assert "the rehearsal failed, and what runs was left alone" in failed.stdout
    assert shop.active() == before
    shop.await_totals(expected_totals(orders[: 200 + len(sent)]))


@contextmanager
def sent_slowly(shop: Shop, orders: Orders) -> Iterator[Orders]:
    """Orders arrive while something else happens; those that did."""
    sent: Orders = []
    ended = threading.Event()

    def send() -> None:
        for order in orders:
            if ended.wait(0.1):
                return
            shop.send([order])
            sent.append(order)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def test_a_switch_that_fails_brings_the_job_back_that_ran_before(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    shop.send(orders[:200])
    shop.apply()
    shop.edit(BIG, "total_spend\nFROM", NO_NUMBER)
    assert shop.run("apply").returncode == 1
    shop.approve()
    assert shop.run("apply", crash_at="flink-stop-job").returncode == -9
    shop.send(orders[200:])
    failed = shop.run("apply")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    entry = shop.journal()[-1]
    assert entry["outcome"] == "failed"
    assert "what ran before runs again as job" in entry["problem"]
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders))
