"""A reorganisation of the real node: requests that were in a block are not, are broadcast again with the same bytes, and are found."""

from __future__ import annotations

from typing import Any

import pytest

from requests_app.config import config
from requests_app.store import envelopes
from requests_app.store.signing import Fence
from tests.devnet.forks import take_back
from tests.listen import world as logged
from tests.send.test_anvil import chains, mined, statuses, world
from tests.waiting import wait_until
from workers.apply import Applier
from workers.blocks import Blocks
from workers.facts import Reader, contracts_of
from workers.listener import Listener
from workers.settle import SettleTurn
from workers.thresholds import thresholds_of

__all__ = ["chains", "world"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]


@pytest.fixture
def follow(world: Any) -> Any:
    conn, gateway = world.conn, world.context.clients.gateway
    logged.clean_bands(conn)
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('listener:1','test',1,'infinity')"
    )
    conn.execute("DELETE FROM envelope_source")
    start = gateway.head_number()
    source = config().gateway
    applier = Applier(1, Reader(contracts_of(config()), thresholds_of(config(), world.context.clients)))
    made = Listener(1, Blocks(gateway), applier, Fence("listener:1", "test", 1))
    made.open(conn, source.chain_id, start)
    yield made
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
    logged.clean_bands(conn)  # of the product's width; the other tests make narrow ones


@pytest.mark.parametrize("keep", [False, True])
def test_anvil_takes_blocks_back(world: Any, follow: Any, keep: bool) -> None:
    """`keep`: the other chain holds the same transaction, in a later block; else the node has dropped it."""
    conn, settle = world.conn, SettleTurn()
    subjects = world.add("input_proof", "input_proof")
    assert settle.run(world.context) == 2
    hashes = [receipt.tx_hash for receipt in mined(world, subjects)]
    raws = [bytes(row[0]) for row in conn.execute("SELECT raw_tx FROM tx_attempt ORDER BY nonce").fetchall()]

    def received() -> bool:
        follow._sealed_at = 0.0
        follow.poll(conn)
        return statuses(world, subjects) == ["receipt_received"] * 2

    wait_until(received, 60, "both receipts")
    first = min(row[0] for row in conn.execute("SELECT block_number FROM tx_attempt").fetchall())
    source = envelopes.read_source(conn, 1)
    assert source is not None
    with world.chains.gateway_rpc() as rpc:
        take_back(rpc, first, lambda depth: [["0x" + raw.hex(), depth - 1] for raw in raws] if keep else [])
        gone = [answer.value for answer in world.context.clients.gateway.receipts(hashes)]
        assert keep == all(gone)

    def withdrawn() -> bool:
        follow._sealed_at = 0.0
        follow.poll(conn)
        return bool(conn.execute("SELECT 1 FROM chain_reorg").fetchone())

    wait_until(withdrawn, 60, "the reorganisation to be found")
    if not keep:
        assert statuses(world, subjects) == ["tx_in_flight"] * 2

    def back() -> bool:
        for lane in settle._pool._lanes.values():  # type: ignore[union-attr]
            lane.sync_at = lane.maintain_at = 0.0
        settle.run(world.context)
        return received()

    wait_until(back, 60, "the same transactions in other blocks")
    found = [receipt.tx_hash for receipt in mined(world, subjects)]
    assert found == hashes
    assert conn.execute("SELECT count(*) FROM tx_attempt").fetchone() == (2,)
    # Of ours: the chain also holds what the test before this one asked for.
    refs = conn.execute(
        "SELECT count(DISTINCT ref), count(*) FROM envelope_meta WHERE kind = 3 AND tx_hash = ANY(%s)", (hashes,)
    )
    assert refs.fetchone() == (2, 2)
    settle.close()
