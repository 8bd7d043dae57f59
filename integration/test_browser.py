"""An operator's way through the real Dagster UI: lineage, apply, edit, blocked run, approve link, the sensor's run.

Needs Chromium and playwright. STREAMFORM_SCREENSHOTS=docs/images keeps the pictures that the documentation shows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.browser import CHROMIUM_ARGUMENTS, RUN_S, DagsterDev, chromium, until
from streamform import api

if TYPE_CHECKING:
    from playwright.sync_api import Page

WAIT_MS = 60_000
DECIDE, APPLY = "streamform__shop__local__decide", "streamform__shop__local__apply"


@pytest.fixture
def executable() -> str:
    return chromium()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    api.init(folder, dagster=True)
    return folder


@pytest.fixture
def dagster(executable: str, shop: Path, tmp_path: Path) -> Iterator[DagsterDev]:
    with DagsterDev(shop, tmp_path / "home").running() as server:
        yield server


@pytest.fixture
def page(executable: str, dagster: DagsterDev) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_ARGUMENTS))
        opened = browser.new_page(viewport={"width": 1500, "height": 850})
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def picture(page: Page, name: str, folder: Path) -> None:
    """A screenshot, kept where STREAMFORM_SCREENSHOTS says, else beside the test's files."""
    kept = Path(os.environ.get("STREAMFORM_SCREENSHOTS") or folder)
    page.screenshot(path=kept / f"{name}.png")


def open_lineage(page: Page, dagster: DagsterDev) -> None:
    page.goto(f"{dagster.url}/asset-groups")
    for asset in ("orders", "clean_orders", "customer_metrics", "big_customers"):
        page.get_by_text(asset, exact=True).first.wait_for()
    page.get_by_role("button", name="Materialize all (3)").wait_for()


def columns(shop: Path) -> list[str]:
    with sqlite3.connect(shop / "out" / "shop.db") as connection:
        return [row[1] for row in connection.execute("PRAGMA table_info(customer_metrics)")]


def test_an_operator_approves_a_backfill_in_the_browser(page: Page, dagster: DagsterDev, shop: Path, tmp_path: Path) -> None:
    open_lineage(page, dagster)
    page.get_by_role("button", name="Materialize all (3)").click()
    first = dagster.finished_run(1)
    assert first["status"] == "SUCCESS"
    open_lineage(page, dagster)
    picture(page, "dagster-lineage", tmp_path)

    model = shop / "models" / "customer_metrics.sql"
    model.write_text(model.read_text().replace("COUNT(*) AS orders", "COUNT(*) AS orders,\n  MAX(amount) AS biggest"))
    page.get_by_role("button", name="Reload definitions").click()
    until("the location to be reloaded", lambda: "AS biggest" in dagster.description("local", "customer_metrics"), RUN_S)
    page.get_by_role("button", name="Materialize all (3)").click()
    dagster.finished_run(2)
    until("Dagster to note whether it tries again", lambda: "dagster/will_retry" in dagster.finished_run(2)["tags"], RUN_S)
    blocked = dagster.finished_run(2)
    plan = blocked["tags"]["streamform/blocked"]
    assert (blocked["status"], blocked["tags"]["dagster/will_retry"]) == ("FAILURE", "false")
    assert "biggest" not in columns(shop)

    page.goto(f"{dagster.url}/runs/{blocked['runId']}")
    page.get_by_placeholder("Filter").fill("type:STEP_FAILURE")
    page.keyboard.press("Enter")
    page.get_by_text(f"BACKFILL REQUIRED: an approval is needed (unit big_customers, plan {plan})").first.wait_for()
    link = page.locator("a[href*='playground/setup']").first.get_attribute("href")
    assert link is not None
    picture(page, "dagster-blocked", tmp_path)
    page.get_by_text("[Show Markdown]").first.click()
    page.get_by_role("cell", name="customer_metrics::aggregate::0").wait_for()
    picture(page, "dagster-diff", tmp_path)

    page.goto(link)
    page.locator(".CodeMirror-code").get_by_text(plan).wait_for()
    page.get_by_text('Missing required config entry "reason"').wait_for()
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+End")
    page.keyboard.type('      reason: "the largest order is wanted on the dashboard"\nacknowledge: BACKFILL REQUIRED')
    page.get_by_text("No errors").wait_for()
    picture(page, "dagster-approval", tmp_path)
    page.get_by_role("button", name="Launch Run").click()
    decision = dagster.finished_run(3)
    assert (decision["jobName"], decision["status"], decision["tags"]["dagster/partition"]) == (DECIDE, "SUCCESS", plan)

    applied = dagster.finished_run(4)
    assert (applied["jobName"], applied["status"], applied["tags"]["streamform/plan_id"]) == (APPLY, "SUCCESS", plan)
    assert "biggest" in columns(shop)
    assert [run["status"] for run in dagster.runs()] == ["SUCCESS", "SUCCESS", "FAILURE", "SUCCESS"]

    page.goto(f"{dagster.url}/assets/local/_record?view=events")
    page.get_by_text("streamform/previous_record_digest").first.wait_for()
    picture(page, "dagster-record", tmp_path)
