"""What a test in a real browser needs: Dagster as it is run on a laptop, and Chromium to look at it.

Everything that is started is ended by its process group's id.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

LOOK_EVERY_S = 0.3
START_S, STOP_S, RUN_S = 90.0, 30.0, 120.0
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DAGSTER_YAML = """\
telemetry: {enabled: false}
nux: {enabled: false}
run_retries: {enabled: true, max_retries: 2}
"""
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")
T = TypeVar("T")


def chromium() -> str:
    """The browser's path; without one, or without what drives it, the test is skipped, or fails where the stack is required."""
    missing = [
        *([] if shutil.which("chromium") else ["the system's package chromium"]),
        *([] if find_spec("playwright") else ["the Python package playwright"]),
        *([] if find_spec("dagster_webserver") else ["the Python package dagster-webserver"]),
    ]
    if missing:
        text = f"the browser test needs {' and '.join(missing)}"
        if os.environ.get("STREAMFORM_REQUIRE_STACK") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return shutil.which("chromium") or ""


def until(what: str, look: Callable[[], T | None], deadline_s: float) -> T:
    """What `look` finds, as soon as it finds something. Raises: TimeoutError saying what was waited for."""
    end = time.monotonic() + deadline_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:.0f} s for {what}")
        time.sleep(LOOK_EVERY_S)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DagsterDev:
    """`dagster dev` on a definitions file."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self.port = free_port()
        self.log = home / "dagster.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[DagsterDev]:
        """Started, and its code location loaded; ended afterwards, with whatever it started."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "dagster.yaml").write_text(DAGSTER_YAML)
        environment = {**os.environ, "DAGSTER_HOME": str(self.home), "STREAMFORM_DAGSTER_URL": self.url}
        command = [sys.executable, "-m", "dagster", "dev", "-f", "definitions.py", "-h", "127.0.0.1", "-p", str(self.port)]
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        try:
            until("the web server", lambda: self.answers(process), START_S)
            yield self
        finally:
            end_group(process)

    def answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the location is loaded. Raises: RuntimeError with the log when the process ended."""
        if process.poll() is not None:
            raise RuntimeError(f"dagster dev ended with {process.returncode}:\n{self.log.read_text()[-3000:]}")
        with contextlib.suppress(OSError, urllib.error.URLError, KeyError):
            return bool(self.ask("{assetNodes{id}}")["assetNodes"])
        return False

    def ask(self, query: str) -> dict[str, Any]:
        """The data of a GraphQL answer."""
        request = urllib.request.Request(  # noqa: S310 - an address of ours
            f"{self.url}/graphql", json.dumps({"query": query}).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            data: dict[str, Any] = json.load(answer)["data"]
            return data

    def runs(self) -> list[dict[str, Any]]:
        """Every run, newest first, with its tags as a mapping."""
        found = self.ask("{runsOrError{... on Runs{results{runId status jobName tags{key value}}}}}")["runsOrError"]["results"]
        return [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]

    def finished_run(self, number: int) -> dict[str, Any]:
        """The run that was launched as this one, counted from 1, once it has ended."""

        def look() -> dict[str, Any] | None:
            runs = self.runs()[::-1]
            return runs[number - 1] if len(runs) >= number and runs[number - 1]["status"] in FINISHED else None

        return until(f"run {number} to end", look, RUN_S)

    def description(self, *key: str) -> str:
        """An asset's description as the code location has it now."""
        path = json.dumps(list(key))
        answer = self.ask(f"{{assetNodeOrError(assetKey: {{path: {path}}}) {{... on AssetNode {{description}}}}}}")
        return answer["assetNodeOrError"].get("description") or ""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process that leads a group of its own; what is left of the group after a while is killed."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)
