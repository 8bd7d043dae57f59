"""Schemas are true: what commands print is valid, what the readers take is valid, and the published format is a part of ours."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from streamform import api
from streamform.identity.manifest import build_manifest
from streamform.identity.record import AppliedRecord
from streamform.lifecycle.deploy_plan import FIELDS
from streamform.lifecycle.deployed import Deployed
from streamform.lifecycle.ports import Observation, ObservedJob, RunningUnit
from streamform.project.tree import TreeError, parse_tree
from streamform.render.lifecycle import status_document
from streamform.render.schema import DOCUMENTS, schema_document
from streamform.results import StatusResult
from tests.conftest import ORDERS, REPOSITORY, ProjectBuilder, ProjectFolder, Run, run_here
from tests.test_tidy import product

RECORDED = REPOSITORY.parent / "shared" / "conformance"
NAMES = [kind.name for kind in DOCUMENTS]
VALIDATORS = {name: Draft202012Validator(schema_document(name)) for name in NAMES}

KINDS = {
    "check_version": "check-report",
    "report_version": "test-report",
    "diff_version": "diff",
    "graph_version": "graph",
    "manifest_version": "plan-manifest",
    "status_version": "status",
    "record_version": "applied-record",
    "deploy_plan_version": "deploy-plan",
    "attempt_version": "journal-entry",
}
"""The field that tells of which kind a document is."""

SPEND = "SELECT customer_id, SUM(amount) AS total, COUNT(*) AS n FROM source('orders') GROUP BY customer_id"
TARGET = {"t": {"backend": "embedded", "embedded": {"state": "state.db"}, "approvals": {"above": "SAFE"}}}
TIMED = ORDERS.replace("    key:", "    event_time: ordered_at\n    key:")
UPSERT: dict[str, Any] = {"materialized": "upsert", "key": ["customer_id"]}


def problem(name: str, document: Any) -> str | None:
    """What is wrong with a document, None for nothing."""
    error = best_match(VALIDATORS[name].iter_errors(document))
    return None if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"


def check_valid(document: Any) -> dict[str, Any]:
    """The document, which is valid as what its version field says it is."""
    name = next(kind for field, kind in KINDS.items() if field in document)
    assert problem(name, document) is None, name
    found: dict[str, Any] = document
    return found


def printed(run: Run) -> dict[str, Any]:
    """What a command printed, which is valid."""
    assert run.stdout, run.stderr
    return check_valid(json.loads(run.stdout))


@pytest.fixture
def shop(tmp_path: Path) -> ProjectFolder:
    """The example."""
    assert run_here("init", str(tmp_path / "shop")).code == 0
    return ProjectFolder(tmp_path / "shop")


# the schemas


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_of_the_dialect_that_it_names(name: str) -> None:
    shown = run_here("schema", name)
    schema = json.loads(shown.stdout)
    Draft202012Validator.check_schema(schema)
    assert shown.code == 0
    assert (schema["$schema"], schema["$id"]) == ("https://json-schema.org/draft/2020-12/schema", f"urn:streamform:{name}:v1")
    assert schema["description"].endswith(".")


@pytest.mark.parametrize("arguments", [(), ("--list",), ("diff", "--list")])
def test_every_document_is_listed(arguments: tuple[str, ...]) -> None:
    shown = run_here("schema", *arguments)
    assert shown.code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == NAMES
    assert len(NAMES) == 12


def test_the_list_is_there_as_json() -> None:
    documents = json.loads(run_here("schema", "--list", "--json").stdout)["documents"]
    assert [(document["name"], document["version"]) for document in documents] == [(name, 1) for name in NAMES]


def test_an_unknown_document_is_refused_with_a_suggestion() -> None:
    shown = run_here("schema", "fixtures")
    assert shown.code == 2
    assert "did you mean `fixture`" in shown.stderr
    assert "plan-manifest" in shown.stderr


def test_a_schema_holds_each_part_that_it_refers_to_and_no_other() -> None:
    for name in NAMES:
        schema = schema_document(name)
        text = json.dumps(schema)
        parts = set(schema.get("$defs", {}))
        assert parts == {part for part in parts if f'"#/$defs/{part}"' in text}, name
        assert all(reference in parts for reference in references(schema)), name


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_the_fields_of_a_deploy_plan_are_those_that_its_reader_knows() -> None:
    assert schema_document("deploy-plan")["properties"].keys() == FIELDS


def test_every_consequence_has_its_word_in_the_schema() -> None:
    words = schema_document("diff")["$defs"]["ConsequenceKind"]["enum"]
    used = {
        node.args[0].value
        for module in product()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Consequence"
        if isinstance(node.args[0], ast.Constant)
    }
    assert "state-discarded" in used
    assert used - set(words) == set()


# what commands print and write


def test_everything_that_the_example_prints_and_writes_is_valid(shop: ProjectFolder) -> None:
    for command in (
        ["check"],
        ["check", "--strict"],
        ["test"],
        ["test", "--coverage"],
        ["inspect-plan"],
        ["inspect-plan", "customer_metrics"],
        ["explain", "big_customers"],
        ["graph"],
        ["graph", "--target", "cluster"],
        ["plan", "--target", "local"],
        ["plan", "--target", "cluster"],
        ["status", "--target", "local"],
        ["plan", "--target", "local", "--out", str(shop.root / "shop.plan")],
    ):
        printed(shop.run(*command, "--json"))
    check_valid(json.loads((shop.root / "shop.plan").read_text()))
    assert shop.run("apply", "--target", "local").code == 0
    for command in (["plan", "--target", "local"], ["status", "--target", "local"]):
        printed(shop.run(*command, "--json"))
    store = shop.root / ".streamform"
    written = [*(store / "applied").rglob("*.json"), *(store / "journal").rglob("*.json")]
    assert sorted(next(iter(set(KINDS) & set(check_valid(json.loads(file.read_text()))))) for file in written) == [
        "attempt_version",
        "record_version",
    ]


def test_the_documents_of_the_example_are_valid(shop: ProjectFolder) -> None:
    documents = {"streamform.yml": "project", "sources.yml": "sources"}
    documents |= {f"tests/{file.name}": "fixture" for file in (shop.root / "tests").iterdir()}
    for path, name in documents.items():
        assert problem(name, parse_tree((shop.root / path).read_text(), path).value) is None, path
    assert len(documents) == 5


def test_reports_of_what_fails_are_valid(shop: ProjectFolder) -> None:
    shop.write("tests/wrong.yml", "model: customer_metrics\nmatch: unordered\ngiven: [{customer_id: 1, amount: 2}]\nexpect: []\n")
    shop.write("tests/error.yml", "model: customer_metrics\ngiven: [{nothing: 1}]\nexpect_final: []\n")
    shop.write("tests/late.yml", "model: clean_orders\ngiven: [{watermark: 5}]\nlate: [{customer_id: 1}]\n")
    report = printed(shop.run("test", "--json"))
    assert [fixture["passed"] for fixture in report["fixtures"]].count(False) == 3
    shop.write("models/broken.sql", "SELECT nothing FROM source('orders')").write(
        "models/extra.sql", "SELECT order_id FROM source('orders')"
    )
    found = printed(shop.run("check", "--json"))
    assert {d["severity"] for d in found["diagnostics"]} == {"error"}
    assert found["notes"]
    shop.write("streamform.yml", "name: shop\nversion: 1\nunknown: 1\n")
    assert printed(shop.run("check", "--json"))["loaded"] is False


def test_a_cycle_is_in_a_valid_graph(project: ProjectBuilder) -> None:
    folder = project({"a": "SELECT customer_id FROM ref('b')", "b": "SELECT customer_id FROM ref('a')"})
    assert printed(folder.run("graph", "--json"))["cycles"]


EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": (SPEND, UPSERT),
    "alias": (SPEND.replace("total", "spend"), UPSERT),
    "filter": (SPEND.replace("GROUP", "WHERE amount > 1 GROUP"), UPSERT),
    "having": (f"{SPEND} HAVING COUNT(*) > 1", UPSERT),
    "accumulator added": (SPEND.replace("COUNT(*) AS n", "COUNT(*) AS n, MAX(amount) AS most"), UPSERT),
    "accumulator removed": (SPEND.replace(", COUNT(*) AS n", ""), UPSERT),
    "accumulator type": (SPEND.replace("SUM(amount)", "SUM(CAST(amount AS DOUBLE))"), UPSERT),
    "key": (SPEND.replace("customer_id", "status"), {**UPSERT, "key": ["status"]}),
    "key added": (SPEND.replace("customer_id", "customer_id, status"), {**UPSERT, "key": ["customer_id", "status"]}),
    "stateless": ("SELECT customer_id, amount AS total FROM source('orders')", {}),
    "sink": (SPEND, {**UPSERT, "sink": {"connector": "file", "path": "out.jsonl"}}),
    "retention": (SPEND, {**UPSERT, "retention": "1d"}),
    "hint": (SPEND, {**UPSERT, "nodes": {"aggregate.0": {"was": "m::aggregate::0"}}}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_every_kind_of_diff_is_valid(edit: str, project: ProjectBuilder) -> None:
    folder = project(SPEND, {"m": UPSERT}, sources=TIMED, targets=TARGET)
    folder.write("data/orders.jsonl", '{"customer_id": 1, "amount": 2, "status": "paid", "ordered_at": "2026-08-30T10:00:00"}\n')
    assert folder.run("apply").code == 0
    sql, config = EDITS[edit]
    folder.write("models/m.sql", sql).write("streamform.yml", {"name": "shop", "version": 1, "models": {"m": config}, "targets": TARGET})
    saved = folder.run("plan", "--json", "--out", str(folder.root / "p.json"))
    assert printed(saved)["units"], saved.stderr
    check_valid(json.loads((folder.root / "p.json").read_text()))
    folder.run("apply")
    for file in (folder.root / ".streamform" / "journal").rglob("*.json"):
        check_valid(json.loads(file.read_text()))


def test_added_and_removed_models_and_deployment_facts_are_valid(project: ProjectBuilder) -> None:
    config = {"m": {**UPSERT, "sink": {"connector": "file", "path": "m.jsonl"}}}
    folder = project(SPEND, config, sources=TIMED, targets=TARGET)
    folder.write("data/orders.jsonl", "")
    assert folder.run("apply").code == 0
    folder.write("sources.yml", TIMED + "    idle_timeout: 1m\n")
    assert printed(folder.run("plan", "--json"))["deployment"]
    folder.remove("models/m.sql").write("models/n.sql", SPEND)
    folder.write("streamform.yml", {"name": "shop", "version": 1, "models": {"n": UPSERT}, "targets": TARGET})
    changes = {model["change"] for model in printed(folder.run("plan", "--json"))["models"]}
    assert changes == {"added", "removed"}


@pytest.mark.parametrize("reaches", [True, False])
def test_the_status_of_jobs_is_valid(reaches: bool, shop: ProjectFolder) -> None:
    compiled, target = api.compile_for_target(shop.root, "cluster")
    manifest = build_manifest(compiled.plan)
    record = AppliedRecord("cluster", "2026-08-30T10:00:00Z", "0.1.0", "flink", ("a", "b"), manifest, "c" * 64)
    unit = RunningUnit("big_customers", ("big_customers",), manifest, None, None)
    jobs = (ObservedJob("a", "running", "shop", tasks=(1, 2), start_time="x"), ObservedJob("b", "unowned", recorded=False, failure="x"))
    seen = {"big_customers": Observation("failed", jobs, "lost")} if reaches else {}
    trouble: tuple[Any, ...] = () if reaches else ("gateway-unreachable", "nobody answers")
    status = check_valid(status_document(StatusResult("shop", target.name, Deployed(record, {"big_customers": unit}, {}), seen, *trouble)))
    assert len(status["jobs"]) == 2 * reaches
    assert status["passed"] is False


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("project", {"name": "shop"}),
        ("project", {"name": "shop", "version": 2}),
        ("project", {"name": "shop", "version": 1, "model": {}}),
        ("project", {"name": "shop", "version": 1, "targets": {"t": {"backend": "spark"}}}),
        ("sources", {"sources": {"s": {"connector": "file", "schema": {"a": "float"}}}}),
        ("sources", {"sources": {"s": {"connector": "file", "watermark": "5 minutes"}}}),
        ("fixture", {"given": []}),
        ("fixture", {"model": "m", "expect": [{"customer_id": 1}]}),
        ("fixture", {"model": "m", "given": [{"event": {"a": {"b": 1}}}]}),
        ("fixture", {"model": "m", "quarantined": [{"a": 1}]}),
        ("diff", {"diff_version": 2}),
        ("applied-record", {"record_version": 1}),
    ],
)
def test_what_a_reader_refuses_is_not_valid(name: str, document: dict[str, Any]) -> None:
    assert problem(name, document) is not None


@pytest.mark.parametrize(
    "item",
    [
        {"customer_id": 1, "amount": "1.50", "note": None},
        {"event": {"customer_id": 1}},
        {"source": "orders", "event": {"customer_id": 1}},
        {"source": "orders", "rows": "data/orders.jsonl"},
        {"watermark": "2026-08-30T10:00:00Z"},
        {"source": "orders", "watermark": 5},
    ],
)
def test_every_form_of_a_given_item_is_valid(item: dict[str, Any]) -> None:
    upgrade = {"project": "git:HEAD", "verdict": "SAFE", "given": [item]}
    assert problem("fixture", {"model": "m", "given": [item], "upgrade": upgrade, "match": "partial", "expect_error": "x"}) is None


def test_every_form_of_an_expected_item_is_valid() -> None:
    expected = [
        {"op": "insert", "total": 1},
        {"op": "update", "total": 2, "before": {"total": 1}},
        {"op": "delete", "row": {"op": "x", "before": None}},
        {"op": "insert", "before": 3},
    ]
    assert problem("fixture", {"model": "m", "expect": expected, "expect_final": [{"total": 1}]}) is None


# the published format

recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded cases do not stand beside the project")


def published(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / "schemas" / f"{name}.json").read_text())
    return found


@recorded
def test_recorded_documents_are_valid() -> None:
    wrong, seen = [], set()
    for file in sorted((RECORDED / "cases").glob("*/*.json")):
        content = json.loads(file.read_text())
        documents = [step.get("json") for step in content["steps"]] if file.name == "case.json" else [content]
        for document in documents:
            name = next((kind for field, kind in KINDS.items() if isinstance(document, dict) and field in document), None)
            if name is None or not Draft202012Validator(published(name)).is_valid(document):
                continue
            seen.add(name)
            if (found := problem(name, document)) is not None:
                wrong.append(f"{file.parent.name} {name} {found}")
    assert wrong == []
    assert {"plan-manifest", "diff", "check-report", "test-report", "graph"} <= seen


@recorded
def test_a_record_of_the_published_format_is_valid() -> None:
    manifest = json.loads((RECORDED / "cases" / "plan_same" / "running.json").read_text())
    record = {
        "record_version": 1,
        "target": "prod",
        "applied_at": "2026-08-30T10:00:00Z",
        "streamform_version": "0.9.1",
        "backend": "flink",
    }
    record |= {"jobs": ["a1"], "manifest": manifest, "job_name": "p", "restored_from": None}
    assert Draft202012Validator(published("applied-record")).is_valid(record)
    assert problem("applied-record", record) is None


@recorded
@pytest.mark.parametrize(("name", "pattern"), [("project", "streamform.yml"), ("sources", "sources.yml"), ("fixture", "tests/**/*.yml")])
def test_recorded_projects_that_the_published_schema_accepts_are_valid(name: str, pattern: str) -> None:
    theirs, accepted, wrong = Draft202012Validator(published(name)), 0, []
    for folder in sorted((RECORDED / "cases").glob("*/project*")):
        for file in folder.glob(pattern):
            try:
                document = parse_tree(file.read_text(), file.name).value
            except (TreeError, UnicodeDecodeError):
                continue
            if isinstance(document, dict) and document.get("version", 1) != 1:
                continue
            accepted += theirs.is_valid(document)
            if theirs.is_valid(document) and (found := problem(name, document)) is not None:
                wrong.append(f"{file} {found}")
    assert wrong == []
    assert accepted > 100


def options(schema: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The alternatives of a schema, references followed, one simple type each."""
    if not isinstance(schema, dict):
        yield {}
        return
    if "$ref" in schema:
        yield from options(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
        return
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from options(part, root)
    types = schema.get("type", [])
    yield from ({**schema, "type": kind} for kind in ([types] if isinstance(types, str) else types))


def gaps(ours: Any, theirs: Any, roots: tuple[dict[str, Any], dict[str, Any]], path: str = "") -> list[str]:
    """What the published schema allows and ours does not."""
    found: list[str] = []
    for wanted in options(theirs, roots[1]):
        best = [_gaps(mine, wanted, roots, path) for mine in options(ours, roots[0]) if _same(mine["type"], wanted["type"])]
        found += min(best, key=len, default=[f"{path}: no {wanted['type']}"])
    return found


def _same(mine: str, wanted: str) -> bool:
    return mine == wanted or (mine, wanted) == ("number", "integer")


def _gaps(mine: dict[str, Any], wanted: dict[str, Any], roots: tuple[dict[str, Any], dict[str, Any]], path: str) -> list[str]:
    words = [wanted["const"]] if "const" in wanted else wanted.get("enum", [])
    allowed = [mine["const"]] if "const" in mine else mine.get("enum", words)
    found = [f"{path}: not {word}" for word in words if word not in allowed]
    if wanted["type"] == "array" and "items" in wanted:
        found += gaps(mine["items"], wanted["items"], roots, f"{path}[]")
    if wanted["type"] != "object":
        return found
    fields = mine.get("properties", {})
    found += [f"{path}: {name} is required" for name in set(mine.get("required", ())) - set(wanted.get("required", ()))]
    for name, field in wanted.get("properties", {}).items():
        other = fields.get(name, mine.get("additionalProperties", {}))
        found += (
            [f"{path}.{name} is missing"] if other is False else gaps(other, field, roots, f"{path}.{name}") if other is not True else []
        )
    more, other = wanted.get("additionalProperties"), mine.get("additionalProperties", True)
    if isinstance(more, dict):
        found += (
            [f"{path}: no further fields"] if other is False else gaps(other, more, roots, f"{path}.*") if isinstance(other, dict) else []
        )
    return found


@recorded
@pytest.mark.parametrize("name", [name for name in NAMES if name != "journal-entry"])
def test_the_published_schema_is_a_part_of_ours(name: str) -> None:
    ours, theirs = schema_document(name), published(name)
    assert gaps(ours, theirs, (ours, theirs)) == []


@recorded
def test_the_comparison_of_schemas_sees_what_is_missing() -> None:
    ours, theirs = schema_document("status"), published("status")
    del ours["properties"]["problem"]
    ours["$defs"]["JobState"]["enum"].remove("unowned")
    ours["required"].append("units")
    assert sorted(gaps(ours, theirs, (ours, theirs))) == [".jobs[].state: not unowned", ".problem is missing", ": units is required"]
