"""What can be told of a kept connection without asking its other side."""

from __future__ import annotations

import select


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
