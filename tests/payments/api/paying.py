"""A payer with a key, the token of the tests, and what a client sends to /v1/payment-intents."""

from __future__ import annotations

from typing import Any

from requests_app.addresses import checksummed
from tests.api.conftest import Api
from workers.devnet import eip712

PATH = "/v1/payment-intents"
CHAIN_ID = 654321
CHAIN = f"evm:{CHAIN_ID}"
TOKEN = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
TOKENS = [{"address": TOKEN, "name": "Devnet Dollar", "version": "2", "symbol": "DUSD", "decimals": 6}]
PAYER_KEY = bytes.fromhex("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
OTHER_PAYER_KEY = bytes.fromhex("7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6")
PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
MERCHANT = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
TRANSFER = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
_DOMAIN = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"


def terms(**changes: Any) -> dict[str, Any]:
    """A body that is accepted."""
    return {
        "chain": CHAIN,
        "token": TOKEN,
        "payer": PAYER,
        "merchant": MERCHANT,
        "amount": "100000000",
        **changes,
    }


def create(api: Api, key: str, **changes: Any) -> Any:
    """The answer to a POST with this Idempotency-Key."""
    return api.post(PATH, terms(**changes), **{"Idempotency-Key": key})


def sign(document: dict[str, Any], key: bytes = PAYER_KEY, **changes: Any) -> dict[str, Any]:
    """The authorization that a wallet makes of the typed data; `changes` replace members of the message.

    Hashed by the words of EIP-712, apart from the product's own code.
    """
    domain, message = document["domain"], {**document["message"], **changes}
    words = [
        eip712.keccak256(_DOMAIN),
        eip712.keccak256(domain["name"].encode()),
        eip712.keccak256(domain["version"].encode()),
        domain["chainId"].to_bytes(32, "big"),
        bytes(12) + bytes.fromhex(domain["verifyingContract"][2:]),
    ]
    struct = [
        eip712.keccak256(TRANSFER.encode()),
        *(bytes(12) + bytes.fromhex(message[name][2:]) for name in ("from", "to")),
        *(int(message[name]).to_bytes(32, "big") for name in ("value", "validAfter", "validBefore")),
        bytes.fromhex(message["nonce"][2:]),
    ]
    separator = eip712.keccak256(b"".join(words))
    digest = eip712.keccak256(b"\x19\x01" + separator + eip712.keccak256(b"".join(struct)))
    return {
        "valid_after": message["validAfter"],
        "valid_before": message["validBefore"],
        "nonce": message["nonce"],
        "signature": "0x" + eip712.sign(key, digest).hex(),
    }


def mirrored(signature: str) -> str:
    """The other signature of the same message by the same key, which token contracts refuse: s in the upper half."""
    raw = bytes.fromhex(signature[2:])
    s = ORDER - int.from_bytes(raw[32:64], "big")
    return "0x" + (raw[:32] + s.to_bytes(32, "big") + bytes([55 - raw[64]])).hex()


def address(key: bytes) -> str:
    """The checksummed address of a private key."""
    return checksummed(bytes.fromhex(eip712.address_of(key)[2:]))
