"""Starts, watches and ends the processes of a stack, by pid, and never one that it did not start.

A process is written down as its pid and the moment it started, so a pid that the system has given to somebody else since
is recognised and left alone. Records outlive the starting process: what a crashed test run left behind can be ended later.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from integration.stack import versions
from integration.stack.errors import StackError

LOOK_EVERY_S = 0.05
START_S, TERM_S, KILL_S = 120.0, 20.0, 10.0
LOG_LINES = 30
CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started itself, which it must collect when they end."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process that was started, told from any later one with its pid."""

    pid: int
    started: str
    """The system's word for when it started; compared, never read."""

    @property
    def is_alive(self) -> bool:
        """Whether this very process runs."""
        return started_at(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal the process if it still is the one that was started."""
        if self.is_alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def end(self, *, term_s: float = TERM_S) -> None:
        """Ask the process to end, and make it when it has not after `term_s`. Raises: StackError when even that fails."""
        self.send(signal.SIGTERM)
        if not until(lambda: not self.is_alive, term_s):
            self.kill()

    def kill(self) -> None:
        """End the process at once, as a crash would. Raises: StackError when it is still there."""
        self.send(signal.SIGKILL)
        if not until(lambda: not self.is_alive, KILL_S):
            raise StackError(f"process {self.pid} does not end")


def this_process() -> ProcessRecord:
    """The record of the process that asks."""
    return ProcessRecord(os.getpid(), started_at(os.getpid()) or "")


def started_at(pid: int) -> str | None:
    """When the process with this pid started, or None when none runs; a child that ended is collected on the way."""
    child = CHILDREN.get(pid)
    if child is not None:
        child.poll()
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            return None
        # The third field is the state, the 22nd the start in ticks since boot.
        return None if fields[0] in "ZX" else f"{_boot_id()}:{fields[19]}"
    listed = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.split(
        None, 1
    )
    return None if len(listed) < 2 or listed[0].startswith("Z") else listed[1].strip()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether the condition came true before the deadline; it is asked at least once."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def java() -> str | None:
    """The path of a Java that is new enough, from JAVA_HOME or the search path."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    found = shutil.which("java")
    return next((path for path in [*candidates, *([found] if found else [])] if (java_version(path) or 0) >= versions.JAVA), None)


@cache
def java_version(path: str) -> int | None:
    """The major version of a Java, or None when it does not run."""
    try:
        said = subprocess.run([path, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', said)
    return int(version.group(1)) if version else None


def missing_java() -> list[str]:
    """One sentence when no Java is new enough, else nothing."""
    return (
        []
        if java()
        else [f"Flink and Kafka run on Java {versions.JAVA} or newer: install the system's package openjdk-{versions.JAVA}-jre-headless"]
    )


def java_command(options: Sequence[str], class_path: Sequence[Path], main: str, arguments: Sequence[str]) -> list[str]:
    """A command line of a Java program. Raises: StackError without Java."""
    found = java()
    if found is None:
        raise StackError(missing_java()[0])
    return [found, *options, "-cp", os.pathsep.join(map(str, class_path)), main, *arguments]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of one stack keep their files."""

    run: Path
    """Configuration, logs and data."""
    records: Path
    """Which processes were started; outside of `run`, which a test may remove too early."""

    def make(self, *names: str) -> Path:
        """A folder of the run, made when it was absent."""
        folder = self.run.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Part(ABC):
    """One process of a stack that can be started, stopped, killed and started again on the same ports."""

    name: ClassVar[str]
    main: ClassVar[str]

    def __init__(self, places: Places) -> None:
        self.places = places

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration and return the command line."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the part does what it is for; asked again and again, so it answers within a second or two."""

    @property
    def label(self) -> str:
        """What tells it from other parts of this stack in file names and messages."""
        return self.name

    @property
    def log_file(self) -> Path:
        """All that it said, over all its starts."""
        return self.places.make("log") / f"{self.label}.log"

    @property
    def record_file(self) -> Path:
        """Where its process is written down."""
        return self.places.records / f"{self.label}.pid.json"

    @property
    def record(self) -> ProcessRecord | None:
        """The process that was last started, whether or not it still runs."""
        return read_record(self.record_file)

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        record = self.record
        return record.pid if record and record.is_alive else None

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.pid is not None

    def launch(self) -> None:
        """Start the process without waiting for it; in a session of its own, so that no terminal's signal reaches it."""
        if self.is_alive:
            raise StackError(f"{self.label} already runs with pid {self.pid}")
        command = self.command()
        with self.log_file.open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.places.run,
                env={**os.environ, **self.environment()},
                start_new_session=True,
            )
        record = ProcessRecord(child.pid, started_at(child.pid) or "ended at once")
        write_record(self.record_file, record)
        CHILDREN[child.pid] = child

    def environment(self) -> Mapping[str, str]:
        """Variables that the process gets besides ours."""
        return {}

    def await_ready(self, deadline_s: float = START_S) -> None:
        """Wait until it is ready. Raises: StackError with the end of its log when it ends first or takes too long."""
        began = time.monotonic()
        ended = not until(lambda: not self.is_alive or self.is_ready(), deadline_s) or not self.is_alive
        if ended:
            state = f"is not ready after {time.monotonic() - began:.0f} s" if self.is_alive else "ended while it started"
            raise StackError(f"{self.label} {state}; the end of {self.log_file}:\n{self.log_tail()}")

    def start(self, deadline_s: float = START_S) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        self.await_ready(deadline_s)

    def stop(self) -> None:
        """End it in order; nothing when it does not run."""
        record = self.record
        if record:
            record.end()
            self.record_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it as a crash would; nothing when it does not run."""
        record = self.record
        if record:
            record.kill()
            self.record_file.unlink(missing_ok=True)

    def restart(self, deadline_s: float = START_S) -> None:
        """Stop it if it runs, and start it on the same ports."""
        self.stop()
        self.start(deadline_s)

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


def write_record(file: Path, record: ProcessRecord) -> None:
    """Write a process down, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(record)), "utf-8")
    draft.replace(file)


def read_record(file: Path) -> ProcessRecord | None:
    """The process that was written down, or None."""
    try:
        return ProcessRecord(**json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
