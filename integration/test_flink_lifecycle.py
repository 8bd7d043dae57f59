"""One project's way on a real Flink, SQL Gateway and Kafka: first apply, changes, stop and restore, kills, and what is not there."""

from __future__ import annotations

import http.server
import json
import os
import threading
from typing import Any

import pytest

from integration.conftest import PrivateGateway
from integration.shop import ROWS_S, Shop, expected_totals, one_error, shipped_orders, untouched
from integration.stack.process import until
from integration.stack.topics import produce


def test_an_apply_starts_one_job_whose_rows_are_those_of_a_plain_computation(shop: Shop) -> None:
    orders = shipped_orders()
    shop.send(orders)
    done = shop.apply()
    assert "verify: 3 of 3 tasks run" in done.stderr
    expected = expected_totals(orders)
    shop.await_totals(expected)
    assert {key for key, (total, _) in expected.items() if total > 1000} == set(shop.totals(shop.big))
    status = json.loads(shop.run("status", "--json").stdout)
    assert [job["job_id"] for job in status["jobs"]] == shop.active()

    again = shop.apply()
    assert "unchanged" in again.stdout
    assert len(shop.jobs()) == 1


def test_a_change_that_needs_a_backfill_waits_and_then_replaces_the_job(shop: Shop) -> None:
    orders = shipped_orders()
    shop.send(orders)
    shop.apply()
    before = shop.active()
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    blocked = shop.run("apply")
    assert blocked.returncode == 1
    assert "state is not carried (the verdict is BACKFILL REQUIRED)" in blocked.stdout
    assert shop.active() == before
    shop.approve()
    shop.apply()
    assert len(shop.active()) == 1
    assert shop.active() != before
    shop.await_totals(expected_totals(orders, lambda status: status == "paid"))


def test_a_rename_keeps_the_running_job(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    before = shop.active()
    (shop.folder / "models" / "clean_orders.sql").rename(shop.folder / "models" / "valid_orders.sql")
    shop.edit("models/customer_metrics.sql", "clean_orders", "valid_orders")
    shop.edit("streamform.yml", "  clean_orders:\n", "  valid_orders:\n    renamed_from: clean_orders\n")
    done = shop.apply()
    assert "kept" in done.stdout
    assert shop.active() == before
    assert "unchanged" in shop.apply().stdout


def test_a_stopped_unit_goes_on_from_its_savepoint(shop: Shop) -> None:
    orders = shipped_orders()
    shop.send(orders[:300])
    shop.apply()
    shop.await_totals(expected_totals(orders[:300]))
    stopped = shop.run("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert shop.active() == []
    shop.send(orders[300:])
    shop.apply()
    shop.await_totals(expected_totals(orders))
    assert len(shop.active()) == 1


@pytest.mark.parametrize("point", ["flink-compiled", "flink-sent", "flink-submit", "flink-verify"])
def test_an_apply_that_is_killed_leads_to_exactly_one_job(shop: Shop, point: str) -> None:
    orders = shipped_orders()[:200]
    shop.send(orders)
    killed = shop.run("apply", crash_at=point)
    assert killed.returncode == -9
    shop.apply()
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders))


@pytest.mark.parametrize("point", ["flink-stop-job", "flink-sent", "flink-submit"])
def test_a_replacement_that_is_killed_leads_to_exactly_one_job(shop: Shop, point: str) -> None:
    orders = shipped_orders()[:200]
    shop.send(orders)
    shop.apply()
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    shop.run("apply")
    shop.approve()
    assert shop.run("apply", crash_at=point).returncode == -9
    shop.apply()
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders, lambda status: status == "paid"))


def test_a_gateway_that_is_not_there_is_one_error(shop: Shop) -> None:
    shop.edit("streamform.yml", shop.stack.gateway_url, "http://127.0.0.1:9")
    done = shop.run("apply")
    assert (done.returncode, "the connection is refused" in one_error(done)) == (2, True)
    assert untouched(shop)


def test_a_gateway_that_answers_html_is_one_error(shop: Shop) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>a proxy's page</html>")

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shop.edit("streamform.yml", shop.stack.gateway_url, f"http://127.0.0.1:{server.server_address[1]}")
        done = shop.run("apply")
        server.shutdown()
    assert (done.returncode, "answers HTML" in one_error(done)) == (2, True)
    assert untouched(shop)


def test_a_broker_that_is_not_there_is_one_error(shop: Shop) -> None:
    shop.edit("streamform.yml", shop.stack.bootstrap_servers, "127.0.0.1:9")
    done = shop.run("apply")
    assert (done.returncode, "Kafka at 127.0.0.1:9" in one_error(done)) == (2, True)
    assert untouched(shop)


def test_a_topic_that_does_not_exist_is_one_error(shop: Shop) -> None:
    shop.edit("streamform.yml", f"topic: {shop.orders}", "topic: nowhere")
    done = shop.run("apply")
    assert (done.returncode, one_error(done)) == (1, "error: there is no topic `nowhere`, which source `orders` reads")
    assert untouched(shop)


def test_a_sink_topic_with_records_of_somebody_else_is_refused(shop: Shop) -> None:
    produce(shop.stack.bootstrap_servers, shop.metrics, [(b"{}", b"{}")])
    done = shop.run("apply")
    assert (done.returncode, "did not write" in one_error(done)) == (1, True)
    assert untouched(shop)


def test_records_of_somebody_else_are_adopted_once_somebody_approved_that(shop: Shop) -> None:
    orders, theirs = shipped_orders(), (b"{}", b'{"theirs": 1}')
    shop.send(orders)
    produce(shop.stack.bootstrap_servers, shop.metrics, [theirs])
    blocked = shop.run("apply", "--adopt")
    assert blocked.returncode == 1
    assert "the sink of `customer_metrics` holds rows that this project did not write; they stay" in blocked.stdout
    assert untouched(shop)
    shop.approve()
    assert "did not write" in one_error(shop.run("apply"))
    done = shop.run("apply", "--adopt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(shop.active()) == 1
    assert until(lambda: len(shop.read(shop.metrics)) > len(expected_totals(orders)), ROWS_S)
    assert theirs in [(record.raw_key, record.raw_value) for record in shop.read(shop.metrics)]
    assert "unchanged" in shop.apply().stdout


def test_a_gateway_that_dies_leaves_the_job_running(shop: Shop, private_gateway: PrivateGateway) -> None:
    gateway = private_gateway()
    shop.edit("streamform.yml", shop.stack.gateway_url, gateway.url)
    shop.apply()
    gateway.stop()
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    shop.run("apply")
    shop.approve()
    done = shop.run("apply")
    assert (done.returncode, "the SQL Gateway" in one_error(done)) == (2, True)
    assert len(shop.active()) == 1


def test_events_that_flink_can_not_read_are_named_and_the_job_is_not_left_looping(shop: Shop) -> None:
    produce(shop.stack.bootstrap_servers, shop.orders, [(None, b'{"order_id": 1, "ordered_at": "2026-08-30T10:00:00Z"}')])
    done = shop.run("apply")
    assert done.returncode == 1
    assert "timestamps are written without Z" in done.stdout
    assert shop.active() == []


def test_secrets_are_in_no_file_and_no_output(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS", shop.stack.bootstrap_servers)
    shop.edit("streamform.yml", shop.stack.bootstrap_servers, "${BROKERS}")
    done = shop.apply()
    written = [path for path in (shop.folder / ".streamform").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if shop.stack.bootstrap_servers in path.read_text(errors="replace")]
    assert shop.stack.bootstrap_servers not in done.stdout + done.stderr
    assert os.environ["BROKERS"]
