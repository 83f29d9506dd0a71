"""One bad member delays none of the other 199; disabled accounts stop what has not been signed; clocks of clients do not matter."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from requests_app.states import Kind, Status
from requests_app.store import commands as command_store
from requests_app.store import leases
from requests_app.store.queue import SEND
from requests_app.store.session import connect
from requests_app.store.signing import Fence
from tests.core.rows import insert_account, read_request
from tests.listen import world
from tests.processes.children import Child
from tests.send.node import Fault
from tests.send.scenes import add_request, hold, leased
from workers import settle
from workers.chain.signer import LocalSigner
from workers.settle import SettleTurn

COUNT = 200
Spoil = Callable[[Any, Any, Any, pytest.MonkeyPatch], None]


def spoil_encoding(conn: Any, node: Any, victim: Any, patch: pytest.MonkeyPatch) -> None:
    conn.execute(
        "UPDATE request_payload SET body = '{\"contract\": 1}' WHERE kind = %s AND request_id = %s",
        (victim.kind.value, victim.id),
    )


def _payload(conn: Any, victim: Any) -> str:
    found = conn.execute(
        "SELECT body ->> 'ciphertext' FROM request_payload WHERE kind = %s AND request_id = %s",
        (victim.kind.value, victim.id),
    ).fetchone()
    return str(found[0])[2:]


def spoil_estimate(conn: Any, node: Any, victim: Any, patch: pytest.MonkeyPatch) -> None:
    mark = _payload(conn, victim)

    def estimate(call: dict[str, Any]) -> int:
        if mark in call["data"]:
            raise Fault("boom")
        return 100_000

    node.on_estimate = estimate


def spoil_signing(conn: Any, node: Any, victim: Any, patch: pytest.MonkeyPatch) -> None:
    mark = bytes.fromhex(_payload(conn, victim))
    whole = LocalSigner.sign

    def refuse(self: Any, nonce: int, to: bytes, data: bytes, *rest: Any, **named: Any) -> Any:
        if mark in data:
            raise ValueError("no signature")
        return whole(self, nonce, to, data, *rest, **named)

    patch.setattr(LocalSigner, "sign", refuse)


@pytest.mark.parametrize(
    ("spoil", "left"), [(spoil_encoding, "failure"), (spoil_estimate, "processing"), (spoil_signing, "processing")]
)
def test_one_bad_member_of_two_hundred(
    conn: Any, node: Any, start: Any, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, left: str
) -> None:
    account = insert_account(conn)
    subjects = [add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, account=account) for _ in range(COUNT)]
    victim = subjects[77]
    spoil(conn, node, victim, monkeypatch)
    SettleTurn().run(start())
    counts = dict(conn.execute("SELECT status, count(*) FROM input_proof_req GROUP BY 1").fetchall())
    assert counts == {"tx_in_flight": COUNT - 1, left: 1}
    assert read_request(conn, victim.kind, victim.id).status == left
    nonces = [row[0] for row in conn.execute("SELECT nonce FROM nonce_slot ORDER BY nonce").fetchall()]
    assert nonces == list(range(COUNT - 1))  # dense without the victim
    assert len(set(node.raws)) == COUNT - 1


def test_one_bad_event_of_two_hundred(log: Any) -> None:
    ours = world.sent(log, Kind.PUBLIC_DECRYPT, COUNT)
    events = [world.requested(one, (2, n)) for n, one in enumerate(ours)]
    events += [world.answered(one, (3, n)) for n, one in enumerate(ours)]
    world.record(log, 1, 3, events)
    victim = COUNT + 77
    log.execute("UPDATE envelope_blob SET payload = 'x' WHERE position = %s", (events[victim].position,))
    world.applier().catch_up(log)
    counts = dict(log.execute("SELECT status, count(*) FROM public_decrypt_req GROUP BY 1").fetchall())
    assert counts == {"completed": COUNT - 1, "receipt_received": 1}
    assert log.execute("SELECT position FROM dead_envelope").fetchall() == [(events[victim].position,)]


def disable(account: int) -> None:
    with connect("worker") as other:
        other.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (account,))


@pytest.mark.parametrize("moment", ["before the lease", "after the check", "after TX1"])
def test_an_account_that_is_disabled_on_the_way(
    conn: Any, node: Any, start: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """5.5.1: what is not at TX1 stays unsigned, with its job put off; what is past it goes on to its end."""
    account = insert_account(conn)
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, account=account)
    other = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    turn, context = SettleTurn(), start()
    if moment == "before the lease":
        disable(account)
    elif moment == "after the check":
        whole = settle.estimate
        monkeypatch.setattr(settle, "estimate", lambda *arguments: (whole(*arguments), disable(account))[0])
    turn.run(context)
    if moment == "after TX1":
        disable(account)
    status = read_request(conn, subject.kind, subject.id).status
    assert read_request(conn, other.kind, other.id).status == "tx_in_flight"
    assert status == ("tx_in_flight" if moment == "after TX1" else "processing")
    jobs = conn.execute("SELECT count(*) FROM queue_job WHERE subject_id = %s", (subject.id,)).fetchone()[0]
    assert jobs == (0 if moment == "after TX1" else 1)
    assert len(node.raws) == (2 if moment == "after TX1" else 1)


def test_a_shared_row_is_enabled_while_one_of_its_clients_is(conn: Any, node: Any, start: Any) -> None:
    first, second = insert_account(conn), insert_account(conn)
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, account=first)
    conn.execute(
        "INSERT INTO request_client (client_id, kind, request_id, ext_job_id) VALUES (%s, 3, %s, gen_random_uuid())",
        (second, subject.id),
    )
    disable(first)
    SettleTurn().run(start())
    assert read_request(conn, subject.kind, subject.id).status == "tx_in_flight"


@pytest.mark.parametrize("hours", [1, -1])
def test_a_client_whose_clock_is_an_hour_off_takes_nothing_and_gives_nothing(conn: Any, hours: int) -> None:
    """Leases, jobs and claims run on the database's clock: a process that lives in another hour sees what everybody sees."""
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    leases.open_lease(conn, "resource")
    assert leases.claim_lease(conn, "resource", "here", 0, 10, gone=False, how="free") == 1
    (delivery,) = leased(conn, SEND)
    hold(conn, command_store.SINGLETON)
    fence = Fence(command_store.SINGLETON, "one", 1)
    command = command_store.NewCommand(
        "c", command_store.CommandKind.HITL, subject.kind, subject.id, command_store.SINGLETON, "one"
    )
    command_store.enqueue(conn, command)
    command_store.claim(conn, fence, ["c"])

    def elsewhere(say: Callable[[str], None]) -> None:
        real, steady = time.time, time.monotonic
        time.time = lambda: real() + 3600 * hours
        time.monotonic = lambda: steady() + 3600 * hours
        with connect("worker") as there:
            seen = leases.look_at_lease(there, "resource")
            stolen = leases.claim_lease(there, "resource", "there", 1, 10, gone=False, how="expired")
            with there.transaction():
                commands = len(command_store.due(there, fence))
            say(json.dumps([bool(seen and seen.expired), stolen, len(leased(there, SEND)), commands]))
            # What it leases is leased by the database's clock too.
            leases.open_lease(there, "theirs")
            leases.claim_lease(there, "theirs", "there", 0, 10, gone=False, how="free")
            say("done")

    child = Child(elsewhere)
    assert json.loads(child.hear()) == [False, None, 0, 0]
    assert child.hear() == "done"
    assert child.end() == 0
    left = conn.execute(
        "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM exec_lease WHERE resource = 'theirs'"
    ).fetchone()[0]
    assert 0 < left <= 10
    assert delivery.subject == subject
