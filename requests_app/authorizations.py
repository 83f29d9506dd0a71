"""EIP-3009 authorizations of payments: what a payer is asked to sign, and whether a signature is that. Pure computation.

The nonce is the PaymentRef, so that the chain itself refuses a second transfer for the same intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from requests_app.addresses import checksummed
from requests_app.config import PaymentToken
from requests_app.typed_data import Domain, is_canonical, recover, transfer_hash

PRIMARY_TYPE: Final = "TransferWithAuthorization"
UINT256_MAX: Final = 2**256 - 1
_TYPES: Final[dict[str, list[dict[str, str]]]] = {
    "EIP712Domain": [
        {"name": "name", "type": "string"},
        {"name": "version", "type": "string"},
        {"name": "chainId", "type": "uint256"},
        {"name": "verifyingContract", "type": "address"},
    ],
    PRIMARY_TYPE: [
        {"name": "from", "type": "address"},
        {"name": "to", "type": "address"},
        {"name": "value", "type": "uint256"},
        {"name": "validAfter", "type": "uint256"},
        {"name": "validBefore", "type": "uint256"},
        {"name": "nonce", "type": "bytes32"},
    ],
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a payment moves: parties of 20 bytes, amount in token units, ref of 32 bytes."""

    chain_id: int
    token: PaymentToken
    payer: bytes
    merchant: bytes
    amount: int
    ref: bytes


@dataclass(frozen=True, slots=True)
class Authorization:
    """A payer's signed permission. The window is (valid_after, valid_before) in seconds, 65 signature bytes r, s, v."""

    valid_after: int
    valid_before: int
    nonce: bytes
    signature: bytes

    def stored(self) -> dict[str, str]:
        """The form in which an intent keeps it."""
        return {
            "valid_after": str(self.valid_after),
            "valid_before": str(self.valid_before),
            "nonce": "0x" + self.nonce.hex(),
            "signature": "0x" + self.signature.hex(),
        }


def typed_data(transfer: Transfer, valid_before: int, valid_after: int = 0) -> dict[str, Any]:
    """The document for eth_signTypedData_v4; numbers are decimal text, as wallets take them."""
    return {
        "types": _TYPES,
        "primaryType": PRIMARY_TYPE,
        "domain": {
            "name": transfer.token.name,
            "version": transfer.token.version,
            "chainId": transfer.chain_id,
            "verifyingContract": checksummed(transfer.token.address),
        },
        "message": {
            "from": checksummed(transfer.payer),
            "to": checksummed(transfer.merchant),
            "value": str(transfer.amount),
            "validAfter": str(valid_after),
            "validBefore": str(valid_before),
            "nonce": "0x" + transfer.ref.hex(),
        },
    }


def digest(transfer: Transfer, valid_after: int, valid_before: int) -> bytes:
    """The 32 bytes that a payer signs."""
    token = transfer.token
    struct = transfer_hash(transfer.payer, transfer.merchant, transfer.amount, valid_after, valid_before, transfer.ref)
    return Domain(token.name, transfer.chain_id, token.address, token.version).digest(struct)


def is_signed_by_payer(transfer: Transfer, authorization: Authorization) -> bool:
    """Whether the token contract will take this signature for this transfer: the payer's, in its one canonical form."""
    if authorization.nonce != transfer.ref or not is_canonical(authorization.signature):
        return False
    signed = digest(transfer, authorization.valid_after, authorization.valid_before)
    return recover(signed, authorization.signature) == transfer.payer
