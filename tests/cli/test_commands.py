"""Every command: its exit codes, the shape of its JSON, its help, and one error without a traceback for whatever is broken."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamform import __version__
from streamform.cli.parser import COMMANDS, build_parser
from tests.conftest import REPOSITORY, ProjectFolder, Run, environment, run_here

LOCAL = ("--target", "local")
FILTER = "models/clean_orders.sql"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, never applied; tests only read it."""
    folder = tmp_path_factory.mktemp("example") / "shop"
    assert run_here("init", str(folder)).code == 0
    return folder


@pytest.fixture
def shop(tmp_path: Path) -> ProjectFolder:
    """The example, to be changed."""
    assert run_here("init", str(tmp_path / "shop")).code == 0
    return ProjectFolder(tmp_path / "shop")


def one_error(done: Run) -> str:
    """The only error that a command reports, on standard error and without a traceback."""
    assert "Traceback" not in done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def edit(shop: ProjectFolder, before: str = "status <> 'test'", after: str = "status = 'paid'") -> None:
    """Another filter below an aggregate: BACKFILL REQUIRED."""
    file = shop.root / FILTER
    file.write_text(file.read_text().replace(before, after))


def applied(shop: ProjectFolder) -> None:
    assert shop.run("apply", *LOCAL).code == 0


def blocked(shop: ProjectFolder) -> str:
    """The example, applied and edited; the id of the plan that waits."""
    applied(shop)
    edit(shop)
    assert shop.run("apply", *LOCAL).code == 1
    (waiting,) = json.loads(shop.run("approvals", *LOCAL, "--json").stdout)["approvals"]
    plan_id: str = waiting["plan_id"]
    return plan_id


APPROVE = ("--reason", "seen", "--acknowledge", "BACKFILL REQUIRED")


# exit codes


Prepare = Callable[[ProjectFolder], object]


class Exit(NamedTuple):
    """What a command line exits with after something was done to the example."""

    about: str
    prepare: Prepare
    command: str
    code: int


def untouched(shop: ProjectFolder) -> None:
    """The example as init wrote it."""


def does_not_compile(shop: ProjectFolder) -> None:
    shop.write(FILTER, "SELECT nothing FROM source('orders')")


def does_not_load(shop: ProjectFolder) -> None:
    shop.write("streamform.yml", "name: [")


def has_a_cycle(shop: ProjectFolder) -> None:
    shop.write(FILTER, "SELECT * FROM ref('big_customers')")


def fails_a_test(shop: ProjectFolder) -> None:
    shop.write("tests/big_customers.yml", "model: big_customers\ngiven: []\nexpect: [{op: insert, customer_id: 1, total_spend: 1}]\n")


def has_no_tests(shop: ProjectFolder) -> None:
    for file in (shop.root / "tests").iterdir():
        file.unlink()


def compatible(shop: ProjectFolder) -> None:
    applied(shop)
    shop.write("models/big_customers.sql", (shop.root / "models" / "big_customers.sql").read_text().replace("1000", "2000"))


EXITS = (
    Exit("sound", untouched, "check", 0),
    Exit("errors", does_not_compile, "check", 1),
    Exit("not loadable", does_not_load, "check", 2),
    Exit("all pass", untouched, "test", 0),
    Exit("a mismatch", fails_a_test, "test", 1),
    Exit("no fixture", has_no_tests, "test", 0),
    Exit("no fixture", has_no_tests, "test --strict", 1),
    Exit("unknown model", untouched, "test --model nobody", 2),
    Exit("unreadable fixture", untouched, "test --fixture gone.yml", 2),
    Exit("does not compile", does_not_compile, "test", 2),
    Exit("sound", untouched, "explain", 0),
    Exit("unknown model", untouched, "explain nobody", 2),
    Exit("does not compile", does_not_compile, "explain", 2),
    Exit("sound", untouched, "inspect-plan", 0),
    Exit("does not compile", does_not_compile, "inspect-plan", 2),
    Exit("sound", untouched, "graph", 0),
    Exit("a cycle", has_a_cycle, "graph", 2),
    Exit("a cycle", has_a_cycle, "graph --json", 1),
    Exit("not loadable", does_not_load, "graph", 2),
    Exit("sound", untouched, "lineage customer_metrics.orders", 0),
    Exit("unknown column", untouched, "lineage customer_metrics.nothing", 2),
    Exit("first", untouched, "plan --target local", 0),
    Exit("compatible", compatible, "plan --target local", 0),
    Exit("backfill", blocked, "plan --target local", 1),
    Exit("several targets", untouched, "plan", 2),
    Exit("unknown target", untouched, "plan --target nowhere", 2),
    Exit("unreadable", untouched, "plan --target local --against gone.json", 2),
    Exit("does not compile", does_not_compile, "plan --target local", 2),
    Exit("sound", untouched, "build --backend flink --stdout", 0),
    Exit("no SQL", untouched, "build --backend flink --target local", 2),
    Exit("first", untouched, "apply --target local", 0),
    Exit("unchanged", applied, "apply --target local", 0),
    Exit("blocked", blocked, "apply --target local", 1),
    Exit("unknown unit", untouched, "apply --target local --unit nobody", 2),
    Exit("unreachable", untouched, "apply --target cluster", 2),
    Exit("unreadable plan", untouched, "apply --plan gone.plan", 2),
    Exit("no embedded target", untouched, "run --target cluster", 2),
    Exit("applied, and nothing runs by itself", applied, "stop --target local", 1),
    Exit("nothing applied", untouched, "stop --target local", 1),
    Exit("needs an approval", applied, "stop --target local --discard-state", 1),
    Exit("applied", applied, "status --target local", 0),
    Exit("nothing applied", untouched, "status --target local", 1),
    Exit("nothing applied", untouched, "history --target local", 0),
    Exit("applied", applied, "history --target local", 0),
    Exit("nothing waits", untouched, "approvals --target local", 0),
    Exit("unknown plan", untouched, "approve 0000000000000000 --reason r", 2),
    Exit("unknown plan", untouched, "reject 0000000000000000 --reason r", 2),
    Exit("unknown plan", untouched, "revoke 0000000000000000 --reason r", 2),
    Exit("nobody holds the lock", untouched, "unlock --target local", 0),
    Exit("nobody holds the lock", applied, "unlock --target local --force --json", 0),
    Exit("several targets", untouched, "unlock", 2),
    Exit("all", untouched, "schema", 0),
    Exit("one", untouched, "schema diff", 0),
    Exit("unknown document", untouched, "schema nothing", 2),
    Exit("not empty", untouched, "init .", 2),
)


@pytest.mark.parametrize("case", EXITS, ids=lambda case: f"{case.command}: {case.about}")
def test_a_command_exits_with_its_documented_code(shop: ProjectFolder, case: Exit, monkeypatch: pytest.MonkeyPatch) -> None:
    case.prepare(shop)
    monkeypatch.chdir(shop.root)
    done = run_here(*shlex.split(case.command))
    assert done.code == case.code, done.stderr
    if case.code == 2 and case.prepare is not does_not_compile and not case.command.startswith("check"):
        one_error(done)


def test_every_command_has_an_exit_code() -> None:
    assert {case.command.split()[0] for case in EXITS} | {"approve", "reject", "revoke"} == {command.name for command in COMMANDS}


def test_a_plan_is_decided_and_applied_with_the_codes_of_each_step(shop: ProjectFolder) -> None:
    plan_id = blocked(shop)
    assert shop.run("approve", plan_id, "--reason", "seen").code == 1
    assert shop.run("approve", plan_id, "--reason", " ", "--acknowledge", "BACKFILL REQUIRED").code == 1
    assert shop.run("revoke", plan_id, "--reason", "nothing to revoke").code == 1
    assert shop.run("reject", plan_id, "--reason", "not today").code == 0
    assert shop.run("apply", *LOCAL).code == 1
    assert shop.run("approve", plan_id, *APPROVE).code == 0
    assert shop.run("revoke", plan_id, "--reason", "wait").code == 0
    assert shop.run("apply", *LOCAL).code == 1
    assert shop.run("approve", plan_id, *APPROVE).code == 0
    assert shop.run("apply", *LOCAL).code == 0
    assert shop.run("approve", plan_id, *APPROVE).code == 1


def test_an_id_that_is_given_twice_is_decided_once(shop: ProjectFolder) -> None:
    plan_id = blocked(shop)
    done = shop.run("approve", plan_id, plan_id, *APPROVE, "--json")
    assert done.code == 0, done.stderr
    (view,) = json.loads(done.stdout)["approvals"]
    assert [decision["decision"] for decision in view["decisions"]] == ["approve"]


def test_one_unknown_id_decides_none(shop: ProjectFolder) -> None:
    plan_id = blocked(shop)
    assert shop.run("approve", plan_id, "0000000000000000", *APPROVE).code == 2
    (view,) = json.loads(shop.run("approvals", *LOCAL, "--json").stdout)["approvals"]
    assert view["status"] == "pending"


# JSON


def keys(document: Mapping[str, Any], *names: str) -> None:
    assert set(names) <= set(document), set(names) - set(document)


def test_plan_adds_its_units_to_the_published_diff(shop: ProjectFolder) -> None:
    blocked(shop)
    document = json.loads(shop.run("plan", *LOCAL, "--json").stdout)
    keys(document, "diff_version", "units")
    (unit,) = document["units"]
    keys(unit, "name", "models", "plan_id", "verdict", "requires", "stages", "consequences", "approval")
    keys(unit["stages"][0], "kind")
    assert unit["approval"] == {"required": True, "status": "pending", "acknowledge": "BACKFILL REQUIRED"}


def test_apply_says_what_happened_to_each_unit(shop: ProjectFolder) -> None:
    document = json.loads(shop.run("apply", *LOCAL, "--json").stdout)
    assert (document["apply_version"], document["target"], document["outcome"]) == (1, "local", "applied")
    (unit,) = document["units"]
    keys(unit, "name", "plan_id", "verdict", "requires", "outcome", "jobs", "stages", "nodes")
    assert (unit["outcome"], unit["jobs"]) == ("applied", [])
    again = json.loads(shop.run("apply", *LOCAL, "--json").stdout)
    assert (again["outcome"], again["units"][0]["outcome"]) == ("unchanged", "unchanged")


def test_approvals_list_who_asked_and_who_decided(shop: ProjectFolder) -> None:
    plan_id = blocked(shop)
    shop.run("approve", plan_id, *APPROVE)
    document = json.loads(shop.run("approvals", *LOCAL, "--json").stdout)
    assert document["approvals_version"] == 1
    (view,) = document["approvals"]
    keys(view, "plan_id", "unit", "target", "status", "verdict", "acknowledge", "requested_by", "requested_at", "expires_at", "decisions")
    keys(view["decisions"][0], "decision", "by", "at", "reason")
    assert (view["plan_id"], view["target"], view["status"]) == (plan_id, "local", "approved")


def test_history_lists_every_attempt(shop: ProjectFolder) -> None:
    plan_id = blocked(shop)
    shop.run("approve", plan_id, *APPROVE)
    shop.run("apply", *LOCAL)
    document = json.loads(shop.run("history", *LOCAL, "--json").stdout)
    assert document["history_version"] == 1
    first, second = document["entries"]
    keys(first, "seq", "unit", "at", "action", "verdict", "outcome", "by", "plan_id", "record_digest")
    assert [(e["seq"], e["action"], e["verdict"], e["outcome"]) for e in (first, second)] == [
        (1, "apply", "SAFE", "applied"),
        (2, "apply", "BACKFILL REQUIRED", "applied"),
    ]
    assert [(e["plan_revision"], e["interface_revision"]) for e in (first, second)] == [(1, 1), (2, 1)]
    assert second["plan_id"] == plan_id


JSON_COMMANDS = [
    "check", "check --format json", "check --format sarif", "test", "test --coverage", "inspect-plan", "inspect-plan big_customers",
    "explain big_customers", "graph", "lineage", "lineage big_customers", "plan --target local", "plan --target local --format json",
    "plan --target cluster", "status --target local", "history --target local", "approvals --target local", "schema", "schema plan-manifest",
]  # fmt: skip


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_is_one_document_and_nothing_else(example: Path, command: str) -> None:
    name, *rest = shlex.split(command)
    more = [] if "--format" in rest or (name == "schema" and rest) else ["--json"]
    place = [] if name == "schema" else ["--project", str(example)]
    done = run_here(name, *rest, *more, *place)
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["check", "test", "graph", "plan --target local", "status --target local", "history --target local"])
def test_text_says_something_and_is_never_json(example: Path, command: str) -> None:
    done = run_here(*shlex.split(command), "--project", str(example))
    assert done.stdout.strip()
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(done.stdout)


# help


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_shows_examples_that_can_be_given(command: Any) -> None:
    done = run_here(command.name, "--help")
    assert (done.code, done.stderr) == (0, "")
    shown = done.stdout.partition("examples:\n")[2].splitlines()
    assert [line.strip() for line in shown] == list(command.examples)
    for example in command.examples:
        words = shlex.split(example.partition(" > ")[0])
        assert words[:2] == ["streamform", command.name]
        assert build_parser(command.name).parse_args(words[1:]).run == command.run


def test_help_lists_every_command() -> None:
    listed = run_here("--help").stdout
    assert [
        command.name for command in COMMANDS if f"\n    {command.name} " not in listed and f"\n    {command.name}\n" not in listed
    ] == []
    assert run_here().stdout == listed


def test_the_version_is_the_packages() -> None:
    assert run_here("--version").stdout == f"streamform {__version__}\n"


@pytest.mark.parametrize("arguments", [["chek"], ["check", "--unknown"], ["plan", "--format", "xml"], ["approve", "a"], ["init"]])
def test_a_command_line_that_cannot_be_parsed_exits_with_2_and_names_the_problem(arguments: list[str]) -> None:
    done = run_here(*arguments)
    assert (done.code, done.stdout) == (2, "")
    assert "streamform" in done.stderr
    assert "error: " in done.stderr


# what is broken around a project


def a_file(folder: Path) -> None:
    folder.write_text("no folder")


def an_empty_folder(folder: Path) -> None:
    folder.mkdir()


def a_loop(folder: Path) -> None:
    folder.symlink_to(folder)


def nothing(folder: Path) -> None:
    """The folder does not exist."""


READING = ["check", "test", "explain", "inspect-plan", "graph", "lineage", "plan", "build --backend flink", "apply", "run", "stop", "status",
           "history", "approvals", "approve a --reason r", "reject a --reason r", "revoke a --reason r"]  # fmt: skip


@pytest.mark.parametrize("place", [nothing, a_file, an_empty_folder, a_loop])
@pytest.mark.parametrize("command", READING)
def test_where_there_is_no_project_that_is_the_one_error(tmp_path: Path, place: Callable[[Path], None], command: str) -> None:
    folder = tmp_path / "shop"
    place(folder)
    done = run_here(*shlex.split(command), "--project", str(folder))
    assert done.code == 2
    if command == "check":
        assert "SF001" in done.stdout
        assert "Traceback" not in done.stdout + done.stderr
    else:
        assert "SF001" in one_error(done)
    assert [path.name for path in tmp_path.iterdir()] == ([] if place is nothing else ["shop"])


def broken_record(shop: ProjectFolder) -> None:
    shop.write(".streamform/applied/local.json", "{")


def newer_record(shop: ProjectFolder) -> None:
    file = shop.root / ".streamform" / "applied" / "local.json"
    file.write_text(file.read_text().replace('"record_version": 1', '"record_version": 2'))


def edited_record(shop: ProjectFolder) -> None:
    file = shop.root / ".streamform" / "applied" / "local.json"
    file.write_text(file.read_text().replace("customer_id", "customer_ix"))


def record_is_a_folder(shop: ProjectFolder) -> None:
    (shop.root / ".streamform" / "applied" / "local.json").unlink()
    (shop.root / ".streamform" / "applied" / "local.json").mkdir()


def broken_journal(shop: ProjectFolder) -> None:
    (entry,) = (shop.root / ".streamform" / "journal" / "local").rglob("*.json")
    entry.write_text("[]")


def artifact_gone(shop: ProjectFolder) -> None:
    for file in (shop.root / ".streamform" / "artifacts").rglob("manifest.json"):
        file.unlink()


def broken_approval(shop: ProjectFolder) -> None:
    shop.write(".streamform/approvals/local/0123456789abcdef.json", '{"approval_version": 1}')


def store_is_a_file(shop: ProjectFolder) -> None:
    import shutil

    shutil.rmtree(shop.root / ".streamform")
    shop.write(".streamform", "")


class Broken(NamedTuple):
    """Something in the store that is broken, the commands that it concerns, and words of the error."""

    act: Prepare
    commands: tuple[str, ...]
    words: str


DEPLOYING = ("plan", "apply", "stop", "status")
BROKEN = (
    Broken(broken_record, DEPLOYING, "is not a JSON document"),
    Broken(newer_record, DEPLOYING, "record_version 2; this streamform reads version 1"),
    Broken(edited_record, DEPLOYING, "was changed after it was written"),
    Broken(record_is_a_folder, DEPLOYING, "is a directory"),
    Broken(broken_journal, (*DEPLOYING, "history"), "is not a JSON object"),
    Broken(artifact_gone, DEPLOYING, "is missing"),
    Broken(broken_approval, ("approvals", "approve 0123456789abcdef --reason r"), "is not an approval"),
    Broken(store_is_a_file, ("apply", "stop"), "not a directory"),
)


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file() and "lock" not in file.parts and file.name != ".guard"]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files if file.suffix not in (".db-wal", ".db-shm")}


@pytest.mark.parametrize(
    ("case", "command"), [(case, command) for case in BROKEN for command in case.commands], ids=lambda value: getattr(value, "act", value)
)
def test_a_broken_store_is_one_error_and_stays_as_it_is(shop: ProjectFolder, case: Broken, command: str) -> None:
    applied(shop)
    case.act(shop)
    before = contents(shop.root)
    done = shop.run(*shlex.split(command), *LOCAL)
    assert done.code == 2
    assert case.words in one_error(done).lower() + done.stderr
    assert contents(shop.root) == before


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"manifest_version": 2}', b'{"a": 1, "a": 2}', b"[" * 100_000, b"null"])
def test_a_file_to_compare_with_that_is_no_plan_is_one_error(example: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "running.json").write_bytes(content)
    done = run_here("plan", *LOCAL, "--against", str(tmp_path / "running.json"), "--project", str(example))
    assert done.code == 2
    assert "running.json" in one_error(done)


# processes


def test_output_that_nobody_reads_on_is_no_traceback(example: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m streamform.cli inspect-plan --json --project {shlex.quote(str(example))} | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_full_device_is_one_error(example: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m streamform.cli inspect-plan --json --project {shlex.quote(str(example))} > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no space left on device" in one_error(Run(done.returncode, done.stdout, done.stderr))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_says_so_and_exits_with_2(example: Path, number: signal.Signals) -> None:
    """The fixture comes through a pipe: once the command has opened it, it waits for text that never comes."""
    pipe = example.parent / f"fixture-{number}"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "streamform.cli", "test", "--fixture", str(pipe), "--project", str(example)]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "interrupted" in one_error(Run(process.returncode, out, err))


@pytest.mark.parametrize("arguments", [("graph",), ("graph", "--json")])
def test_text_is_utf_8_whatever_the_locale_is(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shop = ProjectFolder(tmp_path / "shop")
    shop.write("streamform.yml", "name: größe\nversion: 1\n").write("sources.yml", "sources: {}\n")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "streamform.cli", *arguments, "--project", str(shop.root)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment(**plain), capture_output=True, check=False)
    assert "größe" in (done.stdout + done.stderr).decode("utf-8")


def test_a_path_that_is_no_text_is_named_in_the_error(tmp_path: Path) -> None:
    command = [sys.executable.encode(), b"-m", b"streamform.cli", b"graph", b"--project", str(tmp_path).encode() + b"/\xff"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, check=False)
    assert done.returncode == 2
    assert b"/\\udcff" in done.stderr
    assert b"Traceback" not in done.stderr
