"""EIP-1559 signing without the dict machinery of eth_account: RLP by hand, coincurve and keccak in C (engine_spike 3).

The nine fields are encoded once, for the digest and for the transaction. The bytes and hashes equal eth_account's (a test says so):
both sign by RFC 6979, so the same input is the same transaction.
"""

from __future__ import annotations

from typing import Final

import coincurve

from workers.chain.keccak import keccak

TYPE_BYTE: Final = b"\x02"
_STRING: Final = 0x80
_LIST: Final = 0xC0
_NO_ACCESS_LIST: Final = b"\xc0"


def address_of(public_key: coincurve.PublicKey) -> bytes:
    """The 20-byte address of a secp256k1 public key."""
    return keccak(public_key.format(compressed=False)[1:])[-20:]


class LocalSigner:
    """A private key held in this process, bound to one chain.

    `key` is 32 bytes; raises ValueError for a key outside the curve's order. The key appears in no repr.
    """

    def __init__(self, key: bytes, chain_id: int) -> None:
        if len(key) != 32:
            raise ValueError("a private key has 32 bytes")
        self._key = coincurve.PrivateKey(key)
        self._chain = _item(_integer(chain_id))
        self.chain_id = chain_id
        self.address = address_of(self._key.public_key)

    def __repr__(self) -> str:
        return f"LocalSigner(0x{self.address.hex()}, chain {self.chain_id})"

    def sign(
        self, nonce: int, to: bytes, data: bytes, gas: int, max_fee: int, max_priority: int, value: int = 0
    ) -> tuple[bytes, bytes]:
        """The raw type-2 transaction and its 32-byte hash. Fees are wei per gas, `value` wei, `to` 20 bytes.

        Raises ValueError for a `to` of another length, OverflowError for a negative number.
        """
        if len(to) != 20:
            raise ValueError("the recipient must be a 20-byte address")
        body = b"".join(
            (
                self._chain,
                _item(_integer(nonce)),
                _item(_integer(max_priority)),
                _item(_integer(max_fee)),
                _item(_integer(gas)),
                b"\x94",
                to,
                _item(_integer(value)),
                _item(data),
                _NO_ACCESS_LIST,
            )
        )
        signature = self.sign_digest(keccak(TYPE_BYTE + _prefix(len(body), _LIST) + body))
        body += b"".join(
            (
                b"\x01" if signature[64] else b"\x80",
                _item(signature[:32].lstrip(b"\0")),
                _item(signature[32:64].lstrip(b"\0")),
            )
        )
        raw = TYPE_BYTE + _prefix(len(body), _LIST) + body
        return raw, keccak(raw)

    def sign_digest(self, digest: bytes) -> bytes:
        """r, s (32 bytes each, low s) and the parity byte (0 or 1) over a 32-byte digest."""
        return self._key.sign_recoverable(digest, hasher=None)


def _integer(number: int) -> bytes:
    """The RLP integer: big-endian, without leading zeros; zero is empty."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _item(raw: bytes) -> bytes:
    """The RLP string of some bytes."""
    if len(raw) == 1 and raw[0] < _STRING:
        return raw
    return _prefix(len(raw), _STRING) + raw


def _prefix(length: int, kind: int) -> bytes:
    """The RLP header of a string or list of `length` bytes."""
    if length < 56:
        return bytes((kind + length,))
    size = _integer(length)
    return bytes((kind + 55 + len(size),)) + size
