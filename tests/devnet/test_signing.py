"""Hashing, signing and keys of the devnet against published vectors and eth_account."""

from __future__ import annotations

import pytest
from eth_account import Account

from workers.devnet import eip712
from workers.devnet.accounts import MNEMONIC, derive, wallet
from workers.devnet.sending import TIP_WEI, Call, Sender

KEY = bytes.fromhex("11" * 32)
SIGNER = "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"
DAPP, DELEGATOR = "0x" + "11" * 20, "0x" + "33" * 20
PUBLIC_KEY, EXTRA, START = bytes.fromhex("abcd"), b"\x00", 1_700_000_000
DOMAIN = eip712.domain("Decryption", 8009, "0xb8ae44365c45a7c5256b14f607cae23bc040c354")


def test_domain_separator() -> None:
    assert DOMAIN.hex() == "7b40d194c57942a565091f2b0af548753e9b3b68fde0d8c4dfc746223c3e722f"


@pytest.mark.parametrize(
    ("struct", "members", "digest"),
    [
        (
            eip712.UNIFIED,
            (SIGNER, PUBLIC_KEY, [DAPP], START, 86400, EXTRA),
            "8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405",
        ),
        (
            eip712.UNIFIED,
            (SIGNER, PUBLIC_KEY, [], START, 86400, EXTRA),
            "be81573c4714a766b6d89936dddfae77a9f228c494198f7f235a03db10a197ab",
        ),
        (
            eip712.DIRECT,
            (PUBLIC_KEY, [DAPP], START, 1, EXTRA),
            "cee963a4eadb5f4ada8f91c2dce9f97c4df79f74a6993fe011fd4377e5b95f2f",
        ),
        (
            eip712.DELEGATED,
            (PUBLIC_KEY, [DAPP], DELEGATOR, START, 1, EXTRA),
            "d40751605687a1b122f474fac9391f7aa02b99683906a7560690ce0ecec51544",
        ),
    ],
)
def test_digests_of_ethers(struct: str, members: tuple[eip712.Member, ...], digest: str) -> None:
    assert eip712.digest(DOMAIN, struct, *members).hex() == digest


def test_signature_of_ethers_and_back() -> None:
    digest = bytes.fromhex("8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405")
    signature = eip712.sign(KEY, digest)
    assert signature.hex() == (
        "d1956544c2b7ecec1a0949c8025987367cc8a72ad74763be6eaa4ad6cb9474f5"
        "5b95dc53913d5158a96793409f95bc5fbb42e66a9d5012708c7e7df7a0c1fa6a1c"
    )
    assert eip712.recover(digest, signature) == SIGNER == eip712.address_of(KEY)


@pytest.mark.parametrize(
    "signature", [b"", bytes(65), bytes(64) + b"\x1b", b"\xff" * 64 + b"\x1b", bytes(65) + b"\x00"]
)
def test_what_is_no_signature_recovers_to_nobody(signature: bytes) -> None:
    assert eip712.recover(bytes(32), signature) is None


def test_wallets_are_those_of_the_mnemonic() -> None:
    wallets = derive()
    Account.enable_unaudited_hdwallet_features()
    for place, found in ((0, wallets.deployer), (1, wallets.relayer[0]), (33, wallets.host_deployer)):
        expected = Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{place}")
        assert found.key == bytes(expected.key)
        assert found.address == expected.address.lower()


@pytest.mark.parametrize("to", [None, "0x" + "ab" * 20])
def test_transactions_equal_those_of_eth_account(to: str | None) -> None:
    class Node:
        """Takes the bytes that the sender broadcasts."""

        sent: list[str]

        def nonce(self, address: str, block: str) -> int:
            return 7

        def call(self, method: str, *params: object) -> dict[str, str]:
            return {"baseFeePerGas": "0x64"}

        def batch(self, calls: list[tuple[str, list[str]]]) -> list[str]:
            self.sent = [params[0] for _, params in calls]
            return self.sent

    node = Node()
    Sender(node, wallet(KEY), 654321).send([Call(to, b"\x01\x02", 90_000), Call(to, b"", 21_000)])  # type: ignore[arg-type]
    for place, (data, gas) in enumerate(((b"\x01\x02", 90_000), (b"", 21_000))):
        fields = {"chainId": 654321, "nonce": 7 + place, "data": data, "value": 0, "gas": gas, "type": 2}
        fields |= {"maxFeePerGas": 400 + TIP_WEI, "maxPriorityFeePerGas": TIP_WEI}
        if to is not None:
            fields["to"] = bytes.fromhex(to[2:])
        expected = Account.sign_transaction(fields, KEY)
        assert node.sent[place] == "0x" + bytes(expected.raw_transaction).hex()
