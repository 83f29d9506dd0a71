"""The payment token's transfers by authorization (EIP-3009)."""

from __future__ import annotations

import os
import time

import pytest

from tests.devnet.conftest import Devnet
from tests.devnet.test_rules import refusal
from workers.devnet import eip712
from workers.devnet.contracts import contract, signature
from workers.devnet.eip712 import keccak256
from workers.devnet.sending import Call, Sender

TOKEN = contract("ZamaToken")
PACKED = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"
SPLIT = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"
TYPE = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
TO = "0x" + "99" * 20


def authorization(devnet: Devnet, value: int, after: int = 0, lasts: int = 3600) -> tuple[list[object], bytes]:
    """Call values without signature, and the signature of the first user."""
    gateway, payer = devnet.deployment.gateway, devnet.deployment.users[0]
    nonce = os.urandom(32)
    members = [payer.address, TO, value, after, int(time.time()) + lasts, nonce]
    domain = eip712.domain("Devnet ZAMA", gateway["chain_id"], gateway["fee_token"])
    words = keccak256(TYPE.encode())
    for member in members:
        if isinstance(member, str):
            words += bytes(12) + bytes.fromhex(member[2:])
        else:
            words += member.to_bytes(32, "big") if isinstance(member, int) else bytes(member)  # type: ignore[call-overload]
    return members, eip712.sign(payer.key, keccak256(b"\x19\x01" + domain + keccak256(words)))


def run(devnet: Devnet, data: bytes) -> None:
    operator = devnet.deployment.operators[2]
    gateway = devnet.deployment.gateway
    Sender(devnet.rpc, operator, gateway["chain_id"]).run([Call(gateway["fee_token"], data)])


@pytest.mark.parametrize("form", ["packed", "split"])
def test_an_authorization_moves_money_once(devnet: Devnet, form: str) -> None:
    members, signed = authorization(devnet, 1_000)
    if form == "packed":
        data = TOKEN.call(PACKED, *members, signed)
    else:
        data = TOKEN.call(SPLIT, *members, signed[64], signed[:32], signed[32:64])
    token = devnet.deployment.gateway["fee_token"]
    before = devnet.read("ZamaToken", token, "balanceOf", TO)
    run(devnet, data)
    assert devnet.read("ZamaToken", token, "balanceOf", TO) == before + 1_000
    assert devnet.read("ZamaToken", token, "authorizationState", members[0], members[5])
    assert refusal(devnet, Call(token, data)) == "AuthorizationAlreadyUsed"


@pytest.mark.parametrize(
    ("value", "after", "lasts", "error"),
    [
        (1, 2**40, 3600, "AuthorizationNotYetValid"),
        (1, 0, -5, "AuthorizationExpired"),
        (10**40, 0, 3600, "ERC20InsufficientBalance"),
    ],
)
def test_refused_authorizations(devnet: Devnet, value: int, after: int, lasts: int, error: str) -> None:
    members, signed = authorization(devnet, value, after, lasts)
    assert refusal(devnet, Call(devnet.deployment.gateway["fee_token"], TOKEN.call(PACKED, *members, signed))) == error


def test_a_changed_amount_breaks_the_signature(devnet: Devnet) -> None:
    members, signed = authorization(devnet, 1)
    members[2] = 2
    call = Call(devnet.deployment.gateway["fee_token"], TOKEN.call(PACKED, *members, signed))
    assert refusal(devnet, call) == "InvalidAuthorizationSignature"


def test_events_are_those_of_the_standard() -> None:
    events = {signature(entry) for entry in TOKEN.abi if entry["type"] == "event"}
    assert {"AuthorizationUsed(address,bytes32)", "AuthorizationCanceled(address,bytes32)"} <= events
