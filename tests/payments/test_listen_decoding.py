"""Logs of tokens, which are somebody else's contracts: what is a payment event is read, what is not leaves nothing behind."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.payments.shown import AMOUNT, FROM, STRANGER, TO, TOKEN, raw_log
from workers.chain import payment_events
from workers.chain.events import BadLog, EventKind, decode_logs, decode_payload
from workers.chain.payment_events import AuthorizationCanceled, AuthorizationUsed, PaymentTransferred

REF, TX = b"\x0f" * 32, b"\xaa" * 32
VALUE = AMOUNT.to_bytes(32, "big")
USED = raw_log(payment_events.USED, (5, 1), TX, [FROM, REF])
MOVED = raw_log(payment_events.TRANSFER, (5, 2), TX, [FROM, TO], VALUE)
CANCELED = raw_log(payment_events.CANCELED, (6, 0), TX, [FROM, REF])
K = EventKind


def read(*raws: Any) -> list[Any]:
    found = decode_logs(raws)
    assert found.bad == []
    return [decode_payload(one.kind, one.payload, one.position, one.ref) for one in found.envelopes]


def kinds(*raws: Any) -> list[EventKind]:
    return [one.kind for one in decode_logs(raws).envelopes]


def test_a_pair_is_two_envelopes_of_one_reference() -> None:
    assert read(MOVED, USED) == [AuthorizationUsed(REF, FROM), PaymentTransferred(REF, FROM, TO, AMOUNT)]
    found = decode_logs([USED, MOVED]).envelopes
    assert {(one.ref, one.contract, one.tx_hash) for one in found} == {(REF, TOKEN, TX)}
    assert read(CANCELED) == [AuthorizationCanceled(REF, FROM)]


def test_two_payments_of_one_transaction_keep_their_own_money() -> None:
    """A batch contract executes several authorizations at once."""
    second = b"\x02" * 32
    batch = [
        USED, MOVED,
        raw_log(payment_events.USED, (5, 3), TX, [STRANGER, second]),
        raw_log(payment_events.TRANSFER, (5, 4), TX, [STRANGER, TO], b"\x01".rjust(32, b"\0")),
    ]  # fmt: skip
    assert [one.amount for one in read(*batch)[1::2]] == [AMOUNT, 1]
    assert [one.ref for one in decode_logs(batch).envelopes] == [REF, REF, second, second]


@pytest.mark.parametrize(
    "transfer",
    [
        raw_log(payment_events.TRANSFER, (5, 2), b"\xbb" * 32, [FROM, TO], VALUE),  # of another transaction
        raw_log(payment_events.TRANSFER, (5, 0), TX, [FROM, TO], VALUE),  # before the authorization
        raw_log(payment_events.TRANSFER, (5, 2), TX, [FROM, TO], VALUE, token=STRANGER),  # of another token
        raw_log(payment_events.TRANSFER, (5, 2), TX, [STRANGER, TO], VALUE),  # of somebody else's money
        raw_log(payment_events.TRANSFER, (5, 2), TX, [FROM, TO, b"\x07"]),  # an ERC-721 token
        raw_log(payment_events.TRANSFER, (5, 2), TX, [], FROM.rjust(32, b"\0") + TO.rjust(32, b"\0") + VALUE),  # nothing indexed
        raw_log(payment_events.TRANSFER, (5, 2), TX, [b"\xff" * 32, TO], VALUE),  # no address
    ],
    ids=["transaction", "before", "token", "sender", "erc721", "unindexed", "dirty"],
)  # fmt: skip
def test_other_transfers_are_dropped(transfer: dict[str, Any]) -> None:
    assert kinds(USED, transfer) == [K.AUTHORIZATION_USED]
    found = decode_logs([USED, transfer])
    assert (found.bad, found.ignored) == ([], 1)


def test_only_the_transfer_that_follows_directly_counts() -> None:
    fee = raw_log(payment_events.TRANSFER, (5, 3), TX, [FROM, STRANGER], VALUE)
    assert kinds(USED, MOVED, fee) == [K.AUTHORIZATION_USED, K.PAYMENT_TRANSFERRED]
    assert kinds(USED, CANCELED | {"blockNumber": "0x5", "logIndex": "0x2"}, fee) == [
        K.AUTHORIZATION_USED, K.AUTHORIZATION_CANCELED,
    ]  # fmt: skip


def test_authorizations_of_another_shape_are_dropped() -> None:
    unindexed = raw_log(payment_events.USED, (5, 1), TX, [FROM], REF)
    dirty = raw_log(payment_events.USED, (5, 1), TX, [b"\x01" * 32, REF])
    talkative = raw_log(payment_events.USED, (5, 1), TX, [FROM, REF], b"\x01" * 32)
    found = decode_logs([unindexed, dirty, talkative, MOVED])
    assert (found.envelopes, found.bad, found.ignored) == ([], [], 4)


def test_a_busy_token_leaves_nothing_behind() -> None:
    """Ten thousand transfers of other people: not one is decoded, the pair among them is."""
    others = [raw_log(payment_events.TRANSFER, (5, 100 + n), os.urandom(32), [FROM, TO], VALUE) for n in range(10_000)]
    found = decode_logs([*others[:5000], USED, *others[5000:], MOVED])
    assert (len(found.envelopes), found.ignored) == (2, 10_000)


def test_what_cannot_be_read_at_all_is_reported() -> None:
    found = decode_logs([USED | {"blockHash": "0x12"}, CANCELED | {"removed": True}, MOVED])
    assert len(found.bad) == 2


def test_a_stored_transfer_needs_its_reference() -> None:
    (_, moved) = decode_logs([USED, MOVED]).envelopes
    with pytest.raises(BadLog):
        decode_payload(moved.kind, moved.payload, moved.position)


@given(
    st.sampled_from([K.AUTHORIZATION_USED, K.AUTHORIZATION_CANCELED, K.PAYMENT_TRANSFERRED]), st.binary(max_size=200)
)
def test_stored_noise_is_refused_or_read(kind: EventKind, noise: bytes) -> None:
    try:
        event = decode_payload(kind, noise, 7, REF)
    except BadLog:
        return
    assert len(event.ref) == 32
