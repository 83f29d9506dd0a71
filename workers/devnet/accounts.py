"""Test accounts of the devnet, all from one published mnemonic. Anvil funds them at genesis. Never use them elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eth_account import Account

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
FUNDED: Final = _USER + USERS


@dataclass(frozen=True, slots=True)
class Wallet:
    """A private key (32 bytes) with its lower-case 0x address."""

    key: bytes
    address: str


@dataclass(frozen=True, slots=True)
class Wallets:
    """Everybody who acts on the devnet."""

    deployer: Wallet
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


def derive() -> Wallets:
    """All wallets. Takes about a tenth of a second: key stretching of the mnemonic."""
    Account.enable_unaudited_hdwallet_features()

    def funded(start: int, count: int) -> tuple[Wallet, ...]:
        paths = (f"m/44'/60'/0'/0/{start + place}" for place in range(count))
        return tuple(wallet(bytes(Account.from_mnemonic(MNEMONIC, account_path=path).key)) for path in paths)

    return Wallets(
        deployer=funded(_DEPLOYER, 1)[0],
        relayer=funded(_RELAYER, RELAYER_SIGNERS),
        operators=funded(_OPERATOR, OPERATORS),
        kms_senders=funded(_KMS, KMS_NODES),
        kms_signers=tuple(labelled(f"kms signer {number}") for number in range(1, KMS_NODES + 1)),
        coprocessor_senders=funded(_COPROCESSOR, COPROCESSORS),
        coprocessor_signers=tuple(labelled(f"coprocessor signer {number}") for number in range(1, COPROCESSORS + 1)),
        users=funded(_USER, USERS),
    )
