"""One held signer, and what its holder remembers of it and of the chain's count of its mined transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple

from requests_app.models.signing import SignerStatus
from requests_app.store.signing import Fence, SignerState
from workers.chain.hexdata import hex_data
from workers.chain.signer import LocalSigner
from workers.leases import HeldLease

REORG_SECONDS: Final = 120.0
LOWER_LOOKS: Final = 3


class Absence(NamedTuple):
    """One endpoint said, at this moment of the lane's clock, that the nonce is consumed for ever and no hash of ours is known."""

    at: float
    endpoint: str


@dataclass
class Lane:
    """One held signer with everything the process remembers of it. Nothing here outlives the lease."""

    held: HeldLease
    signer: LocalSigner
    state: SignerState | None = None
    chain_latest: int = 0
    highest: int = 0
    sync_at: float = 0.0
    maintain_at: float = 0.0
    refreshed_at: float = 0.0
    send_at: float = 0.0
    silences: int = 0
    finalize_at: float = 0.0
    replace_at: float = 0.0
    stranded_at: float = 0.0
    windows_at: float = 0.0
    rose_at: float = field(default_factory=monotonic)
    moved_at: float = field(default_factory=monotonic)
    has_open: bool = True
    resend_all: bool = True
    foreign_use: bool = False
    lower_looks: int = 0
    missing_since: dict[int, float] = field(default_factory=dict)
    absences: dict[int, list[Absence]] = field(default_factory=dict)
    fill_due: bool = True
    fill_at: float = 0.0
    commands_at: float = 0.0
    reorg: int | None = None
    count_may_fall_until: float = 0.0
    clock: Callable[[], float] = monotonic
    look_at: dict[int, float] = field(default_factory=dict)

    @property
    def fence(self) -> Fence:
        """What proves in the database that the signer is ours."""
        return Fence(self.held.resource, self.held.instance, self.held.epoch)

    @property
    def id(self) -> int:
        """The signer's row. Raises AssertionError before the first comparison with the chain."""
        assert self.state is not None  # noqa: S101 - the turn compares first
        return self.state.id

    @property
    def address(self) -> bytes:
        """20 bytes."""
        return self.signer.address

    @property
    def name(self) -> str:
        """The address as text, for logs."""
        return hex_data(self.signer.address)

    @property
    def active(self) -> bool:
        """Whether new nonces may be taken."""
        return self.state is not None and self.state.status is SignerStatus.ACTIVE

    def window(self) -> int:
        """How many further transactions may be under way: never more than max_inflight past the chain's count."""
        if self.state is None or self.state.next_nonce is None:
            return 0
        return self.state.max_inflight - max(0, self.state.next_nonce - self.chain_latest)

    def saw_chain_count(self, latest: int) -> None:
        """Remember the highest count of mined transactions. A node behind the others says nothing new, but a count that is
        lower LOWER_LOOKS times in a row is believed: a reorganisation has taken blocks back, and what was in them must be sent again.
        """
        self.lower_looks = self.lower_looks + 1 if latest < self.chain_latest else 0
        if latest > self.chain_latest or self.lower_looks >= LOWER_LOOKS:
            self._take_count(latest)
            self.lower_looks = 0
        self.refreshed_at = monotonic()

    def _take_count(self, latest: int) -> None:
        """A count that is back at the highest has stood there all the while: a node behind the others had been believed. (After a fall
        that was real and is not recorded yet this is too early; at worst a nonce is outbid once too soon.)
        """
        now = self.clock()
        self.chain_latest = latest
        if latest > self.highest:
            self.highest, self.rose_at = latest, now
        self.moved_at = self.rose_at if latest == self.highest else now

    def stood_before(self, count: int, seconds: float) -> None:
        """What earlier holders knew: the highest count, and since when it has been that."""
        self.highest, self.rose_at = count, self.clock() - seconds

    def fell(self, latest: int) -> None:
        """Blocks were taken back: what was mined in them is offered again from here."""
        self.chain_latest = self.highest = latest
        self.resend_all = True

    def reorganised(self, latest: int) -> None:
        """A reorganisation was recorded: for a while every lower count is one, and what was known before is over."""
        self.fell(latest)
        self.rose_at = self.moved_at = self.clock()
        self.missing_since.clear()
        self.absences.clear()
        self.count_may_fall_until = self.clock() + REORG_SECONDS

    def look_again(self) -> None:
        """What broke off may have been stored all the same: whatever is remembered of rows and chain is asked anew."""
        self.sync_at = self.maintain_at = 0.0
        self.has_open = self.resend_all = self.fill_due = True

    def took(self, last_nonce: int) -> None:
        """Remember that nonces up to `last_nonce` are stored."""
        if self.state is not None:
            self.state = self.state._replace(next_nonce=max(self.state.next_nonce or 0, last_nonce + 1))
        self.has_open = True
