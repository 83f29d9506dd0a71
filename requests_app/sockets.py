"""What can be told of a kept connection without asking its other side; ports for servers that start later."""

from __future__ import annotations

import random
import select
import socket
from typing import Final

# Below what Linux (32768 and up), macOS and RFC 6335 (49152 and up) give to outgoing connections: nobody gets one of these unasked
# between the moment when it is chosen and the one when its server starts.
_CHOICE: Final = range(20_000, 32_000)
_TRIES: Final = 200


def is_quiet(descriptor: int) -> bool:
    """Whether the open socket has nothing to read and no error. Where the other side speaks only when it is asked, an idle socket that
    is not quiet has been closed, or is broken. No round trip; False for a closed descriptor, also -1.
    """
    poller = select.poll()  # unlike select, it takes descriptors above 1024
    try:
        poller.register(descriptor, select.POLLIN)  # errors and hang-ups are told unasked
        return not poller.poll(0)
    except (OSError, ValueError):
        return False


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether nothing listens on the TCP port, and nothing else keeps a server from it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port for a server that starts later. Raises OSError when hundreds in a row are taken."""
    for port in random.SystemRandom().sample(_CHOICE, _TRIES):
        if is_free(port, address):
            return port
    raise OSError(f"no free port on {address}")
