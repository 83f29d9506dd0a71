"""DevnetUSD: what payments move, by authorization, with the switches that tests turn."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.devnet.conftest import Devnet
from workers.chain.keccak import selector
from workers.devnet.authorization import authorize, cancel
from workers.devnet.contracts import contract, signature
from workers.devnet.rpc import RpcFailure
from workers.devnet.sending import Call, Sender

TOKEN = contract("DevnetUSD")
ERRORS = {selector(signature(entry)): entry["name"] for entry in TOKEN.abi if entry["type"] == "error"}
PAYEE = "0x" + "98" * 20
LATER = 2**40


class Dollar:
    """The token of the devnet, with the first user as payer."""

    def __init__(self, devnet: Devnet) -> None:
        self.devnet, self.payer = devnet, devnet.deployment.users[0]
        (self.entry,) = devnet.deployment.gateway["payment_tokens"]
        self.chain_id = devnet.deployment.gateway["chain_id"]

    def read(self, name: str, *values: Any) -> Any:
        return self.devnet.read("DevnetUSD", self.entry["address"], name, *values)

    def transfer(
        self, amount: int, ref: bytes | None = None, *, before: int = LATER, after: int = 0, name: str = "transfer"
    ) -> Call:
        ref = ref or os.urandom(32)
        signed = authorize(self.entry, self.chain_id, self.payer, PAYEE, amount, ref, before, after)
        raw = bytes.fromhex(signed["signature"][2:])
        members = (self.payer.address, PAYEE, amount, after, before, ref, raw[64], raw[:32], raw[32:64])
        return Call(self.entry["address"], TOKEN.call(f"{name}WithAuthorization", *members))

    def run(self, call: Call) -> list[dict[str, Any]]:
        sender = Sender(self.devnet.rpc, self.devnet.deployment.operators[2], self.chain_id)
        (receipt,) = self.devnet.rpc.receipts(sender.send([call]))
        assert receipt["status"] == "0x1"
        return list(receipt["logs"])

    def as_owner(self, function: str, *values: Any) -> None:
        owner = Sender(self.devnet.rpc, self.devnet.deployment.deployer, self.chain_id)
        owner.run([Call(self.entry["address"], TOKEN.call(function, *values))])

    def refusal(self, call: Call) -> str:
        query = {"from": self.devnet.relayer.address, "to": call.to, "data": "0x" + call.data.hex()}
        try:
            self.devnet.rpc.call("eth_call", query, "latest")
        except RpcFailure as error:
            return ERRORS[bytes.fromhex(str(error.data)[2:10])]
        return "accepted"


@pytest.fixture
def dollar(devnet: Devnet) -> Iterator[Dollar]:
    found = Dollar(devnet)
    yield found
    if found.read("paused"):
        found.as_owner("unpause")
    for account in (found.payer.address, PAYEE):
        if found.read("isBlacklisted", account):
            found.as_owner("setBlacklisted", account, False)


def test_the_deployment_file_says_what_the_token_is(dollar: Dollar) -> None:
    assert dollar.entry == {
        "address": dollar.entry["address"], "name": "Devnet USD", "version": "2", "symbol": "dUSD", "decimals": 6,
    }  # fmt: skip
    assert dollar.read("balanceOf", dollar.payer.address) > 10**9


def test_an_authorization_moves_money_once_and_the_events_follow_each_other(dollar: Dollar) -> None:
    ref = os.urandom(32)
    before = dollar.read("balanceOf", PAYEE)
    logs = dollar.run(dollar.transfer(250, ref))
    assert [log["topics"][0] for log in logs] == [TOKEN.event(one).topic for one in ("AuthorizationUsed", "Transfer")]
    assert logs[0]["topics"][2] == "0x" + ref.hex()
    assert int(logs[1]["logIndex"], 16) == int(logs[0]["logIndex"], 16) + 1
    assert dollar.read("balanceOf", PAYEE) == before + 250
    assert dollar.read("authorizationState", dollar.payer.address, ref)
    assert dollar.refusal(dollar.transfer(250, ref)) == "AuthorizationAlreadyUsed"


def test_a_canceled_authorization_moves_nothing(dollar: Dollar) -> None:
    ref = os.urandom(32)
    v, r, s = cancel(dollar.entry, dollar.chain_id, dollar.payer, ref)
    call = TOKEN.call("cancelAuthorization", dollar.payer.address, ref, v, r, s)
    (log,) = dollar.run(Call(dollar.entry["address"], call))
    assert log["topics"][0] == TOKEN.event("AuthorizationCanceled").topic
    assert dollar.refusal(dollar.transfer(1, ref)) == "AuthorizationAlreadyUsed"


def test_refused_authorizations(dollar: Dollar) -> None:
    assert dollar.refusal(dollar.transfer(1, after=LATER)) == "AuthorizationNotYetValid"
    assert dollar.refusal(dollar.transfer(1, before=int(time.time()) - 60)) == "AuthorizationExpired"
    assert dollar.refusal(dollar.transfer(10**30)) == "ERC20InsufficientBalance"
    forged = dollar.transfer(1)
    changed = forged.data[: 4 + 64] + (2).to_bytes(32, "big") + forged.data[4 + 96 :]
    assert dollar.refusal(Call(forged.to, changed)) == "InvalidAuthorizationSignature"


def test_receiving_is_for_the_payee_alone(dollar: Dollar) -> None:
    assert dollar.refusal(dollar.transfer(1, name="receive")) == "CallerMustBePayee"


def test_the_switches(dollar: Dollar) -> None:
    dollar.as_owner("pause")
    assert dollar.refusal(dollar.transfer(1)) == "EnforcedPause"
    dollar.as_owner("unpause")
    for account in (dollar.payer.address, PAYEE):
        dollar.as_owner("setBlacklisted", account, True)
        assert dollar.refusal(dollar.transfer(1)) == "AccountBlacklisted"
        dollar.as_owner("setBlacklisted", account, False)
    assert dollar.refusal(dollar.transfer(1)) == "accepted"
    assert dollar.refusal(Call(dollar.entry["address"], TOKEN.call("pause"))) == "NotTokenOwner"
