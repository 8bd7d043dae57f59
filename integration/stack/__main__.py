"""`python -m integration.stack start | stop | status | fetch`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from integration.stack import fetch, runs
from integration.stack.errors import StackError
from integration.stack.stack import ENDPOINTS, PARTS, Stack


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m integration.stack", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a stack and print its addresses")
    start.add_argument("--run-dir", type=Path, help="folder for configuration, logs and data (default: one in the cache)")
    start.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)} (default: all)")
    start.add_argument("--slots", type=int, default=16, help="task slots (default: 16)")
    start.add_argument("--detach", action="store_true", help="leave it running; `stop` ends it")
    stop = commands.add_parser("stop", help="end the stack of a run directory, and what crashed test runs left behind")
    stop.add_argument("--run-dir", type=Path, help="whose stack to end (default: the one in the cache)")
    commands.add_parser("status", help="list every stack that was started here, and its processes")
    fetch_ = commands.add_parser("fetch", help="fetch the jars that are not in the cache")
    fetch_.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)} (default: all)")
    return top


def say(text: str) -> None:
    """Report progress where it does not mix with results."""
    print(text, file=sys.stderr, flush=True)


def start(options: argparse.Namespace) -> int:
    """Start a stack and print its endpoints; without --detach, stay until a signal ends it."""
    folder = (options.run_dir or runs.default_run_dir()).absolute()
    endpoints = folder / ENDPOINTS
    if options.detach and endpoints.exists():
        try:
            stack = Stack.attach(endpoints)
        except StackError:
            runs.end(runs.places_of(folder))
        else:
            say(f"a stack already runs in {folder}")
            print(json.dumps(stack.endpoints(), indent=2))
            return 0
    stack = Stack.start(options.parts.split(","), folder, slots=options.slots, owned=not options.detach, say=say)
    print(json.dumps(stack.endpoints(), indent=2), flush=True)
    if not options.detach:
        with stack:
            wait_for_signal()
    return 0


def wait_for_signal() -> None:
    """Return when the process is asked to end."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: asked.set())
    say("running; interrupt to end it")
    asked.wait()


def stop(options: argparse.Namespace) -> int:
    """End one stack and every orphan."""
    folder = (options.run_dir or runs.default_run_dir()).absolute()
    ended = runs.end(runs.places_of(folder))
    (folder / ENDPOINTS).unlink(missing_ok=True)
    say(f"ended {', '.join(ended)} of {folder}" if ended else f"nothing ran in {folder}")
    for orphan in runs.end_orphans():
        say(f"ended what was left of {orphan.places.run}")
    return 0


def status() -> int:
    """Print every stack that is written down; 0 when one runs, else 1."""
    alive = 0
    for run in runs.runs():
        owner = f"owned by {run.owner.pid}{' which is gone' if run.is_orphan else ''}" if run.owner else "detached"
        print(f"{run.places.run} ({owner})")
        for label, record in run.processes.items():
            alive += record.is_alive
            print(f"  {label} {record.pid} {'running' if record.is_alive else 'ended'}")
    if not alive:
        print("no stack runs")
    return 0 if alive else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns: the exit code; 2 when it could not be done."""
    options = parser().parse_args(arguments)
    try:
        match options.command:
            case "start":
                return start(options)
            case "stop":
                return stop(options)
            case "status":
                return status()
            case _:
                fetch.fetch(options.parts.split(","), say=say)
                print(fetch.cache_folder())
                return 0
    except StackError as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
