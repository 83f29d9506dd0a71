"""I8 as a machine: whatever is appended, in whatever batches, the journal balances, chains, and resolves each hold once.

A model in memory says what each batch must come to. Batches mix what is right with repetitions, other content under a known id, second
resolutions, foreign holds and crooked shapes; a batch with one refused entry must leave nothing behind.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from requests_app.errors import LedgerConflict, LedgerRefused
from requests_app.identity import payment_ref
from requests_app.ledger import GENESIS, Entry, Head, Leg, chained
from requests_app.models.ledger import EntryKind
from requests_app.states import IntentActor
from requests_app.store import ledger
from tests.payments.machines import begin, live, violations
from tests.payments.terms import CHAIN, USDC, USDT
from tests.payments.test_ledger import NEW_YEAR

JOURNAL = {"entries_balance", "assets_balance", "holds_resolved_once", "balances_fold", "balances_missing", "chain"}
names = st.integers(1, 6).map("pi_{:04}".format)


@st.composite
def batches(draw: st.DrawFn) -> list[Entry]:
    """Entries of few payments, so that they meet each other often."""
    return [draw(entries()) for _ in range(draw(st.integers(1, 5)))]


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    name, kind = draw(names), draw(st.sampled_from(list(EntryKind)))
    token = USDT if name == "pi_0006" else USDC
    amount = int(name[-1]) * draw(st.sampled_from([2**200] * 9 + [7]))
    legs: tuple[Leg, ...] = (Leg(f"payer:{name[-1]}", -amount), Leg("merchant:m", amount))
    if kind is EntryKind.POST and name in ("pi_0002", "pi_0003"):  # less arrived: the rest is a fee
        legs = (Leg(f"payer:{name[-1]}", -amount), Leg("merchant:m", amount - 1), Leg(f"fee:{token}", 1))
    entry = Entry(
        f"{name}/{kind}", payment_ref(name, CHAIN, token, "p", "m", 1), kind,
        None if kind is EntryKind.HOLD else f"{name}/hold", CHAIN, token, () if kind is EntryKind.VOID else legs,
        IntentActor.RELAYER if kind is EntryKind.HOLD else IntentActor.LISTENER, NEW_YEAR + timedelta(seconds=draw(st.sampled_from([0] * 9 + [1]))),
        b"\xbb" if kind is EntryKind.POST else None, "why" if kind is EntryKind.VOID else "",
    )  # fmt: skip
    crooked = draw(st.sampled_from([None] * 30 + list(range(9))))
    changes: dict[int | None, dict[str, Any]] = {
        0: {"legs": (Leg("payer:x", -1), Leg("merchant:m", 2))}, 1: {"legs": (Leg("payer:x", 0), Leg("merchant:m", 0))},
        2: {"holds": "pi_0001/hold"}, 3: {"token": USDT}, 4: {"memo": ""}, 5: {"by": IntentActor.API},
        6: {"holds": f"{name}/post"}, 7: {"entry_id": "pi_0001/hold"}, 8: {"legs": ()},
    }  # fmt: skip
    return entry._replace(**changes.get(crooked, {}))


class Model:
    """The journal as a list, judged by the rules of the reference written once more, as plainly as can be."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def after(self, batch: list[Entry]) -> list[Entry] | None:
        """The journal after a batch, or None when it is refused."""
        journal = list(self.entries)
        if any(not shapely(entry) for entry in batch):
            return None
        for entry in batch:
            same = [one for one in journal if one.entry_id == entry.entry_id]
            if same:
                if same[0] != entry:
                    return None
                continue
            if entry.kind is not EntryKind.HOLD:
                holds = [one for one in journal if one.entry_id == entry.holds and one.kind is EntryKind.HOLD]
                if not holds or (holds[0].ref, holds[0].token) != (entry.ref, entry.token):
                    return None
                if any(one.holds == entry.holds for one in journal):
                    return None
            elif any(one.ref == entry.ref for one in journal):
                return None
            journal.append(entry)
        return journal


def shapely(entry: Entry) -> bool:
    if (entry.kind is EntryKind.HOLD) != (entry.holds is None):
        return False
    if entry.kind is EntryKind.VOID:
        return not entry.legs and entry.memo != ""
    if entry.kind is EntryKind.POST and entry.by not in (IntentActor.LISTENER, IntentActor.OPERATOR):
        return False
    whole = sum(leg.amount for leg in entry.legs) == 0 and all(leg.amount for leg in entry.legs)
    return whole and len(entry.legs) >= 2 and len({leg.account for leg in entry.legs}) == len(entry.legs)


class LedgerMachine(RuleBasedStateMachine):
    """Batches of entries, and batches whose transaction is given up."""

    conn: psycopg.Connection[Any]

    @initialize()
    def begin(self) -> None:
        begin(self.conn)
        self.model = Model()

    @rule(batch=batches(), give_up=st.booleans())
    def append(self, batch: list[Entry], give_up: bool) -> None:
        expected = self.model.after(batch)
        if expected is None:
            with pytest.raises((LedgerRefused, LedgerConflict)), self.conn.transaction():
                ledger.append(self.conn, batch)
            return
        with self.conn.transaction(force_rollback=give_up):
            told = ledger.append(self.conn, batch)
        places = {entry.entry_id: seq for seq, entry in enumerate(expected, 1)}
        assert [one.seq for one in told] == [places[entry.entry_id] for entry in batch]
        assert {one.entry_id for one in told if one.fresh} == {
            one.entry_id for one in expected[len(self.model.entries) :]
        }
        if not give_up:
            self.model.entries = expected

    @rule(batch=batches())
    def append_one_by_one(self, batch: list[Entry]) -> None:
        """The same as a batch, whatever is refused left out."""
        for entry in batch:
            expected = self.model.after([entry])
            if expected is not None:
                with self.conn.transaction():
                    ledger.append(self.conn, [entry])
                self.model.entries = expected

    @invariant()
    def the_journal_is_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        read = list(ledger.journal(self.conn, page=3))
        assert [one.entry for one in read] == self.model.entries
        assert [one.hash for one in read] == [one.hash for one in chained(Head(0, GENESIS), self.model.entries)]
        assert violations(self.conn, JOURNAL) == []


def test_the_journal_holds_whatever_is_appended(conn: psycopg.Connection[Any]) -> None:
    live(LedgerMachine, conn, 15, 20)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_journal_holds_for_long(conn: psycopg.Connection[Any]) -> None:
    live(LedgerMachine, conn, 200, 40)
