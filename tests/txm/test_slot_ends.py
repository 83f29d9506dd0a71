"""How the nonces of a signer end when the chain shows them in another order than they were given, or in another block than at first."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from requests_app.config import config
from tests.send.conftest import KEYS
from tests.send.node import Fault, Server, Tx, parse
from tests.txm.test_ladder import Bench, _with_endpoints, bench, proofs
from workers import commands, signers
from workers.chain.endpoints import Endpoints
from workers.replace import LIMIT
from workers.settle import SettleTurn

__all__ = ["bench"]
SLOTS = "SELECT nonce, state FROM nonce_slot ORDER BY nonce"


def test_a_nonce_below_a_final_one_becomes_final_as_well(bench: Bench) -> None:
    """No-ops are seen by their receipts alone, which are asked for once a minute: the log may have shown the next nonce long before."""
    proofs(bench.conn, 2)
    bench.run()
    bench.node.mine()
    bench.wait(20)
    bench.conn.execute("UPDATE nonce_slot SET state = 'live', winner_hash = NULL, closed_at = NULL WHERE nonce = 0")
    bench.conn.execute(
        "UPDATE tx_attempt SET state = 'accepted', block_number = NULL, block_hash = NULL WHERE nonce = 0"
    )
    bench.node.finalize()
    bench.run()
    assert bench.rows(SLOTS) == [(0, "mined"), (1, "final")]
    bench.run()
    assert bench.rows(SLOTS) == [(0, "final"), (1, "final")]


def two_offers(bench: Bench) -> tuple[Tx, Tx]:
    """A request's transaction and its replacement at one nonce, either of which may be mined."""
    proofs(bench.conn, 1)
    bench.run()
    bench.node.on_send = lambda tx: bench.node.known.pop(first.hash, None)
    first = parse(bench.node.raws[-1])
    bench.node.base_fee *= 10
    bench.wait(90)
    second = parse(bench.node.raws[-1])
    assert (first.nonce, second.nonce) == (0, 0)
    assert first.hash != second.hash
    bench.node.on_send = None
    return first, second


def test_another_offer_of_ours_may_be_mined_where_the_first_block_gave_way(bench: Bench) -> None:
    """A receipt of a block that the listener never read: the finalized chain has another one, with the other offer in it."""
    first, second = two_offers(bench)
    first.block, bench.node.block = 101, 101
    bench.node.known = {first.hash: first}
    bench.node.counts[first.sender] = 1
    bench.wait(20)
    assert bench.offers() == [(0, 1, "pay", "mined"), (0, 2, "replace", "replaced")]
    bench.conn.execute("UPDATE tx_attempt SET block_hash = %s WHERE seq = 1", (b"\x01" * 32,))
    second.block, bench.node.block = 102, 103
    bench.node.known = {second.hash: second}
    bench.node.finalize()
    for _ in range(4):
        bench.wait(61)
    assert bench.offers() == [(0, 1, "pay", "replaced"), (0, 2, "replace", "final")]
    assert bench.cases() == []
    assert bench.rows("SELECT status FROM signer") == [("active",)]


def test_bytes_that_a_node_refused_may_be_mined_all_the_same(bench: Bench) -> None:
    """One of several nodes refused what another had taken: the nonce is not a stranger's, and never proven dead (rules R3, R5)."""
    other = Server()
    try:
        _refused_but_mined(bench, other)
    finally:
        other.close()


def _refused_but_mined(bench: Bench, other: Server) -> None:
    both = Endpoints([bench.node.url, other.node.url], 654321)
    bench.context.clients = _with_endpoints(bench.context.clients, both)
    taken: list[Tx] = []

    def refuse(tx: Tx) -> None:
        if tx.data:
            taken.append(tx)
            raise Fault("intrinsic gas too low")

    bench.node.on_send = refuse
    proofs(bench.conn, 1)
    bench.run()
    bench.run()
    assert bench.offers() == [(0, 1, "pay", "refused"), (0, 2, "fill", "accepted")]
    (tx,) = taken
    for node in (bench.node, other.node):
        tx.block, node.block = 101, 101
        node.known = {tx.hash: tx}
        node.counts[tx.sender] = 1
        node.finalize()
    for _ in range(4):
        bench.wait(61)
    assert bench.offers() == [(0, 1, "pay", "final"), (0, 2, "fill", "replaced")]
    assert bench.rows(SLOTS) == [(0, "final")]
    assert bench.rows("SELECT reason_code FROM review_case") == [("refused_after_signing",)]
    assert bench.rows("SELECT status FROM signer") == [("active",)]


def test_a_strangers_use_of_a_nonce_blocks_the_signer_whatever_breaks_off(bench: Bench, monkeypatch: Any) -> None:
    """Cases without the block are no news to the next look: the signer would go on for ever."""
    proofs(bench.conn, 1)
    bench.run()
    sender = parse(bench.node.raws[-1]).sender
    bench.node.known.clear()
    bench.node.use_elsewhere(sender)
    bench.node.finalize()
    whole = signers.hold_back
    broken = [RuntimeError("cut")]

    def cut(*parameters: Any) -> None:
        if broken:
            raise broken.pop()
        whole(*parameters)

    monkeypatch.setattr(signers, "hold_back", cut)
    for _ in range(5):
        with suppress(RuntimeError):
            bench.wait(61)
    assert not broken
    assert bench.rows("SELECT reason_code FROM review_case WHERE status = 'open'") == [("foreign_nonce",)]
    assert bench.rows("SELECT status, status_reason FROM signer") == [("blocked", "foreign_nonce")]


def test_a_signer_whose_work_breaks_off_holds_the_others_up_for_nothing(
    conn: Any, node: Any, start: Any, settings: Any, monkeypatch: Any
) -> None:
    """Whatever it is that breaks at one signer, every time: the nonces of the process's other signers are looked after."""
    settings.GATEWAY_SIGNER_KEYS = KEYS
    config.cache_clear()
    context, turn = start(), SettleTurn()
    for _ in range(3):
        turn.run(context)
        turn._pool._next_try = 0.0  # type: ignore[union-attr]
    first, second = turn._pool.lanes(context)  # type: ignore[union-attr]
    (subject,) = proofs(conn, 1)
    whole = commands.serve_lane

    def broken(context: Any, lane: Any, board: Any) -> int:
        if lane is first:
            raise ArithmeticError("always")
        return whole(context, lane, board)

    monkeypatch.setattr(commands, "serve_lane", broken)
    with pytest.raises(ArithmeticError, match="always"):
        turn.run(context)
    assert conn.execute("SELECT signer_id FROM nonce_slot WHERE subject_id = %s", (subject.id,)).fetchone() == (
        second.id,
    )
    turn.close()


def test_more_refused_nonces_than_are_filled_at_once(bench: Bench) -> None:
    def refuse(tx: Tx) -> Any:
        if tx.data:
            raise Fault("exceeds block gas limit")

    bench.node.on_send = refuse
    proofs(bench.conn, LIMIT + 5)
    for _ in range(4):
        bench.run()
    assert bench.rows("SELECT count(*) FROM tx_attempt WHERE kind = 'fill'") == [(LIMIT + 5,)]
