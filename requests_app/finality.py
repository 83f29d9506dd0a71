"""Whether the chain can still take a payment back (reference queue_settle 4.7). Pure; block numbers, seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requests_app.errors import ConfigurationError


class Verdict(StrEnum):
    """What is known of a transaction's end."""

    PENDING = "pending"  # look again later
    FINAL = "final"  # it succeeded, and stays so
    FAILED = "failed"  # it reverted, and stays so
    LOST = "lost"  # in no block for so long that the same bytes should go out again


@dataclass(frozen=True, slots=True)
class Policy:
    """What makes a block final: the chain's own marker, a number of blocks on top of it, or both; and when nothing counts as lost.

    Raises ConfigurationError for one that asks for neither: the newest block would be final.
    """

    require_marker: bool = True
    confirmations: int = 0
    lost_after: float = 300.0

    def __post_init__(self) -> None:
        if not self.require_marker and self.confirmations < 1:
            raise ConfigurationError("payments need the finalized marker, or confirmations of 1 or more")


@dataclass(frozen=True, slots=True)
class Chain:
    """How far the chain is: its head, and its finalized block (None: it has none, or the node does not say)."""

    head: int
    finalized: int | None

    def settled(self, policy: Policy) -> int:
        """The newest block that can no longer be taken back; -1 for none. One above the head is only known by hearsay."""
        deepest = self.head - policy.confirmations
        if not policy.require_marker:
            return max(-1, deepest)
        return -1 if self.finalized is None else max(-1, min(deepest, self.finalized))


def judge(
    *, included: bool, block: int | None, success: bool, chain: Chain, waited_seconds: float, policy: Policy
) -> Verdict:
    """The verdict about one transaction. `waited_seconds`: how long it has been expected in a block.

    A revert is judged like a success, only when it is final (B47). What is in no block is lost, never failed (B45).
    """
    if not included or block is None:
        return Verdict.LOST if waited_seconds >= policy.lost_after else Verdict.PENDING
    if block > chain.settled(policy):
        return Verdict.PENDING
    return Verdict.FINAL if success else Verdict.FAILED


def in_words(seconds: float) -> str:
    """A duration as the reference writes it: 30s, 5m0s, 1h0m5s."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
