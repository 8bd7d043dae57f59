"""Every problem that check reports: the smallest project that has it, and the place that it is reported at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from streamform import api
from streamform.codes import CODES
from streamform.diagnostics import Diagnostic, without_passwords
from tests.conftest import ProjectBuilder, ProjectFolder

Files = Mapping[str, str | bytes | None]
"""Text by path; None removes the file."""

HEAD = "name: shop\nversion: 1\n"
SQL = "SELECT customer_id, amount FROM source('orders')"
GROUPED = "SELECT customer_id, SUM(amount) AS total FROM source('orders') GROUP BY customer_id"
UPSERT = HEAD + "models: {m: {materialized: upsert, key: [customer_id]}}\n"
EXPIRING = UPSERT.replace("key:", "retention: 1d, key:").replace("}}", "}, n: {materialized: upsert}}")
COLUMNS = "schema: {customer_id: int64, amount: int64, at: timestamp}"
SOURCE = f"sources:\n  orders:\n    connector: file\n    path: x.jsonl\n    {COLUMNS}\n"
TIMED = SOURCE + "    event_time: at\n"
KAFKA = f"sources: {{orders: {{connector: kafka, topic: orders, {COLUMNS}}}}}\n"
CHECKED = SOURCE + "    quarantine: {topic: bad}\n    contracts:\n"
WINDOW = HEAD + "models: {m: {window: {type: tumbling, size: 5m}}}\n"
WINDOWED = "SELECT window_start, window_end, COUNT(*) AS n FROM source('orders') GROUP BY window_start, window_end"


def model(config: str) -> str:
    """streamform.yml with this under models: m:."""
    return f"{HEAD}models: {{m: {{{config}}}}}\n"


def target(config: str) -> str:
    """streamform.yml with this under targets: t:."""
    return f"{HEAD}targets: {{t: {{{config}}}}}\n"


class Case(NamedTuple):
    """A project that differs from a correct one by these files, and where its problem is."""

    code: str
    where: str
    """Places where it is reported, between blanks."""
    files: Files


def sql(code: str, where: str, text: str, **files: str) -> Case:
    """A case of one model's SQL."""
    named = {"config": "streamform.yml", "sources": "sources.yml", "n": "models/n.sql"}
    return Case(code, where, {"models/m.sql": text, **{named[name]: content for name, content in files.items()}})


CASES = (
    Case("SF001", ".", {"streamform.yml": None}),
    Case("SF002", "models/m.sql", {"models/m.sql": b"SELECT '\xff'"}),
    Case("SF003", "sources.yml:2:7", {"sources.yml": "sources:\n  a: b: c\n"}),
    Case("SF004", "streamform.yml:3:1", {"streamform.yml": HEAD + "targts: {}\n"}),
    Case("SF005", "streamform.yml:3:9", {"streamform.yml": HEAD + "models: 5\n"}),
    Case("SF006", "sources.yml:6:3", {"sources.yml": SOURCE.replace("    schema", "  x: {connector: file}\n  x: {connector: file}\n#")}),
    Case("SF007", "streamform.yml:2:10", {"streamform.yml": "name: x\nversion: 3\n"}),
    Case("SF008", "sources.yml:1:10", {"sources.yml": "sources: &a [*a]\n"}),
    Case("SF009", "sources.yaml", {"sources.yaml": SOURCE}),
    # the project
    Case("SF101", "streamform.yml", {"streamform.yml": HEAD + "models: {gone: {}}\n"}),
    Case("SF102", "models/orders.sql", {"models/orders.sql": SQL}),
    Case("SF103", "models/m.sql", {"models/m.sql": "SELECT a FROM ref('n')", "models/n.sql": "SELECT a FROM ref('m')"}),
    sql("SF104", "models/m.sql:2:6", "SELECT a\nFROM ref('nobody')"),
    sql("SF105", "models/m.sql:1:15", "SELECT a FROM ref('m')"),
    sql("SF106", "models/m.sql:1:15", "SELECT a FROM source('order')"),
    sql("SF107", "models/m.sql:1:21", "SELECT amount FROM  orders"),
    sql("SF108", "models/m.sql", " \n"),
    sql("SF109", "models/m.sql", f"{SQL};\n{SQL}"),
    sql("SF110", "models/m.sql:2:6", "SELECT amount\nFROM WHERE"),
    sql("SF111", "models/m.sql:1:20", 'SELECT amount FROM source("orders")'),
    sql("SF112", "models/m.sql:1:59", f"{SQL} ORDER BY amount"),
    sql("SF113", "models/m.sql:1:8", "SELECT amout FROM source('orders')"),
    sql("SF114", "models/m.sql:1:43", "SELECT amount FROM source('orders') WHERE at > 5"),
    sql("SF115", "models/m.sql:1:16", "SELECT amount, amount FROM source('orders')"),
    sql("SF116", "models/m.sql:1:8", "SELECT amount, COUNT(*) AS n FROM source('orders')", config=model("materialized: upsert")),
    sql("SF117", "models/m.sql:1:8", "SELECT NOW() AS t FROM source('orders')"),
    sql("SF118", "models/n.sql", "SELECT x FROM source('orders')", n="SELECT x FROM ref('m')"),
    sql("SF120", "models/m.sql:1:108", "SELECT " + "(" * 101 + "amount" + ")" * 101 + " AS a FROM source('orders')"),
    Case("SF121", "models/sub/m.sql", {"models/sub/m.sql": SQL}),
    sql(
        "SF122",
        "models/m.sql:1:28",
        'SELECT "sum(amount)" AS k, SUM(amount) AS s FROM (SELECT amount, amount AS "sum(amount)" FROM source(\'orders\')) GROUP BY "sum(amount)"',
        config=model("materialized: upsert, key: [k]"),
    ),
    Case("SF150", "", {"models/m.sql": None}),
    Case("SF151", "models/schema.yml", {"models/schema.yml": "models: []\n"}),
    # materialization
    sql("SF201", "models/m.sql", GROUPED, config=model("materialized: upsert")),
    sql("SF202", "models/m.sql", GROUPED, config=model("materialized: upsert, key: [total]")),
    sql("SF203", "models/m.sql", "SELECT COUNT(*) AS n FROM source('orders')", config=model("materialized: upsert, key: [n]")),
    sql("SF204", "models/m.sql", GROUPED),
    sql("SF205", "models/m.sql", SQL, config=model("materialized: upsert")),
    sql("SF206", "models/n.sql", GROUPED, config=EXPIRING, n="SELECT MAX(total) AS top FROM ref('m')", sources=TIMED),
    sql("SF207", "models/m.sql", SQL, config=model("materialized: upsert, key: [id]")),
    sql("SF208", "models/m.sql", SQL, config=model("materialized: upsert, key: [amount, amount]")),
    sql(
        "SF209",
        "models/n.sql",
        GROUPED,
        config=UPSERT.replace("}}", "}, n: {materialized: upsert}}"),
        n="SELECT total FROM ref('m') UNION ALL SELECT total FROM ref('m')",
    ),
    sql("SF250", "models/m.sql", SQL, config=model("key: [amount]")),
    # sources
    Case("SF301", "sources.yml:1:31", {"sources.yml": f"sources: {{orders: {{connector: kafka, {COLUMNS}}}}}\n"}),
    Case("SF302", "sources.yml:1:31", {"sources.yml": f"sources: {{orders: {{connector: file, {COLUMNS}}}}}\n"}),
    Case("SF303", "sources.yml:1:31", {"sources.yml": f"sources: {{orders: {{connector: iceberg, {COLUMNS}}}}}\n"}),
    Case("SF304", "sources.yml:6:10", {"sources.yml": SOURCE + "    key: [id]\n"}),
    Case("SF305", "sources.yml:6:17", {"sources.yml": SOURCE + "    event_time: when\n"}),
    Case("SF306", "sources.yml:6:17", {"sources.yml": SOURCE + "    event_time: amount\n"}),
    Case("SF307", "sources.yml:6:16", {"sources.yml": SOURCE + "    watermark: 5m\n"}),
    Case("SF308", "sources.yml:6:18", {"sources.yml": SOURCE + "    late_events: keep\n"}),
    Case("SF309", "sources.yml:6:19", {"sources.yml": SOURCE + "    idle_timeout: 5m\n"}),
    Case("SF310", "sources.yml:8:9", {"sources.yml": CHECKED + "      - {name: a, not_null: [amount], check: amount > 0}\n"}),
    Case("SF311", "sources.yml:8:9", {"sources.yml": CHECKED + "      - {name: '', check: amount > 0}\n"}),
    Case(
        "SF312",
        "sources.yml:9:9",
        {"sources.yml": CHECKED + "      - {name: a, check: amount > 0}\n      - {name: a, check: amount < 9}\n"},
    ),
    Case("SF313", "sources.yml:8:9", {"sources.yml": CHECKED + "      - {name: a, not_null: []}\n"}),
    Case("SF314", "sources.yml:8:9", {"sources.yml": CHECKED + "      - {name: a, not_null: [id]}\n"}),
    Case("SF315", "sources.yml:8:26", {"sources.yml": CHECKED + "      - {name: a, check: amount + 1}\n"}),
    Case("SF316", "sources.yml:6:16", {"sources.yml": SOURCE + "    contracts: [{name: a, check: amount > 0}]\n"}),
    Case("SF317", "sources.yml:6:17", {"sources.yml": SOURCE + "    quarantine: {topic: bad}\n"}),
    Case(
        "SF318",
        "sources.yml:7:17",
        {
            "sources.yml": f"sources:\n  orders:\n    connector: kafka\n    topic: bad\n    {COLUMNS}\n"
            "    contracts: [{name: a, check: amount > 0}]\n    quarantine: {topic: bad}\n"
        },
    ),
    sql("SF350", "sources.yml", GROUPED, config=UPSERT, sources=KAFKA),
    sql("SF351", "sources.yml", GROUPED, config=UPSERT, sources=KAFKA.replace("topic", "key: [amount], topic")),
    Case("SF352", "sources.yml", {"sources.yml": SOURCE + "  unused: {connector: file, path: y, schema: {a: int64}}\n"}),
    Case("SF353", "sources.yml:6:11", {"sources.yml": SOURCE + "  unused: {connector: file, path: y}\n"}),
    # time
    sql("SF401", "streamform.yml:3:67", GROUPED, config=model("materialized: upsert, key: [customer_id], retention: 5d")),
    sql("SF402", "streamform.yml:3:22 models/m.sql", WINDOWED, config=WINDOW),
    sql("SF403", "streamform.yml:3:28", WINDOWED, config=WINDOW.replace("{window", "{materialized: upsert, window"), sources=TIMED),
    sql("SF404", "models/m.sql:1:53", "SELECT COUNT(*) AS n FROM source('orders') GROUP BY customer_id", config=WINDOW, sources=TIMED),
    sql("SF405", "models/m.sql:1:76", WINDOWED.replace(" GROUP", " WHERE window_start IS NULL GROUP"), config=WINDOW, sources=TIMED),
    sql("SF406", "streamform.yml:3:22", WINDOWED, config=WINDOW.replace("5m", "0s"), sources=TIMED),
    sql("SF407", "streamform.yml:3:61", WINDOWED, config=WINDOW.replace("5m}", "5m}, retention: 1d"), sources=TIMED),
    sql("SF408", "streamform.yml:3:22", WINDOWED, config=WINDOW, sources=TIMED + "    late_events: keep\n"),
    sql("SF409", "streamform.yml:3:22", WINDOWED, config=WINDOW, sources=TIMED.replace("at: ", "window_end: int64, at: ")),
    sql("SF410", "streamform.yml:3:67", GROUPED, config=model("materialized: upsert, key: [customer_id], retention: 0d"), sources=TIMED),
    sql(
        "SF412", "streamform.yml:3:22", WINDOWED, config=WINDOW.replace("tumbling, size: 5m", "hopping, size: 5m, slide: 2m"), sources=TIMED
    ),
    Case("SF319", "sources.yml:7:18", {"sources.yml": TIMED + "    late_events: quarantine\n"}),
    sql("SF413", "streamform.yml:3:25", SQL, config=model("on_expiry: delete"), sources=TIMED),
    sql("SF411", "models/m.sql:1:8", SQL, config=WINDOW, sources=TIMED),
    sql("SF450", "sources.yml", WINDOWED, config=WINDOW, sources=KAFKA.replace("topic", "event_time: at, topic")),
    sql("SF451", "sources.yml", WINDOWED, config=WINDOW, sources=TIMED),
    # sinks and targets
    Case("SF501", "streamform.yml", {"streamform.yml": model("sink: {connector: kafka}")}),
    Case("SF502", "streamform.yml", {"streamform.yml": model("sink: {connector: sqlite, table: t}")}),
    Case("SF503", "streamform.yml", {"streamform.yml": model("sink: {connector: sqlite, path: x.db}")}),
    Case("SF504", "streamform.yml", {"streamform.yml": model("sink: {connector: iceberg, table: a.b.c}")}),
    Case("SF505", "streamform.yml:3:14", {"streamform.yml": target("backend: flink")}),
    Case("SF506", "streamform.yml:3:14", {"streamform.yml": target("backend: embedded"), "sources.yml": KAFKA}),
    Case(
        "SF507",
        "streamform.yml:4:14",
        {
            "streamform.yml": model("sink: {connector: iceberg, table: a.b}")
            + "targets: {t: {backend: flink, flink: {gateway: 'http://x'}}}\n"
        },
    ),
    Case("SF508", "streamform.yml:3:48", {"streamform.yml": target("backend: flink, flink: {gateway: 'http://me:pw@x'}")}),
    Case(
        "SF509",
        "streamform.yml:4:14",
        {"streamform.yml": model("sink: {connector: iceberg, table: a.b}") + "targets: {t: {backend: embedded, iceberg: {catalog: c}}}\n"},
    ),
    Case(
        "SF510",
        "streamform.yml",
        {"models/n.sql": SQL, "streamform.yml": HEAD + "models: {m: {sink: &s {connector: file, path: o}}, n: {sink: *s}}\n"},
    ),
    Case("SF511", "streamform.yml", {"streamform.yml": model("sink: {connector: file, path: x.jsonl}")}),
    Case("SF512", "streamform.yml:1:7", {"streamform.yml": "name: ' '\nversion: 1\n"}),
    Case("SF513", "streamform.yml:3:51", {"streamform.yml": target("backend: embedded, sources: {order: {connector: file}}")}),
    Case("SF514", "streamform.yml:3:55", {"streamform.yml": target("backend: embedded, approvals: {expires: 0s}")}),
    Case("SF515", "streamform.yml:3:41", {"streamform.yml": target("backend: embedded, store: 'mysql://h/db'")}),
    Case("SF516", "streamform.yml:3:41", {"streamform.yml": target("backend: embedded, store: 'postgresql://me:pw@h/db'")}),
    # hints
    Case("SF601", "streamform.yml:3:33", {"streamform.yml": model("nodes: {aggregate: {was: 'm::aggregate::1'}}")}),
    Case("SF602", "streamform.yml:3:32", {"streamform.yml": model("nodes: {source.0: {was: m}}")}),
    Case(
        "SF603",
        "streamform.yml",
        {"streamform.yml": HEAD + "models: {m: {renamed_from: old}, n: {renamed_from: old}}\n", "models/n.sql": SQL},
    ),
    Case("SF604", "streamform.yml:3:28", {"streamform.yml": model("renamed_from: m")}),
    Case("SF605", "streamform.yml:3:28", {"streamform.yml": model("renamed_from: n"), "models/n.sql": SQL}),
    Case("SF606", "streamform.yml:3:35", {"streamform.yml": model("nodes: {aggregate.0: {was: 'm::aggregate::1'}}")}),
    Case("SF607", "streamform.yml:3:32", {"streamform.yml": model("nodes: {source.0: {was: 'm::sink::0'}}")}),
    Case("SF608", "streamform.yml:3:28", {"streamform.yml": model("renamed_from: 'a::b'")}),
    # fixtures and advice
    Case("SF701", "tests/f.yml", {"tests/f.yml": "model: n\n"}),
    Case("SF702", "tests/f.yml", {"tests/f.yml": "model: m\nexpect: [{op: insert, amount: 1}]\n"}),
    Case("SF801", "models/m.sql", {}),
    Case("SF802", "models/m.sql", {}),
)

UNREACHED = {
    "SF119": "a join is refused, and every other relation's columns have different names",
}
"""Codes that no project of today leads to."""


def build(project: ProjectBuilder, files: Files) -> ProjectFolder:
    """A correct project with these files changed."""
    folder = project(SQL, sources=SOURCE)
    for path, content in files.items():
        if content is None:
            folder.remove(path)
        else:
            folder.write(path, content)
    return folder


def reported(folder: ProjectFolder) -> list[Diagnostic]:
    """Problems and advice."""
    report = api.check(folder.root)
    return [*report.diagnostics, *report.notes]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_problem_is_reported_at_its_place(project: ProjectBuilder, case: Case) -> None:
    found = [d for d in reported(build(project, case.files)) if d.code == case.code]
    assert " ".join(str(d.where or d.path or "") for d in found) == case.where


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_a_place_within_a_file_comes_with_its_line(project: ProjectBuilder, case: Case) -> None:
    folder = build(project, case.files)
    for found in reported(folder):
        if found.where is not None and found.where.line:
            line = (folder.root / found.where.file).read_text("utf-8").split("\n")[found.where.line - 1]
            assert found.excerpt == without_passwords(line)
            assert found.where.column <= len(line) + 1


def test_each_source_below_a_retention_needs_a_clock(project: ProjectBuilder) -> None:
    both = "(SELECT customer_id, amount FROM source('orders') UNION ALL SELECT customer_id, amount FROM source('more')) AS u"
    sources = TIMED + f"  more:\n    connector: file\n    path: y.jsonl\n    {COLUMNS}\n"
    config = model("materialized: upsert, key: [customer_id], retention: 5d")
    folder = build(project, {"sources.yml": sources, "streamform.yml": config, "models/m.sql": GROUPED.replace("source('orders')", both)})
    (found,) = [d for d in reported(folder) if d.severity == "error"]
    assert (found.code, found.message) == ("SF401", "model `m` declares retention, but `more` upstream has no event time")
    folder.write("sources.yml", sources + "    event_time: at\n")
    assert [d for d in reported(folder) if d.severity == "error"] == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("store: 'postgresql://me:pw@h/db'", "store: 'postgresql://me:**@h/db'"),
        ("store: postgresql://me:p:@w@h/db # x", "store: postgresql://me:****@h/db # x"),
        ("{store: postgresql://me:${PW}@h/db}", "{store: postgresql://me:${PW}@h/db}"),
        ("store: postgresql://me:${PW}x@h/db", "store: postgresql://me:******@h/db"),
        ("store: 'postgresql://h/db?sslpassword=pw&password=${PW}'", "store: 'postgresql://h/db?sslpassword=**&password=${PW}'"),
        ("gateway: http://localhost:8083 # ask ann@h", "gateway: http://localhost:8083 # ask ann@h"),
    ],
)
def test_a_line_is_shown_without_passwords(written: str, shown: str) -> None:
    assert without_passwords(written) == shown


def test_every_code_has_a_case() -> None:
    covered = {case.code for case in CASES}
    assert set(CODES) - covered == set(UNREACHED)


def test_the_project_that_the_cases_change_has_no_problem(project: ProjectBuilder) -> None:
    assert build(project, {}).check(strict=True) == ()


def test_what_the_parser_says_reaches_nobody(project: ProjectBuilder) -> None:
    from .conftest import run_cli

    done = run_cli("check", "--project", str(project("SET k, COUNT(*) AS n FROM source('orders')").root))
    assert done.code == 1
    assert "Falling back" not in done.stderr + done.stdout
