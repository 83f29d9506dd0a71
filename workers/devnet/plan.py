"""What a fresh devnet needs: the ordered transactions of the deployer on each chain.

The list is fixed and the deployer sends nothing else before it, so transaction n has nonce n: addresses are known in
advance, and a deployment that was interrupted goes on at the account's nonce.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import rlp

from workers.devnet.accounts import COPROCESSOR_THRESHOLD, KMS_THRESHOLD, Wallets
from workers.devnet.contracts import contract
from workers.devnet.eip712 import keccak256
from workers.devnet.layout import GATEWAY_CHAIN_ID, HOST_CHAIN_ID
from workers.devnet.published import CRS_FILE, CRS_ID, FHE_KEY_FILE, KEY_ID, STORAGE_PREFIX, key_file
from workers.devnet.sending import CREATION_GAS, Call

FIRST_CONTEXT_ID: Final = (7 << 248) + 1
TOKEN: Final = 10**18
SIGNER_TOKENS: Final = 1_000_000_000 * TOKEN
USER_TOKENS: Final = 1_000_000 * TOKEN
INPUT_PRICE: Final = TOKEN // 10
DECRYPTION_PRICE: Final = TOKEN // 20
USER_DOLLARS: Final = 1_000_000 * 10**6  # DevnetUSD has 6 decimals
KMS_GENERATION_THRESHOLD: Final = 9
MPC_THRESHOLD: Final = 4
SOFTWARE_VERSION: Final = "devnet-1"


def created_address(sender: str, nonce: int) -> str:
    """Address of the contract that `sender` creates with its transaction `nonce`."""
    encoded = rlp.encode([bytes.fromhex(sender[2:]), nonce])
    return "0x" + keccak256(encoded)[12:].hex()


@dataclass
class Plan:
    """Transactions of one account in order of nonce."""

    deployer: str
    calls: list[Call] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)

    def create(self, name: str, *values: Any) -> str:
        """Adds a creation; returns the address it will have."""
        address = created_address(self.deployer, len(self.calls))
        self.addresses[name] = address
        self.calls.append(Call(None, contract(name).creation(*values), CREATION_GAS))
        return address

    def call(self, name: str, function: str, *values: Any) -> None:
        """Adds a call of a contract created above."""
        self.calls.append(Call(self.addresses[name], contract(name).call(function, *values)))


def gateway_plan(wallets: Wallets) -> Plan:
    """The gateway chain: token, payment, registries, InputVerification, Decryption, and the token that payments move."""
    plan = Plan(wallets.deployer.address)
    token = plan.create("ZamaToken")
    payment = plan.create("ProtocolPayment", token, wallets.deployer.address)
    config = plan.create("GatewayConfig")
    commits = plan.create("CiphertextCommits", config)
    verification = plan.create("InputVerification", config, payment)
    decryption = plan.create("Decryption", config, commits, payment)
    for collector in (verification, decryption):
        plan.call("ProtocolPayment", "setCollector", collector, True)
    plan.call("ProtocolPayment", "setPrices", INPUT_PRICE, DECRYPTION_PRICE, DECRYPTION_PRICE)
    kms = zip(wallets.kms_senders, wallets.kms_signers, strict=True)
    plan.call("GatewayConfig", "addKmsNodes", [(sender.address, signer.address) for sender, signer in kms])
    coprocessors = zip(wallets.coprocessor_senders, wallets.coprocessor_signers, strict=True)
    plan.call("GatewayConfig", "addCoprocessors", [(sender.address, signer.address) for sender, signer in coprocessors])
    plan.call("GatewayConfig", "setThresholds", KMS_THRESHOLD, KMS_THRESHOLD, COPROCESSOR_THRESHOLD)
    plan.call("GatewayConfig", "setKmsContext", FIRST_CONTEXT_ID, True)
    plan.call("GatewayConfig", "setHostChain", HOST_CHAIN_ID, True, False)
    for operator in wallets.operators:
        plan.call("CiphertextCommits", "setCommitter", operator.address, True)
    for signer in wallets.relayer:
        plan.call("ZamaToken", "mint", signer.address, SIGNER_TOKENS)
    for user in wallets.users:
        plan.call("ZamaToken", "mint", user.address, USER_TOKENS)
    # Last, so that the addresses of everything above stay what they were before payments existed.
    plan.create("DevnetUSD")
    for user in wallets.users:
        plan.call("DevnetUSD", "mint", user.address, USER_DOLLARS)
    return plan


def host_plan(wallets: Wallets, gateway: Plan, storage_url: str) -> Plan:
    """The host chain: ACL, KMS contexts and keys, verifiers, one contract wallet."""
    plan = Plan(wallets.host_deployer.address)
    plan.create("ACL")
    plan.create("ProtocolConfig")
    plan.create("KMSGeneration")
    plan.create("KMSVerifier", GATEWAY_CHAIN_ID, gateway.addresses["Decryption"])
    plan.create("InputVerifier", GATEWAY_CHAIN_ID, gateway.addresses["InputVerification"])
    plan.create("ContractWallet", wallets.users[0].address)
    plan.call("KMSVerifier", "defineNewContext", [signer.address for signer in wallets.kms_signers], KMS_THRESHOLD)
    coprocessors = [signer.address for signer in wallets.coprocessor_signers]
    plan.call("InputVerifier", "defineNewContext", coprocessors, COPROCESSOR_THRESHOLD)
    plan.calls.append(context_call(plan.addresses["ProtocolConfig"], wallets, storage_url))
    urls = [f"{storage_url}/{STORAGE_PREFIX}"]
    plan.call("KMSGeneration", "activateKey", KEY_ID, urls, [(1, _digest(FHE_KEY_FILE))])
    plan.call("KMSGeneration", "activateCrs", CRS_ID, urls, _digest(CRS_FILE))
    return plan


def context_call(protocol_config: str, wallets: Wallets, storage_url: str) -> Call:
    """`defineNewKmsContext` with the 13 nodes, whose public material lies at `storage_url`."""
    nodes = [
        (sender.address, signer.address, "127.0.0.1", storage_url, party, f"party-{party}", b"", STORAGE_PREFIX)
        for party, (sender, signer) in enumerate(zip(wallets.kms_senders, wallets.kms_signers, strict=True), start=1)
    ]
    thresholds = (KMS_THRESHOLD, KMS_THRESHOLD, KMS_GENERATION_THRESHOLD, MPC_THRESHOLD)
    measured = [(bytes(48), bytes(48), bytes(48))]
    data = contract("ProtocolConfig").call("defineNewKmsContext", nodes, thresholds, SOFTWARE_VERSION, measured)
    return Call(protocol_config, data, CREATION_GAS)


def _digest(kind: str) -> bytes:
    return sha256(key_file(kind).read_bytes()).digest()
