"""`manage.py relayer_worker`: a cluster's turns in one plain process, as a deployment without q2 runs them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from requests_app.states import Kind, Status
from tests.core.rows import read_request
from tests.processes.stack import Managed, backlog, enqueue
from tests.processes.test_cluster import start
from tests.send.conftest import DECRYPTION, INPUTS, KEYS, node
from tests.send.node import CHAIN_ID, Node, parse
from tests.send.scenes import add_request
from tests.waiting import wait_until

__all__ = ["node", "start"]
pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., Managed]
Connection = psycopg.Connection[Any]


def held(conn: Connection) -> list[str]:
    """The resources that somebody holds."""
    rows = conn.execute("SELECT resource FROM exec_lease WHERE lease_until > clock_timestamp() ORDER BY 1")
    return [name for (name,) in rows]


def beats(conn: Connection) -> int:
    """How many plain workers give signs of life."""
    rows = conn.execute("SELECT count(*) FROM worker_beat WHERE resource LIKE 'worker:%'").fetchone()
    assert rows is not None
    return int(rows[0])


def test_it_sends_what_waits_and_stops_in_order(start: Start, conn: Connection, node: Node) -> None:
    """With the product's own settings and turns, told of its chain by the environment as on a real machine."""
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    worker = start(
        "relayer_worker",
        "settle",
        DJANGO_SETTINGS_MODULE="relayer_site.settings",
        GATEWAY_CHAIN_ID=str(CHAIN_ID),
        GATEWAY_RPC_URLS=node.url,
        DECRYPTION_ADDRESS=DECRYPTION,
        INPUT_VERIFICATION_ADDRESS=INPUTS,
        GATEWAY_SIGNER_KEYS=KEYS[0],
    )
    wait_until(lambda: read_request(conn, subject.kind, subject.id).status == Status.TX_IN_FLIGHT, 60, "sent")
    wait_until(lambda: backlog(conn) == 0, 30, "its job done")
    assert {parse(raw).nonce for raw in node.raws} == {0}
    # The commands' turn comes after the one that has sent: its lease may be there a moment later.
    wait_until(lambda: [name.split(":")[0] for name in held(conn)] == ["signer", "singleton"], 30, "both leases")
    wait_until(lambda: beats(conn) == 1, 30, "its beat")
    assert worker.stop(timeout=20) == 0
    assert (held(conn), beats(conn)) == ([], 0), "the next one need not wait"


@pytest.mark.parametrize("cluster", ["settle", "sweep"])
def test_an_interrupt_ends_it_as_well(cluster: str, start: Start, conn: Connection) -> None:
    worker = start("relayer_worker", cluster)
    enqueue(conn, 1, 3)
    wait_until(lambda: backlog(conn) == 0, 60, "jobs taken")
    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(20) == 0
    assert beats(conn) == 0


def test_a_cluster_that_is_not_one_is_refused(start: Start) -> None:
    assert start("relayer_worker", "coffee").process.wait(60) == 2
