"""The confirm duty and reconciliation die at each of their commits: before it nothing is written, after it nothing is written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from requests_app.finality import Chain
from requests_app.states import IntentState
from requests_app.store import ledger
from requests_app.store import recon as recon_store
from requests_app.transitions import confirming, reconciling
from requests_app.transitions.intents import authorize
from tests.listen.stub_chain import StubChain
from tests.listen.world import SOURCE
from tests.payments import shown
from tests.payments.shown import DUTY, Context, case, entries, show, stands, used
from tests.payments.terms import add_intent, authorization
from workers.duties import confirm, shown_payments
from workers.duties.recon import Reconciliation

S = IntentState
Connection = psycopg.Connection[Any]
OTHER = b"\xee" * 32


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def chain() -> StubChain:
    made = StubChain()
    made.head = 164
    return made


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    with shown.chain_behind(log, chain, settings) as found:
        yield found


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the product die at a crash point, once."""

    def at(point: str) -> None:
        waiting = [point]

        def crash_point(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                raise Killed(name)

        for module in (confirming, reconciling, shown_payments):
            monkeypatch.setattr(module, "crash_point", crash_point)

    return at


def look(context: Context) -> int:
    return confirm.Confirmation().look(context, DUTY, Chain(164, 100), 164)  # type: ignore[arg-type]


def books(conn: Connection) -> list[tuple[str, int, int]]:
    return [(one.account[:5], one.pending, one.posted) for one in ledger.balances(conn)]


@pytest.mark.parametrize("side", ["before", "after"])
def test_settling_and_posting(log: Connection, context: Context, dies: Callable[[str], None], side: str) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    dies(f"{side}_settle_payments_commit")
    with pytest.raises(Killed):
        look(context)
    assert (stands(log, one)[0], entries(log, one)) == (
        (S.CONFIRMING, ["hold"]) if side == "before" else (S.SETTLED, ["hold", "post"])
    )
    look(context)
    assert (stands(log, one), entries(log, one)) == ((S.SETTLED, 5, tx_hash), ["hold", "post"])
    assert {sums[1:] for sums in books(log)} == {(0, shown.AMOUNT), (0, -shown.AMOUNT)}


@pytest.mark.parametrize("side", ["before", "after"])
def test_losing(log: Connection, context: Context, dies: Callable[[str], None], side: str) -> None:
    ((one, _),) = shown.confirming(log)
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 hour'")
    dies(f"{side}_lose_payments_commit")
    with pytest.raises(Killed):
        look(context)
    assert stands(log, one)[0] is (S.CONFIRMING if side == "before" else S.SETTLING)
    look(context)
    assert stands(log, one) == (S.SETTLING, 5, None)
    assert log.execute("SELECT count(*) FROM queue_job").fetchone() == (1,)


@pytest.mark.parametrize("side", ["before", "after"])
def test_doubting_what_was_never_signed(
    log: Connection, context: Context, dies: Callable[[str], None], side: str
) -> None:
    """Three transitions, a hold and a case: all of them or none."""
    (one,) = shown.authorized(log)
    show(log, 1, 100, used(one, (100, 0), OTHER, amount=1))
    dies(f"{side}_doubt_payments_commit")
    with pytest.raises(Killed):
        look(context)
    if side == "before":
        assert (stands(log, one)[0], entries(log, one), case(log, one)) == (S.AUTHORIZED, [], None)
    look(context)
    assert (stands(log, one), entries(log, one)) == ((S.NEEDS_REVIEW, 5, OTHER), ["hold"])
    assert case(log, one)[0] == "amount_mismatch"
    assert log.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


@pytest.mark.parametrize("side", ["before", "after"])
def test_heeding(log: Connection, context: Context, dies: Callable[[str], None], side: str) -> None:
    owner = shown.account(log)
    one = add_intent(log, owner, terms=shown.TERMS_HERE)
    show(log, 1, 101, used(one, (101, 0), OTHER))
    authorize(log, owner, one.public_id, authorization(one))
    dies(f"{side}_heed_commit")
    with pytest.raises(Killed):
        look(context)
    look(context)
    assert (stands(log, one), entries(log, one)) == ((S.CONFIRMING, 4, OTHER), ["hold"])


@pytest.mark.parametrize("side", ["before", "after"])
def test_reconciling(log: Connection, context: Context, dies: Callable[[str], None], side: str) -> None:
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, used(one, (50, 0), tx_hash, amount=1))
    dies(f"{side}_reconcile_commit")
    with pytest.raises(Killed):
        Reconciliation().up_to(context, DUTY, 100)  # type: ignore[arg-type]
    found = log.execute("SELECT count(*) FROM recon_finding").fetchone()
    assert (recon_store.open_cursor(log, SOURCE), found) == ((0, (0,)) if side == "before" else (100, (1,)))
    Reconciliation().up_to(context, DUTY, 100)  # type: ignore[arg-type]
    assert log.execute("SELECT count(*) FROM recon_finding").fetchone() == (1,)
    assert log.execute("SELECT count(*) FROM review_case").fetchone() == (1,)
    assert recon_store.open_cursor(log, SOURCE) == 100
