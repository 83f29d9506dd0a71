"""The journal: vectors of the reference, the order of checks, what the database itself refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from requests_app.errors import LedgerConflict, LedgerRefused, RelayerError
from requests_app.identity import payment_ref
from requests_app.ledger import GENESIS, Entry, Head, Leg, chained, check_shape, rfc3339
from requests_app.models.ledger import EntryKind
from requests_app.states import IntentActor
from requests_app.store import ledger
from requests_app.store.ledger import Balance
from tests.payments.journal import entries_of
from tests.payments.terms import CHAIN, MERCHANT, PAYER, USDC, USDT

LEGS = (Leg(f"payer:{PAYER}", -100_000_000), Leg(f"merchant:{MERCHANT}", 100_000_000))
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
# The heads that the reference gives: three holds of the example (1.6), and hold, hold, post of two tokens (1.4).
EXAMPLE_HEAD = "206247ac03d10e2cf4c4d8dc48edfd4a7487cc51bbfff288beb14beda12abcea"
VECTOR_HEAD = "4458a9453291440e0104ff8029f885cb74022369caee1fb55c7187a03bf6e968"
REFS = {
    ("pi_0001", 100_000_000): "b02f8d2972380c471030066cf638083d0d6e1674d250a38f2347c28fc5783c47",
    ("pi_0002", 100_000_000): "fce5e296ac257517ab61f24936055a7b882791fba947662724fd2b5750dcea9f",
    ("pi_0003", 100_000_000): "27ec4d4dd89b7a0a3c1cf23da354fc9ba53cd3f32db04bc9ca7c95e4e8547288",
    ("pi_0001", 100_000_001): "d694564081abc8e053640301fd99658865c74a0328bac8b664268eafc21c16fe",
}


def hold(name: str = "pi_0001", *, token: str = USDC, at: datetime = NEW_YEAR, **changes: Any) -> Entry:
    ref = payment_ref(name, CHAIN, token, PAYER, MERCHANT, 100_000_000)
    entry = Entry(f"{name}/hold", ref, EntryKind.HOLD, None, CHAIN, token, LEGS, IntentActor.RELAYER, at)
    return entry._replace(**changes)


def post(name: str = "pi_0001", **changes: Any) -> Entry:
    made = hold(name, at=NEW_YEAR + timedelta(minutes=5))._replace(
        entry_id=f"{name}/post", kind=EntryKind.POST, holds=f"{name}/hold", by=IntentActor.LISTENER, tx_hash=b"\xbb"
    )
    return made._replace(**changes)


def void(name: str = "pi_0001", **changes: Any) -> Entry:
    made = hold(name, entry_id=f"{name}/void", kind=EntryKind.VOID, holds=f"{name}/hold", legs=(), memo="no bytes")
    return made._replace(**changes)


def add(conn: psycopg.Connection, *entries: Entry) -> list[ledger.Appended]:
    with conn.transaction():
        return ledger.append(conn, entries)


@pytest.mark.parametrize(("intent", "amount"), list(REFS))
def test_refs_are_those_of_the_reference(intent: str, amount: int) -> None:
    assert payment_ref(intent, CHAIN, USDC, PAYER, MERCHANT, amount).hex() == REFS[intent, amount]


def test_the_chain_is_that_of_the_reference() -> None:
    minute = NEW_YEAR + timedelta(minutes=1)
    entries = [hold("pi_0001", at=minute), hold("pi_0002", token=USDT, at=minute), post("pi_0001")]
    assert chained(Head(0, GENESIS), entries)[-1].hash.hex() == VECTOR_HEAD
    example = [hold("pi_0001"), hold("pi_0003"), hold("pi_0002", at=NEW_YEAR + timedelta(seconds=30))]
    assert chained(Head(0, GENESIS), example)[-1].hash.hex() == EXAMPLE_HEAD


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NEW_YEAR, "2026-01-01T00:00:00Z"),
        (NEW_YEAR + timedelta(microseconds=250_000), "2026-01-01T00:00:00.25Z"),
        (NEW_YEAR + timedelta(microseconds=1), "2026-01-01T00:00:00.000001Z"),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00Z"),
    ],
)
def test_times_have_the_least_fraction(at: datetime, text: str) -> None:
    assert rfc3339(at) == text


def test_the_stored_chain_is_the_pure_one(conn: psycopg.Connection) -> None:
    minute = NEW_YEAR + timedelta(minutes=1)
    first = add(conn, hold("pi_0001", at=minute), hold("pi_0002", token=USDT, at=minute))
    second = add(conn, post("pi_0001"))
    assert [one.seq for one in first + second] == [1, 2, 3]
    assert second[0].hash.hex() == VECTOR_HEAD
    assert ledger.head(conn) == Head(3, bytes.fromhex(VECTOR_HEAD))
    read = list(ledger.journal(conn, page=2))
    assert [one.hash for one in chained(Head(0, GENESIS), [one.entry for one in read])] == [one.hash for one in read]
    assert ledger.balances(conn) == [
        Balance(f"merchant:{MERCHANT}", CHAIN, USDC, 0, 100_000_000),
        Balance(f"merchant:{MERCHANT}", CHAIN, USDT, 100_000_000, 0),
        Balance(f"payer:{PAYER}", CHAIN, USDC, 0, -100_000_000),
        Balance(f"payer:{PAYER}", CHAIN, USDT, -100_000_000, 0),
    ]


def test_the_same_entry_again_changes_nothing(conn: psycopg.Connection) -> None:
    (first,) = add(conn, hold())
    again = add(conn, hold(), hold("pi_0002"), hold())
    assert [one.fresh for one in again] == [False, True, False]
    assert again[0][1:3] == again[2][1:3] == first[1:3]
    assert ledger.head(conn).seq == 2
    twice = add(conn, hold("pi_0003"), hold("pi_0003"))
    assert twice[0] == twice[1]
    assert ledger.balances(conn, f"payer:{PAYER}")[0].pending == -300_000_000


def test_a_batch_may_hold_and_resolve(conn: psycopg.Connection) -> None:
    add(conn, hold(), post(), hold("pi_0002"), void("pi_0002"))
    assert {(one.pending, abs(one.posted)) for one in ledger.balances(conn)} == {(0, 100_000_000)}
    assert [one.entry.kind for one in entries_of(conn, hold("pi_0002").ref)] == [EntryKind.HOLD, EntryKind.VOID]


@pytest.mark.parametrize(
    "entry",
    [
        hold(legs=()),
        hold(legs=LEGS[:1]),
        hold(legs=(LEGS[0], Leg("merchant:x", 99))),
        hold(legs=(*LEGS, Leg("fee:x", 0))),
        hold(legs=(LEGS[0], Leg(LEGS[0].account, 100_000_000))),
        hold(holds="pi_0001/hold"),
        post(holds=None),
        post(by=IntentActor.RELAYER),
        void(memo=""),
        void(legs=LEGS),
        hold(ref=b"\x01"),
        hold(at=datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_shapes_that_no_journal_holds(entry: Entry) -> None:
    with pytest.raises(LedgerRefused):
        check_shape(entry)


def test_the_order_of_checks(conn: psycopg.Connection) -> None:
    add(conn, hold(), hold("pi_0002", token=USDT))
    with pytest.raises(LedgerRefused):  # shape before identity
        add(conn, hold(legs=LEGS[:1]))
    with pytest.raises(LedgerConflict, match="other content"):  # identity before the hold
        add(conn, post(entry_id="pi_0001/hold", holds="nothing"))
    for wrong in (post(holds="pi_0009/hold"), post(holds="pi_0002/hold"), post(token=USDT), post(ref=b"\x07" * 32)):
        with pytest.raises(LedgerRefused):
            add(conn, wrong)
    add(conn, post())
    with pytest.raises(LedgerRefused, match="is no hold"):
        add(conn, void(holds="pi_0001/post"))
    with pytest.raises(LedgerConflict, match="resolved already"):
        add(conn, void())
    with pytest.raises(LedgerConflict, match="held already"):
        add(conn, hold(entry_id="pi_0001/again"))
    with pytest.raises(LedgerConflict, match="held already"):
        add(conn, hold("pi_0003"), hold("pi_0003", entry_id="pi_0003/again"))
    assert ledger.head(conn).seq == 3
    with pytest.raises(RelayerError, match="transaction"):
        ledger.append(conn, [hold("pi_0004")])


def test_two_writers_make_one_chain(two_conns: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    one, two = two_conns
    two.execute("SET lock_timeout = '50ms'")
    with one.transaction():
        ledger.append(one, [hold("pi_0001")])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            add(two, hold("pi_0002"))
    assert add(two, hold("pi_0002"))[0].seq == 2
    read = list(ledger.journal(one))
    assert [row.prev for row in read] == [GENESIS, read[0].hash]


def test_amounts_are_any_uint256(conn: psycopg.Connection) -> None:
    most = (1 << 256) - 1
    add(conn, hold(legs=(Leg("payer:x", -most), Leg("merchant:y", most))))
    assert next(ledger.journal(conn)).entry.legs[1].amount == most
    assert ledger.balances(conn, "merchant:y")[0].pending == most
