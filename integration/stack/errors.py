"""The one error of this package."""

from __future__ import annotations


class StackError(Exception):
    """A part could not be fetched, started or stopped; the text says what to do, or shows the end of the part's log."""
