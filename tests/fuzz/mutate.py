"""Small projects with their files damaged at random, and a run that tells any failure of ours from an error about the project."""

from __future__ import annotations

import random
import traceback
from pathlib import Path

from streamform import api
from streamform.errors import StreamformError

CONFIG = """name: shop
version: 1
models:
  m: {materialized: upsert, key: [k], sink: {connector: kafka, topic: out}, retention: 30d}
  w: {window: {type: hopping, size: 10m, slide: 5m}}
targets:
  prod:
    backend: flink
    flink: {gateway: "http://localhost:8083", rest: "http://localhost:8081", savepoint_dir: "file:///tmp/s"}
    kafka: {bootstrap_servers: "localhost:9092", startup: earliest}
    approvals: {above: SAFE, expires: 24h, min_approvals: 1}
"""
SOURCES = """sources:
  e:
    connector: kafka
    topic: in
    key: [k]
    schema: {k: int64, v: "decimal(12,2)", f: float64, s: string, b: boolean, at: timestamp}
    event_time: at
    watermark: 5m
    contracts: [{name: positive, check: "v > 0"}]
    quarantine: {topic: bad}
"""
MODELS = (
    "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') WHERE s <> 'x' AND v > 1.5 GROUP BY k HAVING SUM(v) > 10",
    "WITH c AS (SELECT k, v FROM source('e')) SELECT k, MIN(v) AS t FROM c GROUP BY k",
    "SELECT k, COUNT(DISTINCT s) AS t, AVG(f) AS a, SUM(v) FILTER (WHERE b) AS g FROM source('e') GROUP BY k",
    "SELECT MOD(k, 10) AS k, CASE WHEN MAX(v) > 5 THEN 'a' ELSE UPPER(MIN(s)) END AS c FROM source('e') GROUP BY MOD(k, 10)",
    "SELECT k, MAX(n) AS t FROM (SELECT k, s, COUNT(*) AS n FROM source('e') GROUP BY k, s) GROUP BY k",
)
WINDOWED = "SELECT k, window_start, window_end, COUNT(*) AS n FROM source('e') GROUP BY k, window_start, window_end"
FIXTURE = """model: m
given:
  - event: {k: 1, v: 2.50, s: a, b: true, at: "2026-08-30T10:00:00Z"}
  - {k: 1, v: 20, f: 1e3, s: "b", at: "2026-08-30T10:00:01.5Z"}
  - watermark: "2026-08-30T11:00:00Z"
  - event: {k: 2, v: 3, s: c, at: "2026-08-30T10:00:00Z"}
expect:
  - {op: insert, k: 1, t: 2.5, n: 1}
late:
  - {k: 2, v: 3, s: c, at: "2026-08-30T10:00:00Z"}
"""
PIECES = (
    *"()[]{},:;'\"`*+-/%=<>|&!?@#$^~\\ \n\t0123456789.",
    *(
        "NULL",
        "true",
        "-1",
        "9" * 30,
        "1e999",
        "0x1F",
        ".5",
        "1_000",
        "2026-02-30",
        "''",
        '""',
        "${X}",
        "\x00",
        "\ud7ff",
        "😀",
        "é",
        "\u2028",
    ),
    *(
        "SELECT ",
        " FROM ",
        " JOIN e ON 1=1 ",
        " WHERE ",
        " GROUP BY ",
        " ORDER BY k",
        " LIMIT 1",
        " UNION ALL ",
        " OVER (PARTITION BY k)",
        " IN (1,2)",
    ),
    *(
        " CASE WHEN ",
        " END",
        "CAST(",
        " AS INT)",
        " AS DECIMAL(99,99))",
        "source('e')",
        "ref('m')",
        "ref('w')",
        "INTERVAL '1' DAY",
        "TIMESTAMP '2026-01-01'",
    ),
    *(
        "COUNT(*)",
        "SUM(DISTINCT ",
        "EXTRACT(YEAR FROM at)",
        "LIKE '%'",
        "REGEXP_EXTRACT(s, '(', 1)",
        "NOW()",
        "--",
        "/*",
        "*/",
        "(" * 60,
        "NOT " * 40,
    ),
    *(
        "&a [*a]",
        "!!python/object",
        "<<: *x",
        "? ",
        "| ",
        "> ",
        "- ",
        "---\n",
        "key: [k, k]",
        "type: session",
        "gap: 5m",
        "slide: 0s",
        "late_events: keep",
    ),
)


def mutated(text: str, chosen: random.Random) -> str:
    """The text with a few of its pieces cut, doubled, swapped or replaced."""
    for _ in range(chosen.choice((1, 1, 1, 2, 3, 6))):
        a = chosen.randrange(len(text) + 1)
        b = min(len(text), a + chosen.choice((0, 1, 1, 3, 8, 20)))
        act = chosen.randrange(5)
        if act == 0:
            text = text[:a] + text[b:]
        elif act == 1:
            text = text[:a] + chosen.choice(PIECES) + text[b:]
        elif act == 2:
            text = text[:a] + chosen.choice(PIECES) + text[a:]
        elif act == 3:
            text = text[:b] + text[a:b] + text[b:]
        else:
            c = chosen.randrange(len(text) + 1)
            text = text[:a] + text[c : c + (b - a)] + text[b:]
    return text


def files_of(chosen: random.Random) -> dict[str, str]:
    """One damaged project: mostly its SQL, at times a document or the fixture."""
    files = {
        "streamform.yml": CONFIG,
        "sources.yml": SOURCES,
        "models/m.sql": chosen.choice(MODELS),
        "models/w.sql": WINDOWED,
        "tests/f.yml": FIXTURE,
    }
    name = chosen.choices(list(files), (2, 2, 7, 2, 3))[0]
    files[name] = mutated(files[name], chosen)
    return files


def failure_of(folder: Path, files: dict[str, str]) -> str | None:
    """What went wrong in streamform itself, None where everything that is wrong is about the project."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        report = api.check(folder)
        if report.passed and report.project is not None:
            api.test(folder)
    except StreamformError:
        return None
    except Exception:
        return traceback.format_exc(limit=-4)
    return None


def fuzz(folder: Path, seed: int, cases: int) -> list[tuple[dict[str, str], str]]:
    """Failures among so many damaged projects."""
    chosen = random.Random(seed)
    found: list[tuple[dict[str, str], str]] = []
    for _ in range(cases):
        files = files_of(chosen)
        failure = failure_of(folder, files)
        if failure is not None:
            found.append((files, failure))
    return found
