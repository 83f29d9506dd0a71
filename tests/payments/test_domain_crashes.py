"""The process ends at any point of a client's decision or a bill: the client asks again, and everything is there once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from requests_app.store import bills as bill_store
from requests_app.store import intents as store
from requests_app.store import usage
from requests_app.transitions import bills, intents
from requests_app.transitions.bills import make_bill
from tests.payments.machines import begin, violations
from tests.payments.terms import TERMS, add_account, authorization
from tests.payments.test_bills import rows, used
from tests.payments.test_intents import S

Conn = psycopg.Connection[Any]
NAMES = ("pi_one", "pi_two")
MODULES = (intents, bills, usage)


class Killed(BaseException):
    """The process ends here."""


def arm(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "crash_point", act)


def scene(conn: Conn) -> int:
    """A client with usage, and nothing else."""
    begin(conn)
    account = add_account(conn, "client")
    used(conn, account, 5, 10**6)
    return account


def play(conn: Conn, account: int) -> None:
    """Two payments are made, one is authorized, one canceled, the usage is billed. Whatever was done before is not done again."""
    for name in NAMES:
        if store.find_intent(conn, name) is None:
            intents.create(conn, account, TERMS, public_id=name)
    first = store.find_intent(conn, NAMES[0])
    assert first is not None
    intents.authorize(conn, account, NAMES[0], authorization(first))
    intents.cancel(conn, NAMES[1], "no", account_id=account)
    make_bill(conn, account, 1_000, TERMS, 6, 3600.0)


def check(conn: Conn) -> None:
    states = [found.state for name in NAMES if (found := store.find_intent(conn, name))]
    assert states == [S.AUTHORIZED, S.CANCELED]
    assert conn.execute("SELECT job_key FROM queue_job").fetchall() == [("pi_one/settle",)]
    assert rows(conn) == {"unsettled": 0, "billed": 10**6, "settled": 0}
    assert [one.state for one in bill_store.open_bills(conn)] == [S.CREATED]
    assert conn.execute("SELECT count(*) FROM payment_intent").fetchone() == (3,)
    assert violations(conn) == []


def test_every_point_can_be_the_last(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[str] = []
    with monkeypatch.context() as patch:
        arm(patch, points.append)
        play(conn, scene(conn))
        check(conn)
    names = sorted(set(points))
    assert len(names) >= 10, names
    for name in names:
        account = scene(conn)

        def kill(point: str, name: str = name) -> None:
            if point == name:
                raise Killed

        with monkeypatch.context() as patch:
            arm(patch, kill)
            with pytest.raises(Killed):
                play(conn, account)
        play(conn, account)
        check(conn)
