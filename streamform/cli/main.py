"""The `streamform` command: options, exit codes, and nothing else.

Only argparse is imported before a command is chosen, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import NoReturn

from streamform import __version__
from streamform.cli.parser import build_parser

INTERRUPTED = 2


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if not getattr(arguments, "run", None):
        parser.print_help()
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; nothing is lost, and the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(arguments: argparse.Namespace) -> int:
    from streamform.cli import commands
    from streamform.errors import ProjectError, StreamformError

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
    sys.exit(main())


__all__ = ["__version__", "main", "script"]
