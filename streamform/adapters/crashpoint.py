"""Crash points: named places at which a test makes the process die as if the power had gone.

STREAMFORM_CRASH_AT names one, or is `#N` for the Nth that is passed; without it nothing happens. It is read here and nowhere else.
"""

from __future__ import annotations

import os
import signal
from itertools import count

VARIABLE = "STREAMFORM_CRASH_AT"
PASSED = count(1)


def crash_point(name: str) -> None:
    """Die here when a test asks for it."""
    wanted = os.environ.get(VARIABLE)
    if wanted is not None and wanted in (name, f"#{next(PASSED)}"):
        os.kill(os.getpid(), signal.SIGKILL)
