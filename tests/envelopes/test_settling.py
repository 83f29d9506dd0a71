"""Usage is billed, settled by a payment, or released, each in one step with the transaction around it, and nothing twice."""

from __future__ import annotations

import threading

import pytest

from requests_app.errors import RelayerError
from requests_app.store import bills
from requests_app.store import usage as store
from requests_app.store.bands import OutOfRange
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, Connection, item, minute, put


def settleable(conn: Connection, payer: int) -> int:
    """Three minutes of usage of two originators, all over; the last minute."""
    last = minute(conn, 1)
    conn.execute(
        "INSERT INTO usage_unsettled (payer, source_id, minute, spend, messages, last_position) "
        "SELECT %s, s, m, 5, 1, 1 FROM unnest(ARRAY[11,12]) s, generate_series(%s::bigint, %s) m",
        (payer, last - 2, last),
    )
    return last


def test_the_running_minute_is_never_billed(log: Connection) -> None:
    payer = scene.account(log)
    put(log, item(1, payer))
    now = log.execute("SELECT minute FROM usage_unsettled").fetchone()[0]
    if now == minute(log):
        assert store.bill_usage(log, payer, now + 10, "early").rows == 0
    assert sum(store.totals(log, payer)) == 10


def test_two_bills_share_nothing(log: Connection, twin: Connection) -> None:
    """Of two bills at once each row is claimed by exactly one."""
    payer = scene.account(log)
    last = settleable(log, payer)
    barrier = threading.Barrier(2, timeout=60)
    done: list[store.Covered] = []

    def work(conn: Connection, reference: str) -> None:
        barrier.wait()
        done.append(store.bill_usage(conn, payer, last, reference))

    threads = [threading.Thread(target=work, args=(c, r)) for c, r in ((log, "a"), (twin, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(one.rows for one in done) == [0, 6]
    assert places(log) == (0, 6, 0)


def test_a_bill_refuses(log: Connection) -> None:
    payer = scene.account(log)
    with pytest.raises(RelayerError, match="does not exist"):
        store.bill_usage(log, payer + 1, 5, "r")
    with pytest.raises(OutOfRange):
        store.bill_usage(log, payer, -1, "r")
    with pytest.raises(ValueError, match="reference"):
        store.bill_usage(log, payer, 5, "")


def test_a_bill_settles_exactly_what_it_claimed(log: Connection) -> None:
    """What commits late into a billed minute, and what comes after it, is for the next bill."""
    payer, other = scene.account(log), scene.account(log)
    last = settleable(log, payer)
    settleable(log, other)
    assert store.billable(log, least=30) == [(payer, last, 30, 6), (other, last, 30, 6)]
    assert store.billable(log, least=31) == []
    assert store.bill_usage(log, payer, last - 1, "bill-1") == (4, 20, 4)
    assert store.bill_usage(log, payer, last, "bill-1") == (4, 20, 4)
    log.execute("INSERT INTO usage_unsettled VALUES (%s, %s, %s, 7, 1, 9)", (payer, CHAIN, last - 1))  # commits late
    assert store.totals(log, payer) == (37, 0)
    assert [row[:5] for row in store.unsettled_page(log, payer, (last - 1, 0), 1)] == [(CHAIN, last - 1, 12, 2, 9)]
    assert store.bill_usage(log, payer, last, "bill-2") == (3, 17, 3)
    assert store.billable(log) == [(other, last, 30, 6)]
    assert bills.settle_bills(log, ["bill-1"]) == 4
    assert bills.settle_bills(log, ["bill-1"]) == 0
    assert store.bill_usage(log, payer, last, "bill-1") == (4, 20, 4)
    assert store.totals(log, payer) == (17, 20)
    assert [row.reference for row in store.settled_page(log, payer, 0, 10)] == ["bill-1"] * 4
    assert store.totals(log, other) == (30, 0)


def test_a_sum_beyond_a_bigint_is_billed_like_any_other(log: Connection) -> None:
    """Each row fits, their sum does not: one such client ended the bills of all."""
    payer = scene.account(log)
    last = settleable(log, payer)
    log.execute("UPDATE usage_unsettled SET spend = %s", (2**62,))
    spend = 6 * 2**62
    assert store.totals(log, payer) == (spend, 0)
    assert store.billable(log) == [(payer, last, spend, 6)]
    assert store.unsettled_page(log, payer, (0, 0), 1)[0].spend == 2**62
    assert store.bill_usage(log, payer, last, "bill-1") == (6, spend, 6)
    assert bills.open_bills(log, payer)[0].spend == spend
    assert bills.settle_bills(log, ["bill-1"]) == 6
    assert store.totals(log, payer) == (0, spend)


def test_a_released_bill_is_usage_again(log: Connection) -> None:
    payer = scene.account(log)
    last = settleable(log, payer)
    store.bill_usage(log, payer, last, "bill-1")
    log.execute("INSERT INTO usage_unsettled VALUES (%s, %s, %s, 7, 1, 9)", (payer, CHAIN, last))
    assert bills.release_bills(log, ["bill-1"]) == 6
    assert bills.release_bills(log, ["bill-1"]) == 0
    row = log.execute(
        "SELECT spend, messages, last_position FROM usage_unsettled WHERE source_id = %s AND minute = %s", (CHAIN, last)
    ).fetchone()
    assert row == (12, 2, 9)
    assert store.bill_usage(log, payer, last, "bill-2") == (6, 37, 7)
    assert bills.settle_bills(log, ["bill-2"]) == 6
    assert bills.release_bills(log, ["bill-2"]) == 0, "it is settled"


@pytest.mark.parametrize("step", ["bill", "settle", "release"])
def test_each_step_is_undone_with_the_transaction_around_it(log: Connection, step: str) -> None:
    payer = scene.account(log)
    last = settleable(log, payer)
    if step != "bill":
        store.bill_usage(log, payer, last, "one")
    work = {
        "bill": lambda: store.bill_usage(log, payer, last, "one").rows,
        "settle": lambda: bills.settle_bills(log, ["one"]),
        "release": lambda: bills.release_bills(log, ["one"]),
    }[step]
    before = places(log)
    with log.transaction(force_rollback=True):
        assert work() == 6
        assert places(log) != before
    assert places(log) == before


def places(conn: Connection) -> tuple[int, int, int]:
    """Rows of usage that are unsettled, billed, settled."""
    row = conn.execute(
        "SELECT (SELECT count(*) FROM usage_unsettled), (SELECT count(*) FROM usage_billed), (SELECT count(*) FROM usage_settled)"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]
