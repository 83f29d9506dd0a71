"""Two hosts, and one of them loses its network in the middle of sending: database and chains at once (queue_settle 4.4, design 4.2).

What it had begun is finished by the other host or by itself later: every request completes with one request event.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import psutil
import pytest

from tests.faults.host import Host
from tests.reported import say
from tests.stack.harness import Stack, poll
from workers.devnet.traffic import FORMS, Traffic

REQUESTS = 80
IN_FLIGHT = 8  # a signer: sending takes long enough to be cut


@pytest.fixture(scope="module")
def host(stack: Stack) -> Iterator[Host]:
    """Holds one of the two signers, or both."""
    second = Host(stack)
    try:
        second.wait_working(stack, 90)
        with stack.database() as conn:
            conn.execute("UPDATE signer SET max_inflight = %s", (IN_FLIGHT,))
        yield second
    finally:
        second.stop()
        with stack.database() as conn:
            conn.execute("UPDATE signer SET max_inflight = 256")


def signers_of(stack: Stack, host: str) -> list[str]:
    """The signers that a process of this host holds."""
    with stack.database() as conn:
        rows = conn.execute(
            "SELECT l.resource FROM exec_lease l JOIN worker_beat b ON b.instance = l.instance"
            " WHERE l.resource LIKE 'signer:%%' AND l.lease_until > clock_timestamp() AND b.resource LIKE %s",
            (f"shift:%{host}%",),
        ).fetchall()
    return [row[0] for row in rows]


def in_flight(stack: Stack, resources: list[str]) -> int:
    """Open nonces of these signers."""
    with stack.database() as conn:
        row = conn.execute(
            "SELECT count(*) FROM nonce_slot n JOIN signer g ON g.id = n.signer_id WHERE n.state IN ('signed', 'live')"
            " AND 'signer:' || g.chain_id || ':0x' || encode(g.address, 'hex') = ANY(%s)",
            (resources,),
        ).fetchone()
    assert row is not None
    return int(row[0])


def hand_over(stack: Stack) -> list[str]:
    """A signer to the second host: the first one's settle workers are replaced, and the second is faster."""

    def asked() -> list[str]:
        found = signers_of(stack, "second")
        if not found:
            for process in stack.find("relayer_cluster", "settle")[:1]:
                with suppress(psutil.NoSuchProcess):  # of a group that is ending
                    process.kill()
                time.sleep(0.5)
        return found

    found: list[str] = poll(asked, 60, "the second host holds a signer")
    return found


@pytest.mark.stack
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seconds", "silently"),
    [
        pytest.param(6, False, id="6 s, broken"),
        pytest.param(30, False, id="30 s, broken", marks=pytest.mark.full),
        pytest.param(30, True, id="30 s, silent", marks=pytest.mark.full),
    ],
)
def test_a_host_without_network_loses_and_doubles_nothing(
    stack: Stack, traffic: Traffic, host: Host, seconds: float, silently: bool
) -> None:
    submissions = traffic.build([FORMS[number % len(FORMS)] for number in range(REQUESTS)])
    start = stack.block() + 1
    held = hand_over(stack)
    job_ids: list[str] = []
    half = REQUESTS // 2
    posting = Thread(target=lambda: job_ids.extend(stack.post_all(submissions[:half], host.api)))
    posting.start()
    busy = poll(lambda: in_flight(stack, held), 60, "the second host is sending")
    host.cut(silently=silently)
    cut_at = time.monotonic()
    poll(lambda: not signers_of(stack, "second"), 60, "its signers are taken over")
    taken = time.monotonic() - cut_at
    others = stack.post_all(submissions[half:])
    time.sleep(max(0.0, seconds - (time.monotonic() - cut_at)))  # the length of the cut is what is tested
    host.mend()
    posting.join(60)
    assert len(job_ids) == half, "what met the web server without network was accepted in the end"
    job_ids += others
    rows = stack.wait_final(job_ids, 120)
    host.wait_working(stack, 90)
    events = stack.request_events(start)
    statuses = {status: sum(row.status == status for row in rows) for status in {row.status for row in rows}}
    say(
        f"cut of {seconds} s ({'silent' if silently else 'broken'}) with {busy} nonces open at the second host: taken over after"
        f" {taken:.1f} s; {statuses}, {len(events)} request events for {len(rows)} requests"
    )
    assert statuses == {"completed": REQUESTS}
    assert sorted(event["topics"][1] for event in events) == sorted("0x" + row.gw_reference_id.hex() for row in rows)
