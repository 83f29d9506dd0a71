"""State changes on the way to the chain: admitted, refused, prepared with signed bytes, reverted, parked.

Each takes a whole batch and says which rows really changed; the others had moved on, or the fence was gone. From-states and
targets come from `states.TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.metrics import observe_status
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import SlotState
from requests_app.states import REQUEST_KINDS, TRANSITIONS, Actor, Kind, Status, Verb, sources
from requests_app.store import attempts as store
from requests_app.store import nonces as nonces_store
from requests_app.store import signing
from requests_app.store.queue import SEND, Receipt, Subject
from requests_app.store.session import fetch_all, fetch_one, transaction
from requests_app.transitions import generic, payment_ends

MAX_DETAIL = 2000


class Held(NamedTuple):
    """A subject and the receipt of its job: the fence of decisions before a signer is involved."""

    subject: Subject
    receipt: Receipt


class Refusal(NamedTuple):
    """Why a request ends before it was signed. `label` is the API's word, `selector` the 4 bytes of a contract error."""

    held: Held
    label: str
    detail: str
    selector: bytes | None = None


class Wanted(NamedTuple):
    """A request that is ready to be signed: 20-byte contract, calldata, gas limit in units."""

    held: Held
    to: bytes
    data: bytes
    gas: int


class Price(NamedTuple):
    """EIP-1559 fees, wei a gas."""

    max_fee: int
    max_priority: int


class Prepared(NamedTuple):
    """A request whose nonce and signed bytes are stored. Nothing was broadcast yet."""

    held: Held
    nonce: int
    tx_hash: bytes
    raw: bytes


class Reverted(NamedTuple):
    """A mined transaction with status 0 that the chain can no longer take back."""

    subject: Subject
    found: store.Found
    label: str
    detail: str
    selector: bytes | None


Sign = Callable[[Wanted, int], tuple[bytes, bytes]]


def admit(
    conn: Connection[Any], held: Sequence[Held], owner: str | None = None, lease_seconds: float = 0.0
) -> list[Held]:
    """queued -> processing, and the jobs into the send queue, in one statement fenced by the receipts.

    With an `owner` the jobs are that instance's for `lease_seconds`, by the receipts that come back; else anybody may lease them.
    """
    if not held:
        return []
    parameters = {
        **_state(Verb.ADMIT),
        **_held(held),
        "queue": SEND,
        "actor": Actor.WORKER.value,
        "owner": owner,
        "seconds": lease_seconds if owner is not None else 0.0,
    }
    crash_point("before_admit_commit")
    rows = fetch_all(conn, "sending", "admit_requests", parameters)
    crash_point("after_admit_commit")
    receipts = [Receipt(row.job, row.attempt) for row in rows]
    return [Held(*one) for one in zip(_left(Verb.ADMIT, rows), receipts, strict=True)]


def end_unsent(
    conn: Connection[Any], verb: Verb, refusals: Sequence[Refusal], fence: signing.Fence | None = None
) -> list[Subject]:
    """`deny`, `expire_readiness` or `refuse`: the rows end and their jobs are deleted, in one statement.

    Fenced by the receipts, `refuse` by the signer lease as well. A row with a live slot is never ended here.
    """
    if not refusals:
        return []
    parameters = {
        **_state(verb),
        **_held([refusal.held for refusal in refusals]),
        "label": [refusal.label for refusal in refusals],
        "detail": [refusal.detail[:MAX_DETAIL] for refusal in refusals],
        "selector": [refusal.selector for refusal in refusals],
        "actor": Actor.WORKER.value,
        "resource": fence.resource if fence else None,
        "instance": fence.instance if fence else None,
        "epoch": fence.epoch if fence else None,
    }
    crash_point("before_end_unsent_commit")
    rows = fetch_all(conn, "sending", "end_unsent", parameters)
    crash_point("after_end_unsent_commit")
    return _left(verb, rows)


def prepare_send(
    conn: Connection[Any], fence: signing.Fence, signer_id: int, wanted: Sequence[Wanted], price: Price, sign: Sign
) -> list[Prepared]:
    """processing -> tx_in_flight with nonce, slot and signed bytes, in one transaction (TX1 of design 2.3).

    `sign(wanted, nonce)` gives raw bytes and hash; it runs inside the transaction and must not do I/O. Rows that may not
    be sent any more are left out, the nonces of the others are dense. Nothing comes back when the epoch is over, the
    signer is not active or nothing is left. Raises whatever `sign` raises, with nothing written.
    """
    if not wanted:
        return []
    with transaction(conn):
        claimed = _claim(conn, fence, signer_id, wanted)
        prepared = []
        for place, nonce in claimed:
            raw, tx_hash = sign(wanted[place], nonce)
            prepared.append(Prepared(wanted[place].held, nonce, tx_hash, raw))
        if prepared:
            gas = [wanted[place].gas for place, _ in claimed]
            _store(conn, fence, signer_id, prepared, gas, price)
        crash_point("before_prepare_send_commit")
    crash_point("after_prepare_send_commit")
    return prepared


def revert(conn: Connection[Any], signer_id: int, reverted: Sequence[Reverted]) -> list[Subject]:
    """tx_in_flight or needs_review -> failure, the attempts and slots mined, open reviews closed: one transaction."""
    if not reverted:
        return []
    changed: list[Subject] = []
    with transaction(conn):
        # Attempts before rows, as the appliers of the log lock them.
        store.record_lookups(conn, signer_id, [item.found for item in reverted])
        for kind in REQUEST_KINDS:
            mine = [item for item in reverted if item.subject.kind is kind]
            changes = [
                generic.Change(
                    item.subject.id, label=item.label, detail=item.detail[:MAX_DETAIL], selector=item.selector
                )
                for item in mine
            ]
            ended = [row.id for row in generic.apply(conn, Verb.REVERT, kind, changes, Actor.CHAIN)]
            if ended:
                generic.close_reviews(conn, kind, ended, Verb.REVERT.value)
            changed += [Subject(kind, row_id) for row_id in ended]
        crash_point("before_revert_commit")
    crash_point("after_revert_commit")
    return changed


def park(
    conn: Connection[Any],
    fence: signing.Fence,
    reason: ReasonCode,
    evidence: Mapping[Subject, Mapping[str, Any]],
    detail: str,
) -> list[Subject]:
    """To needs_review with an open case each, under the signer's lease. Raises StaleEpoch with nothing written."""
    if not evidence:
        return []
    changed: list[Subject] = []
    with transaction(conn):
        signing.hold_fence(conn, fence)
        for kind in REQUEST_KINDS:
            mine = {subject.id: found for subject, found in evidence.items() if subject.kind is kind}
            if not mine:
                continue
            parked = generic.park(conn, kind, mine, reason, Actor.WORKER, detail=detail, epoch=fence.epoch)
            changed += [Subject(kind, row.id) for row in parked]
        payments = {subject.id: found for subject, found in evidence.items() if subject.kind is Kind.PAYMENT}
        moved = payment_ends.park(conn, payments, reason, detail, fence.epoch, of_nonce=True) if payments else []
        changed += [Subject(Kind.PAYMENT, one.intent.id) for one in moved]
        crash_point("before_park_commit")
    crash_point("after_park_commit")
    return changed


def _left(verb: Verb, rows: Sequence[Any]) -> list[Subject]:
    """The subjects of changed rows, whose time in the state they left is noted."""
    for row in rows:
        observe_status(Kind(row.kind), sources(verb)[0], row.spent_seconds)
    return [Subject(Kind(row.kind), row.id) for row in rows]


def close_slots(
    conn: Connection[Any], signer_id: int, nonces: Sequence[int], epoch: int, unused: Collection[int]
) -> list[nonces_store.Closed]:
    """Mined slots that hold for ever: final, or dead when their nonce was spent on nothing. A fact: not fenced.

    Rows whose reviewer asked for that (the no-op carries the command) end as failure in the same transaction; those whose
    nonce the system filled go on waiting for a person, or, payments that are still settling, for the settle worker. `unused`:
    payments whose authorization the chain calls unused, of those that end by that.
    """
    with transaction(conn):
        closed = nonces_store.finalize_slots(conn, signer_id, nonces)
        asked = [one.subject for one in closed if one.command_id is not None and one.state is SlotState.DEAD]
        for kind in REQUEST_KINDS:
            changes = [
                generic.Change(subject.id, label="internal_server_error", detail="canceled by an operator")
                for subject in asked
                if subject.kind is kind
            ]
            ended = [row.id for row in generic.apply(conn, Verb.REJECT, kind, changes, Actor.OPERATOR, epoch=epoch)]
            if ended:
                generic.close_reviews(conn, kind, ended, Verb.REJECT.value)
        payments = [one for one in closed if one.state is SlotState.DEAD and one.subject.kind is Kind.PAYMENT]
        if payments:
            payment_ends.close(conn, {one.subject.id: one.command_id for one in payments}, epoch, unused)
        crash_point("before_close_slots_commit")
    crash_point("after_close_slots_commit")
    return closed


def _claim(
    conn: Connection[Any], fence: signing.Fence, signer_id: int, wanted: Sequence[Wanted]
) -> list[tuple[int, int]]:
    """(place in `wanted`, nonce) of the rows that are locked for sending."""
    subjects = _subjects([item.held for item in wanted])
    # A statement of its own: the next one then judges the accounts on a snapshot from after this wait (T1).
    fetch_all(conn, "sending", "lock_accounts", subjects)
    parameters = {
        **fence._asdict(),
        **subjects,
        "signer": signer_id,
        "sources": sources(Verb.PREPARE_SEND),
    }
    rows = fetch_all(conn, "sending", "claim_sends", parameters)
    for row in rows:
        observe_status(wanted[row.place].held.subject.kind, Status.PROCESSING, row.spent_seconds)
    return [(row.place, row.nonce) for row in rows]


def _store(
    conn: Connection[Any],
    fence: signing.Fence,
    signer_id: int,
    prepared: Sequence[Prepared],
    gas: Sequence[int],
    price: Price,
) -> None:
    parameters = {
        **_state(Verb.PREPARE_SEND),
        **_subjects([item.held for item in prepared]),
        "nonce": [item.nonce for item in prepared],
        "hash": [item.tx_hash for item in prepared],
        "raw": [item.raw for item in prepared],
        "gas": list(gas),
        "max_fee": price.max_fee,
        "max_priority": price.max_priority,
        "signer": signer_id,
        "epoch": fence.epoch,
        "actor": Actor.WORKER.value,
    }
    row = fetch_one(conn, "sending", "store_sends", parameters)
    if row is None or row.requests != len(prepared) or row.signers != 1:
        raise StaleEpoch(f"{fence.resource}: rows or counter moved under their locks")


def _state(verb: Verb) -> dict[str, Any]:
    """What the statements take from the state table. Each verb of this module leaves exactly one state."""
    row = TRANSITIONS[verb]
    (source,) = sources(verb)
    parameters: dict[str, Any] = {
        "verb": verb.value,
        "sources": [source],
        "source": source,
        "target": row.target.value,
    }
    deadline = generic.deadline_seconds(row.target)
    return parameters if deadline is None else {**parameters, "deadline": deadline}


def _subjects(held: Sequence[Held]) -> dict[str, list[int]]:
    return {"kind": [item.subject.kind.value for item in held], "subject": [item.subject.id for item in held]}


def _held(held: Sequence[Held]) -> dict[str, list[int]]:
    return {
        **_subjects(held),
        "job": [item.receipt.job_id for item in held],
        "attempt": [item.receipt.attempt for item in held],
    }
