"""What was started on this machine and by whom, so that it can be ended by another process.

Shape: a folder for each run directory below the cache's `runs`, with one record for each process, one for the process that
owns the stack (absent when it is meant to outlive its starter) and a note of the run directory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from integration.stack import fetch
from integration.stack.errors import StackError
from integration.stack.process import KILL_S, TERM_S, Places, ProcessRecord, read_record, this_process, until, write_record

OWNER = "owner.json"
NOTE = "run.json"
PIDS = "*.pid.json"


@dataclass(frozen=True, slots=True)
class Run:
    """One stack that was started and not ended in order."""

    places: Places
    owner: ProcessRecord | None

    @property
    def processes(self) -> dict[str, ProcessRecord]:
        """Its processes by label, whether or not they still run."""
        found = {file.name.removesuffix(PIDS[1:]): read_record(file) for file in sorted(self.places.records.glob(PIDS))}
        return {label: record for label, record in found.items() if record}

    @property
    def is_orphan(self) -> bool:
        """Whether the process that should have ended it is gone."""
        return self.owner is not None and not self.owner.is_alive


def places_of(run_dir: Path) -> Places:
    """The places of the stack that runs, or would run, in a folder."""
    absolute = run_dir.resolve()
    name = hashlib.sha256(str(absolute).encode()).hexdigest()[:12]
    return Places(absolute, fetch.cache_folder() / "runs" / name)


def default_run_dir() -> Path:
    """Where the command line starts a stack when it is not told."""
    return fetch.cache_folder() / "shared"


def write_down(places: Places, *, owned: bool) -> None:
    """Note the stack before its first process starts."""
    places.records.mkdir(parents=True, exist_ok=True)
    (places.records / NOTE).write_text(json.dumps({"run_dir": str(places.run)}), "utf-8")
    owner = places.records / OWNER
    if owned:
        write_record(owner, this_process())
    else:
        owner.unlink(missing_ok=True)


def runs() -> Iterator[Run]:
    """Every stack that is written down on this machine for this cache."""
    for note in sorted((fetch.cache_folder() / "runs").glob(f"*/{NOTE}")):
        try:
            folder = Path(json.loads(note.read_text("utf-8"))["run_dir"])
        except (OSError, ValueError, KeyError):
            continue
        yield Run(Places(folder, note.parent), read_record(note.parent / OWNER))


def end(places: Places) -> list[str]:
    """End every process that is written down there, all at once, and forget them. Returns: labels of those that ran.

    Raises: StackError when one does not end even when it is killed; what is left stays written down.
    """
    processes = Run(places, None).processes
    running = {label: record for label, record in processes.items() if record.is_alive}
    for record in running.values():
        record.send(signal.SIGTERM)
    until(lambda: not any(record.is_alive for record in running.values()), TERM_S)
    for record in running.values():
        record.send(signal.SIGKILL)
    if not until(lambda: not any(record.is_alive for record in running.values()), KILL_S):
        left = [f"{label} ({record.pid})" for label, record in running.items() if record.is_alive]
        raise StackError(f"these processes do not end: {', '.join(left)}")
    shutil.rmtree(places.records, ignore_errors=True)
    return list(running)


def end_orphans() -> list[Run]:
    """End every stack whose owner is gone, as a crashed test run leaves it. Returns: those stacks."""
    orphans = [run for run in runs() if run.is_orphan]
    for run in orphans:
        end(run.places)
    return orphans
