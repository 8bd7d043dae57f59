"""Models that part into units of their own, and that join again: every unit stays known, and nothing is applied twice."""

from __future__ import annotations

from tests.conftest import ProjectBuilder, ProjectFolder

CLEAN = "SELECT customer_id, amount FROM source('orders') WHERE amount IS NOT NULL"
TOTALS = "SELECT customer_id, SUM(amount) AS total FROM ref('clean') GROUP BY customer_id"
LARGEST = "SELECT customer_id, MAX(amount) AS largest FROM {} GROUP BY customer_id"
TOGETHER, APART = LARGEST.format("ref('clean')"), LARGEST.format("source('orders')")


def write(project: ProjectBuilder, largest: str) -> ProjectFolder:
    upsert = {"materialized": "upsert", "key": ["customer_id"]}
    folder = project(
        {"clean": CLEAN, "totals": TOTALS, "largest": largest},
        {
            "clean": {"materialized": "append"},
            "totals": {**upsert, "sink": {"connector": "sqlite", "path": "out.db", "table": "totals"}},
            "largest": {**upsert, "sink": {"connector": "sqlite", "path": "out.db", "table": "largest"}},
        },
        targets={"local": {"backend": "embedded", "embedded": {"state": "state.db"}}},
    )
    return folder.write("data/orders.jsonl", '{"customer_id": 1, "amount": 2.50, "status": "paid", "ordered_at": "2026-08-30T10:00:00"}\n')


def applied(folder: ProjectFolder) -> list[str]:
    """The first words of what apply says about each unit."""
    done = folder.run("apply")
    assert done.code == 0, done.stderr
    return [line.split(" (")[0] for line in done.stdout.splitlines() if line.split(":")[0] in ("clean", "largest")]


def test_both_units_of_a_split_stay_known(project: ProjectBuilder) -> None:
    folder = write(project, TOGETHER)
    assert applied(folder) == ["clean: applied"]
    folder.write("models/largest.sql", APART)
    assert applied(folder) == ["clean: applied", "largest: applied"]
    assert applied(folder) == ["clean: unchanged", "largest: unchanged"]


def test_the_unit_that_keeps_its_name_is_applied_before_the_one_that_left_it(project: ProjectBuilder) -> None:
    folder = write(project, TOGETHER)
    applied(folder)
    folder.write("models/largest.sql", APART)
    done = folder.run("apply", "--unit", "largest")
    assert (done.code, "unit `clean` still runs model `largest` of unit `largest`" in done.stderr) == (1, True)
    assert applied(folder) == ["clean: applied", "largest: applied"]


def test_a_unit_that_joins_another_ends(project: ProjectBuilder) -> None:
    folder = write(project, APART)
    assert applied(folder) == ["clean: applied", "largest: applied"]
    folder.write("models/largest.sql", TOGETHER)
    assert applied(folder) == ["clean: applied"]
    assert applied(folder) == ["clean: unchanged"]
