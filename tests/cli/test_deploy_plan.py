"""Saved plans: what `plan --out` writes, `apply --plan` carries out exactly that, or refuses and says what moved."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streamform import api
from streamform.diff.model import Classification
from streamform.errors import DocumentError
from streamform.lifecycle.deploy_plan import action_of, document_digest, read_deploy_plan, unit_action
from streamform.lifecycle.ports import Observation, ObservedJob, RunningUnit
from streamform.lifecycle.situation import Situation
from streamform.lifecycle.stages import Consequence, Stage, StageKind, Staging
from streamform.render.deploy_plan import deploy_plan_document
from tests.cli.test_schema import problem
from tests.conftest import ProjectFolder, Run, run_cli, run_here

FILTER, OTHER = "status <> 'test'", "status = 'paid'"


class Shop(ProjectFolder):
    """The example with its local target, and the file that plans are saved to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.file = root.parent / "shop.plan"

    def plan(self, *more: str) -> Run:
        return self.run("plan", "--target", "local", "--out", str(self.file), *more)

    def apply(self, *more: str) -> Run:
        return self.run("apply", "--plan", str(self.file), *more)

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    def save(self, document: dict[str, Any]) -> None:
        """Write a document with its right digest."""
        self.file.write_text(json.dumps(document | {"digest": document_digest(document)}))

    def edit(self, path: str, before: str, after: str) -> None:
        text = (self.root / path).read_text()
        assert before in text
        (self.root / path).write_text(text.replace(before, after))

    def approve(self, plan_id: str) -> None:
        done = self.run("approve", plan_id, "--reason", "seen", "--acknowledge", "BACKFILL REQUIRED")
        assert done.code == 0, done.stderr

    def stored(self) -> dict[str, bytes]:
        """Everything that the store holds, but for who holds the lock."""
        store = self.root / ".streamform"
        files = [file for file in store.rglob("*") if file.is_file() and "lock" not in file.parts and not file.name.startswith(".")]
        return {file.as_posix(): file.read_bytes() for file in files if "state" not in file.parts}

    def spenders(self) -> int:
        with closing(sqlite3.connect(self.root / "out" / "shop.db")) as database:
            count: int = database.execute("SELECT COUNT(*) FROM customer_metrics").fetchone()[0]
        return count


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    assert run_here("init", str(tmp_path / "shop")).code == 0
    return Shop(tmp_path / "shop")


@pytest.fixture
def running(shop: Shop) -> Shop:
    """The example after its first apply."""
    assert shop.run("apply", "--target", "local").code == 0
    return shop


@pytest.fixture
def waiting(running: Shop) -> Shop:
    """The example with an edit that needs an approval, saved."""
    running.edit("models/clean_orders.sql", FILTER, OTHER)
    assert running.plan().code == 1
    return running


# writing


def test_a_first_plan_is_an_initial_one_and_is_applied(shop: Shop) -> None:
    planned = shop.plan()
    assert (planned.code, shop.saved()["action"]) == (0, "initial")
    assert f"wrote {shop.file} (initial)" in planned.stdout
    assert f"streamform apply --plan {shop.file} --project {shop.root}" in planned.stdout
    applied = shop.apply()
    assert (applied.code, shop.spenders() > 0) == (0, True), applied.stderr


def test_a_plan_that_changes_nothing_is_a_no_op_and_may_be_applied_again(running: Shop) -> None:
    assert running.plan().code == 0
    assert (running.saved()["action"], running.saved()["changes"]) == ("no-op", [])
    before = running.stored()
    for _ in range(2):
        applied = running.apply("--json")
        assert (applied.code, json.loads(applied.stdout)["outcome"]) == (0, "unchanged")
    assert running.stored() == before


def test_a_compatible_edit_is_an_upgrade(running: Shop) -> None:
    running.edit("models/big_customers.sql", "> 1000", "> 2000")
    assert running.plan().code == 0
    assert (running.saved()["action"], running.saved()["verdict"]) == ("upgrade", "COMPATIBLE")


def test_a_rebuild_exits_with_1_and_its_file_is_written(waiting: Shop) -> None:
    saved = waiting.saved()
    assert (saved["action"], saved["verdict"]) == ("rebuild", "BACKFILL REQUIRED")
    assert [change["kind"] for change in saved["changes"]] == ["stateless-definition", "input-changed"]
    assert saved["units"][0]["stages"][0]["kind"] == "rebuild"
    assert saved["consequences"] == saved["units"][0]["consequences"]


def test_the_published_fields_say_what_is_deployed(waiting: Shop) -> None:
    saved = waiting.saved()
    assert (saved["application"], saved["target"], saved["backend"]) == ("shop", "local", "embedded")
    assert saved["job_name"] == "streamform/shop/local/big_customers"
    assert saved["artifact_digest"] == saved["units"][0]["subject"]["desired"]["artifact"]
    assert saved["preconditions"] == {"running": []}


def test_what_needs_an_approval_is_registered(waiting: Shop) -> None:
    pending = json.loads(waiting.run("approvals", "--target", "local", "--json").stdout)["approvals"]
    assert [plan["plan_id"] for plan in pending] == [waiting.saved()["units"][0]["plan_id"]]
    assert pending[0]["status"] == "pending"


def test_the_plan_id_is_the_one_that_apply_would_ask_the_gate_about(waiting: Shop) -> None:
    blocked = json.loads(waiting.run("apply", "--target", "local", "--json").stdout)["units"]
    assert blocked[0]["plan_id"] == waiting.saved()["units"][0]["plan_id"]


def test_the_same_situation_gives_the_same_plan(waiting: Shop) -> None:
    first = waiting.saved()
    assert waiting.plan().code == 1
    again = waiting.saved()
    assert {name for name in first if first[name] != again[name]} <= {"created_at", "digest"}


def test_saving_writes_nothing_into_the_store_but_what_waits(running: Shop) -> None:
    before = running.stored()
    assert running.plan().code == 0
    assert running.stored() == before
    running.edit("models/clean_orders.sql", FILTER, OTHER)
    assert running.plan().code == 1
    assert ["approvals" in path for path in running.stored().keys() - before.keys()] == [True]


def test_json_names_the_file_beside_the_diff(running: Shop) -> None:
    shown = json.loads(running.plan("--json").stdout)
    saved = running.saved()
    assert shown["deploy_plan"] == {"file": str(running.file), **{name: saved[name] for name in ("plan_id", "action", "digest")}}
    assert shown["units"][0]["plan_id"] == saved["units"][0]["plan_id"]


def test_a_plan_against_a_file_is_not_saved(running: Shop) -> None:
    refused = running.plan("--against", str(running.root / ".streamform" / "applied" / "local.json"))
    assert (refused.code, running.file.exists()) == (2, False)
    assert "--against" in refused.stderr


@pytest.mark.parametrize("place", ["missing/shop.plan", "folder", "fifo"])
def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(place: str, running: Shop) -> None:
    running.file = running.root / place
    (running.root / "folder").mkdir()
    os.mkfifo(running.root / "fifo")
    refused = running.plan()
    assert refused.code == 2
    assert f"can't write {running.file}" in refused.stderr
    assert list(running.root.rglob("*.tmp")) == []


def test_a_file_is_replaced_whole_and_a_link_stays_one(running: Shop) -> None:
    real = running.root / "real.plan"
    real.write_text("x" * 100_000)
    running.file.symlink_to(real)
    assert running.plan().code == 0
    assert running.file.is_symlink()
    assert json.loads(real.read_text())["deploy_plan_version"] == 1


def test_nothing_is_saved_while_an_attempt_is_unfinished(running: Shop) -> None:
    running.edit("models/big_customers.sql", "> 1000", "> 2000")
    running.edit("streamform.yml", "{above: SAFE}", "{above: COMPATIBLE}")
    cut = run_cli(
        "apply", "--target", "local", "--project", str(running.root), env={"STREAMFORM_CRASH_AT": "embedded-continue"}, timeout=60
    )
    assert cut.code not in (0, 1, 2)
    refused = running.plan()
    assert (refused.code, running.file.exists()) == (2, False)
    assert "the last attempt of unit `big_customers` is unfinished" in refused.stderr


def test_nothing_is_saved_where_the_target_does_not_answer(shop: Shop) -> None:
    for port in ("8081", "8083"):
        shop.edit("streamform.yml", f"localhost:{port}", "localhost:1")
    refused = shop.run("plan", "--target", "cluster", "--out", str(shop.file))
    assert (refused.code, shop.file.exists()) == (2, False)
    assert "localhost:1" in refused.stderr


def stages(*kinds: StageKind, restore: bool = False) -> tuple[Stage, ...]:
    return tuple(Stage(kind, kind, (("restore", restore),)) for kind in kinds)


LOST = (Consequence("state-discarded", "state", "the state is lost"),)


@pytest.mark.parametrize(
    ("walked", "consequences", "action"),
    [
        ((), (), "no-op"),
        (stages("catch-up"), LOST, "no-op"),
        (stages("initialize", "write-record"), (), "initial"),
        (stages("submit", "verify", "write-record"), (), "initial"),
        (stages("submit", "verify", "write-record", restore=True), (), "restore"),
        (stages("stop-job", "submit", "verify", "write-record"), LOST, "rebuild"),
        (stages("rebuild", "switch", "write-record"), LOST, "rebuild"),
        (stages("continue", "write-record"), (), "upgrade"),
        (stages("adopt-job", "write-record"), (), "upgrade"),
        (stages("remove", "write-record"), LOST, "upgrade"),
    ],
)
def test_stages_come_to_one_published_action(walked: Any, consequences: Any, action: str, shop: Shop) -> None:
    unit = situation_of(shop, "local").units[0]
    staged = replace(unit, staging=Staging(walked, consequences, Classification.SAFE))
    assert unit_action(staged) == action
    assert action_of([replace(unit, staging=Staging((), (), Classification.SAFE)), staged]) == action


def situation_of(shop: Shop, target: str) -> Situation:
    situation = api.plan(shop.root, target=target).situation
    assert situation is not None
    return situation


def test_the_jobs_of_a_target_are_preconditions(shop: Shop) -> None:
    result = api.plan(shop.root, target="cluster")
    assert result.situation is not None
    unit = result.situation.units[0]
    assert unit.unit is not None
    running = RunningUnit(unit.name, unit.models, unit.unit.manifest, None, "c" * 64, "a1", "s3://savepoint")
    jobs = (ObservedJob("a1", "running"), ObservedJob("b2", "failed"), ObservedJob("c3", "running", "stray", recorded=False))
    observed = replace(unit, running=running, observation=Observation("running", jobs))
    document = deploy_plan_document(replace(result, situation=replace(result.situation, units=(observed,))), 0)
    name = "streamform/shop/cluster/big_customers"
    job = {"job_id": "a1", "job_name": name, "artifact_digest": "c" * 64}
    assert document["preconditions"] == {"running": [job], "savepoint": "s3://savepoint"}
    assert document["units"][0]["job_name"] == document["job_name"] == name
    assert problem("deploy-plan", document) is None


# applying


def test_a_plan_passes_the_gate_only_with_its_approval(waiting: Shop) -> None:
    before = waiting.spenders()
    blocked = waiting.apply()
    assert (blocked.code, waiting.spenders()) == (1, before)
    assert "an approval is needed" in blocked.stdout
    waiting.approve(waiting.saved()["units"][0]["plan_id"])
    applied = waiting.apply("--json")
    assert applied.code == 0, applied.stderr
    unit = json.loads(applied.stdout)["units"][0]
    assert (unit["plan_id"], unit["outcome"]) == (waiting.saved()["units"][0]["plan_id"], "applied")


def test_a_plan_is_applied_once(waiting: Shop) -> None:
    waiting.approve(waiting.saved()["units"][0]["plan_id"])
    assert waiting.apply().code == 0
    before = waiting.stored()
    again = waiting.apply()
    assert (again.code, waiting.stored()) == (1, before)
    assert "was applied already, by attempt" in again.stderr


def test_a_plan_that_was_cut_off_goes_on_from_its_file(waiting: Shop) -> None:
    waiting.approve(waiting.saved()["units"][0]["plan_id"])
    cut = run_cli(
        "apply", "--plan", str(waiting.file), "--project", str(waiting.root), env={"STREAMFORM_CRASH_AT": "embedded-rebuild"}, timeout=60
    )
    assert cut.code not in (0, 1, 2)
    done = waiting.apply("--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["units"][0]["outcome"] == "applied"


def stale(shop: Shop, *said: str) -> None:
    """Applying is refused, says what moved, and changes nothing."""
    before = shop.stored()
    refused = shop.apply()
    assert (refused.code, shop.stored()) == (1, before), refused.stdout
    assert f"{shop.file} is stale" in refused.stderr
    assert "streamform plan --out" in refused.stderr
    for words in said:
        assert words in refused.stderr


def test_a_plan_is_stale_when_the_desired_side_moved(waiting: Shop) -> None:
    waiting.edit("models/clean_orders.sql", OTHER, "status = 'shipped'")
    stale(waiting, "unit `big_customers`: the desired side moved (06fd7fa8c755 → ")


def test_a_plan_is_stale_when_the_running_side_moved(waiting: Shop) -> None:
    waiting.edit("models/clean_orders.sql", OTHER, FILTER)
    waiting.edit("models/big_customers.sql", "> 1000", "> 2000")
    blocked = waiting.run("apply", "--target", "local", "--json")
    waiting.run("approve", json.loads(blocked.stdout)["units"][0]["plan_id"], "--reason", "seen")
    assert waiting.run("apply", "--target", "local").code == 0
    waiting.edit("models/big_customers.sql", "> 2000", "> 1000")
    waiting.edit("models/clean_orders.sql", FILTER, OTHER)
    stale(waiting, "the running side moved", "another attempt was made (number 2)")


def test_a_plan_is_stale_when_the_state_is_gone(waiting: Shop) -> None:
    for file in (waiting.root / ".streamform" / "state").iterdir():
        file.unlink()
    stale(waiting, "observed as missing, before as running")


def test_a_plan_is_stale_when_the_policy_changed(waiting: Shop) -> None:
    waiting.edit("streamform.yml", "approvals: {above: SAFE}     #", "approvals: {above: COMPATIBLE} #")
    stale(waiting, "the policy changed")


def test_a_plan_is_stale_where_the_project_was_moved(waiting: Shop) -> None:
    waiting.root = waiting.root.rename(waiting.root.with_name("moved"))
    stale(waiting, "addresses moved (state, store)")


def test_a_plan_is_stale_when_a_unit_came_or_went(running: Shop) -> None:
    running.write("models/alone.sql", "SELECT order_id FROM source('orders')")
    assert running.plan().code == 0
    running.write("models/lonely.sql", "SELECT order_id FROM source('orders')").remove("models/alone.sql")
    stale(running, "unit `lonely` is new", "unit `alone` is gone")


def test_what_is_left_of_a_plan_is_applied_after_a_part_was_blocked(running: Shop) -> None:
    running.write("models/alone.sql", "SELECT order_id FROM source('orders')").edit("models/clean_orders.sql", FILTER, OTHER)
    assert running.plan().code == 1
    ids = {unit["name"]: unit["plan_id"] for unit in running.saved()["units"]}
    first = json.loads(running.apply("--json").stdout)
    assert {unit["name"]: unit["outcome"] for unit in first["units"]} == {"alone": "applied", "big_customers": "blocked"}
    running.approve(ids["big_customers"])
    rest = running.apply("--json")
    assert (rest.code, [unit["name"] for unit in json.loads(rest.stdout)["units"]]) == (0, ["big_customers"])


def test_one_unit_of_a_plan_can_be_applied(running: Shop) -> None:
    running.write("models/alone.sql", "SELECT order_id FROM source('orders')").edit("models/clean_orders.sql", FILTER, OTHER)
    assert running.plan().code == 1
    done = running.apply("--unit", "alone", "--json")
    assert (done.code, [unit["name"] for unit in json.loads(done.stdout)["units"]]) == (0, ["alone"])


# broken files


def broken(shop: Shop, *said: str, target: str | None = None) -> None:
    """Applying is refused as impossible and changes nothing."""
    before = shop.stored()
    refused = shop.apply(*(("--target", target) if target else ()))
    assert (refused.code, shop.stored()) == (2, before), refused.stderr
    for words in said:
        assert words in refused.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("verdict", "SAFE"), ("created_at", "2020-01-01T00:00:00Z"), ("consequences", []), ("digest", "0" * 64), ("units", [])],
)
def test_a_file_that_was_changed_is_refused(name: str, value: Any, waiting: Shop) -> None:
    waiting.file.write_text(json.dumps(waiting.saved() | {name: value}))
    broken(waiting, "was changed after it was written")


def test_a_file_may_be_laid_out_anew(running: Shop) -> None:
    assert running.plan().code == 0
    running.file.write_text(json.dumps(dict(reversed(running.saved().items()))))
    assert running.apply().code == 0


def test_a_file_of_another_version_is_refused(waiting: Shop) -> None:
    waiting.save(waiting.saved() | {"deploy_plan_version": 2})
    broken(waiting, "deploy_plan_version 2; this streamform reads version 1")


def test_a_file_of_another_project_is_refused(waiting: Shop) -> None:
    waiting.edit("streamform.yml", "name: shop\n", "name: other\n")
    broken(waiting, "is a plan of project `shop`, and this is `other`")


def test_a_file_for_another_target_is_refused(waiting: Shop) -> None:
    waiting.edit("streamform.yml", "targets:\n", "targets:\n  second: {backend: embedded}\n")
    broken(waiting, "is a plan for target `local`, not for `second`", target="second")


def test_a_forged_subject_is_refused(waiting: Shop) -> None:
    saved = waiting.saved()
    saved["units"][0]["subject"]["policy"] = None
    waiting.save(saved)
    broken(waiting, "the plan id of unit `big_customers` is not that of its subject")


def test_a_forged_plan_id_opens_nothing(waiting: Shop) -> None:
    """A file can claim whatever it wants; what is carried out is what is assessed now."""
    saved = waiting.saved()
    unit = saved["units"][0]
    unit["requires"] = unit["verdict"] = saved["verdict"] = "SAFE"
    unit["approval"] = {"required": False, "status": "approved", "acknowledge": None}
    waiting.save(saved)
    blocked = waiting.apply()
    assert (blocked.code, "an approval is needed" in blocked.stdout) == (1, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a JSON document"),
        ("[]", "is not a deploy plan"),
        ("[" * 100_000, "is not a JSON document"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('{"manifest_version": 1}', "it has no deploy_plan_version"),
        ('{"deploy_plan_version": true}', "deploy_plan_version True"),
        ('{"deploy_plan_version": 1, "extra": 1}', "`extra` is not a field"),
        ('{"deploy_plan_version": 1}', "another tool wrote it"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(content: str, said: str, running: Shop) -> None:
    running.file.write_text(content)
    broken(running, said)


@pytest.mark.parametrize("units", [None, 1, "x", [1], [{}], [{"name": "a", "plan_id": "b", "subject": 1}]])
def test_a_file_whose_parts_are_of_another_kind_is_refused(units: Any) -> None:
    document = {"deploy_plan_version": 1, "application": "a", "target": "t", "units": units}
    with pytest.raises(DocumentError, match="of another kind"):
        read_deploy_plan(json.dumps(document | {"digest": document_digest(document)}), "f")


def test_a_file_that_is_not_there_or_no_text_is_refused(running: Shop) -> None:
    broken(running, "can't read")
    running.file.write_bytes(b"\xff\xfe")
    broken(running, "is not UTF-8 text")


# help


@pytest.mark.parametrize(("command", "option"), [("plan", "--out FILE"), ("apply", "--plan FILE")])
def test_help_shows_the_option_and_an_example(command: str, option: str) -> None:
    shown = run_here(command, "--help")
    assert option in shown.stdout
    assert f"streamform {command} " in shown.stdout.rpartition("examples:")[2]
    assert "prod.plan" in shown.stdout
