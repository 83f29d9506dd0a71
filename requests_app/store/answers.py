"""What the chain said about requests, written in sets (engine_spike 6). Each function is one statement of answers.sql.

Call them inside one transaction, in the order of `transitions/answers.py`. References, hashes: 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.states import TRANSITIONS, Actor, Kind, Verb, sources
from requests_app.store.session import Row, fetch_all, fetch_binary, run

_KINDS: Final = {kind.value: kind for kind in Kind}


class RequestSeen(NamedTuple):
    """A request event: the gateway gave `ref` to the request that this transaction carried.

    For a payment: the transaction executed the authorization `ref`. Only its attempt is looked for; there is no answer to wait for.
    """

    ref: bytes
    kind: Kind
    tx_hash: bytes
    block: int
    block_hash: bytes


class Share(NamedTuple):
    """One KMS node's share. `share_index` is its order of arrival on chain; `threshold` None: not known yet."""

    ref: bytes
    share_index: int
    share: bytes
    signature: bytes
    extra_data: bytes
    tx_hash: bytes
    position: int
    threshold: int | None


class PublicAnswer(NamedTuple):
    """A public decryption's answer; `result` is JSON text of the shape the API serves."""

    ref: bytes
    result: str
    tx_hash: bytes


class ProofAnswer(NamedTuple):
    """An input proof's answer: `result` as JSON text, or None with the reason when the proof was rejected."""

    ref: bytes
    result: str | None
    tx_hash: bytes
    detail: str | None


class Consensus(NamedTuple):
    """The gateway saw enough shares in this transaction."""

    ref: bytes
    tx_hash: bytes


class Absorbed(NamedTuple):
    """A reference after a page: whose it is (None: nobody's so far), its shares, and the transaction that named it.

    `tx_hash` and `block` are set when this page held the request event that binds it.
    """

    ref: bytes
    kind: Kind
    request_id: int | None
    n: int
    threshold: int | None
    tx_hash: bytes | None
    block: int | None


def absorb(
    conn: Connection[Any],
    requests: Sequence[RequestSeen],
    shares: Sequence[Share],
    others: Sequence[tuple[bytes, Kind]],
) -> list[Absorbed]:
    """Store and count shares, bind references; lock the counter row of every reference named, in key order.

    `others` are the references of answers without shares. One row a reference, sorted.
    """
    # Material and handles form of one request say the same; anybody may use a payment's ref in a transaction of their own.
    once = {(seen.ref, seen.tx_hash): seen for seen in requests}
    return fetch_binary(conn, "answers", "absorb", {
        "request_refs": [seen.ref for seen in once.values()], "request_kinds": [seen.kind.value for seen in once.values()],
        "request_txs": [seen.tx_hash for seen in once.values()], "request_blocks": [seen.block for seen in once.values()],
        "request_block_hashes": [seen.block_hash for seen in once.values()],
        "share_refs": [one.ref for one in shares], "share_indexes": [one.share_index for one in shares],
        "shares": [one.share for one in shares], "signatures": [one.signature for one in shares],
        "extras": [one.extra_data for one in shares], "share_txs": [one.tx_hash for one in shares],
        "share_positions": [one.position for one in shares], "thresholds": [one.threshold for one in shares],
        "other_refs": [ref for ref, _ in others], "other_kinds": [kind.value for _, kind in others],
    }, _absorbed)  # fmt: skip


def _absorbed(ref: bytes, kind: int, *rest: Any) -> Absorbed:
    return Absorbed(ref, _KINDS[kind], *rest)


def record_receipts(
    conn: Connection[Any], kind: Kind, bound: Sequence[Absorbed], deadline_seconds: float | None
) -> list[Row]:
    """tx_in_flight, needs_review -> receipt_received with reference, hash and block. Rows: id, was, spent_seconds."""
    if not bound:
        return []
    return fetch_all(conn, "answers", "record_receipts", {
        **_verb(Verb.RECORD_RECEIPT), "kind": kind.value, "deadline": deadline_seconds,
        "ids": [one.request_id for one in bound], "refs": [one.ref or None for one in bound],
        "txs": [one.tx_hash for one in bound], "blocks": [one.block for one in bound],
    }, table=kind.table)  # fmt: skip


def take_up(conn: Connection[Any], kind: Kind, ids: Sequence[int], deadline_seconds: float | None) -> list[Row]:
    """needs_review -> receipt_received for rows whose reference is known already. Rows: id, was, spent_seconds."""
    bound = [Absorbed(b"", kind, row_id, 0, None, None, None) for row_id in ids]
    return record_receipts(conn, kind, bound, deadline_seconds)


def complete_user(conn: Connection[Any], refs: Sequence[bytes]) -> list[Row]:
    """receipt_received -> completed where enough shares are counted. Rows: id, was, spent_seconds, moved.

    This and the other two also name the rows that only a review keeps from completing (`moved` false).
    """
    if not refs:
        return []
    return fetch_all(
        conn, "answers", "complete_user", {**_verb(Verb.COMPLETE), "kind": Kind.USER_DECRYPT.value, "refs": list(refs)}
    )


def complete_public(conn: Connection[Any], answers: Sequence[PublicAnswer]) -> list[Row]:
    """receipt_received -> completed with the result. Rows: id, was, spent_seconds, moved."""
    once = {one.ref: one for one in reversed(answers)}  # the first answer on chain stands
    if not once:
        return []
    return fetch_all(conn, "answers", "complete_public", {
        **_verb(Verb.COMPLETE), "kind": Kind.PUBLIC_DECRYPT.value, "refs": list(once),
        "results": [one.result for one in once.values()], "txs": [one.tx_hash for one in once.values()],
    })  # fmt: skip


def complete_proof(conn: Connection[Any], answers: Sequence[ProofAnswer]) -> list[Row]:
    """receipt_received -> completed, accepted or not. Rows: id, was, spent_seconds, moved."""
    once = {one.ref: one for one in reversed(answers)}
    if not once:
        return []
    return fetch_all(conn, "answers", "complete_proof", {
        **_verb(Verb.COMPLETE), "kind": Kind.INPUT_PROOF.value, "refs": list(once),
        "results": [one.result for one in once.values()], "txs": [one.tx_hash for one in once.values()],
        "details": [one.detail for one in once.values()],
    })  # fmt: skip


def record_consensus(conn: Connection[Any], seen: Sequence[Consensus]) -> int:
    """Fill in the consensus hash where it is missing: how many rows."""
    once = {one.ref: one for one in reversed(seen)}
    if not once:
        return 0
    return run(conn, "answers", "record_consensus", {
        "kind": Kind.USER_DECRYPT.value, "refs": list(once), "txs": [one.tx_hash for one in once.values()],
    })  # fmt: skip


def unresolved_thresholds(conn: Connection[Any], limit: int) -> list[Row]:
    """References of ours that have shares and no threshold: ref, extra_data of one share."""
    return fetch_all(conn, "answers", "unresolved_thresholds", {"limit": limit})


def set_thresholds(conn: Connection[Any], thresholds: Mapping[bytes, int]) -> int:
    """Store thresholds where none is known yet: how many."""
    if not thresholds:
        return 0
    return run(conn, "answers", "set_thresholds", {"refs": list(thresholds), "thresholds": list(thresholds.values())})


def _verb(verb: Verb) -> dict[str, Any]:
    """The state table's row as parameters. These facts are not fenced: the guard makes them idempotent."""
    return {
        "verb": verb.value,
        "target": TRANSITIONS[verb].target.value,
        "sources": sources(verb),
        "actor": Actor.CHAIN.value,
    }
