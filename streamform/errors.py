"""Errors about the world outside the project, one exit code a branch.

    StreamformError            2  could not be done, or the outcome is unknown
      ProjectError             2  the project does not load or compile; carries its diagnostics
      UsageError               2  the command line asks for something that does not exist
      DocumentError            2  a document from outside is broken or of another version
      StoreError               2  record, journal, approvals or lock can't be read or written
      LockHeld                 2  another process applies to this target
      Unreachable              2  gateway, JobManager or broker does not answer, or answers nonsense
      OutcomeUnknown           2  an act may or may not have happened; the next command finds out
      StateError               2  a state database of another project or format, or one that vanished
      DataError                2  an event that a source holds can't be read as its schema says
      Refused                  1  a rule or a decision says no
        Blocked                1  an approval is missing; carries the plan ids
        JobFailed              1  the backend refused or lost the job; the previous state is kept

Every message says what and where; `help` says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamform.diagnostics import Diagnostic


class StreamformError(Exception):
    """Base of everything that a command reports in one line."""

    exit_code = 2

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class ProjectError(StreamformError):
    """The project does not load or compile."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        first = self.diagnostics[0]
        super().__init__(first.message, first.help)


class UsageError(StreamformError):
    """The command line asks for something that does not exist."""


class DocumentError(StreamformError):
    """A document from outside is broken, of another version or of another kind."""


class StoreError(StreamformError):
    """Record, journal, artifacts or approvals can't be read or written."""


class LockHeld(StoreError):
    """Another process is applying to this target."""


class Unreachable(StreamformError):
    """A service does not answer, or answers something that is not its protocol."""


class OutcomeUnknown(StreamformError):
    """An act was sent and its outcome is not known; the journal keeps the attempt open."""


class StateError(StreamformError):
    """A state database that is not this project's, is of a newer format, or lost what the journal says it holds."""


class DataError(StreamformError):
    """A source holds something that its schema does not allow."""


class Refused(StreamformError):
    """A rule or a decision says no; nothing was changed."""

    exit_code = 1


class Blocked(Refused):
    """An approval is missing. `plan_ids` are the pending plans that somebody can decide."""

    def __init__(self, message: str, plan_ids: Sequence[str], help: str | None = None) -> None:
        super().__init__(message, help)
        self.plan_ids = tuple(plan_ids)


class JobFailed(Refused):
    """The backend accepted an act and it went wrong; what ran before is kept or restarted."""
