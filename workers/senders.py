"""What puts payments on the wire: the settle worker's view of it. Production: the lane of a held signer (`workers.payments`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from requests_app.store.attempts import Found, Outgoing
from requests_app.store.signing import Fence
from requests_app.transitions.sending import Price, Wanted
from workers.broadcast import Sent
from workers.settling import Item


class Verdict(Enum):
    """What the simulation of a payment says, before anything is written."""

    READY = "ready"
    LATER = "later"  # refused as things are; time may heal it
    UNANSWERED = "unanswered"  # nobody said anything of the payment: no try is used up by that
    NEVER = "never"
    EXECUTED = "executed"  # its authorization is used
    CANCELED = "canceled"  # by the payer, on chain, final
    CLOSED = "closed"  # its window is over, and it is unused; for a signed one: final


class Examined(NamedTuple):
    """A verdict with what belongs to it: the call that was simulated, the words, a delay, or the hash of who executed it."""

    verdict: Verdict
    why: str = ""
    wanted: Wanted | None = None
    seconds: float | None = None
    tx_hash: bytes | None = None


class Trace(NamedTuple):
    """What the chain knows of a transaction: `found` with a receipt, or only known (pending)."""

    found: Found | None


class Sender(Protocol):
    """What puts payments on the wire."""

    @property
    def fence(self) -> Fence:
        """What proves that the signer is ours."""

    @property
    def signer_id(self) -> int:
        """Whose nonces are taken."""

    def examine(self, items: Sequence[Item]) -> list[Examined]:
        """Simulate payments, in order. Raises nothing for a silent node."""

    def price(self) -> Price | None:
        """Fees for new transactions; None while there are no usable ones."""

    def sign(self, wanted: Wanted, nonce: int, price: Price) -> tuple[bytes, bytes]:
        """Raw bytes and 32-byte hash. No I/O."""

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        """Send bytes in nonce order: what the node said to each."""

    def react(self, sent: Sequence[Sent]) -> None:
        """After the answers were recorded: what they mean for the signer."""

    def find(self, items: Sequence[Outgoing]) -> list[Trace | None] | None:
        """What the chain knows of these transactions, None for "nothing", in order; None as a whole when it does not answer."""
