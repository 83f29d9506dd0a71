"""Test accounts of the devnet, all from one published mnemonic. Anvil funds them at genesis. Never use them elsewhere."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import coincurve

from workers.devnet.eip712 import address_of, keccak256

MNEMONIC: Final = "test test test test test test test test test test test junk"
KMS_NODES: Final = 13
KMS_THRESHOLD: Final = 9
COPROCESSORS: Final = 3
COPROCESSOR_THRESHOLD: Final = 2
RELAYER_SIGNERS: Final = 2
OPERATORS: Final = 4
USERS: Final = 10

# Places in the mnemonic's derivation path; each range is one role.
_DEPLOYER: Final = 0
_RELAYER: Final = 1
_OPERATOR: Final = _RELAYER + RELAYER_SIGNERS
_KMS: Final = _OPERATOR + OPERATORS
_COPROCESSOR: Final = _KMS + KMS_NODES
_USER: Final = _COPROCESSOR + COPROCESSORS
_HOST_DEPLOYER: Final = _USER + USERS
FUNDED: Final = _HOST_DEPLOYER + 1
_HARDENED: Final = 1 << 31
_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@dataclass(frozen=True, slots=True)
class Wallet:
    """A private key (32 bytes) with its lower-case 0x address."""

    key: bytes
    address: str


@dataclass(frozen=True, slots=True)
class Wallets:
    """Everybody who acts on the devnet."""

    deployer: Wallet
    host_deployer: Wallet
    relayer: tuple[Wallet, ...]
    operators: tuple[Wallet, ...]
    kms_senders: tuple[Wallet, ...]
    kms_signers: tuple[Wallet, ...]
    coprocessor_senders: tuple[Wallet, ...]
    coprocessor_signers: tuple[Wallet, ...]
    users: tuple[Wallet, ...]


def wallet(key: bytes) -> Wallet:
    return Wallet(key, address_of(key))


def labelled(label: str) -> Wallet:
    """A key that only signs and needs no coins, made from a label."""
    return wallet(keccak256(f"gateway-relayer devnet {label}".encode()))


def _account_node() -> tuple[bytes, bytes]:
    """Key and chain code of m/44'/60'/0'/0, where anvil's accounts lie (BIP-39 seed without passphrase, BIP-32)."""
    seed = hashlib.pbkdf2_hmac("sha512", MNEMONIC.encode(), b"mnemonic", 2048)
    master = hmac.digest(b"Bitcoin seed", seed, "sha512")
    key, code = master[:32], master[32:]
    for index in (_HARDENED + 44, _HARDENED + 60, _HARDENED, 0):
        key, code = _child(key, code, index)
    return key, code


def _child(key: bytes, code: bytes, index: int) -> tuple[bytes, bytes]:
    """Key and chain code of one BIP-32 child."""
    public = bytes([0]) + key if index >= _HARDENED else coincurve.PrivateKey(key).public_key.format()
    mixed = hmac.digest(code, public + index.to_bytes(4, "big"), "sha512")
    child = (int.from_bytes(mixed[:32], "big") + int.from_bytes(key, "big")) % _ORDER
    return child.to_bytes(32, "big"), mixed[32:]


def derive() -> Wallets:
    """All wallets."""
    parent = _account_node()

    def funded(start: int, count: int) -> tuple[Wallet, ...]:
        return tuple(wallet(_child(*parent, start + place)[0]) for place in range(count))

    return Wallets(
        deployer=funded(_DEPLOYER, 1)[0],
        # Not the same account on both chains: equal nonces would give contracts of both the same addresses, and SDKs
        # refuse a gateway contract with the address of a host contract.
        host_deployer=funded(_HOST_DEPLOYER, 1)[0],
        relayer=funded(_RELAYER, RELAYER_SIGNERS),
        operators=funded(_OPERATOR, OPERATORS),
        kms_senders=funded(_KMS, KMS_NODES),
        kms_signers=tuple(labelled(f"kms signer {number}") for number in range(1, KMS_NODES + 1)),
        coprocessor_senders=funded(_COPROCESSOR, COPROCESSORS),
        coprocessor_signers=tuple(labelled(f"coprocessor signer {number}") for number in range(1, COPROCESSORS + 1)),
        users=funded(_USER, USERS),
    )
