"""How a command ended, as its effects say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from requests_app.store.commands import Outcome


class Verdict(NamedTuple):
    """How a command ended, with what its reader should know."""

    outcome: Outcome
    result: Mapping[str, Any] = {}


def rejected(reason: str) -> Verdict:
    """A precondition does not hold."""
    return Verdict(Outcome.REJECTED, {"reason": reason})
