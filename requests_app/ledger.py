"""The journal's entries as values: who owes what, and the hash that chains them (reference queue_settle 1.4). Pure.

Amounts are in token units. The hash commits to texts and times exactly as this module writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from requests_app.errors import LedgerRefused
from requests_app.identity import length_prefixed, varint
from requests_app.models.ledger import EntryKind
from requests_app.states import IntentActor

GENESIS: Final = bytes(32)  # what the first entry follows
_TAG: Final = "stablecoin-settlement-engine/ledger-journal/v1"
_PREFIX: Final = length_prefixed(_TAG.encode())
_RESOLVERS: Final = frozenset({IntentActor.LISTENER, IntentActor.OPERATOR})


class Leg(NamedTuple):
    """One account's side of an entry: `payer:<address>`, `merchant:<address>` or `fee:<token>`."""

    account: str
    amount: int


class Entry(NamedTuple):
    """An entry without its place in the journal. `ref` is 32 bytes, `tx_hash` raw bytes, `at` aware.

    `holds` is the entry_id of the hold that a post or void resolves.
    """

    entry_id: str
    ref: bytes
    kind: EntryKind
    holds: str | None
    chain: str
    token: str
    legs: tuple[Leg, ...]
    by: IntentActor
    at: datetime
    tx_hash: bytes | None = None
    memo: str = ""


class Chained(NamedTuple):
    """An entry in its place: `seq` is dense from 1, `prev` and `hash` are 32 bytes."""

    seq: int
    prev: bytes
    hash: bytes
    entry: Entry


class Head(NamedTuple):
    """The end of the journal: the last seq (0: empty) and its hash."""

    seq: int
    hash: bytes


class Movement(NamedTuple):
    """What an entry does to the balance of an account in an asset."""

    account: str
    chain: str
    token: str
    pending: int
    posted: int


class Payment(Protocol):
    """What the entries of an intent are made from: `store.intents.Intent` has it, as it is after the transition.

    `updated_at` is the time of that transition, so that a repetition makes the identical entry.
    """

    @property
    def public_id(self) -> str:
        """The API's id."""

    @property
    def ref(self) -> bytes:
        """The PaymentRef, 32 bytes."""

    @property
    def chain(self) -> str:
        """As in the terms."""

    @property
    def token(self) -> str:
        """As in the terms."""

    @property
    def payer(self) -> str:
        """As in the terms."""

    @property
    def merchant(self) -> str:
        """As in the terms."""

    @property
    def amount(self) -> int:
        """Token units."""

    @property
    def tx_hash(self) -> bytes | None:
        """The transaction on record."""

    @property
    def updated_at(self) -> datetime:
        """When it came into its state."""


def entry_id(public_id: str, kind: EntryKind) -> str:
    """`<intent>/hold`, `<intent>/post` or `<intent>/void`."""
    return f"{public_id}/{kind.value}"


def hold_of(intent: Payment, by: IntentActor = IntentActor.RELAYER) -> Entry:
    """The payer's side is spoken for: goes with authorized -> settling."""
    return _entry(intent, EntryKind.HOLD, None, _sides(intent), by)


def post_of(intent: Payment, by: IntentActor = IntentActor.LISTENER, *, memo: str = "") -> Entry:
    """The hold came true: goes with the transition to settled, whose transaction is the intent's `tx_hash`."""
    hold = entry_id(intent.public_id, EntryKind.HOLD)
    return _entry(intent, EntryKind.POST, hold, _sides(intent), by)._replace(tx_hash=intent.tx_hash, memo=memo)


def void_of(intent: Payment, by: IntentActor, *, memo: str) -> Entry:
    """The hold came to nothing: goes with the transition to failed. The memo says why."""
    hold = entry_id(intent.public_id, EntryKind.HOLD)
    return _entry(intent, EntryKind.VOID, hold, (), by)._replace(memo=memo)


def _entry(intent: Payment, kind: EntryKind, holds: str | None, legs: tuple[Leg, ...], by: IntentActor) -> Entry:
    name = entry_id(intent.public_id, kind)
    return Entry(name, intent.ref, kind, holds, intent.chain, intent.token, legs, by, intent.updated_at)


def _sides(intent: Payment) -> tuple[Leg, ...]:
    return (Leg(f"payer:{intent.payer}", -intent.amount), Leg(f"merchant:{intent.merchant}", intent.amount))


def check_shape(entry: Entry) -> None:
    """Raises LedgerRefused for an entry that no journal may hold, whatever is in it already."""
    accounts = [leg.account for leg in entry.legs]
    problem = None
    if entry.kind is EntryKind.VOID:
        if entry.legs or not entry.memo:
            problem = "a void has no legs and a memo"
    elif len(entry.legs) < 2:
        problem = "fewer than two legs"
    if any(leg.amount == 0 for leg in entry.legs) or len(set(accounts)) < len(accounts):
        problem = "a leg of nothing, or two of one account"
    if sum(leg.amount for leg in entry.legs) != 0:
        problem = "the legs do not sum to zero"
    if (entry.kind is EntryKind.HOLD) != (entry.holds is None):
        problem = "a post or void resolves a hold, a hold none"
    if entry.kind is EntryKind.POST and entry.by not in _RESOLVERS:
        problem = f"{entry.by} may not post"
    if len(entry.ref) != 32 or entry.at.tzinfo is None:
        problem = "a ref has 32 bytes, a time its zone"
    if problem:
        raise LedgerRefused(f"{entry.entry_id}: {problem}")


def rfc3339(at: datetime) -> str:
    """UTC with the least fraction: `2026-01-01T00:00:30Z`, `2026-01-01T00:00:30.25Z`."""
    text = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def entry_hash(prev: bytes, seq: int, entry: Entry, body: bytes | None = None) -> bytes:
    """SHA-256 of the entry in its place after the entry whose hash is `prev`; `body` is `entry_body(entry)` where that is known."""
    return hashlib.sha256(_PREFIX + prev + varint(seq) + (body or entry_body(entry))).digest()


def entry_body(entry: Entry) -> bytes:
    """What the hash commits to beside the entry's place: it can be made before the journal is locked."""
    parts = [_text(entry.entry_id), entry.ref]
    parts += [_text(part) for part in (entry.kind.value, entry.holds or "", entry.chain, entry.token)]
    parts.append(varint(len(entry.legs)))
    for leg in entry.legs:
        parts += [_text(leg.account), _text(str(leg.amount))]
    tx_hash = f"0x{entry.tx_hash.hex()}" if entry.tx_hash else ""
    parts += [_text(part) for part in (entry.by.value, rfc3339(entry.at), tx_hash, entry.memo)]
    return b"".join(parts)


def _text(text: str) -> bytes:
    return length_prefixed(text.encode())


def chained(head: Head, entries: Iterable[Entry], bodies: Mapping[str, bytes] | None = None) -> list[Chained]:
    """The entries in their places after `head`; `bodies` by entry_id where they are known."""
    out = []
    for entry in entries:
        digest = entry_hash(head.hash, head.seq + 1, entry, bodies.get(entry.entry_id) if bodies else None)
        out.append(Chained(head.seq + 1, head.hash, digest, entry))
        head = Head(head.seq + 1, digest)
    return out


def movements(entry: Entry, hold: Entry | None = None) -> list[Movement]:
    """What the entry does to balances; `hold` is the entry that it resolves.

    A hold adds to pending; post and void take the hold's legs out of pending again, a post adds its own to posted.
    """
    if entry.kind is EntryKind.HOLD:
        return [Movement(leg.account, entry.chain, entry.token, leg.amount, 0) for leg in entry.legs]
    if hold is None:
        raise LedgerRefused(f"{entry.entry_id} resolves no hold")
    gone = [Movement(leg.account, entry.chain, entry.token, -leg.amount, 0) for leg in hold.legs]
    return gone + [Movement(leg.account, entry.chain, entry.token, 0, leg.amount) for leg in entry.legs]


def totals(moves: Sequence[Movement]) -> list[Movement]:
    """One movement an account and asset, in their order; those that come to nothing are left out."""
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for account, chain, token, pending, posted in moves:
        before = sums.get((account, chain, token), (0, 0))
        sums[account, chain, token] = (before[0] + pending, before[1] + posted)
    return [Movement(*key, *amounts) for key, amounts in sorted(sums.items()) if any(amounts)]


class Broken(NamedTuple):
    """The first place at which a journal is not what it claims."""

    seq: int
    entry_id: str
    why: str


def follow(head: Head, found: Chained) -> Head | Broken:
    """The head after one stored entry, or why the journal breaks there."""
    entry = found.entry
    if found.seq != head.seq + 1:
        return Broken(head.seq + 1, entry.entry_id, f"the next entry has the number {found.seq}")
    if found.prev != head.hash:
        return Broken(found.seq, entry.entry_id, "it does not follow the entry before it")
    if entry_hash(found.prev, found.seq, entry) != found.hash:
        return Broken(found.seq, entry.entry_id, "its hash is not that of its content")
    return Head(found.seq, found.hash)
