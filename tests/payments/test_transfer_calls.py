"""Calldata of a transfer by authorization, and the meaning of each refusal of a token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.chain.calldata import Unencodable
from workers.chain.errors import revert_of
from workers.chain.payments import ERRORS, TRANSFER, Refusal, encode_transfer, refusal_of
from workers.chain.reverts import ERROR_STRING
from workers.chain.rpc_errors import RpcError
from workers.devnet.contracts import contract, signature

TOKEN, PAYER, MERCHANT = "0x" + "d1" * 20, "0x" + "a2" * 20, "0x" + "B3" * 20
UINT256 = st.integers(0, 2**256 - 1)


def authorization(after: int, before: int, nonce: bytes, signed: bytes) -> dict[str, Any]:
    return {
        "valid_after": str(after), "valid_before": str(before), "nonce": "0x" + nonce.hex(), "signature": "0x" + signed.hex(),
    }  # fmt: skip


@given(UINT256, UINT256, UINT256, st.binary(min_size=32, max_size=32), st.binary(min_size=65, max_size=65))
def test_the_hand_written_calldata_is_that_of_eth_abi(
    amount: int, after: int, before: int, nonce: bytes, signed: bytes
) -> None:
    call = encode_transfer(TOKEN, PAYER, MERCHANT, amount, authorization(after, before, nonce, signed))
    parts = (PAYER, MERCHANT, amount, after, before, nonce, signed[64], signed[:32], signed[32:64])
    assert call.data == TRANSFER.encode(*parts)
    assert call.to == bytes.fromhex(TOKEN[2:])


def test_the_selector_is_that_of_the_compiled_contract() -> None:
    entry = contract("DevnetUSD").call(
        TRANSFER.signature, PAYER, MERCHANT, 1, 2, 3, bytes(32), 27, bytes(32), bytes(32)
    )
    assert entry[:4] == TRANSFER.selector


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "0x11"}, {"valid_before": "-1"}, {"valid_after": "soon"}, {"nonce": None}, {"valid_before": str(2**256)},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(change: dict[str, Any]) -> None:
    with pytest.raises(Unencodable):
        encode_transfer(TOKEN, PAYER, MERCHANT, 1, {**authorization(0, 9, bytes(32), bytes(65)), **change})


def test_each_error_of_the_token_has_a_meaning_or_cannot_come_from_a_transfer() -> None:
    declared = {signature(entry) for entry in contract("DevnetUSD").abi if entry["type"] == "error"}
    elsewhere = {
        "CallerMustBePayee(address,address)", "ERC20InsufficientAllowance(address,uint256,uint256)",
        "ERC20InvalidReceiver(address)", "NotTokenOwner(address)",
    }  # fmt: skip
    assert declared - set(ERRORS) == elsewhere


def said(text: str) -> RpcError:
    body = len(text).to_bytes(32, "big") + text.encode().ljust(-(-len(text) // 32) * 32, b"\0")
    return RpcError(3, f"execution reverted: {text}", "0x" + (ERROR_STRING + (32).to_bytes(32, "big") + body).hex())


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("FiatTokenV2: authorization is used or canceled", Refusal.USED),
        ("FiatTokenV2: authorization is expired", Refusal.EXPIRED),
        ("FiatTokenV2: authorization is not yet valid", Refusal.NOT_YET_VALID),
        ("FiatTokenV2: invalid signature", Refusal.BAD_SIGNATURE),
        ("ECRecover: invalid signature 's' value", Refusal.BAD_SIGNATURE),
        ("ERC20: transfer amount exceeds balance", Refusal.INSUFFICIENT_BALANCE),
        ("Pausable: paused", Refusal.PAUSED),
        ("Blacklistable: account is blacklisted", Refusal.BLACKLISTED),
        ("something else", Refusal.OTHER),
    ],
)
def test_the_texts_of_circles_token(text: str, refusal: Refusal) -> None:
    for error in (said(text), RpcError(3, f"execution reverted: {text}")):
        revert = revert_of(error)
        assert revert is not None
        assert refusal_of(revert) is refusal
