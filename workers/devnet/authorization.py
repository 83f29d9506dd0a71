"""What a payer's wallet does: signs EIP-3009 authorizations with a test key, for the demo, the tests and the bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workers.devnet import eip712
from workers.devnet.accounts import Wallet

TRANSFER: Final = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
CANCEL: Final = "CancelAuthorization(address authorizer,bytes32 nonce)"


def authorize(
    token: Mapping[str, Any],
    chain_id: int,
    payer: Wallet,
    merchant: str,
    amount: int,
    ref: bytes,
    valid_before: int,
    valid_after: int = 0,
) -> dict[str, str]:
    """The API's authorization document of a transfer of `amount` token units to `merchant`, with the 32-byte `ref` as nonce.

    `token` is an entry of PAYMENT_TOKENS; times are Unix seconds.
    """
    members = (payer.address, merchant, amount, valid_after, valid_before, int.from_bytes(ref, "big"))
    return {
        "valid_after": str(valid_after),
        "valid_before": str(valid_before),
        "nonce": "0x" + ref.hex(),
        "signature": "0x" + eip712.sign(payer.key, eip712.digest(_domain(token, chain_id), TRANSFER, *members)).hex(),
    }


def cancel(token: Mapping[str, Any], chain_id: int, payer: Wallet, ref: bytes) -> tuple[int, bytes, bytes]:
    """v, r and s under which anybody may cancel the payer's authorization `ref`."""
    digest = eip712.digest(_domain(token, chain_id), CANCEL, payer.address, int.from_bytes(ref, "big"))
    signature = eip712.sign(payer.key, digest)
    return signature[64], signature[:32], signature[32:64]


def _domain(token: Mapping[str, Any], chain_id: int) -> bytes:
    return eip712.domain(token["name"], chain_id, token["address"], token["version"])
