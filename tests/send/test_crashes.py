"""I1 on the send side: the process ends at any named point, and a second one makes it good, with one transaction a row.

The points are those that a recorded run really passes, before and after every commit and every call of a chain.
"""

from __future__ import annotations

import importlib

import pytest

from requests_app.states import REQUEST_KINDS, Kind, Status
from tests.core.rows import read_request
from tests.send.node import parse
from tests.send.scenes import add_request
from tests.send.test_readiness import Chains
from workers.readiness import ReadinessTurn
from workers.settle import SettleTurn

pytestmark = pytest.mark.django_db(transaction=True)
MODULES = [
    importlib.import_module(name)
    for name in (
        "requests_app.transitions.sending",
        "workers.broadcast",
        "workers.estimate",
        "workers.host_acl",
        "workers.readiness",
        "workers.receipts",
        "workers.replace",
        "workers.settle",
        "workers.signers",
    )
]
TABLES = "user_decrypt_req, public_decrypt_req, input_proof_req, queue_job, tx_attempt, nonce_slot, signer"


class Killed(BaseException):
    """The process ends here."""


def arm(monkeypatch, act):
    for module in MODULES:
        monkeypatch.setattr(module, "crash_point", act)


def work(context, turns, rounds=2):
    for _ in range(rounds):
        for turn in turns:
            turn.run(context)


def scene(conn, node):
    """Rows of every kind; the chain forgets what it saw before."""
    conn.execute(f"TRUNCATE {TABLES} CASCADE")
    node.raws.clear()
    node.known.clear()
    node.counts.clear()
    return [
        add_request(conn, kind, Status.PROCESSING if kind is Kind.INPUT_PROOF else Status.QUEUED)
        for kind in REQUEST_KINDS
        for _ in "ab"
    ]


def in_flight_once(conn, node, subjects):
    states = [read_request(conn, s.kind, s.id).status for s in subjects]
    return states == ["tx_in_flight"] * len(subjects) and len(node.known) == len(subjects)


def test_every_point_of_the_way_can_be_the_last(conn, node, start, monkeypatch):
    Chains(node)
    points: list[str] = []
    with monkeypatch.context() as patch:
        arm(patch, points.append)
        subjects = scene(conn, node)
        recorded = start()
        work(recorded, [ReadinessTurn(), SettleTurn()])
        recorded.leases.close()
        assert in_flight_once(conn, node, subjects)
    names = sorted(set(points))
    assert len(names) >= 24, names
    for name in names:
        subjects = scene(conn, node)
        with monkeypatch.context() as patch:
            arm(patch, lambda point, name=name: _kill(point, name))
            first = start()
            with pytest.raises(Killed):
                work(first, [ReadinessTurn(), SettleTurn()])
            first.leases.close()
        second = start()
        work(second, [ReadinessTurn(), SettleTurn()], rounds=3)
        second.leases.close()
        assert in_flight_once(conn, node, subjects), name
        stored = {bytes(raw) for (raw,) in conn.execute("SELECT raw_tx FROM tx_attempt").fetchall()}
        assert set(node.raws) == stored, name
        assert sorted(parse(raw).nonce for raw in stored) == list(range(len(subjects))), name


def _kill(point, name):
    if point == name:
        raise Killed
