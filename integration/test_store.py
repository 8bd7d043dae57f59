"""The store on a real PostgreSQL: processes that share no disk, killed processes, and what goes wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from integration.requirement import require
from integration.shop import Shop, expected_totals, shipped_orders
from integration.stack.ports import HOST, free_ports
from integration.stack.postgres import PASSWORD, Postgres, missing_postgres, running_postgres
from streamform import api
from streamform.adapters.factory import open_documents
from streamform.errors import StoreError
from streamform.lifecycle.ports import ANY
from streamform.project.model import Target
from tests.conftest import Run, run_cli

VARIABLE = "STORE_PASSWORD"
ACKNOWLEDGE = ("--acknowledge", "BACKFILL REQUIRED")


@dataclass(frozen=True, slots=True)
class Machine:
    """A copy of the project that shares nothing with the others but the database."""

    folder: Path
    password: str = PASSWORD

    def run(self, *arguments: str, **env: str) -> Run:
        """A command in a process of its own."""
        variables = {VARIABLE: self.password, **env}
        return run_cli(*arguments, "--project", str(self.folder), "--target", "local", env=variables, timeout=120)

    def json(self, *arguments: str) -> dict[str, Any]:
        """What a command prints as JSON."""
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def edit(self) -> None:
        """A change that needs a backfill."""
        file = self.folder / "models" / "clean_orders.sql"
        text = file.read_text()
        assert "status <> 'test'" in text
        file.write_text(text.replace("status <> 'test'", "status = 'paid'"))

    def lines(self) -> list[str]:
        """The sink of big customers."""
        return (self.folder / "out" / "big_customers.jsonl").read_text().splitlines()

    def copy(self, name: str) -> Machine:
        """Another machine with the same project, as version control has it."""
        ignored = shutil.ignore_patterns(".streamform", "out")
        return replace(self, folder=Path(shutil.copytree(self.folder, self.folder.with_name(name), ignore=ignored)))


def with_store(folder: Path, url: str, target: str) -> None:
    """Let a target of the example keep its store in a database."""
    file = folder / "streamform.yml"
    text = file.read_text()
    changed = text.replace(f"  {target}:", f"  {target}:\n    store: '{url}'", 1)
    assert changed != text
    file.write_text(changed)


@pytest.fixture
def url(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty database."""
    monkeypatch.setenv(VARIABLE, PASSWORD)
    return postgres.url(postgres.new_database())


@pytest.fixture
def machine(tmp_path: Path, url: str) -> Machine:
    """The example with its store in the database."""
    api.init(tmp_path / "one")
    with_store(tmp_path / "one", url, "local")
    return Machine(tmp_path / "one")


@pytest.fixture
def private_postgres() -> Iterator[Postgres]:
    """A server of the test's own, which it may stop."""
    require(missing_postgres())
    with running_postgres() as server:
        yield server


def test_a_plan_that_is_blocked_on_one_machine_is_approved_on_another(machine: Machine) -> None:
    assert machine.run("apply").code == 0
    other = machine.copy("two")
    assert [entry["outcome"] for entry in other.json("history")["entries"]] == ["applied"]
    machine.edit()
    blocked = machine.run("apply")
    assert blocked.code == 1
    (waiting,) = [found for found in other.json("approvals")["approvals"] if found["status"] == "pending"]
    assert waiting["plan_id"] in blocked.stdout
    approved = other.run("approve", waiting["plan_id"], "--reason", "checked", *ACKNOWLEDGE)
    assert approved.code == 0, approved.stderr
    applied = machine.run("apply")
    assert applied.code == 0, applied.stderr
    (consumed,) = other.json("approvals")["approvals"]
    assert (consumed["plan_id"], consumed["status"]) == (waiting["plan_id"], "consumed")
    assert other.json("history")["entries"][-1]["plan_id"] == waiting["plan_id"]
    assert not (other.folder / ".streamform").exists()
    assert machine.run("apply").stdout.count("unchanged") == len(machine.json("apply")["units"])


def test_machines_compute_the_same_plan_id_from_what_the_database_holds(machine: Machine, tmp_path: Path) -> None:
    file = machine.folder / "streamform.yml"
    file.write_text(file.read_text().replace(".streamform/state/local.db", str(tmp_path / "state.db")))
    assert machine.run("apply").code == 0
    machine.edit()
    other = machine.copy("two")
    first, second = (found.json("plan")["units"] for found in (machine, other))
    assert [unit["plan_id"] for unit in first] == [unit["plan_id"] for unit in second]
    assert first[0]["requires"] == "BACKFILL REQUIRED"


def test_no_secret_is_in_what_commands_print_or_the_database_holds(machine: Machine, postgres: Postgres, url: str) -> None:
    machine.run("apply")
    machine.edit()
    said = [machine.run(*command.split()) for command in ("apply", "plan --json", "approvals --json", "history --json", "unlock --json")]
    with postgres.admin(url.rpartition("/")[2]) as admin:
        held = [bytes(content).decode() for (content,) in admin.execute("SELECT content FROM streamform_documents")]
        held += [holder for (holder,) in admin.execute("SELECT holder FROM streamform_locks")]
    assert len(held) > 5
    address = f"postgresql://{HOST}:{postgres.port}/{url.rpartition('/')[2]}"
    assert any(address in text for text in held), "the address is part of what an approval is bound to"
    for text in [*held, *(done.stdout + done.stderr for done in said)]:
        assert PASSWORD not in text
        assert f"{postgres.port}" not in text or "keeper" not in text


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 12, 17, 23])
def test_an_apply_that_is_killed_is_finished_by_the_next(machine: Machine, number: int) -> None:
    undisturbed = machine.copy("undisturbed")
    file = undisturbed.folder / "streamform.yml"
    file.write_text(re.sub(r"    store: .*\n", "", file.read_text()))
    assert undisturbed.run("apply").code == 0
    killed = machine.run("apply", STREAMFORM_CRASH_AT=f"#{number}")
    assert killed.code == -9
    done = machine.run("apply")
    assert done.code == 0, done.stderr
    assert machine.lines() == undisturbed.lines()
    assert [entry["outcome"] for entry in machine.json("history")["entries"] if entry["outcome"] != "failed"] == ["applied"]


def test_with_flink_three_machines_block_approve_and_apply(shop: Shop, url: str) -> None:
    with_store(shop.folder, url, "cluster")
    orders = shipped_orders()[:200]
    shop.send(orders)
    shop.apply()
    shop.edit("models/clean_orders.sql", "status <> 'test'", "status = 'paid'")
    names, ignored = ("approver", "worker"), shutil.ignore_patterns(".streamform")
    approver, worker = (
        replace(shop, folder=Path(shutil.copytree(shop.folder, shop.folder.parent / name / shop.folder.name, ignore=ignored)))
        for name in names
    )
    assert shop.run("apply").returncode == 1
    approver.approve()
    shutil.rmtree(shop.folder)
    before = worker.active()
    worker.apply()
    assert len(worker.active()) == 1
    assert worker.active() != before
    worker.await_totals(expected_totals(orders, lambda status: status == "paid"))
    assert "unchanged" in approver.apply().stdout


# what goes wrong


def one_error(done: Run) -> str:
    """The only error of a command that could not do what it was asked: a line, and one with what to do."""
    assert done.code == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  help: ")
    return done.stderr


@pytest.mark.parametrize("command", ["plan", "apply", "status", "history", "approvals", "unlock"])
def test_a_wrong_password_is_one_error_without_a_secret(machine: Machine, command: str) -> None:
    said = one_error(replace(machine, password="not the pass word").run(command))  # noqa: S106
    assert "password authentication failed" in said
    assert "not the pass word" not in said


def test_a_password_that_is_not_set_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    done = run_cli("plan", "--project", str(machine.folder), "--target", "local")
    assert f"the environment variable {VARIABLE} is not set" in one_error(done)


@pytest.mark.parametrize("command", ["plan", "apply", "history", "unlock"])
def test_a_database_that_is_down_is_one_error(machine: Machine, url: str, command: str) -> None:
    port = free_ports(1)[0]
    file = machine.folder / "streamform.yml"
    file.write_text(file.read_text().replace(url, re.sub(r":\d+/", f":{port}/", url)))
    said = one_error(machine.run(command))
    assert f"postgresql://{HOST}:{port}/" in said
    assert "connection refused" in said


def test_a_database_that_does_not_exist_is_one_error(machine: Machine, url: str) -> None:
    file = machine.folder / "streamform.yml"
    file.write_text(file.read_text().replace(url, url.rpartition("/")[0] + "/nowhere"))
    assert 'database "nowhere" does not exist' in one_error(machine.run("plan"))


@pytest.mark.parametrize("number", [0, 2])
def test_tables_of_another_format_are_refused(machine: Machine, postgres: Postgres, url: str, number: int) -> None:
    assert machine.run("apply").code == 0
    with postgres.admin(url.rpartition("/")[2]) as admin:
        admin.execute("UPDATE streamform_format SET format = %s", [number])
    for command in ("plan", "apply", "history", "unlock"):
        assert f"has format {number}, and this release knows 1" in one_error(machine.run(command))


def test_a_document_that_was_edited_by_hand_is_refused(machine: Machine, postgres: Postgres, url: str) -> None:
    assert machine.run("apply").code == 0
    with postgres.admin(url.rpartition("/")[2]) as admin:
        admin.execute("UPDATE streamform_documents SET content = 'x' WHERE path = 'applied/local.json'")
    assert re.search(r"applied/local\.json in postgresql:.* was changed by hand", one_error(machine.run("plan")))


def test_a_user_who_may_make_no_tables_uses_those_that_are_there(
    postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, user = url.rpartition("/")[2], f"worker_{postgres.port}"
    with postgres.admin(name) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(user), sql.Literal("worker's own")))
    monkeypatch.setenv("WORKER", "worker's own")
    theirs = url.replace(f"keeper:${{{VARIABLE}}}", f"{user}:${{WORKER}}")
    documents, others = (open_documents(tmp_path, "shop", Target("prod", "embedded", store=store)) for store in (url, theirs))
    assert others.read("a.json") is None
    with pytest.raises(StoreError, match="permission denied for schema"):
        others.write("a.json", b"1", expected=None)
    documents.write("a.json", b"1", expected=None)
    with postgres.admin(name) as admin:
        admin.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {}").format(sql.Identifier(user)))
    others.write("a.json", b"2", expected=ANY)
    with others.lock("prod", {}):
        assert documents.read("a.json") == b"2"


def test_a_server_that_ends_takes_the_lock_along_and_nothing_is_written_after_it(
    private_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    store = private_postgres.url(private_postgres.new_database())
    documents = open_documents(tmp_path, "shop", Target("prod", "embedded", store=store))
    with documents.lock("prod", {}):
        documents.write("a.json", b"1", expected=None)
        private_postgres.restart()
        for _ in range(2):
            with pytest.raises(StoreError, match="was lost, and with it the lock of this target"):
                documents.write("a.json", b"2", expected=ANY)
        assert documents.read("a.json") == b"1"
    with documents.lock("prod", {}):
        documents.write("a.json", b"2", expected=ANY)
    assert documents.read("a.json") == b"2"
