"""Named crash points (design 2.4): the process can be made to die exactly here, and nowhere else.

In production `crash_point` is an empty function. With RELAYER_CRASH_AT="name" or "name:3" the process ends at the third
pass over that point by `os._exit`, which runs no handler and flushes nothing, as a kill would.
"""

from __future__ import annotations

import os
from collections.abc import Callable

EXIT_CODE = 137


def _armed(setting: str) -> Callable[[str], None]:
    wanted, _, count = setting.partition(":")
    remaining = int(count or 1)

    def crash_point(name: str) -> None:
        """End the process when `name` is the armed point and its pass count is reached."""
        nonlocal remaining
        if name == wanted:
            remaining -= 1
            if remaining == 0:
                os._exit(EXIT_CODE)

    return crash_point


def _unarmed(name: str) -> None:
    """Do nothing: no point is armed in this process."""


_setting = os.environ.get("RELAYER_CRASH_AT", "")
crash_point: Callable[[str], None] = _armed(_setting) if _setting else _unarmed
