"""The `streamform` command: options, exit codes, and nothing else.

Only argparse is imported before a command is chosen, so that --help answers at once.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from typing import NoReturn

from streamform import __version__
from streamform.cli.parser import build_parser
from streamform.errors import ProjectError, StreamformError

INTERRUPTED = 2
GARBAGE = 50_000
"""Objects after which the collector looks for garbage: a plan is many objects and no garbage."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:
        _give_up_output()
        return 1
    except OSError as error:
        _give_up_output()
        place = f" at {error.filename}" if error.filename else ""
        print(f"error: the system refused{place}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return StreamformError.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; nothing is lost, and the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _give_up_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not fail over it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(given: list[str]) -> int:
    gc.set_threshold(GARBAGE, 20, 20)
    parser = build_parser(given[0] if given else None)
    arguments = parser.parse_args(given)
    if not getattr(arguments, "run", None):
        parser.print_help()
        return 0
    from streamform.cli import commands

    handler = getattr(commands, arguments.run)
    try:
        code: int = handler(arguments)
    except ProjectError as error:
        commands.report_project_error(error)
        return error.exit_code
    except StreamformError as error:
        commands.report_error(error)
        return error.exit_code
    sys.stdout.flush()
    return code


def script() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    sys.exit(main())


__all__ = ["__version__", "main", "script"]
