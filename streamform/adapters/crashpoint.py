"""Crash points: named places at which a test makes the process die as if the power had gone.

STREAMFORM_CRASH_AT names one; without it nothing happens. It is read here and nowhere else.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "STREAMFORM_CRASH_AT"


def crash_point(name: str) -> None:
    """Die here when a test asks for it."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
