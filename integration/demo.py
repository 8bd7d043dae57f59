"""The main job, walked on this machine: `make demo`.

init, check, test, apply, an edit that needs a backfill, a blocked apply, an approval, and the apply through Dagster. It asks
nothing and needs no service; what it makes stays in the folder for `make ui`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BEFORE, AFTER = "status <> 'test'", "status = 'paid'"
TARGET = ("--target", "local")
DAGSTER_YAML = "telemetry: {enabled: false}\n"


def main(folder: Path) -> None:
    """Walk the whole way in a folder of our own."""
    make_anew(folder)
    shop = folder / "shop"
    say("A project: models are SQL, and everything about them is declared beside.")
    streamform("init", str(shop), "--dagster")
    streamform("check", "--project", str(shop))
    streamform("test", "--project", str(shop))
    say("Deploy it on this machine: state in SQLite, events from a file, rows in a table.")
    streamform("apply", "--project", str(shop), *TARGET)
    show_rows(shop)
    say(f"An edit: refunds no longer count. In models/clean_orders.sql, {BEFORE} becomes {AFTER}.")
    edit(shop / "models" / "clean_orders.sql")
    streamform("plan", "--project", str(shop), *TARGET, expect=1)
    say("Applying is blocked until somebody approves exactly this plan.")
    streamform("apply", "--project", str(shop), *TARGET, expect=1, show=("blocked", "approve it with"))
    approve(shop)
    say("Now Dagster applies it: the same plan, the same gate, the same record.")
    apply_through_dagster(shop, folder / "dagster_home")
    show_rows(shop)
    say("Done. To see it in Dagster:  make ui")


def make_anew(folder: Path) -> None:
    """Start from an empty folder; only a folder that an earlier demo made is deleted."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / ".demo").exists():
            sys.exit(f"{folder} is not empty and no demo made it; name another folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".demo").touch()


def say(text: str) -> None:
    """A sentence between commands."""
    print(f"\n# {text}", flush=True)


def streamform(*arguments: str, expect: int = 0, show: Sequence[str] = ()) -> str:
    """Run a command and show it with its output; `show` keeps only lines with one of these words."""
    print(f"\n$ streamform {shlex.join(arguments)}", flush=True)
    command = [str(Path(sys.executable).with_name("streamform")), *arguments]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    lines = [line for line in done.stdout.splitlines() if not show or any(word in line for word in show)]
    print("\n".join(lines), flush=True)
    if done.returncode != expect:
        sys.exit(f"{done.stderr}exit code {done.returncode}, expected {expect}")
    return done.stdout


def edit(model: Path) -> None:
    """Change the filter."""
    text = model.read_text()
    if BEFORE not in text:
        sys.exit(f"{model} does not hold {BEFORE}")
    model.write_text(text.replace(BEFORE, AFTER))


def approve(shop: Path) -> None:
    """Approve the plan that waits, with the words that it asks for."""
    listed = subprocess.run(
        [str(Path(sys.executable).with_name("streamform")), "approvals", "--project", str(shop), *TARGET, "--json"],
        text=True,
        capture_output=True,
        check=True,
    )
    (waiting,) = [plan for plan in json.loads(listed.stdout)["approvals"] if plan["status"] == "pending"]
    words = ("--acknowledge", waiting["acknowledge"]) if waiting["acknowledge"] else ()
    streamform("approve", waiting["plan_id"], "--project", str(shop), *TARGET, "--reason", "finance counts paid orders only", *words)


def apply_through_dagster(shop: Path, home: Path) -> None:
    """Run the apply job in this process, on an instance that keeps its events in SQLite."""
    import dagster as dg

    from streamform_dagster import StreamformProject, build_streamform_defs

    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    os.environ["DAGSTER_HOME"] = str(home.resolve())
    project = StreamformProject(shop, target="local")
    definitions = build_streamform_defs(project)
    job = "streamform__shop__local__apply"
    print(f"\n$ dagster job execute -f definitions.py -j {job}", flush=True)
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.get() as instance:
        result = definitions.resolve_job_def(job).execute_in_process(instance=instance, run_config=quiet, raise_on_error=False)
        if not result.success:
            sys.exit("the Dagster run failed; `make ui` shows why")
        for event in result.get_asset_materialization_events():
            print(f"materialized {event.asset_key.to_user_string()}")
        record = instance.fetch_materializations(dg.AssetKey(["local", "_record"]), 1).records[0].asset_materialization
    assert record is not None
    metadata: dict[str, Any] = {name: value.value for name, value in record.metadata.items()}
    print(f"unit {metadata['streamform/unit']}: {metadata['streamform/outcome']}, run {result.run_id}")
    print("\nThe record in the metadata of asset local/_record:")
    table(
        ("key", "value"),
        [
            (name, str(value))
            for name, value in sorted(metadata.items())
            if isinstance(value, bool | int | float | str) and len(str(value)) < 90
        ],
    )


def show_rows(shop: Path) -> None:
    """The first rows of the sink."""
    query = "SELECT customer_id, total_spend, orders FROM customer_metrics ORDER BY customer_id LIMIT 5"
    database = shop / "out" / "shop.db"
    print(f"\nThe first rows of {database}, table customer_metrics:")
    with sqlite3.connect(database) as connection:
        cursor = connection.execute(query)
        table([column[0] for column in cursor.description], cursor.fetchall())


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns."""
    cells = [list(header), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(header))]
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/demo"))
