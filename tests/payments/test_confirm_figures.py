"""Payments in the overview, in the figures, in the metrics and in relayer_status: every state, nothing among the requests."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from prometheus_client import CollectorRegistry, generate_latest

from relayer_site.metrics_sql import DatabaseCollector
from requests_app import overview as overview_module
from requests_app.models.reviews import ReasonCode
from requests_app.overview import overview
from requests_app.states import IntentActor, IntentState, Kind
from requests_app.store import figures
from requests_app.store import overview as store
from requests_app.store.session import web_connection
from requests_app.transitions.intents import Change, cancel, move
from requests_app.transitions.reconciling import reconcile
from tests.listen.world import SOURCE
from tests.payments import shown
from tests.payments.shown import DUTY, show, used
from tests.payments.terms import add_intent

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]


@pytest.fixture
def every(log: Connection) -> Connection:
    """Two payments in each state."""
    owner = shown.account(log)
    for _ in range(2):
        add_intent(log, owner, terms=shown.TERMS_HERE)
        cancel(log, shown.authorized(log)[0].public_id, "no", account_id=owner)
        for target in (S.FAILED, S.NEEDS_REVIEW):
            ((one, _),) = shown.settling(log)
            review = None if target is S.FAILED else ReasonCode.OUTCOME_UNKNOWN
            with log.transaction():
                move(log, target, [Change.of(one, reason="why")], A.RELAYER, review=review)
        ((one, tx_hash),) = shown.confirming(log)
        with log.transaction():
            move(log, S.SETTLED, [Change.of(one, tx_hash=tx_hash)], A.LISTENER)
    shown.settling(log, 2)
    shown.confirming(log, 2)
    shown.authorized(log, 2)
    overview_module.forget()
    return log


def count_ended() -> int:
    return figures.count_ended(web_connection(), Kind.PAYMENT, 0.0, 1000)


def test_every_state_is_counted(every: Connection) -> None:
    assert count_ended() == 6
    assert count_ended() == 0, "each ended payment is counted once"
    now = overview()
    assert now.payment_counts() == dict.fromkeys(IntentState, 2)
    assert {row.state for row in now.payments} == {state.value for state in S} - {"settled", "failed", "canceled"}
    assert all(0 <= row.oldest_seconds < 60 for row in now.payments)
    assert sum(n for states in now.counts().values() for n in states.values()) == 0
    assert figures.ended_since(web_connection(), figures.MINUTE, 10**6) == [], "charts show the gateway's requests"


def test_more_than_are_counted_at_once_are_as_many_as_the_duty_counted(
    every: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures.count_live(web_connection())
    monkeypatch.setattr(store, "LIVE_CAP", 1)
    assert {row.state: row.rows for row in store.live_payments(web_connection())}["created"] == 2


def test_metrics_and_status_name_them(every: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    count_ended()
    ((one, tx_hash),) = shown.settling(every)
    show(every, 1, 9, used(one, (5, 0), tx_hash, amount=1))
    every.execute("INSERT INTO recon_cursor (source_id, block, moved_at) VALUES (1, 0, clock_timestamp())")
    assert len(reconcile(every, SOURCE, DUTY, 1, 6).findings) == 3  # a mismatch, and two settled by hand above
    every.execute("UPDATE exec_lease SET lease_until = clock_timestamp() + interval '1 hour'")
    overview_module.forget()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DatabaseCollector())
    text = generate_latest(registry).decode()
    for line in (
        'relayer_payment_count{state="settled"} 2.0', 'relayer_payment_count{state="settling"} 3.0',
        'relayer_recon_lag_blocks{source="gateway"} 3.0', 'relayer_recon_findings{kind="mismatch"} 1.0',
        'relayer_recon_findings{kind="unreferenced"} 2.0',
    ):  # fmt: skip
        assert line in text, line
    assert 'relayer_payment_oldest_seconds{state="created"}' in text
    with pytest.raises(SystemExit):  # something needs attention
        call_command("relayer_status", "--json")
    assert json.loads(capsys.readouterr().out)["payments_by_state"]["needs_review"] == 2
    with pytest.raises(SystemExit):
        call_command("relayer_status")
    assert "payments" in capsys.readouterr().out
