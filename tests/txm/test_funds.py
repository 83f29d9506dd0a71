"""Gas money, fee tokens, allowance: a signer that is short is paused, and requests wait instead of failing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from requests_app.config import config
from requests_app.states import Kind, Status
from tests.core.rows import read_request
from tests.send.scenes import add_request
from workers.chain.calldata import ALLOWANCE, BALANCE_OF
from workers.settle import SettleTurn


class Purse:
    """The fee token as the node's eth_call answers it."""

    def __init__(self) -> None:
        self.balance, self.allowance = 10**20, 2**256 - 1

    def answer(self, call: dict[str, Any], tag: str) -> str:
        selector = bytes.fromhex(call["data"][2:10])
        amount = {BALANCE_OF.selector: self.balance, ALLOWANCE.selector: self.allowance}[selector]
        return "0x" + amount.to_bytes(32, "big").hex()


@pytest.fixture
def purse(node: Any, settings: Any) -> Purse:
    made = Purse()
    settings.FEE_TOKEN_ADDRESS, settings.PAYMENT_ADDRESS = "0x" + "fe" * 20, "0x" + "fa" * 20
    config.cache_clear()
    node.on_call = made.answer
    return made


def again(turn: SettleTurn, context: Any) -> None:
    for lane in turn._pool._lanes.values():  # type: ignore[union-attr]
        lane.sync_at = lane.maintain_at = lane.send_at = 0.0
    turn.run(context)


def signer(conn: Any) -> Any:
    return conn.execute("SELECT status, status_reason, fee_balance, fee_allowance FROM signer").fetchone()


def test_everything_is_watched(conn: Any, purse: Purse, start: Any) -> None:
    SettleTurn().run(start())
    assert signer(conn) == ("active", None, 10**20, 2**256 - 1)


def test_low_gas_money_pauses_and_its_arrival_lifts(conn: Any, node: Any, start: Any, settings: Any) -> None:
    settings.SIGNER_MIN_BALANCE_WEI = 10**15
    node.balance = 10**15 - 1
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert signer(conn)[:2] == ("paused", "insufficient_funds")
    assert read_request(conn, subject.kind, subject.id).status == "processing"
    node.balance = 10**18
    again(turn, context)
    assert signer(conn)[:2] == ("active", None)
    assert read_request(conn, subject.kind, subject.id).status == "tx_in_flight"


@pytest.mark.parametrize("which", ["balance", "allowance"])
def test_few_fee_tokens_pause_where_a_least_is_set(
    conn: Any, purse: Purse, start: Any, settings: Any, which: str
) -> None:
    settings.FEE_TOKEN_MIN = 1000
    setattr(purse, which, 999)
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert signer(conn)[:2] == ("paused", "low_fee_token")
    setattr(purse, which, 1000)
    again(turn, context)
    assert read_request(conn, subject.kind, subject.id).status == "tx_in_flight"


def test_an_operators_pause_is_not_lifted_by_money(conn: Any, node: Any, start: Any) -> None:
    turn, context = SettleTurn(), start()
    turn.run(context)
    conn.execute("UPDATE signer SET status = 'paused', status_reason = 'operator'")
    again(turn, context)
    assert signer(conn)[:2] == ("paused", "operator")


def test_no_fee_tokens_raise_an_alert(conn: Any, purse: Purse, start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """5.2.3: the request fails with the contract's label (tests/send), and somebody is told."""
    purse.allowance = 0
    with caplog.at_level(logging.ERROR, "relayer.send"):
        SettleTurn().run(start())
    assert [record.action for record in caplog.records] == ["fee_token_short"]  # type: ignore[attr-defined]
    assert signer(conn)[0] == "active"


def test_after_a_reorganisation_what_was_mined_is_offered_again_from_the_lower_count(
    conn: Any, node: Any, start: Any
) -> None:
    from tests.listen import world

    for _ in range(2):
        add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine()
    again(turn, context)
    (lane,) = turn._pool._lanes.values()  # type: ignore[union-attr]
    assert lane.chain_latest == 2
    world.clean(conn)
    conn.execute("UPDATE envelope_source SET chain_id = 654321")
    conn.execute("INSERT INTO chain_reorg (source_id, fork_block, sealed, new_hash) VALUES (1, 101, 101, 'x')")
    sender = next(iter(node.counts))
    node.counts[sender] = 0
    node.known.clear()
    again(turn, context)
    assert lane.chain_latest == 0
    assert len(node.known) == 2
    assert len(set(node.raws)) == 2
