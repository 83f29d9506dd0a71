"""Requests move on by what the chain said: bound, receipted, completed, in the caller's one transaction (engine_spike 6).

Facts are not fenced: whoever read them, they are true, and the guards make a second application a no-op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from requests_app.metrics import observe_status
from requests_app.states import REQUEST_KINDS, Kind, Status
from requests_app.store import answers as store
from requests_app.store.answers import Absorbed, Consensus, ProofAnswer, PublicAnswer, RequestSeen, Share
from requests_app.store.observations import Seen, Transferred
from requests_app.store.session import Row, transaction
from requests_app.transitions.generic import deadline_seconds

__all__ = ["Advanced", "Consensus", "Facts", "ProofAnswer", "PublicAnswer", "RequestSeen", "Share", "absorb", "advance"]


@dataclass(slots=True)
class Facts:
    """The decoded content of some envelopes, by what it does to requests and payments."""

    requests: list[RequestSeen] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    public: list[PublicAnswer] = field(default_factory=list)
    proofs: list[ProofAnswer] = field(default_factory=list)
    consensus: list[Consensus] = field(default_factory=list)
    authorizations: list[Seen] = field(default_factory=list)
    transfers: list[Transferred] = field(default_factory=list)

    def __bool__(self) -> bool:
        answers = self.shares or self.public or self.proofs or self.consensus
        return bool(self.requests or answers or self.authorizations or self.transfers)

    def extend(self, more: Facts) -> None:
        """Add what `more` holds, behind what is here."""
        self.requests += more.requests
        self.shares += more.shares
        self.public += more.public
        self.proofs += more.proofs
        self.consensus += more.consensus
        self.authorizations += more.authorizations
        self.transfers += more.transfers


@dataclass(frozen=True, slots=True)
class Advanced:
    """How many rows a page moved, by kind; `payments` that it brought to confirming."""

    receipts: Mapping[Kind, int]
    completed: Mapping[Kind, int]
    payments: int = 0


def absorb(conn: Connection[Any], facts: Facts) -> list[Absorbed]:
    """Bind, store and count; afterwards every reference of `facts` is locked by this transaction until it ends."""
    others = [(one.ref, Kind.PUBLIC_DECRYPT) for one in facts.public]
    others += [(one.ref, Kind.INPUT_PROOF) for one in facts.proofs]
    others += [(one.ref, Kind.USER_DECRYPT) for one in facts.consensus]
    return store.absorb(conn, facts.requests, facts.shares, others)


def advance(conn: Connection[Any], facts: Facts, absorbed: Sequence[Absorbed]) -> Advanced:
    """Move the rows of bound references: receipts first, then answers, so that both may stand in one page.

    A row that is final already keeps status, result and times: late answers are stored as envelopes (and shares), and
    change nothing (design 5.2.6). A row with enough shares completes here whether shares or receipt came last.
    """
    receipts: dict[Kind, int] = {}
    deadline = deadline_seconds(Status.RECEIPT_RECEIVED)
    for kind in REQUEST_KINDS:
        named = [one for one in absorbed if one.kind is kind and one.tx_hash is not None]
        receipts[kind] = _observed(kind, store.record_receipts(conn, kind, named, deadline))
    owned = {one.ref for one in absorbed if one.request_id is not None}
    full = [one.ref for one in absorbed if one.ref in owned and one.threshold is not None and one.n >= one.threshold]
    public = [one for one in facts.public if one.ref in owned]
    proofs = [one for one in facts.proofs if one.ref in owned]
    completed = {
        Kind.USER_DECRYPT: _complete(conn, Kind.USER_DECRYPT, lambda: store.complete_user(conn, full)),
        Kind.PUBLIC_DECRYPT: _complete(conn, Kind.PUBLIC_DECRYPT, lambda: store.complete_public(conn, public)),
        Kind.INPUT_PROOF: _complete(conn, Kind.INPUT_PROOF, lambda: store.complete_proof(conn, proofs)),
    }
    store.record_consensus(conn, [one for one in facts.consensus if one.ref in owned])
    return Advanced(receipts, completed)


def resolve_thresholds(conn: Connection[Any], thresholds: Mapping[bytes, int]) -> int:
    """Store thresholds that could not be read before, and complete what waited only for them: how many rows completed."""
    with transaction(conn):
        store.set_thresholds(conn, thresholds)
        return _complete(conn, Kind.USER_DECRYPT, lambda: store.complete_user(conn, list(thresholds)))


def _complete(conn: Connection[Any], kind: Kind, complete: Callable[[], list[Row]]) -> int:
    """Run a completion; rows that wait in review although the chain has answered are taken up first, then completed too."""
    rows = complete()
    waiting = [row.id for row in rows if not row.moved]
    if waiting and store.take_up(conn, kind, waiting, deadline_seconds(Status.RECEIPT_RECEIVED)):
        rows += complete()
    return _observed(kind, [row for row in rows if row.moved])


def _observed(kind: Kind, rows: Sequence[Row]) -> int:
    """How many rows moved, whose time in the state they left is noted."""
    for row in rows:
        observe_status(kind, row.was, row.spent_seconds)
    return len(rows)
