"""The demo's payment calls bad what is bad: its own check, on rows as the API would serve them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.devnet.conftest import Devnet
from tests.devnet.test_dollar import TOKEN
from workers.devnet.accounts import labelled
from workers.devnet.authorization import authorize
from workers.devnet.demo_payment import AMOUNT, Paid, _check, print_payment
from workers.devnet.sending import Call, Sender

PAYER = 1
MERCHANT = labelled("merchant").address


def carried_out(devnet: Devnet, amount: int = AMOUNT) -> tuple[str, str]:
    """A payment on the chain: its ref and its transaction."""
    (token,) = devnet.deployment.gateway["payment_tokens"]
    payer, ref, chain_id = devnet.deployment.users[PAYER], os.urandom(32), devnet.deployment.gateway["chain_id"]
    signed = authorize(token, chain_id, payer, MERCHANT, amount, ref, 2**40)
    raw = bytes.fromhex(signed["signature"][2:])
    members = (payer.address, MERCHANT, amount, 0, 2**40, ref, raw[64], raw[:32], raw[32:64])
    sender = Sender(devnet.rpc, devnet.deployment.operators[3], chain_id)
    (tx_hash,) = sender.send([Call(token["address"], TOKEN.call("transferWithAuthorization", *members))])
    devnet.rpc.receipts([tx_hash])
    return "0x" + ref.hex(), tx_hash


@pytest.mark.parametrize(
    ("change", "amount", "problem"),
    [
        ({}, AMOUNT, ""),
        ({"state": "needs_review", "state_reason": "why"}, AMOUNT, "needs_review: why"),
        ({"ref": "0x" + "12" * 32}, AMOUNT, "used 0 times"),
        ({"tx_hash": "0x" + "13" * 32}, AMOUNT, "was used by 0x"),
        ({}, AMOUNT - 1, "moved [2499999]"),
    ],
)
def test_check(devnet: Devnet, change: dict[str, Any], amount: int, problem: str) -> None:
    ref, tx_hash = carried_out(devnet, amount)
    paid = Paid("pi_1", {"state": "settled", "ref": ref, "tx_hash": tx_hash, **change})
    _check(devnet.deployment, paid, PAYER, MERCHANT)
    assert problem in paid.problem
    assert bool(paid.problem) == bool(problem)
    lines: list[str] = []
    print_payment(paid, lines.append)
    assert lines[0].startswith("BAD" if problem else "ok ")
