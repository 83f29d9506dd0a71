"""A block that only receipts were read of gave way, and no pool kept what was in it: the same bytes go out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.payments.settling.conftest import Shop, Worker, outcomes
from tests.payments.settling.test_ends import look, slot
from tests.send.node import Node
from workers import broadcast, signers, stranded
from workers.lane import LOWER_LOOKS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def vanished(shop: Shop, node: Node, worker: Callable[[], Worker]) -> tuple[Worker, Any]:
    """A payment whose mined transaction the chain has forgotten; the listener had not read its block."""
    (payment,) = shop.pay()
    process = worker()
    assert outcomes(process.work()) == ["sent"]
    node.mine()
    look(process, shop)
    assert slot(shop, payment) == "mined"
    node.known.clear()
    node.counts.clear()
    for _ in range(LOWER_LOOKS):
        signers.refresh(process.context, process.lane)  # type: ignore[arg-type]
    assert process.lane.chain_latest == 0
    return process, payment


def later(process: Worker, seconds: float, *, seen: float | None = None) -> None:
    """What the lane does when its count has stood still for so long, and the slot was seen mined as long ago, or `seen` seconds."""
    ago = seconds if seen is None else seen
    process.context.conn.execute(
        "UPDATE nonce_slot SET closed_at = clock_timestamp() - make_interval(secs => %s)", (ago,)
    )
    process.lane.stranded_at = 0.0
    process.lane.moved_at = process.lane.clock() - seconds
    stranded.look(process.context, process.lane)  # type: ignore[arg-type]
    broadcast.resend(process.context, process.lane)  # type: ignore[arg-type]


def test_it_is_sent_again_and_holds_nothing_up(
    vanished: tuple[Worker, Any], shop: Shop, node: Node, settings: Any
) -> None:
    process, payment = vanished
    (first,) = dict.fromkeys(node.raws)
    later(process, settings.STUCK_SECONDS / 2)
    assert node.raws == [first], "a node may be behind"
    later(process, 3600.0, seen=1.0)
    assert node.raws == [first], "a signer that had nothing to do for an hour"
    later(process, settings.STUCK_SECONDS + 1)
    assert node.raws == [first, first]
    assert slot(shop, payment) == "live"
    node.mine()
    look(process, shop)
    assert (slot(shop, payment), shop.states(payment)) == ("mined", ["confirming"])


def test_what_a_node_still_knows_stays_mined(
    vanished: tuple[Worker, Any], shop: Shop, node: Node, settings: Any
) -> None:
    """Only the count is behind."""
    process, payment = vanished
    own = node.eth_getTransactionReceipt
    node.eth_getTransactionReceipt = lambda asked: {  # type: ignore[method-assign]
        "transactionHash": asked, "blockNumber": "0x65", "blockHash": "0x" + "65" * 32, "status": "0x1", "from": "0x" + "11" * 20,
        "to": "0x" + "22" * 20, "gasUsed": "0x5208", "logs": [],
    }  # fmt: skip
    later(process, settings.STUCK_SECONDS + 1)
    assert slot(shop, payment) == "mined"
    node.eth_getTransactionReceipt = own  # type: ignore[method-assign]
