"""The wall clock and who runs the process."""

from __future__ import annotations

import getpass
import time


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000


def os_user() -> str:
    """The user that the operating system names, empty where it names nobody."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
