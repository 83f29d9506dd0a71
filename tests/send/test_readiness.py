"""The readiness turn: allowed and ready goes on, denied and overdue ends, everything else waits without holding anything."""

from __future__ import annotations

import pytest
from eth_abi.abi import decode, encode

from requests_app import runtime
from requests_app.states import Kind, Status
from tests.core.rows import insert_account, read_request
from tests.send.node import Drop, Fault
from tests.send.scenes import HOST, add_request, body, change, expire_leases, handle
from workers.chain.acl import MULTICALL
from workers.readiness import ReadinessTurn

pytestmark = pytest.mark.django_db(transaction=True)
YES, NO = b"\0" * 31 + b"\1", b"\0" * 32


class Chains:
    """The host ACL and the gateway view behind the stub node, by handle."""

    def __init__(self, node):
        self.denied: set[bytes] = set()
        self.unready: set[bytes] = set()
        self.acl_error: dict[bytes, Exception] = {}
        self.view_error: dict[bytes, Exception] = {}
        self.asked = {"acl": 0, "view": 0}
        node.on_call = self.answer

    def answer(self, call, tag):
        raw = bytes.fromhex(call["data"][2:])
        if raw[:4] == MULTICALL.selector:
            self.asked["acl"] += 1
            (inner,) = decode(["bytes[]"], raw[4:])
            self._raise(self.acl_error, raw)
            return "0x" + encode(["bytes[]"], [[NO if self._has(self.denied, one) else YES for one in inner]]).hex()
        self.asked["view"] += 1
        self._raise(self.view_error, raw)
        return "0x" + (NO if self._has(self.unready, raw) else YES).hex()

    def _raise(self, errors, raw):
        for wanted, error in errors.items():
            if wanted in raw:
                raise error

    @staticmethod
    def _has(handles, raw):
        return any(one in raw for one in handles)


@pytest.fixture
def chains(node):
    return Chains(node)


def queued(conn, kind=Kind.PUBLIC_DECRYPT, *, chain=HOST, **options):
    """A queued request of one handle, and the handle."""
    own = handle(chain)
    payload = body(kind)
    if kind is Kind.PUBLIC_DECRYPT:
        payload["handles"] = ["0x" + own.hex()]
    else:
        payload["handles"][0]["handle"] = "0x" + own.hex()
    return add_request(conn, kind, Status.QUEUED, payload=payload, **options), own


def overdue(conn, subject):
    change(conn, subject, "deadline_at = clock_timestamp() - interval '1 second'")


def status(conn, subject):
    return read_request(conn, subject.kind, subject.id).status


def row(conn, subject):
    return read_request(conn, subject.kind, subject.id)


def job(conn, subject):
    return conn.execute(
        "SELECT queue, leased_by, extract(epoch FROM visible_at - clock_timestamp())::float8 FROM queue_job "
        "WHERE kind = %s AND subject_id = %s",
        (subject.kind.value, subject.id),
    ).fetchone()


def due(conn):
    conn.execute("UPDATE queue_job SET visible_at = clock_timestamp()")


def test_allowed_and_ready_rows_go_on_with_their_jobs(conn, chains, start):
    subjects = [queued(conn, kind)[0] for kind in (Kind.PUBLIC_DECRYPT, Kind.USER_DECRYPT) * 3]
    assert ReadinessTurn().run(start()) == 6
    assert [status(conn, subject) for subject in subjects] == ["processing"] * 6
    assert [job(conn, subject)[:2] for subject in subjects] == [("send", None)] * 6
    log = conn.execute("SELECT verb, from_status, to_status, count(*) FROM req_transition GROUP BY 1, 2, 3").fetchall()
    assert log == [("admit", "queued", "processing", 6)]


def test_one_rpc_batch_asks_each_question_for_everybody(conn, node, chains, start):
    for _ in range(20):
        queued(conn)
    ReadinessTurn().run(start())
    asked = [batch for batch in node.batches if "eth_call" in batch]
    assert [len(batch) for batch in asked] == [20, 20]


def test_a_denial_heard_twice_is_final_and_names_the_handle(conn, chains, start):
    (bad, own), (good, _) = queued(conn), queued(conn)
    chains.denied.add(own)
    context = start()
    ReadinessTurn().run(context)
    assert (status(conn, bad), status(conn, good)) == ("queued", "processing")
    expire_leases(conn)
    ReadinessTurn().run(context)
    assert (status(conn, bad), status(conn, good)) == ("failure", "processing")
    assert row(conn, bad).fail_label == "not_allowed_on_host_acl"
    assert row(conn, bad).fail_detail == (
        f"Not allowed on host ACL: ACL check failed for 1 handle(s): handle=0x{own.hex()} check=isAllowedForDecryption"
    )
    assert job(conn, bad) is None


def test_a_denial_by_a_node_that_lags_behind_the_grant_ends_nothing(conn, chains, start):
    (late, own) = queued(conn)
    chains.denied.add(own)
    context = start()
    ReadinessTurn().run(context)
    chains.denied.clear()
    expire_leases(conn)
    ReadinessTurn().run(context)
    assert status(conn, late) == "processing"


@pytest.fixture
def long_interval(settings):
    """A tenth of it is longer than a stall of the machine."""
    settings.READINESS_INTERVAL_SECONDS = 300.0
    runtime.forget()
    yield
    runtime.forget()


def test_not_ready_waits_outside_and_is_not_asked_of_the_acl_again(conn, chains, start, settings, long_interval):
    subject, own = queued(conn)
    chains.unready.add(own)
    turn, context = ReadinessTurn(), start()
    turn.run(context)
    queue, holder, seconds = job(conn, subject)
    assert (queue, holder) == ("ready", None)
    assert 0.9 * settings.READINESS_INTERVAL_SECONDS < seconds <= 1.26 * settings.READINESS_INTERVAL_SECONDS
    assert turn.run(context) == 0
    due(conn)
    turn.run(context)
    assert chains.asked == {"acl": 1, "view": 2}
    chains.unready.clear()
    due(conn)
    turn.run(context)
    assert status(conn, subject) == "processing"


def test_not_ready_past_the_deadline_times_out(conn, chains, start):
    subject, own = queued(conn)
    chains.unready.add(own)
    overdue(conn, subject)
    ReadinessTurn().run(start())
    found = row(conn, subject)
    assert (found.status, found.fail_label) == ("timed_out", "readiness_check_timed_out")
    assert found.fail_detail == "Ciphertext not ready for decryption on the gateway chain"


def test_ready_at_the_last_moment_still_goes_on(conn, chains, start):
    subject, _ = queued(conn)
    overdue(conn, subject)
    ReadinessTurn().run(start())
    assert status(conn, subject) == "processing"


def test_a_call_error_waits_and_past_the_deadline_it_is_a_failure(conn, chains, start):
    """C16: what counts is the last outcome, not whether any error ever happened."""
    subject, own = queued(conn)
    chains.view_error[own] = Fault("execution reverted: no such view", 3)
    turn, context = ReadinessTurn(), start()
    turn.run(context)
    assert (status(conn, subject), job(conn, subject)[0]) == ("queued", "ready")
    overdue(conn, subject)
    due(conn)
    turn.run(context)
    found = row(conn, subject)
    assert (found.status, found.fail_label) == ("failure", "internal_server_error")
    assert found.fail_detail == "Processing Failed: Contract call failed: execution reverted: no such view"


def test_an_earlier_error_does_not_stick(conn, chains, start):
    subject, own = queued(conn)
    chains.view_error[own] = Fault("header not found")
    turn, context = ReadinessTurn(), start()
    turn.run(context)
    chains.view_error.clear()
    chains.unready.add(own)
    overdue(conn, subject)
    due(conn)
    turn.run(context)
    assert status(conn, subject) == "timed_out"


def test_the_acl_call_fails_three_times_before_it_counts(conn, chains, start):
    subject, own = queued(conn)
    other, _ = queued(conn)
    chains.acl_error[own] = Fault("execution reverted", 3)
    turn, context = ReadinessTurn(), start()
    for expected in ("queued", "queued", "failure"):
        turn.run(context)
        assert status(conn, subject) == expected
        due(conn)
    found = row(conn, subject)
    assert found.fail_label == "host_acl_failed"
    assert found.fail_detail == f"Host ACL check failed: Host chain {HOST} call failed: execution reverted"
    assert status(conn, other) == "processing"


def test_a_silent_host_chain_fails_nobody(conn, node, chains, start):
    subject, own = queued(conn)
    chains.acl_error[own] = Drop()
    turn, context = ReadinessTurn(), start()
    for _ in range(4):
        turn.run(context)
        due(conn)
    assert status(conn, subject) == "queued"
    chains.acl_error.clear()
    _let_the_breakers_close(context)
    turn.run(context)
    assert status(conn, subject) == "processing"


def _let_the_breakers_close(context):
    for host in context.clients.hosts.values():
        for endpoint in host.endpoints.all:
            endpoint._closed_until = 0.0
    for endpoint in context.clients.endpoints.all:
        endpoint._closed_until = 0.0


def test_an_unknown_host_chain_and_a_broken_body_end_alone(conn, chains, start):
    unbound, _ = queued(conn, chain=31337)
    broken, _ = queued(conn)
    conn.execute(
        "UPDATE request_payload SET body = %s WHERE kind = 2 AND request_id = %s", ('{"handles": ["0x12"]}', broken.id)
    )
    good, _ = queued(conn)
    ReadinessTurn().run(start())
    assert [status(conn, s) for s in (unbound, broken, good)] == ["failure", "failure", "processing"]
    assert row(conn, unbound).fail_detail == "Host ACL check failed: No ACL binding configured for host chain 31337"
    assert row(conn, broken).fail_label == "internal_server_error"


def test_rows_that_moved_on_lose_or_take_along_their_jobs(conn, chains, start):
    canceled = add_request(conn, Kind.PUBLIC_DECRYPT, Status.FAILURE, queue="ready")
    admitted = add_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING, queue="ready")
    ReadinessTurn().run(start())
    assert job(conn, canceled) is None
    assert job(conn, admitted)[:2] == ("send", None)
    assert chains.asked == {"acl": 0, "view": 0}


def test_a_disabled_client_waits_and_ends_at_the_deadline(conn, chains, start):
    subject, _ = queued(conn, account=insert_account(conn, status="disabled"))
    turn, context = ReadinessTurn(), start()
    turn.run(context)
    assert status(conn, subject) == "queued"
    assert 110 < job(conn, subject)[2] <= 120
    overdue(conn, subject)
    due(conn)
    turn.run(context)
    assert status(conn, subject) == "timed_out"
    assert chains.asked == {"acl": 0, "view": 0}


def test_two_shifts_admit_each_row_once(conn, chains, start):
    subjects = [queued(conn)[0] for _ in range(10)]
    turns = [(ReadinessTurn(), start()), (ReadinessTurn(), start())]
    assert sorted(turn.run(context) for turn, context in turns) == [0, 10]
    assert {status(conn, subject) for subject in subjects} == {"processing"}
    assert conn.execute("SELECT count(*) FROM req_transition").fetchone() == (10,)
