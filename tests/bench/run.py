"""Measurements, as ratios within one run: `make bench`. Nothing here is asserted; a budget that is missed is marked.

STREAMFORM_BENCH_REFERENCE names the reference implementation's program, for the rows that compare with it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.projects import write_events, write_project

STREAMFORM = str(Path(sys.executable).with_name("streamform"))
TRIES = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what, beside what, and how it should be."""

    what: str
    measured: str
    ratio: float | None = None
    budget: float | None = None


def user_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a user's command: one that keeps compiled modules, whatever is set where the bench runs."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}, **more}


def timed(command: Sequence[str], tries: int = TRIES, prepare: Callable[[], object] = lambda: None, **environment: str) -> float:
    """The best time of a command. Units: seconds."""
    best = float("inf")
    for _ in range(tries):
        prepare()
        start = time.perf_counter()
        subprocess.run(command, env=user_environment(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        best = min(best, time.perf_counter() - start)
    return best


def peak_mb(command: Sequence[str], **environment: str) -> float:
    """The most memory that a command holds. Units: MiB."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-c", code, *command], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 1024


def compared(what: str, ours: float, other: str, theirs: float, budget: float | None = None) -> Row:
    """Two times beside each other."""
    return Row(what, f"{ours:.3f} s, {other} {theirs:.3f} s", ours / theirs, budget)


def start_up() -> list[Row]:
    """What a user waits for before anything happens."""
    python = timed([sys.executable, "-c", "pass"])
    sqlglot = timed([sys.executable, "-c", "import sqlglot"])
    with tempfile.TemporaryDirectory() as folder:
        shop = str(Path(folder) / "shop")
        subprocess.run([STREAMFORM, "init", shop], check=True, stdout=subprocess.DEVNULL)
        command = [STREAMFORM, "plan", "--project", shop, "--target", "local"]
        plan = timed(command, STREAMFORM_CACHE_DIR=str(Path(folder) / "cache"))
        nothing_cached = timed(command, STREAMFORM_CACHE_DIR="")
    return [
        compared("streamform --help", timed([STREAMFORM, "--help"]), "python -c pass", python, 6),
        compared("plan of the example, compiled before", plan, "import sqlglot", sqlglot, 1.4),
        compared("plan of the example, nothing cached", nothing_cached, "import sqlglot", sqlglot),
    ]


def compile_times(reference: str | None) -> list[Row]:
    """check, inspect-plan and plan over projects of 30, 300 and 3,000 models."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cache = {"STREAMFORM_CACHE_DIR": str(root / "cache")}
        per_model: dict[int, float] = {}
        for models in (30, 300, 3_000):
            folder = str(write_project(root / f"p{models}", models))
            tries = 3 if models < 3_000 else 1
            check = timed([STREAMFORM, "check", "--project", folder], tries, STREAMFORM_CACHE_DIR="")
            per_model[models] = check / models
            rows.append(Row(f"check, {models:,} models", f"{check:.2f} s, {models / check:,.0f} models/s"))
            if reference is not None:
                theirs = timed([reference, "check", "--project", folder], tries)
                budget = {30: 8, 3_000: 2.5}.get(models)
                rows.append(compared(f"  beside the reference, {models:,} models", check, "reference", theirs, budget))
        rows.append(Row("check per model, 3,000 beside 300", "", per_model[3_000] / per_model[300], 1.2))
        folder = str(root / "p3000")
        plan = [STREAMFORM, "plan", "--project", folder]
        cold = timed(plan, 1, lambda: shutil.rmtree(root / "cache", ignore_errors=True), **cache)
        warm = timed(plan, 3, **cache)
        rows.append(compared("plan of 3,000 unchanged models from the cache", warm, "cold", cold))
        if reference is not None:
            rows.append(compared("  beside the reference", warm, "reference", timed([reference, "plan", "--project", folder], 3), 0.8))
        memory = peak_mb([STREAMFORM, "check", "--project", folder], STREAMFORM_CACHE_DIR="")
        rows.append(Row("peak memory of check, 3,000 models, of 400 MiB", f"{memory:.0f} MiB", memory / 400, 1))
    return rows


SIMULATOR = """
models: {m: {materialized: upsert, key: [k]}}
"""


def simulator(reference: str | None) -> list[Row]:
    """A fixture of 200,000 events through one aggregate."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "models").mkdir()
        (root / "streamform.yml").write_text("name: bench\nversion: 1\n" + SIMULATOR)
        (root / "sources.yml").write_text('sources: {e: {connector: file, path: x, schema: {k: int64, v: "decimal(12,2)"}}}\n')
        (root / "models" / "m.sql").write_text("SELECT k, SUM(v) AS t FROM source('e') GROUP BY k\n")
        events = "".join(f"  - {{k: {n % 100}, v: {n % 1000}.25}}\n" for n in range(200_000))
        (root / "f.yml").write_text(f"model: m\ngiven:\n{events}expect: []\n")
        ours = timed([STREAMFORM, "test", "--project", name, "--fixture", "f.yml", "--json"], 1)
        rows = [Row("test, 200,000 events through one aggregate", f"{ours:.1f} s, {200_000 / ours:,.0f} events/s")]
        if reference is not None:
            (root / "tests").mkdir()
            (root / "f.yml").rename(root / "tests" / "f.yml")
            theirs = timed([reference, "test", "--project", name, "--json"], 1)
            rows.append(compared("  beside the reference", ours, "reference", theirs, 0.33))
        return rows


EMBEDDED = """name: bench
version: 1
models: {m: {materialized: upsert, key: [k], sink: {connector: sqlite, path: out.db, table: m}}}
targets: {local: {backend: embedded}}
"""


def embedded() -> list[Row]:
    """File to sqlite: events/s, and memory over 100,000 and over a million events with as many keys as fit no cache."""
    rows: list[Row] = []
    peaks: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for events in (100_000, 1_000_000):
            root = Path(name) / str(events)
            (root / "models").mkdir(parents=True)
            (root / "streamform.yml").write_text(EMBEDDED)
            (root / "sources.yml").write_text(
                'sources: {e: {connector: file, path: e.jsonl, schema: {k: int64, v: "decimal(12,2)", status: string, at: timestamp}}}\n'
            )
            (root / "models" / "m.sql").write_text(
                "SELECT k, SUM(v) AS t, COUNT(*) AS n FROM source('e') WHERE status = 'paid' GROUP BY k\n"
            )
            write_events(root / "e.jsonl", events, 200_000)
            start = time.perf_counter()
            peaks[events] = peak_mb([STREAMFORM, "apply", "--project", str(root)])
            took = time.perf_counter() - start
            rows.append(Row(f"embedded, {events:,} events, 200,000 keys", f"{events / took:,.0f} events/s, {peaks[events]:.0f} MiB"))
    rows.append(Row("embedded memory, 1,000,000 events beside 100,000", "", peaks[1_000_000] / peaks[100_000], 1.5))
    return rows


def dagster() -> list[Row]:
    """A code location of the example beside importing dagster."""
    from tests.bench.dagster_location import measure

    found = measure()
    return [compared("Dagster location of the example", found["warm"], "import dagster", found["bare"], 1.5)]


def show(rows: list[Row]) -> None:
    """A table; a missed budget is marked."""
    width = max(len(row.what) for row in rows)
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:6.2f}x"
        budget = "" if row.budget is None or row.ratio is None else f"  budget {row.budget}x{'' if row.ratio <= row.budget else '  MISSED'}"
        print(f"{row.what.ljust(width)}  {ratio:8}{budget:22}  {row.measured}", flush=True)


def main() -> None:
    """Everything, or the parts that are named."""
    reference = os.environ.get("STREAMFORM_BENCH_REFERENCE")
    parts: dict[str, Callable[[], list[Row]]] = {
        "start": start_up,
        "compile": lambda: compile_times(reference),
        "simulator": lambda: simulator(reference),
        "embedded": embedded,
        "dagster": dagster,
    }
    for name in sys.argv[1:] or parts:
        show(parts[name]())


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
