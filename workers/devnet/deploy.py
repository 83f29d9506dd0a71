"""Deploys the contracts on both running chains and writes the deployment file. Repeating it changes nothing."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from workers.devnet.accounts import (
    COPROCESSOR_THRESHOLD,
    KMS_THRESHOLD,
    Wallet,
    Wallets,
    derive,
    labelled,
)
from workers.devnet.contracts import contract
from workers.devnet.layout import GATEWAY_CHAIN_ID, HOST_CHAIN_ID, Layout, Ports, write_atomically
from workers.devnet.plan import Plan, context_call, gateway_plan, host_plan
from workers.devnet.published import STORAGE_PREFIX
from workers.devnet.rpc import Rpc
from workers.devnet.sending import Call, Sender

logger = logging.getLogger("relayer.devnet")

DEMO_CONTRACTS: Final = 2
UNLIMITED: Final = 2**256 - 1


class ForeignChain(ValueError):
    """The running chain was not made by this plan: its deployer has sent something else."""


def deploy(layout: Layout, timeout: float = 60.0) -> dict[str, Any]:
    """Brings both chains to the planned state and returns what was written to the deployment file.

    Raises:
        TimeoutError: a chain is not up within `timeout` seconds.
        ForeignChain: the planned contracts are not at their addresses.
        TransactionFailed: a planned transaction was reverted.
    """
    wallets, ports = derive(), layout.ports()
    with Rpc(ports.gateway_url) as gateway_rpc, Rpc(ports.host_url) as host_rpc:
        gateway_rpc.wait_ready(GATEWAY_CHAIN_ID, timeout)
        host_rpc.wait_ready(HOST_CHAIN_ID, timeout)
        gateway = gateway_plan(wallets)
        host = host_plan(wallets, gateway, ports.storage_url)
        _carry_out(gateway_rpc, gateway, wallets.deployer, GATEWAY_CHAIN_ID)
        fresh_host = _carry_out(host_rpc, host, wallets.host_deployer, HOST_CHAIN_ID)
        _approve_fees(gateway_rpc, gateway, wallets)
        if not fresh_host:
            _follow_storage(layout, ports, gateway_rpc, host_rpc, gateway, host, wallets)
        document = _document(ports, wallets, gateway, host, gateway_rpc, host_rpc)
    write_atomically(layout.deployment, json.dumps(document, indent=1) + "\n")
    return document


def _carry_out(rpc: Rpc, plan: Plan, deployer: Wallet, chain_id: int) -> bool:
    """Sends what the deployer has not sent yet. True when the whole plan was still to do."""
    done = rpc.nonce(deployer.address)
    rest = plan.calls[done:]
    Sender(rpc, deployer, chain_id).run(rest)
    codes = rpc.batch([("eth_getCode", [address, "latest"]) for address in plan.addresses.values()])
    for name, code in zip(plan.addresses, codes, strict=True):
        if len(code) <= 2:
            raise ForeignChain(f"no {name} at {plan.addresses[name]} on chain {chain_id}: reset the devnet")
    if rest:
        logger.info("contracts deployed", extra={"action": "deploy", "chain_id": chain_id, "transactions": len(rest)})
    return done == 0


def _approve_fees(rpc: Rpc, plan: Plan, wallets: Wallets) -> None:
    """Every relayer signer lets the payment contract take fees."""
    token, spender = contract("ZamaToken"), plan.addresses["ProtocolPayment"]
    for signer in wallets.relayer:
        query = token.call("allowance", signer.address, spender)
        (allowance,) = token.result("allowance", rpc.eth_call(plan.addresses["ZamaToken"], query))
        if allowance < UNLIMITED:
            approve = Call(plan.addresses["ZamaToken"], token.call("approve", spender, UNLIMITED))
            Sender(rpc, signer, GATEWAY_CHAIN_ID).run([approve])


def _follow_storage(
    layout: Layout, ports: Ports, gateway_rpc: Rpc, host_rpc: Rpc, gateway: Plan, host: Plan, wallets: Wallets
) -> None:
    """A kept chain may name a storage port that another program has taken since: then a new KMS context names the new
    one, as a real network would announce it."""
    try:
        known = json.loads(layout.deployment.read_text(encoding="utf-8"))["kms"][0]["storage_url"]
    except FileNotFoundError:
        known = None
    if known == ports.storage_url:
        return
    protocol = host.addresses["ProtocolConfig"]
    Sender(host_rpc, wallets.host_deployer, HOST_CHAIN_ID).run([context_call(protocol, wallets, ports.storage_url)])
    context_id, _ = _current_context(host_rpc, protocol)
    register = Call(
        gateway.addresses["GatewayConfig"], contract("GatewayConfig").call("setKmsContext", context_id, True)
    )
    Sender(gateway_rpc, wallets.deployer, GATEWAY_CHAIN_ID).run([register])


def _current_context(rpc: Rpc, protocol: str) -> tuple[int, int]:
    """The current KMS context and epoch ids."""
    abi = contract("ProtocolConfig")
    answer = rpc.eth_call(protocol, abi.call("getCurrentKmsContextAndEpoch"))
    context_id, epoch_id = abi.result("getCurrentKmsContextAndEpoch", answer)
    return int(context_id), int(epoch_id)


def _document(
    ports: Ports, wallets: Wallets, gateway: Plan, host: Plan, gateway_rpc: Rpc, host_rpc: Rpc
) -> dict[str, Any]:
    context_id, epoch_id = _current_context(host_rpc, host.addresses["ProtocolConfig"])
    return {
        "gateway": {
            "chain_id": GATEWAY_CHAIN_ID,
            "rpc_urls": [ports.gateway_url],
            "decryption": gateway.addresses["Decryption"],
            "input_verification": gateway.addresses["InputVerification"],
            "fee_token": gateway.addresses["ZamaToken"],
            "payment": gateway.addresses["ProtocolPayment"],
            "gateway_config": gateway.addresses["GatewayConfig"],
            "ciphertext_commits": gateway.addresses["CiphertextCommits"],
            "payment_tokens": [_payment_token(gateway_rpc, gateway.addresses["DevnetUSD"])],
            "genesis_hash": gateway_rpc.genesis_hash(),
        },
        "host_chains": [
            {
                "chain_id": HOST_CHAIN_ID,
                "rpc_url": ports.host_url,
                "acl": host.addresses["ACL"],
                "protocol_config": host.addresses["ProtocolConfig"],
                "kms_generation": host.addresses["KMSGeneration"],
                "kms_verifier": host.addresses["KMSVerifier"],
                "input_verifier": host.addresses["InputVerifier"],
                "contract_wallet": host.addresses["ContractWallet"],
                "genesis_hash": host_rpc.genesis_hash(),
            }
        ],
        "relayer_signer_keys": [_hex(signer.key) for signer in wallets.relayer],
        "deployer_key": _hex(wallets.deployer.key),
        "host_deployer_key": _hex(wallets.host_deployer.key),
        "operator_keys": [_hex(operator.key) for operator in wallets.operators],
        "kms": [
            {
                **_party(signer, sender),
                "storage_url": ports.storage_url,
                "storage_prefix": STORAGE_PREFIX,
            }
            for signer, sender in zip(wallets.kms_signers, wallets.kms_senders, strict=True)
        ],
        "kms_threshold": KMS_THRESHOLD,
        "kms_context_id": f"0x{context_id:064x}",
        "kms_epoch_id": f"0x{epoch_id:064x}",
        "coprocessors": [
            _party(signer, sender)
            for signer, sender in zip(wallets.coprocessor_signers, wallets.coprocessor_senders, strict=True)
        ],
        "coprocessor_threshold": COPROCESSOR_THRESHOLD,
        "users": [{"address": user.address, "key": _hex(user.key)} for user in wallets.users],
        "contracts_for_demo": [labelled(f"dapp {number}").address for number in range(DEMO_CONTRACTS)],
    }


def _payment_token(rpc: Rpc, address: str) -> dict[str, Any]:
    """What a payer's wallet must know of the token, as the token itself says it."""
    token = contract("DevnetUSD")

    def read(name: str) -> Any:
        (value,) = token.result(name, rpc.eth_call(address, token.call(name)))
        return value

    return {"address": address, **{name: read(name) for name in ("name", "version", "symbol", "decimals")}}


def _party(signer: Wallet, sender: Wallet) -> dict[str, str]:
    return {"address": signer.address, "key": _hex(signer.key), "tx_sender_key": _hex(sender.key)}


def _hex(key: bytes) -> str:
    return "0x" + key.hex()
