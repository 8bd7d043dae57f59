"""Documents: YAML is read strictly, every problem has its place, and nothing in a file can exhaust or run anything."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from streamform import api
from streamform.diagnostics import Diagnostic
from streamform.errors import ProjectError
from streamform.project.tree import TreeError, parse_tree
from tests.conftest import ProjectBuilder, run_here


def refused(text: str) -> Diagnostic:
    """The problem of a text that is no document."""
    with pytest.raises(TreeError) as raised:
        parse_tree(text, "f.yml")
    return raised.value.diagnostic


def place(diagnostic: Diagnostic) -> str:
    """`code line:column`."""
    assert diagnostic.where is not None
    return f"{diagnostic.code} {diagnostic.where.line}:{diagnostic.where.column}"


# YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("2026-08-30", "2026-08-30"),
        ("2026-08-30T10:00:00Z", "2026-08-30T10:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("+5", 5),
        ("1.50", Decimal("1.50")),
        ("99999999999.999999999", Decimal("99999999999.999999999")),
        ("1e2", Decimal("1e2")),
        ("-.inf", float("-inf")),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ('"1"', "1"),
        ("'true'", "true"),
        ("|-\n  a\n  b", "a\nb"),
    ],
)
def test_a_scalar_is_read_as_yaml_1_2_says(text: str, value: object) -> None:
    read = parse_tree(f"a: {text}\n", "f.yml").value
    assert read == {"a": value}
    assert isinstance(read, dict)
    assert type(read["a"]) is type(value)


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert parse_tree("\ufeffa: 1\n", "f.yml").value == {"a": 1}


def test_an_alias_is_the_value_that_it_names() -> None:
    assert parse_tree("a: &x {b: 1}\nc: *x\n", "f.yml").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\na: 2\n", "SF006 2:1"),
        ("a:\n  - {x: 1, y: {z: 1, z: 2}}\n", "SF006 2:22"),
        ("a: &b {x: 1}\nc: {<<: *b}\n", "SF003 2:5"),
        ("a: !!python/object/apply:os.system ['true']\n", "SF003 1:4"),
        ("a: !!set {x}\n", "SF003 1:4"),
        ("a: !!binary aGk=\n", "SF003 1:4"),
        ("a: {1: 2}\n", "SF003 1:5"),
        ("true: 1\n", "SF003 1:1"),
        ("? [a]\n: 1\n", "SF003 1:3"),
        ("a: *b\n", "SF003 1:4"),
        ("a:\n\t- x\n", "SF003 2:1"),
        ("a: 1\n---\nb: 2\n", "SF003 2:1"),
        ("a: 18446744073709551616\n", "SF003 1:4"),
        (f"a: {'9' * 5000}\n", "SF003 1:4"),
        ("a: &a [*a]\n", "SF008 1:4"),
        ("a: " + "[" * 65 + "]" * 65 + "\n", "SF008 1:68"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_no_document_is_refused_with_its_place(text: str, where: str) -> None:
    assert place(refused(text)) == where


def test_a_duplicate_key_says_where_the_first_one_is() -> None:
    assert refused("a:\n  b: 1\n  c: 2\n  b: 3\n").message == "`b` occurs twice in one mapping; first on line 2"


def test_a_quoted_merge_sign_is_an_ordinary_key() -> None:
    assert parse_tree('a: {"<<": 1}\n', "f.yml").value == {"a": {"<<": 1}}


@pytest.mark.parametrize("text", ["a: x\0y\n", "a: x\x01y\n", 'a: "\\ud800"\n', 'a: "unclosed\n', "a: [1, 2\n"])
def test_broken_text_is_one_syntax_error(text: str) -> None:
    assert refused(text).code == "SF003"


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert refused("\n".join(lines)).code == "SF008"


def test_a_document_that_is_nested_without_end_is_refused() -> None:
    assert refused("a: " + "[" * 100_000).code in ("SF003", "SF008")


# project documents


def problems(folder: Path) -> list[Diagnostic]:
    """What keeps a project from loading."""
    with pytest.raises(ProjectError) as raised:
        api.load(folder)
    return list(raised.value.diagnostics)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("name: x\nversion: 1\nmodles: {}\n", "SF004 3:1", "did you mean `models`?"),
        ("name: x\nversion: 1\nmodels:\n  m:\n    materialised: append\n", "SF004 5:5", "did you mean `materialized`?"),
        ("name: x\nversion: 1\nmodels: {m: {sink: {connector: kafka, topik: t}}}\n", "SF004 3:39", "did you mean `topic`?"),
        (
            "name: x\nversion: 1\ntargets: {t: {backend: flink, kafka: {bootstrap_servers: b, startp: latest}}}\n",
            "SF004 3:61",
            "did you mean `startup`?",
        ),
        ("name: x\nversion: 1\nmodels: {m: {materialized: upsrt}}\n", "SF005 3:28", "write 'append' or 'upsert'"),
        ("name: x\nversion: 1\nmodels: {m: {key: id}}\n", "SF005 3:19", "write a list: [..]"),
        ("name: x\nversion: 1\nmodels: {m: {retention: 5 days}}\n", "SF005 3:25", "a whole number and ms, s, m, h or d"),
        ("name: x\nversion: 1\nmodels: {m: {window: {type: sliding, size: 5m}}}\n", "SF005 3:29", "write 'tumbling'"),
        ("name: 5\nversion: 1\n", "SF005 1:7", "write text"),
        ("name: x\nversion: '1'\n", "SF005 2:10", "write a whole number"),
        ("name: x\nversion: 1\nmodels: []\n", "SF005 3:9", "write a mapping"),
        ("name: x\nversion: 1\nemit_unchanged: maybe\n", "SF005 3:17", "write true or false"),
        ("name: x\nversion: 2\n", "SF007 2:10", "version: 1"),
        ("version: 1\n", "SF005 1:1", "add `name:`"),
        ("[]\n", "SF005 1:1", "write a mapping of fields"),
        ("just text\n", "SF005 1:1", "write a mapping of fields"),
        ("", "SF005 0:0", "write a mapping of fields"),
    ],
    ids=lambda value: value.replace("\n", " ")[-45:],
)
def test_streamform_yml_is_read_strictly(project: ProjectBuilder, text: str, where: str, words: str) -> None:
    found = problems(project("SELECT 1").write("streamform.yml", text).root)
    assert [place(d) for d in found] == [where]
    assert words in str(found[0].help)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("sources: {s: {conector: kafka}}\n", "SF004 1:15", "did you mean `connector`?"),
        ("sources: {s: {connector: kafka, schema: {a: varchar}}}\n", "SF005 1:45", "types are int32"),
        ("sources: {s: {connector: kafka, schema: {a: 'decimal(39,2)'}}}\n", "SF005 1:45", "precision <= 38"),
        ("sources: {s: {connector: kafka, schema: {a: {b: int64}}}}\n", "SF005 1:45", "write text"),
        ("sources: {s: {connector: pulsar}}\n", "SF005 1:26", "'kafka'"),
        ("sources: {s: {connector: kafka, late_events: ignore}}\n", "SF005 1:46", "'drop', 'keep' or 'quarantine'"),
        ("sources: {s: {connector: kafka, watermark: -5m}}\n", "SF005 1:44", "write a duration"),
        ("sources: {s: {connector: kafka, contracts: [{nme: x}]}}\n", "SF004 1:46", "did you mean `name`?"),
    ],
    ids=lambda value: value.replace("\n", " ")[-45:],
)
def test_sources_yml_is_read_strictly(project: ProjectBuilder, text: str, where: str, words: str) -> None:
    found = problems(project("SELECT 1", sources=text).root)
    assert where in [place(d) for d in found]
    assert words in " ".join(str(d.help) for d in found)


def test_every_broken_field_of_both_documents_is_reported_in_one_run(project: ProjectBuilder) -> None:
    folder = project("SELECT 1", sources="sources: {s: {connector: 1, format: xml}}\n")
    folder.write("streamform.yml", "name: x\nversion: 1\nmodels: {m: {materialized: x, retention: y}}\nother: 1\n")
    assert [place(d) for d in problems(folder.root)] == ["SF005 3:28", "SF005 3:42", "SF004 4:1", "SF005 1:26", "SF005 1:37"]


def test_a_folder_without_streamform_yml_is_no_project(tmp_path: Path) -> None:
    assert [d.code for d in problems(tmp_path)] == ["SF001"]
    assert [d.code for d in problems(tmp_path / "missing")] == ["SF001"]


def test_documents_may_end_in_yaml_and_problems_name_the_file_on_disk(project: ProjectBuilder) -> None:
    folder = project("SELECT amount FROM source('orders')")
    (folder.root / "streamform.yml").rename(folder.root / "streamform.yaml")
    (folder.root / "sources.yml").rename(folder.root / "sources.yaml")
    assert folder.codes() == []
    found = problems(folder.write("sources.yaml", "sources: {s: {connector: 1}}\n").root)
    assert str(found[0].where) == "sources.yaml:1:26"


def test_a_document_under_both_endings_is_refused(project: ProjectBuilder) -> None:
    folder = project("SELECT amount FROM source('orders')").write("sources.yaml", "sources: {}\n")
    assert [d.code for d in problems(folder.root)] == ["SF009"]


@pytest.mark.parametrize("path", ["streamform.yml", "sources.yml", "models/m.sql"])
def test_a_file_that_is_not_utf_8_is_refused_by_name(project: ProjectBuilder, path: str) -> None:
    folder = project("SELECT 1").write(path, b"name: \xff\xfe\n")
    assert [(d.code, d.path) for d in problems(folder.root)] == [("SF002", path)]


def test_a_folder_in_a_documents_place_is_no_document(project: ProjectBuilder) -> None:
    folder = project("SELECT 1").remove("streamform.yml")
    (folder.root / "streamform.yml").mkdir()
    assert [d.code for d in problems(folder.root)] == ["SF001"]


def test_a_loop_of_links_among_models_is_not_entered(project: ProjectBuilder) -> None:
    folder = project("SELECT amount FROM source('orders')")
    (folder.root / "models" / "again").symlink_to(folder.root / "models")
    assert folder.codes() == []


def test_line_ends_of_windows_change_no_place(project: ProjectBuilder) -> None:
    folder = project("SELECT 1").write("streamform.yml", "name: x\r\nversion: 1\r\nmodles: {}\r\n")
    found = problems(folder.root)
    assert [place(d) for d in found] == ["SF004 3:1"]
    assert found[0].excerpt == "modles: {}"


def test_a_model_may_lie_in_a_folder_of_its_own(project: ProjectBuilder) -> None:
    folder = project().write("models/staging/m.sql", "SELECT amount FROM source('orders')")
    assert [m.name for m in api.load(folder.root).project.models] == ["m"]


def test_source_columns_are_kept_in_alphabetical_order(project: ProjectBuilder) -> None:
    sources = "sources: {s: {connector: file, path: x, schema: {b: int64, a: int64, C: string}}}\n"
    assert [c.name for c in api.load(project("SELECT 1", sources=sources).root).project.sources[0].schema] == ["C", "a", "b"]


def test_secrets_in_targets_stay_references(project: ProjectBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", "s3cret")
    folder = project(
        "SELECT amount FROM source('orders')", targets={"t": {"backend": "flink", "flink": {"gateway": "https://${GATEWAY_TOKEN}/"}}}
    )
    assert "s3cret" not in repr(api.load(folder.root))


def test_approvers_that_name_a_group_are_its_members(project: ProjectBuilder) -> None:
    targets = {"t": {"backend": "embedded", "approvals": {"approvers": ["streaming", "zoe"], "expires": "2h"}}}
    folder = project("SELECT amount FROM source('orders')", groups={"streaming": ["ann", "bob"]}, targets=targets)
    policy = api.load(folder.root).project.targets[0].approvals
    assert policy is not None
    assert (policy.approvers, policy.expires_ms, policy.above) == (("ann", "bob", "zoe"), 7_200_000, "SAFE")


# fixtures as documents


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("given: []\n", "SF005 1:1"),
        ("model: m\nexpct: []\n", "SF004 2:1"),
        ("model: m\ngiven: [5]\n", "SF005 2:9"),
        ("model: m\ngiven: [{event: 5}]\n", "SF005 2:9"),
        ("model: m\ngiven: [{event: {}, watermark: 1}]\n", "SF005 2:9"),
        ("model: m\ngiven: [{amount: [1]}]\n", "SF005 2:18"),
        ("model: m\ngiven: [{event: {amount: {x: 1}}}]\n", "SF005 2:26"),
        ("model: m\ngiven: [{watermark: '10:00'}]\n", "SF005 2:21"),
        ("model: m\nexpect: [{amount: 1}]\n", "SF005 2:10"),
        ("model: m\nexpect: [{op: upsert}]\n", "SF005 2:10"),
        ("model: m\nquarantined: [{amount: 1}]\n", "SF005 2:15"),
        ("model: m\nmodel: m\n", "SF006 2:1"),
    ],
    ids=lambda value: value.replace("\n", " ")[-40:],
)
def test_a_fixture_is_read_strictly(project: ProjectBuilder, text: str, where: str) -> None:
    folder = project("SELECT amount FROM source('orders')", tests={"f": text})
    assert [place(d) for d in folder.check()] == [where]
    assert api.check(folder.root).project is None


def test_a_nul_character_is_no_text(project: ProjectBuilder) -> None:
    assert project("SELECT\0T(k) AS n FROM source('orders')").codes() == ["SF002"]


def test_an_exponent_without_end_is_one_problem(project: ProjectBuilder) -> None:
    tests = {"f": "model: m\ngiven: [{amount: 1e99999999999999999999}]\n"}
    assert project("SELECT amount FROM source('orders')", tests=tests).codes() == ["SF003"]


def test_a_file_whose_name_is_no_text_is_refused_by_name(project: ProjectBuilder) -> None:
    folder = project("SELECT amount FROM source('orders')")
    (folder.root / "models" / os.fsdecode(b"\xff.sql")).write_text("SELECT 1")
    (found,) = folder.check()
    assert (found.code, found.path, "its name is not UTF-8" in found.message) == ("SF002", "models/\\udcff.sql", True)


@pytest.mark.parametrize("command", ["check", "test", "apply", "plan", "plan --out p.plan", "status"])
def test_a_project_lies_in_a_folder_of_any_name(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFORM_CACHE_DIR", str(tmp_path / "cache"))
    folder = os.fsdecode(b"shop \xff")
    assert run_here("init", folder).code == 0
    target = [] if command in ("check", "test") else ["--target", "local"]
    assert run_here(*command.split(), *target, "--project", folder).code == int(command == "status")
