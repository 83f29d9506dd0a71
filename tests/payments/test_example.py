"""A1 and A2 of the reference: the three payments, without the attempt log line for line, with it without any review."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections

from requests_app.ledger import Head
from requests_app.models.signing import AttemptState
from requests_app.states import IntentState
from requests_app.store import intents, queue
from requests_app.store.attempts import Found, Outgoing
from requests_app.store.queue import Verdict
from requests_app.store.session import connect
from workers.broadcast import Sent
from workers.chain.errors import SendClass
from workers.examples.settle import HEAD, NAMES, Example, ScriptedNode
from workers.senders import Trace
from workers.settling import AttemptLog, Handled

Conn = psycopg.Connection[Any]
EXPECTED = (Path(__file__).parent / "settle_example.txt").read_text()
WITH_LOG = """\
worker  pi_0001/settle   #1  sent         tx 0xaa
worker  pi_0003/settle   #1  retry        (send: rpc: connection refused)
worker  pi_0002/settle   #2  sent         tx 0xac
worker  pi_0003/settle   #2  rebroadcast  tx 0xab
worker  pi_0001/settle   #1  no-op        (already confirming)
"""


@pytest.fixture
def still(transactional_db: None) -> Iterator[Conn]:
    """A connection whose clock the example sets; the clock goes when the test does."""
    with connect("worker") as conn:
        yield conn
        conn.execute("RESET search_path")
        conn.execute("DROP SCHEMA injected CASCADE")


class Losing(ScriptedNode):
    """Takes the bytes of the third payment although the connection breaks. `mined`: it is in a block when asked again."""

    mined = False
    answers_find = True

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        answered = super().transmit(items)
        if not self.up:
            self.taken += [item.tx_hash for item in items]
            return answered
        again = {item.tx_hash for item in items if self.taken.count(item.tx_hash) > 1}
        return [
            Sent(one.item, SendClass.ALREADY_KNOWN, "already known", False) if one.item.tx_hash in again else one
            for one in answered
        ]

    def find(self, items: Sequence[Outgoing]) -> list[Trace | None] | None:
        if not self.answers_find:
            return [None for _ in items]  # a node behind a load balancer: another one has the bytes
        if not self.mined:
            return super().find(items)
        return [Trace(Found(item.nonce, item.seq, 1, 7, b"\x07" * 32, True)) for item in items]


class Watched(Example):
    """The example with a node of the test's choice, the worker's dealings with the third payment kept, and a nosy dead worker."""

    node_class: type[ScriptedNode] = ScriptedNode

    def _node(self) -> ScriptedNode:
        plain = super()._node()
        self.third: list[Handled] = []
        return self.node_class(plain.fence, plain.signer_id)

    def work(self) -> list[Handled]:
        handled = super().work()
        self.third += [one for one in handled if one.job_key.startswith(NAMES[2])]
        return handled


def last_state(conn: Conn) -> dict[str, tuple[str, int, str]]:
    found = [intents.find_intent(conn, name) for name in NAMES]
    return {one.public_id: (one.state, one.version, (one.tx_hash or b"").hex()) for one in found if one}


def reviews(conn: Conn) -> int:
    row = conn.execute("SELECT count(*) FROM review_case").fetchone()
    assert row is not None
    return int(row[0])


def test_a1_line_for_line(still: Conn) -> None:
    result = Example(still).run()
    assert "\n".join(result.lines) + "\n" == EXPECTED
    assert result.head == HEAD
    assert result.late_ack is Verdict.NOT_FOUND
    assert reviews(still) == 1
    assert still.execute("SELECT clock_timestamp()::text LIKE '2026-01-01%'").fetchone() == (True,)


def test_a1_by_the_command_in_a_database_of_its_own(transactional_db: None) -> None:
    before = connections["default"].settings_dict["NAME"]
    out = io.StringIO()
    call_command("relayer_example", "settle", stdout=out)
    assert out.getvalue() == EXPECTED
    assert connections["default"].settings_dict["NAME"] == before
    with connect("worker") as conn:
        left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'relayer\\_example\\_%'"
        assert conn.execute(left).fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM payment_intent").fetchone() == (0,)
        assert conn.execute("SELECT to_regnamespace('injected') IS NULL").fetchone() == (True,)


def test_the_dead_workers_receipt_is_stale_while_another_works(still: Conn) -> None:
    """Its acknowledgement reaches the queue while the second delivery is under way: it may not end that one's job."""
    seen: list[Verdict] = []

    class Nosy(ScriptedNode):
        def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
            if example._dead is not None and self.up:
                seen.append(example.late_ack())
            return super().transmit(items)

    class WithNosy(Watched):
        node_class = Nosy

    example = WithNosy(still)
    result = example.run()
    assert seen == [Verdict.STALE]
    assert "\n".join(result.lines) + "\n" == EXPECTED


def test_a2_with_the_attempt_log_nobody_is_asked(still: Conn) -> None:
    example = Watched(still, AttemptLog.ON)
    result = example.run()
    worked = [line for line in result.lines if line.startswith("worker")]
    assert "\n".join(worked) + "\n" == WITH_LOG
    assert last_state(still) == {
        "pi_0001": (IntentState.CONFIRMING, 4, "aa"),
        "pi_0002": (IntentState.CONFIRMING, 4, "ac"),
        "pi_0003": (IntentState.CONFIRMING, 4, "ab"),
    }
    assert result.head == HEAD  # the journal is the same: holds go by the state, not by the answer
    assert reviews(still) == 0
    assert example.node.taken == [b"\xaa", b"\xac", b"\xab"]


def test_a2_bytes_stand_before_the_wire(still: Conn) -> None:
    """Step 6: the connection is refused, and what was signed is on record as unknown."""
    seen: list[tuple[Any, ...]] = []

    class Looking(Watched):
        def late_ack(self) -> Verdict:
            seen.extend(still.execute("SELECT tx_hash, state, send_count FROM tx_attempt WHERE nonce = 1").fetchall())
            return super().late_ack()

    Looking(still, AttemptLog.ON).run()
    assert seen == [(b"\xab", AttemptState.UNKNOWN, 1)]


@pytest.mark.parametrize(
    ("mined", "finds", "outcome"),
    [(False, False, "rebroadcast"), (False, True, "sent"), (True, True, "sent")],
    ids=["the node says already known", "the node shows it pending", "it was mined while we were down"],
)
def test_a2_variants(still: Conn, mined: bool, finds: bool, outcome: str) -> None:
    class WithLosing(Watched):
        node_class = Losing

    example = WithLosing(still, AttemptLog.ON)
    assert isinstance(example.node, Losing)
    example.node.mined, example.node.answers_find = mined, finds
    example.run()
    assert [one.outcome for one in example.third] == ["retry", outcome]
    assert last_state(still)["pi_0003"] == (IntentState.CONFIRMING, 4, "ab")
    assert reviews(still) == 0
    # Only where the node knew nothing did the same bytes go out again; never others.
    assert example.node.taken.count(b"\xab") == (2 if outcome == "rebroadcast" else 1)
    assert still.execute("SELECT count(*) FROM tx_attempt WHERE nonce = 1").fetchone() == (1,)
    assert still.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


def test_a_lease_is_over_at_its_very_end(still: Conn) -> None:
    """The boundary in step 7: at T+30 s the lease of T is over, a microsecond before it is not."""
    example = Example(still)
    (first,) = _authorized(example, 1)
    (delivery,) = queue.lease_jobs(still, intents.SETTLE, 1, "one", 30.0)
    example.at(29.999999)
    assert queue.lease_jobs(still, intents.SETTLE, 1, "two", 30.0) == []
    example.at(30)
    (again,) = queue.lease_jobs(still, intents.SETTLE, 1, "two", 30.0)
    assert (again.subject.id, again.receipt.attempt) == (first, delivery.receipt.attempt + 1)


@pytest.mark.full  # a second database for a few words
def test_the_command_tells_json(transactional_db: None) -> None:
    out = io.StringIO()
    call_command("relayer_example", "settle", "--attempt-log", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["head"] == {"seq": HEAD.seq, "hash": HEAD.hash.hex()}
    assert found["late_ack"] == "not_found"
    assert Head(found["head"]["seq"], bytes.fromhex(found["head"]["hash"])) == HEAD


def _authorized(example: Example, count: int) -> list[int]:
    from requests_app.transitions.intents import create
    from workers.examples.settle import TERMS

    made = [create(example._conn, example._account, TERMS) for _ in range(count)]
    for one in made:
        example._authorize(one)
    return [one.id for one in made]
