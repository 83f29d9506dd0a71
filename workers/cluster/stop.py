"""The stop byte: one byte of shared memory per process group, made before q2 forks.

A signal reaches only the parent, and q2's poison pills queue behind work that is already fetched (engine_spike T6). A shift looks at
this byte at every turn instead. A byte has no lock that a killed process could leave taken.
"""

from __future__ import annotations

import mmap

_STOP = mmap.mmap(-1, 1)


def request_stop() -> None:
    """Ask every process of the group to come to an end."""
    _STOP[0] = 1


def stop_requested() -> bool:
    """Whether the group is coming to an end."""
    return _STOP[0] == 1
