"""What clients are told is written by the transaction that it tells of: by every way to an end, once, or not at all."""

from __future__ import annotations

import os
import re
import threading
from uuid import UUID

import psycopg
import pytest

from requests_app.models.reviews import ReasonCode
from requests_app.services import Denial, Submission, cancel, submit
from requests_app.sql import ddl
from requests_app.states import (
    EVENTS,
    INTENT_TOLD_OF,
    REQUEST_KINDS,
    TOLD_OF,
    TRANSITIONS,
    USUAL_EVENTS,
    Actor,
    IntentActor,
    IntentState,
    Kind,
    ReqType,
    Status,
    Verb,
)
from requests_app.store import answers as answers_store
from requests_app.transitions import intents
from requests_app.transitions.generic import Change, apply, park
from requests_app.transitions.intents import Change as IntentChange
from tests.api.rows import insert_view
from tests.core.rows import insert_account, insert_request, read_request
from tests.payments.terms import add_authorized, add_intent
from tests.waiting import wait_until
from tests.webhooks.rows import insert_webhook, outbox

pytestmark = pytest.mark.django_db(transaction=True)
Connection = psycopg.Connection


def told_by(trigger: str) -> set[str]:
    """The states that a function of the outbox names."""
    text = ddl("webhooks")
    body = text[text.index(f"FUNCTION {trigger}()") :]
    found = re.search(r"IN \((.*?)\)\n", body[: body.index("END $$")])
    assert found is not None
    return set(re.findall(r"'(\w+)'", found[1]))


def test_the_triggers_tell_of_the_states_that_the_table_names() -> None:
    assert told_by("tell_of_requests") == told_by("tell_of_joins") == {state.value for state in TOLD_OF}
    assert told_by("tell_of_payments") == {state.value for state in INTENT_TOLD_OF}
    assert set(EVENTS) - set(USUAL_EVENTS) == {"request.needs_review", "payment.needs_review"}


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_every_transition_into_a_told_state_is_told_and_no_other(conn: Connection, kind: Kind) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    for verb, row in TRANSITIONS.items():
        row_id = insert_request(conn, kind, sorted(row.sources)[0])
        job = insert_view(conn, account, kind, row_id)
        conn.execute("TRUNCATE webhook_delivery")  # joining a row in review is told of
        assert apply(conn, verb, kind, [Change(row_id)], next(iter(row.actors)))
        told = [(webhook, f"request.{row.target}", str(job))] if row.target in TOLD_OF else []
        assert outbox(conn) == told, verb


def test_the_time_told_is_that_of_the_row(conn: Connection) -> None:
    account = insert_account(conn)
    insert_webhook(conn, account)
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING)
    insert_view(conn, account, Kind.PUBLIC_DECRYPT, row_id)
    apply(conn, Verb.ABANDON, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.SWEEP)
    (told,) = conn.execute("SELECT occurred_at FROM webhook_delivery").fetchall()
    assert told[0] == read_request(conn, Kind.PUBLIC_DECRYPT, row_id).updated_at


def test_each_client_of_a_shared_row_with_a_webhook_is_told_by_its_own_id(conn: Connection) -> None:
    clients = [insert_account(conn) for _ in range(4)]
    first, second = insert_webhook(conn, clients[0]), insert_webhook(conn, clients[1])
    also = insert_webhook(conn, clients[1])
    gone = insert_webhook(conn, clients[3])
    row_id = insert_request(conn, Kind.USER_DECRYPT, Status.RECEIPT_RECEIVED)
    jobs = [str(insert_view(conn, client, Kind.USER_DECRYPT, row_id)) for client in clients]
    conn.execute("UPDATE request_client SET canceled_at = clock_timestamp() WHERE client_id = %s", (clients[3],))
    apply(conn, Verb.EXPIRE_RESPONSE, Kind.USER_DECRYPT, [Change(row_id)], Actor.SWEEP)
    told = [
        (webhook, "request.timed_out", job) for webhook, job in ((first, jobs[0]), (second, jobs[1]), (also, jobs[1]))
    ]
    assert sorted(outbox(conn)) == sorted(told)
    assert gone not in {one[0] for one in outbox(conn)}


def test_a_webhook_hears_the_events_and_kinds_it_wants(conn: Connection) -> None:
    account = insert_account(conn)
    insert_webhook(conn, account, events=["request.completed"])
    insert_webhook(conn, account, kinds=[Kind.INPUT_PROOF])
    insert_webhook(conn, account, state="removed")
    usual = insert_webhook(conn, account, events=USUAL_EVENTS, state="paused")
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING)
    job = str(insert_view(conn, account, Kind.PUBLIC_DECRYPT, row_id))
    park(conn, Kind.PUBLIC_DECRYPT, {row_id: {}}, ReasonCode.OUTCOME_UNKNOWN, Actor.SWEEP, detail="?")
    assert outbox(conn) == []
    apply(conn, Verb.REJECT, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.OPERATOR)
    assert outbox(conn) == [(usual, "request.failure", job)], "a paused one keeps what it will be told"


def test_nothing_is_told_of_what_was_rolled_back(conn: Connection) -> None:
    """The crash before the commit: no outbox row without its end; after it both are there."""
    account = insert_account(conn)
    insert_webhook(conn, account)
    row_id = insert_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    insert_view(conn, account, Kind.INPUT_PROOF, row_id)
    for undone in (True, False):
        with conn.transaction(force_rollback=undone):
            assert apply(conn, Verb.REFUSE, Kind.INPUT_PROOF, [Change(row_id)], Actor.WORKER)
            assert len(outbox(conn)) == 1
        ended = read_request(conn, Kind.INPUT_PROOF, row_id).status == "failure"
        assert (ended, len(outbox(conn))) == ((False, 0) if undone else (True, 1))


def test_answers_from_the_chain_are_told(conn: Connection) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    ref = b"\x07" * 32
    row_id = insert_request(conn, Kind.INPUT_PROOF, Status.RECEIPT_RECEIVED, gw_reference_id=ref)
    job = str(insert_view(conn, account, Kind.INPUT_PROOF, row_id))
    conn.execute(
        "INSERT INTO gateway_ref (gw_reference_id, kind, request_id) VALUES (%s, %s, %s)",
        (ref, Kind.INPUT_PROOF, row_id),
    )
    answer = answers_store.ProofAnswer(ref, False, None, b"\x09" * 32)
    assert len(answers_store.complete_proof(conn, [answer])) == 1
    assert answers_store.complete_proof(conn, [answer]) == []
    assert outbox(conn) == [(webhook, "request.completed", job)]


def test_a_request_that_fails_in_the_statement_of_its_post_is_told_once(conn: Connection) -> None:
    """Both its history and its client's view are new in that statement, and both are followed."""
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    denial = Denial("validation_failed", "bad signature")
    done = submit(conn, Submission(Kind.USER_DECRYPT, ReqType.DIRECT, os.urandom(32), {}, denial), client_id=account)
    assert outbox(conn) == [(webhook, "request.failure", str(done.ext_job_id))]


def public() -> Submission:
    return Submission(Kind.PUBLIC_DECRYPT, None, os.urandom(32), {"handles": [], "extra_data": "0x00"})


def test_a_cancel_is_told_and_so_is_what_had_ended_already(conn: Connection) -> None:
    first, second = insert_account(conn), insert_account(conn)
    told, late = insert_webhook(conn, first), insert_webhook(conn, second)
    asked = public()
    done = submit(conn, asked, client_id=first)
    assert isinstance(done.ext_job_id, UUID)
    assert outbox(conn) == []
    cancel(conn, client_id=first, ext_job_id=done.ext_job_id)
    assert outbox(conn) == [(told, "request.failure", str(done.ext_job_id))]
    ready = public()
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.COMPLETED, int_job_id=ready.int_job_id, res="{}")
    joined = [submit(conn, ready, client_id=second) for _ in range(2)]
    assert joined[0].request_id == joined[1].request_id == row_id
    assert outbox(conn)[1:] == [(late, "request.completed", str(joined[0].ext_job_id))]


def test_who_joins_a_row_while_it_ends_is_told(two_conns: tuple[Connection, Connection]) -> None:
    """Neither transaction can see the other's row: the one that joins waits, and tells of the end itself."""
    ending, joining = two_conns
    account = insert_account(ending)
    webhook = insert_webhook(ending, account)
    asked = public()
    row_id = insert_request(ending, Kind.PUBLIC_DECRYPT, Status.TX_IN_FLIGHT, int_job_id=asked.int_job_id)
    found: list[str] = []

    def join() -> None:
        found.append(str(submit(joining, asked, client_id=account).ext_job_id))

    with ending.transaction():
        apply(ending, Verb.REVERT, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.CHAIN)
        thread = threading.Thread(target=join)
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        wait_until(lambda: ending.execute(waiting, (joining.info.backend_pid,)).fetchone(), 60)
        assert outbox(ending) == []
    thread.join()
    assert outbox(ending) == [(webhook, "request.failure", found[0])]


def test_payments_are_told_of_their_ends(conn: Connection) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    insert_webhook(conn, insert_account(conn))
    canceled = add_intent(conn, account)
    intents.cancel(conn, canceled.public_id, "no", account_id=account)
    intent = add_authorized(conn, account)
    with conn.transaction():
        (moved,) = intents.move(conn, IntentState.SETTLING, [IntentChange.of(intent)], IntentActor.RELAYER)
        change = IntentChange.of(moved.intent, reason="lost")
        (moved,) = intents.move(
            conn, IntentState.NEEDS_REVIEW, [change], IntentActor.RELAYER, review=ReasonCode.OUTCOME_UNKNOWN
        )
        change = IntentChange.of(moved.intent, reason="by hand")
        (moved,) = intents.move(conn, IntentState.FAILED, [change], IntentActor.OPERATOR)
    assert outbox(conn) == [
        (webhook, "payment.canceled", canceled.public_id),
        (webhook, "payment.needs_review", intent.public_id),
        (webhook, "payment.failed", intent.public_id),
    ]
    (times,) = conn.execute("SELECT max(occurred_at) FROM webhook_delivery").fetchall()
    assert times[0] == moved.intent.updated_at
