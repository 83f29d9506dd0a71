"""The turn: at least once, each attempt recorded once, retried with growing delays, given up, never for a disabled account."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pytest_django import Settings

from requests_app import backoff
from requests_app.models.webhooks import WebhookDelivery
from requests_app.states import DELIVERY_TRANSITIONS, Actor, DeliveryState, DeliveryVerb, Kind, Status, Verb
from requests_app.store import webhooks as store
from requests_app.store.session import connect
from requests_app.transitions import deliveries
from requests_app.transitions.deliveries import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, Attempt, verb_of
from requests_app.transitions.generic import Change, apply
from requests_app.webhook_messages import signature
from tests.api.rows import insert_view
from tests.core.rows import insert_account, insert_request
from tests.waiting import wait_until
from tests.webhooks.receiver import Receiver
from tests.webhooks.rows import SECRET, insert_delivery, insert_webhook, make_due, read_delivery
from workers.duties import webhooks as duty
from workers.leases import LeaseKeeper
from workers.shift import ShiftContext
from workers.webhooks import LEASE_SECONDS, WebhookTurn

pytestmark = pytest.mark.django_db(transaction=True)
Connection = psycopg.Connection[Any]


@pytest.fixture
def context(transactional_db: None) -> Iterator[ShiftContext]:
    keeper = LeaseKeeper("webhooks-test", 5.0)
    found = ShiftContext("webhooks-test", keeper, lambda: False)
    yield found
    found.close()
    keeper.close()


@pytest.fixture
def turn(context: ShiftContext) -> Iterator[WebhookTurn]:
    found = WebhookTurn()
    yield found
    found.close()


def until(turn: WebhookTurn, context: ShiftContext, predicate: Callable[[], Any]) -> None:
    """Take the turn until something is so."""

    def taken() -> Any:
        turn.run(context)
        return predicate()

    wait_until(taken, 60)


def states(conn: Connection) -> dict[str, int]:
    return dict(conn.execute("SELECT state, count(*) FROM webhook_delivery GROUP BY 1").fetchall())


# --- the table


def test_the_table_has_every_verb_and_leaves_no_end_but_by_a_person() -> None:
    assert set(DELIVERY_TRANSITIONS) == set(DeliveryVerb)
    ended = {row.verb for row in DELIVERY_TRANSITIONS.values() if row.source is not DeliveryState.WAITING}
    assert ended == {DeliveryVerb.REDRIVE}
    assert {row.target for row in DELIVERY_TRANSITIONS.values()} == set(DeliveryState)


@pytest.mark.parametrize("state", list(DeliveryState))
def test_every_verb_moves_only_from_its_source(conn: Connection, state: DeliveryState) -> None:
    account = insert_account(conn)
    gone, here = insert_webhook(conn, account), insert_webhook(conn, account)

    def tried(verb: DeliveryVerb) -> str:
        webhook = gone if verb is DeliveryVerb.DROP else here
        old = {"created_at": "2020-01-01Z"} if verb is DeliveryVerb.EXPIRE else {}
        row_id = insert_delivery(conn, webhook, state, attempts=1, **old)
        due = store.Due(row_id, 1, webhook, UUID(int=0), "", None, None, None, "", (), 0)  # type: ignore[arg-type]
        match verb:
            case DeliveryVerb.DELIVER:
                deliveries.record(conn, [Attempt(due, 200)])
            case DeliveryVerb.POSTPONE:
                deliveries.record(conn, [Attempt(due, 500)])
            case DeliveryVerb.GIVE_UP:
                deliveries.record(conn, [Attempt(due, 410)])
            case DeliveryVerb.DROP:
                conn.execute("UPDATE webhook SET state = 'removed', secret = NULL WHERE id = %s", (gone,))
                deliveries.drop_removed(conn, 10)
            case DeliveryVerb.EXPIRE:
                deliveries.expire(conn, 3600.0, 10)
            case DeliveryVerb.REDRIVE:
                deliveries.redrive(conn, row_id)
        return str(read_delivery(conn, row_id).state)

    for verb, row in DELIVERY_TRANSITIONS.items():
        assert tried(verb) == (row.target if state is row.source else state), verb


def test_the_database_knows_the_states(conn: Connection) -> None:
    webhook = insert_webhook(conn, insert_account(conn))
    for columns in ({"state": "lost"}, {"state": "failed", "ended_at": None}, {"ended_at": "2026-01-01Z"}):
        with pytest.raises(psycopg.errors.CheckViolation):
            insert_delivery(conn, webhook, **columns)
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE webhook SET state = 'removed'")


# --- the way of a delivery


def test_the_end_of_a_request_reaches_its_receiver(
    conn: Connection, receiver: Receiver, turn: WebhookTurn, context: ShiftContext
) -> None:
    account = insert_account(conn)
    insert_webhook(conn, account, receiver.url)
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.RECEIPT_RECEIVED)
    job = insert_view(conn, account, Kind.PUBLIC_DECRYPT, row_id)
    apply(conn, Verb.EXPIRE_RESPONSE, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.SWEEP)
    until(turn, context, lambda: states(conn) == {"delivered": 1})
    (one,) = receiver.received
    body = json.loads(one.body)
    assert body["type"] == "request.timed_out"
    assert body["data"] | {"updated_at": ""} == {
        "id": str(job),
        "kind": "public-decrypt",
        "status": "timed_out",
        "updated_at": "",
    }
    sent_at = int(one.headers["webhook-timestamp"])
    assert one.headers["webhook-signature"] == signature(SECRET, one.headers["webhook-id"], sent_at, one.body)
    (now,) = conn.execute("SELECT extract(epoch FROM clock_timestamp())").fetchall()
    assert 0 <= float(now[0]) - sent_at < 60
    row = read_delivery(conn, conn.execute("SELECT id FROM webhook_delivery").fetchall()[0][0])
    assert one.headers["webhook-id"] == f"msg_{row.public_id.hex}"
    assert (row.attempts, row.last_status, row.last_error, row.leased_by) == (1, 204, None, None)
    assert row.delivered_at is not None
    assert row.delivered_at == row.ended_at


def test_a_worker_that_dies_between_post_and_record_has_posted_for_nothing(
    conn: Connection, receiver: Receiver, context: ShiftContext
) -> None:
    """At least once: the same id and body again, when the lease is over and not before."""
    row_id = insert_delivery(conn, insert_webhook(conn, insert_account(conn), receiver.url))
    dying = WebhookTurn()
    assert dying.run(context) == 1
    wait_until(lambda: receiver.received and not dying._done.empty(), 60)
    row = read_delivery(conn, row_id)
    assert (row.state, row.attempts, row.leased_by) == ("waiting", 1, "webhooks-test")
    following = WebhookTurn()
    assert following.run(context) == 0, "it is leased"
    (left,) = (
        conn.execute("SELECT extract(epoch FROM next_attempt_at - clock_timestamp()) FROM webhook_delivery").fetchone()
        or ()
    )
    assert LEASE_SECONDS - 30 < left <= LEASE_SECONDS
    make_due(conn)
    following._due_at = 0.0
    until(following, context, lambda: states(conn) == {"delivered": 1})
    assert receiver.ids[0] == receiver.ids[1]
    assert receiver.received[0].body == receiver.received[1].body
    assert read_delivery(conn, row_id).attempts == 2


def test_what_is_recorded_late_counts_only_when_it_was_delivered(conn: Connection) -> None:
    """The first worker was only slow: its failure is no news, its success is."""
    webhook = insert_webhook(conn, insert_account(conn))
    first, second = insert_delivery(conn, webhook), insert_delivery(conn, webhook)
    slow = {due.id: due for due in store.claim(conn, "a", {}, limit=9, each=9, lease_seconds=60)}
    make_due(conn)
    again = {due.id: due for due in store.claim(conn, "b", {}, limit=9, each=9, lease_seconds=60)}
    assert {due.attempt for due in again.values()} == {2}
    deliveries.record(conn, [Attempt(slow[first], 500), Attempt(slow[second], 200)])
    assert read_delivery(conn, first).leased_by == "b"
    assert read_delivery(conn, second).state == "delivered"
    assert deliveries.record(conn, [Attempt(again[second], 500)]) == {}
    assert deliveries.record(conn, [Attempt(again[first], 500)]) == {DeliveryVerb.POSTPONE: 1}


def test_two_workers_share_what_is_due(two_conns: tuple[Connection, Connection]) -> None:
    first, second = two_conns
    webhook = insert_webhook(first, insert_account(first))
    ids = {insert_delivery(first, webhook) for _ in range(8)}
    with first.transaction():
        mine = {due.id for due in store.claim(first, "a", {}, limit=4, each=9, lease_seconds=60)}
        theirs = {due.id for due in store.claim(second, "b", {}, limit=9, each=9, lease_seconds=60)}
    assert len(mine) == 4
    assert theirs == ids - mine


# --- retries


@pytest.mark.parametrize(
    ("status", "attempt", "verb"),
    [
        (200, 16, DeliveryVerb.DELIVER),
        (299, 1, DeliveryVerb.DELIVER),
        (302, 1, DeliveryVerb.POSTPONE),
        (404, 15, DeliveryVerb.POSTPONE),
        (500, 16, DeliveryVerb.GIVE_UP),
        (None, 1, DeliveryVerb.POSTPONE),
        (None, 17, DeliveryVerb.GIVE_UP),
        (410, 1, DeliveryVerb.GIVE_UP),
        (100, 1, DeliveryVerb.POSTPONE),
    ],
)
def test_what_follows_from_an_attempt(status: int | None, attempt: int, verb: DeliveryVerb) -> None:
    due = store.Due(1, attempt, 1, UUID(int=0), "", None, None, None, "", (), 0)  # type: ignore[arg-type]
    assert verb_of(Attempt(due, status)) is verb


def test_all_attempts_fit_into_a_day_and_into_the_expiry(settings: Settings) -> None:
    tries = range(1, settings.WEBHOOK_ATTEMPTS)
    longest = sum(backoff.doubled(one, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS) for one in tries)
    assert longest < 86_400 < settings.WEBHOOK_EXPIRY_DAYS * 86_400


def test_a_failing_receiver_is_tried_again_and_given_up(
    conn: Connection, receiver: Receiver, turn: WebhookTurn, context: ShiftContext, settings: Settings
) -> None:
    settings.WEBHOOK_ATTEMPTS = 3
    row_id = insert_delivery(conn, insert_webhook(conn, insert_account(conn), receiver.url))
    receiver.answers = [500, 302, 404]
    for attempt, status in enumerate((500, 302, 404), 1):
        until(turn, context, lambda status=status: read_delivery(conn, row_id).last_status == status)
        row = read_delivery(conn, row_id)
        assert (row.attempts, row.last_error) == (attempt, f"the receiver answered {status}")
        if attempt < 3:
            (wait,) = (
                conn.execute(
                    "SELECT extract(epoch FROM next_attempt_at - last_attempt_at) FROM webhook_delivery"
                ).fetchone()
                or ()
            )
            assert float(wait) >= 2.5 * 2 ** (attempt - 1)
            make_due(conn)
    assert states(conn) == {"failed": 1}
    assert deliveries.redrive(conn, row_id)
    assert not deliveries.redrive(conn, row_id)
    until(turn, context, lambda: states(conn) == {"delivered": 1})
    assert len(set(receiver.ids)) == 1
    assert read_delivery(conn, row_id).attempts == 1


def test_what_cannot_be_reached_says_why_and_shows_nothing_of_us(
    conn: Connection, turn: WebhookTurn, context: ShiftContext, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WEBHOOK_POLL_SECONDS = 0.01
    account = insert_account(conn)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [(2, 1, 6, "", ("10.9.8.7", port))])
    inside = insert_delivery(conn, insert_webhook(conn, account, "https://rebound.example/"))
    plain = insert_delivery(conn, insert_webhook(conn, account, "http://receiver.example/"))
    until(turn, context, lambda: all(read_delivery(conn, one).last_error for one in (inside, plain)))
    refused = read_delivery(conn, inside)
    assert (refused.state, refused.last_status) == ("waiting", None)
    assert refused.last_error == "the URL: Must not lead to an address that is private, local, or reserved"
    assert read_delivery(conn, plain).last_error == "the URL: Must be an https URL"


# --- who is told


def test_nothing_leaves_for_a_disabled_account_or_a_paused_webhook(
    conn: Connection, receiver: Receiver, turn: WebhookTurn, context: ShiftContext
) -> None:
    account, other = insert_account(conn), insert_account(conn)
    webhook = insert_webhook(conn, account, receiver.url)
    insert_delivery(conn, webhook)
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (account,))
    insert_delivery(conn, insert_webhook(conn, other, receiver.url, state="paused"))
    kept = insert_delivery(conn, insert_webhook(conn, other, receiver.url))
    until(turn, context, lambda: states(conn) == {"delivered": 1, "waiting": 2})
    assert turn.run(context) == 0
    assert receiver.ids == [f"msg_{read_delivery(conn, kept).public_id.hex}"]
    conn.execute("UPDATE client_account SET status = 'active'; UPDATE webhook SET state = 'enabled'")
    until(turn, context, lambda: states(conn) == {"delivered": 3})


def test_a_receiver_with_many_waiting_takes_nobody_s_place(conn: Connection) -> None:
    account = insert_account(conn)
    busy, quiet = insert_webhook(conn, account), insert_webhook(conn, insert_account(conn))
    for _ in range(20):
        insert_delivery(conn, busy, next_attempt_at="2020-01-01Z")
    insert_delivery(conn, quiet)
    taken = [due.webhook_id for due in store.claim(conn, "a", {}, limit=4, each=3, lease_seconds=60)]
    assert sorted(taken) == sorted([busy] * 3 + [quiet])
    assert store.claim(conn, "a", {busy: 3}, limit=4, each=3, lease_seconds=60) == []
    assert len(store.claim(conn, "a", {busy: 2}, limit=4, each=3, lease_seconds=60)) == 1


def test_a_slow_receiver_holds_its_threads_and_no_others(
    conn: Connection, receiver: Receiver, turn: WebhookTurn, context: ShiftContext, settings: Settings
) -> None:
    settings.WEBHOOK_THREADS, settings.WEBHOOK_TIMEOUT_SECONDS = 8, 30
    account = insert_account(conn)
    slow = insert_webhook(conn, account, receiver.url)
    for _ in range(5):
        insert_delivery(conn, slow)
    receiver.answers = [-1, -1]
    until(turn, context, lambda: len(receiver.received) == 2)
    assert len(turn._in_hand) == 2
    insert_delivery(conn, insert_webhook(conn, account, receiver.url))
    until(turn, context, lambda: states(conn) == {"delivered": 1, "waiting": 5})
    receiver.release.set()
    until(turn, context, lambda: states(conn) == {"delivered": 6})


def test_the_end_of_a_shift_waits_for_what_is_under_way(
    conn: Connection, receiver: Receiver, context: ShiftContext
) -> None:
    insert_delivery(conn, insert_webhook(conn, insert_account(conn), receiver.url))
    turn = WebhookTurn()
    turn.run(context)
    turn.close()
    assert states(conn) == {"delivered": 1}


def test_what_could_not_be_recorded_is_recorded_later(
    conn: Connection, receiver: Receiver, turn: WebhookTurn, context: ShiftContext
) -> None:
    insert_delivery(conn, insert_webhook(conn, insert_account(conn), receiver.url))
    turn.run(context)
    wait_until(lambda: not turn._done.empty(), 60)
    conn.execute("SELECT pg_terminate_backend(%s)", (context.conn.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        turn.run(context)
    context.mend()
    until(turn, context, lambda: states(conn) == {"delivered": 1})
    assert len(receiver.received) == 1


# --- the sweep


def test_what_nobody_will_deliver_ends(conn: Connection, context: ShiftContext, settings: Settings) -> None:
    account = insert_account(conn)
    gone, paused = insert_webhook(conn, account), insert_webhook(conn, account, state="paused")
    dropped = insert_delivery(conn, gone)
    old = insert_delivery(conn, paused, created_at="2020-01-01Z", last_error="the receiver answered 500")
    orphan = insert_delivery(conn, 999_999, created_at="2020-01-01Z")
    fresh = insert_delivery(conn, paused)
    conn.execute("UPDATE webhook SET state = 'removed', secret = NULL WHERE id = %s", (gone,))
    assert duty.run(context, None) == 3  # type: ignore[arg-type]
    assert duty.run(context, None) == 0  # type: ignore[arg-type]
    found = {one: read_delivery(conn, one) for one in (dropped, old, orphan, fresh)}
    assert [row.state for row in found.values()] == ["dropped", "failed", "failed", "waiting"]
    assert found[dropped].last_error == "its webhook was removed"
    assert found[old].last_error == "the receiver answered 500; it had waited for too long"
    assert not deliveries.redrive(conn, dropped)
    assert not deliveries.redrive(conn, orphan), "nobody is there to be told"
    assert deliveries.redrive(conn, old)
    assert duty.run(context, None) == 0, "its time begins anew"  # type: ignore[arg-type]


def test_ended_deliveries_and_removed_webhooks_leave(conn: Connection) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    for state in DeliveryState:
        insert_delivery(conn, webhook, state)
    fresh = insert_delivery(conn, webhook, "delivered", ended_at="now")
    with connect("maintenance") as maintenance:
        assert store.purge_deliveries(maintenance, 3600.0, 2) == 2
        assert store.purge_deliveries(maintenance, 3600.0, 2) == 1
        assert store.purge_deliveries(maintenance, 3600.0, 2) == 0
        assert states(conn) == {"waiting": 1, "delivered": 1}
        conn.execute("UPDATE webhook SET state = 'removed', secret = NULL")
        assert store.purge_webhooks(maintenance, 9) == 0, "what it was told is still there"
        conn.execute("DELETE FROM webhook_delivery")
        assert store.purge_webhooks(maintenance, 9) == 1
    assert not WebhookDelivery.objects.filter(pk=fresh).exists()


def test_figures(conn: Connection) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    assert store.webhook_figures(conn) == (1, 0, 0, 0.0)
    insert_delivery(conn, insert_webhook(conn, account, state="paused"), next_attempt_at="2020-01-01Z")
    assert store.webhook_figures(conn) == (1, 1, 0, 0.0), "what may not leave is not due"
    insert_delivery(conn, webhook, next_attempt_at="2026-01-01Z")
    insert_delivery(conn, webhook, "failed", ended_at="now")
    insert_delivery(conn, webhook, "failed")
    found = store.webhook_figures(conn)
    assert (found.waiting, found.failed) == (2, 1)
    assert found.oldest_due_seconds > 86_400
