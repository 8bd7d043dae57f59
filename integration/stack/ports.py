"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

HOST = "127.0.0.1"
LOW, HIGH = 20_000, 32_000
"""Below what systems hand out to outgoing connections, so that a port is still free when its part starts again."""


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on now."""
    chosen: list[int] = []
    with ExitStack() as held:
        while len(chosen) < count:
            port = random.randrange(LOW, HIGH)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            chosen.append(port)
    return chosen


def is_listening(port: int) -> bool:
    """Whether something accepts connections on the port."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
