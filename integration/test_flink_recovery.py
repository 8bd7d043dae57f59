"""Applies that go wrong on a real Flink: what failed, was killed or lost leaves exactly one job, or none where none ran before."""

from __future__ import annotations

import http.server
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from integration.conftest import NewTopic
from integration.shop import ROWS_S, Orders, Shop, expected_totals, is_paid, one_error, shipped_orders, untouched
from integration.stack.process import until
from tests.conftest import environment

OTHER = "SELECT customer_id, MAX(amount) AS largest FROM {} GROUP BY customer_id\n"
OTHER_MODEL = """\
  other:
    materialized: upsert
    key: [customer_id]
    sink: {connector: sqlite, path: other.db, table: other}
"""


def test_a_job_that_fails_gives_way_to_the_one_that_ran_before(shop: Shop, new_topic: NewTopic) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders[:50])
    shop.apply()
    first = shop.orders
    point_at_unreadable_events(shop, new_topic)
    failed = shop.run("apply")
    assert failed.returncode == 1
    assert "timestamps are written without Z" in failed.stdout
    assert "what ran before runs again as job" in failed.stdout
    (job,) = shop.active()
    assert [entry["outcome"] for entry in shop.journal()] == ["applied", "failed"]
    assert [seen["job_id"] for seen in json.loads(shop.run("status", "--json").stdout)["jobs"]] == [job]
    shop.orders = first
    shop.send(orders[50:])
    shop.await_totals(expected_totals(orders))


def test_a_kill_while_the_old_job_is_brought_back_leaves_it_alone(shop: Shop, new_topic: NewTopic) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    point_at_unreadable_events(shop, new_topic)
    assert shop.run("apply", crash_at="flink-restored").returncode == -9
    again = shop.run("apply")
    assert again.returncode == 1, again.stdout + again.stderr
    assert len(shop.active()) == 1
    assert [entry["outcome"] for entry in shop.journal()] == ["applied", "failed"]


def point_at_unreadable_events(shop: Shop, new_topic: NewTopic) -> None:
    before, shop.orders = shop.orders, new_topic("orders")
    shop.send_unreadable()
    shop.edit("streamform.yml", f"topic: {before}", f"topic: {shop.orders}")
    assert shop.run("apply").returncode == 1
    shop.approve()


def test_what_a_failed_first_apply_wrote_is_not_taken_for_somebody_elses(shop: Shop, new_topic: NewTopic) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    shop.send_unreadable()
    assert shop.run("apply").returncode == 1
    until(lambda: bool(shop.read(shop.metrics)), ROWS_S)
    before, shop.orders = shop.orders, new_topic("orders")
    shop.send(orders)
    shop.edit("streamform.yml", f"topic: {before}", f"topic: {shop.orders}")
    shop.apply()
    shop.await_totals(expected_totals(orders))


def test_a_savepoint_that_vanished_fails_the_start_and_stays_recorded(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    stopped = json.loads(shop.run("stop", "--json").stdout)
    place = urlsplit(stopped["units"][0]["stages"][0]["savepoint"]).path
    shutil.move(place, f"{place}.away")
    failed = shop.run("apply")
    assert failed.returncode == 1, failed.stderr
    assert Path(place).name in failed.stdout
    assert shop.active() == []
    shutil.move(f"{place}.away", place)
    shop.apply()
    assert len(shop.active()) == 1


def test_a_stop_that_was_asked_for_before_a_kill_is_not_taken_for_a_running_job(shop: Shop) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    shop.apply()
    shop.change()
    assert shop.run("apply", crash_at="flink-stopping").returncode == -9
    shop.edit("models/clean_orders.sql", "status = 'paid'", "status <> 'test'")
    finished = shop.run("apply")
    assert finished.returncode == 1, finished.stderr
    assert len(shop.active()) == 1
    shop.approve()
    shop.apply()
    assert len(shop.active()) == 1


def test_a_job_that_was_sent_before_a_kill_is_finished_before_an_edit(shop: Shop) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    assert shop.run("apply", crash_at="flink-sent").returncode == -9
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    assert shop.run("apply").returncode == 1
    assert len(shop.active()) == 1
    shop.approve()
    shop.apply()
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders, is_paid) | left_over(orders))


def left_over(orders: Orders) -> dict[int, tuple[Decimal, int]]:
    """Rows of customers that the changed model does not produce, which the plan says stay."""
    kept = expected_totals(orders, is_paid)
    return {customer: row for customer, row in expected_totals(orders).items() if customer not in kept}


def test_an_attempt_that_sent_nothing_before_a_kill_gives_way_to_an_edit(shop: Shop) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    assert shop.run("apply", crash_at="flink-compiled").returncode == -9
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    shop.apply()
    assert len(shop.jobs()) == 1
    shop.await_totals(expected_totals(orders, is_paid))


@pytest.mark.parametrize("point", ["flink-stopping", "flink-stop-job"])
def test_a_stop_that_is_killed_is_finished_by_the_next_command(shop: Shop, point: str) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    shop.apply()
    assert shop.run("stop", crash_at=point).returncode == -9
    shop.apply()
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders))


def test_names_may_change_while_a_unit_is_stopped(shop: Shop) -> None:
    orders = shipped_orders()[:300]
    shop.send(orders[:100])
    shop.apply()
    shop.await_totals(expected_totals(orders[:100]))
    assert shop.run("stop").returncode == 0
    (shop.folder / "models" / "clean_orders.sql").rename(shop.folder / "models" / "valid_orders.sql")
    shop.edit("models/customer_metrics.sql", "clean_orders", "valid_orders")
    shop.edit("streamform.yml", "  clean_orders:\n", "  valid_orders:\n    renamed_from: clean_orders\n")
    shop.send(orders[100:200])
    shop.apply()
    shop.await_totals(expected_totals(orders[:200]))
    assert shop.run("stop").returncode == 0
    shop.send(orders[200:])
    shop.apply()
    shop.await_totals(expected_totals(orders))


def test_a_job_that_somebody_ended_is_started_anew_only_when_that_is_approved(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    (job,) = shop.active()
    requests.patch(f"{shop.stack.rest_url}/jobs/{job}?mode=cancel", timeout=30)
    until(lambda: not shop.active(), ROWS_S)
    blocked = shop.run("apply")
    assert (blocked.returncode, "STATE INCOMPATIBLE" in blocked.stdout) == (1, True), blocked.stdout + blocked.stderr
    shop.approve()
    shop.apply()
    assert len(shop.active()) == 1


def test_a_job_that_keeps_failing_says_why_it_can_not_be_stopped_and_can_be_discarded(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    shop.apply()
    shop.send_unreadable()
    until(lambda: shop.jobs()[0]["state"] == "RESTARTING", ROWS_S)
    kept = shop.run("stop")
    assert kept.returncode == 1
    assert "--discard-state" in kept.stdout + kept.stderr
    assert shop.run("stop", "--discard-state").returncode == 1
    shop.approve()
    assert shop.run("stop", "--discard-state").returncode == 0
    assert shop.active() == []


def add_other(shop: Shop, new_topic: NewTopic, reads: str) -> None:
    """A fourth model with a sink of its own."""
    topic = new_topic("other", config={"cleanup.policy": "compact"})
    shop.edit("streamform.yml", "targets:\n", f"{OTHER_MODEL}\ntargets:\n")
    shop.edit("streamform.yml", "    sinks:\n", f"    sinks:\n      other: {{connector: kafka, topic: {topic}}}\n")
    other_reads(shop, reads)


def other_reads(shop: Shop, reads: str) -> None:
    (shop.folder / "models" / "other.sql").write_text(OTHER.format(reads))


def approve_all(shop: Shop) -> list[int]:
    """Approve and apply until nothing waits; the exit codes."""
    codes = []
    while waiting := shop.waiting():
        shop.approve(waiting[0])
        codes.append(shop.run("apply").returncode)
    return codes


def test_units_that_part_and_join_have_one_job_each(shop: Shop, new_topic: NewTopic) -> None:
    shop.send(shipped_orders()[:100])
    add_other(shop, new_topic, "ref('clean_orders')")
    shop.apply()
    assert len(shop.active()) == 1
    for reads, jobs in (("source('orders')", 2), ("ref('clean_orders')", 1)):
        other_reads(shop, reads)
        assert shop.run("apply").returncode == 1
        assert approve_all(shop)[-1] == 0
        assert len(shop.active()) == jobs
        assert "unchanged" in shop.apply().stdout
        assert len(shop.active()) == jobs


def test_a_unit_whose_takeover_failed_is_stopped_and_goes_on_from_its_savepoint(shop: Shop, new_topic: NewTopic) -> None:
    shop.send(shipped_orders()[:100])
    add_other(shop, new_topic, "source('orders')")
    shop.apply()
    assert len(shop.active()) == 2
    readable = shop.orders
    other_reads(shop, "ref('clean_orders')")
    point_at_unreadable_events(shop, new_topic)
    failed = shop.run("apply")
    assert (failed.returncode, "unit `other` is stopped with a savepoint" in failed.stdout) == (1, True), failed.stdout
    assert len(shop.active()) == 1
    other_reads(shop, "source('orders')")
    shop.edit("streamform.yml", f"topic: {shop.orders}", f"topic: {readable}")
    back = shop.apply()
    assert "big_customers: unchanged" in back.stdout
    assert "other: applied" in back.stdout
    assert len(shop.active()) == 2
    assert [entry["verdict"] for entry in shop.journal() if entry["unit"] == "other"][-1] == "SAFE"


class LossyGateway(http.server.ThreadingHTTPServer):
    """Passes requests on to a gateway; from the first one whose body holds a mark on, answers are lost."""

    daemon_threads = True

    def __init__(self, behind: str, mark: str, *, passes: bool) -> None:
        super().__init__(("127.0.0.1", 0), LossyHandler)
        self.behind, self.mark, self.passes = behind, mark, passes
        self.is_dead = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class LossyHandler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: LossyGateway

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        was_dead = self.server.is_dead
        self.server.is_dead = was_dead or self.server.mark.encode() in body
        if was_dead or (self.server.is_dead and not self.server.passes):
            self.close_connection = True
            return
        reply = requests.request(self.command, self.server.behind + self.path, data=body, timeout=60)
        if self.server.is_dead:
            self.close_connection = True
            return
        self.send_response(reply.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.content)))
        self.end_headers()
        self.wfile.write(reply.content)

    do_GET = do_POST = do_DELETE = do

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def lossy_gateway(shop: Shop, mark: str, *, passes: bool) -> Iterator[LossyGateway]:
    with LossyGateway(shop.stack.gateway_url, mark, passes=passes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shop.edit("streamform.yml", shop.stack.gateway_url, server.url)
        yield server
        shop.edit("streamform.yml", server.url, shop.stack.gateway_url)
        server.shutdown()


def test_a_job_whose_start_the_gateway_did_not_confirm_is_found(shop: Shop) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    with lossy_gateway(shop, "EXECUTE PLAN", passes=True):
        shop.apply()
    assert len(shop.jobs()) == 1
    shop.await_totals(expected_totals(orders))


@pytest.mark.parametrize("mark", ["COMPILE PLAN", "EXECUTE PLAN"])
def test_a_gateway_that_dies_in_the_middle_is_one_error_and_the_next_apply_goes_on(shop: Shop, mark: str) -> None:
    orders = shipped_orders()[:100]
    shop.send(orders)
    with lossy_gateway(shop, mark, passes=False):
        done = shop.run("apply")
    assert done.returncode == 2
    assert "the SQL Gateway" in one_error(done)
    assert not (shop.folder / ".streamform" / "applied").exists()
    shop.apply()
    assert len(shop.jobs()) == 1
    shop.await_totals(expected_totals(orders))


def test_a_job_manager_that_is_not_there_is_one_error(shop: Shop) -> None:
    shop.edit("streamform.yml", shop.stack.rest_url, "http://127.0.0.1:9")
    done = shop.run("apply")
    assert (done.returncode, "the JobManager at http://127.0.0.1:9" in one_error(done)) == (2, True)
    assert untouched(shop)


def test_two_applies_at_once_start_one_job(shop: Shop) -> None:
    shop.send(shipped_orders()[:50])
    command = [sys.executable, "-m", "streamform.cli", "apply", "--project", str(shop.folder), "--target", "cluster"]
    both = [subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=200) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes == [0, 2], answers
    assert len(shop.jobs()) == 1


KILLS = 12


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(KILLS))
def test_an_apply_killed_at_any_time_leads_to_exactly_one_job(shop: Shop, seed: int) -> None:
    kill_and_apply(shop, random.Random(seed))


def test_an_apply_killed_at_some_time_leads_to_exactly_one_job(shop: Shop) -> None:
    kill_and_apply(shop, random.Random(7))


def kill_and_apply(shop: Shop, chance: random.Random) -> None:
    """First apply and replacement, each killed up to three times before it may end."""
    orders = shipped_orders()[:100]
    shop.send(orders)
    killed_at_random(shop, chance)
    shop.apply()
    assert len(shop.active()) == 1
    shop.change()
    killed_at_random(shop, chance)
    shop.apply()
    assert len(shop.active()) == 1
    shop.await_totals(expected_totals(orders, is_paid) | left_over(orders))
    assert "unchanged" in shop.apply().stdout


def killed_at_random(shop: Shop, chance: random.Random) -> None:
    command = [sys.executable, "-m", "streamform.cli", "apply", "--project", str(shop.folder), "--target", "cluster"]
    for _ in range(chance.randint(1, 3)):
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + chance.uniform(0.5, 7.0)
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
