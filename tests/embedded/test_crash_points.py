"""A process that dies at each of its crash points in turn: the next apply ends where an undisturbed one does.

Crash points stand before and after every write that counts: documents of the store, transactions of the state and of
tables, half and whole writes of files, stages.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable

import pytest

from streamform import api
from streamform.adapters.crashpoint import VARIABLE

from .conftest import TARGET, Shop
from .test_verdicts import CONFIG, MODELS, SOURCES, events, more

SEED = 20260831


def dies_at(shop: Shop, number: int, *arguments: str) -> bool:
    """Run a command in a child that dies at the crash point of this number; False when it ended before."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = f"#{number}"
        os._exit(shop.run(*arguments).code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def nothing(shop: Shop) -> None:
    """Only apply again."""


def another_column(shop: Shop) -> None:
    shop.change("models/copies.sql", "SELECT k, g, v, at", "SELECT k, g, v, at, f")


def backfill(shop: Shop) -> None:
    shop.change("models/rows.sql", "v IS NOT NULL", "v > 0")


def behind_the_state(shop: Shop) -> None:
    shop.change("models/totals.sql", "MIN(g) AS first", "MIN(g) AS first, 1 AS one")


def an_aggregate_less(shop: Shop) -> None:
    shop.change("models/totals.sql", ", COUNT(*) AS n", "")


def wider(shop: Shop) -> None:
    shop.change("models/totals.sql", "MIN(g) AS first", "MIN(g) AS first, MAX(v) AS most")
    shop.change("streamform.yml", "table: copies", "table: moved")


def other_places(shop: Shop) -> None:
    shop.change("streamform.yml", "table: copies", "table: moved")
    shop.change("streamform.yml", "path: out/rows.jsonl", "path: out/deep/rows.jsonl")


def joined(shop: Shop) -> None:
    shop.change("models/rows.sql", "IS NOT NULL", "IS NOT NULL UNION ALL SELECT k, g, v, f, at FROM ref('others')")


def without_a_unit(shop: Shop) -> None:
    (shop.folder / "models/others.sql").unlink()
    shop.change("streamform.yml", "  others: {sink: {connector: file, path: out/others.jsonl}}\n", "")


CHANGES: dict[str, Callable[[Shop], None]] = {
    "catch up": nothing,
    "compatible": another_column,
    "compatible, other places": other_places,
    "behind the state": behind_the_state,
    "an aggregate less": an_aggregate_less,
    "backfill": backfill,
    "other columns and another table": wider,
    "two units become one": joined,
    "a unit is removed": without_a_unit,
}


@pytest.fixture
def shop(make_project: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two units, read in small steps."""
    monkeypatch.setattr("streamform.adapters.engine.STEP", 60)
    config = CONFIG + "  others: {sink: {connector: file, path: out/others.jsonl}}\n"
    models = {**MODELS, "others": "SELECT k, g, v, f, at FROM source('d')"}
    return make_project(config, SOURCES, models, {"data/e.jsonl": events(90), "data/d.jsonl": events(20, 500)})


def every_point(shop: Shop, *arguments: str, stride: int = 1) -> int:
    """Let a command die at every crash point, each time from the same beginning; how many there are.

    `stride`: look at each so manieth only.
    """
    base, chosen = shop.folder.with_name("base"), random.Random(SEED)
    shutil.copytree(shop.folder, base)
    assert shop.run(*arguments).code == 0
    expected, outcomes = shop.contents(), outcomes_of(shop)
    number = 1 + chosen.randrange(stride)
    while True:
        shutil.rmtree(shop.folder)
        shutil.copytree(base, shop.folder)
        if not dies_at(shop, number, *arguments):
            return number - 1
        if chosen.random() < 0.3:
            dies_at(shop, chosen.randint(1, 30), "apply")
        done = shop.run("apply")
        assert done.code == 0, (number, done)
        assert shop.contents() == expected, number
        done = shop.run("apply")
        assert done.stdout.count("unchanged (nothing new)") == done.stdout.count("\n"), (number, done)
        assert shop.contents() == expected, number
        assert [o for o in outcomes_of(shop) if o[1] != "failed"] == outcomes, number
        assert len(outcomes_of(shop)) <= len(outcomes) + 2, "an attempt that was cut off twice before it acted is begun anew twice"
        number += stride


def outcomes_of(shop: Shop) -> list[tuple[str, str]]:
    return sorted((entry.unit, entry.outcome or "open") for entry in api.history(shop.folder, target=TARGET[1])[1])


def test_a_first_apply(shop: Shop) -> None:
    assert every_point(shop, "apply", stride=4) > 60


@pytest.mark.parametrize("change", CHANGES)
def test_an_apply_of_a_change(shop: Shop, change: str) -> None:
    shop.apply()
    more(shop)
    CHANGES[change](shop)
    assert every_point(shop, "apply", stride=5) > 15


@pytest.mark.soak
def test_a_first_apply_at_every_point(shop: Shop) -> None:
    print(f"first apply: died at each of {every_point(shop, 'apply')} points: 0 lost, 0 doubled")


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES)
def test_an_apply_of_a_change_at_every_point(shop: Shop, change: str) -> None:
    shop.apply()
    more(shop)
    CHANGES[change](shop)
    print(f"{change}: died at each of {every_point(shop, 'apply')} points: 0 lost, 0 doubled")
