"""Two real anvil chains with the contracts and no bots, for what only a node can say."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from requests_app.config import Config, GatewayConfig, HostChain
from requests_app.states import Kind, ReqType
from tests.devnet.conftest import quick_command
from tests.installing import install_anvil, share_tools
from workers.chain import Clients, open_clients
from workers.chain.signer import LocalSigner
from workers.devnet import anvil
from workers.devnet.deploy import deploy
from workers.devnet.deployment import Deployment
from workers.devnet.layout import Layout
from workers.devnet.traffic import Submission, Traffic

FORM_KINDS: dict[str, tuple[Kind, ReqType | None]] = {
    "user_decrypt": (Kind.USER_DECRYPT, ReqType.DIRECT),
    "delegated": (Kind.USER_DECRYPT, ReqType.DELEGATED),
    "unified": (Kind.USER_DECRYPT, ReqType.UNIFIED),
    "public_decrypt": (Kind.PUBLIC_DECRYPT, None),
    "input_proof": (Kind.INPUT_PROOF, None),
}


@dataclass
class Chains:
    """The running chains as this product sees them."""

    deployment: Deployment
    config: Config
    clients: Clients
    traffic: Traffic
    signer: LocalSigner

    @property
    def host(self) -> HostChain:
        return self.config.host_chains[8009]


def raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


@contextmanager
def process(command: list[str]) -> Iterator[None]:
    child = subprocess.Popen(command)
    try:
        yield
    finally:
        child.kill()
        child.wait()


def config_of(deployment: Deployment) -> Config:
    gateway, host = deployment.gateway, deployment.host
    return Config(
        GatewayConfig(
            int(gateway["chain_id"]),
            tuple(gateway["rpc_urls"]),
            raw(gateway["decryption"]),
            raw(gateway["input_verification"]),
            tuple(raw(key) for key in deployment.raw["relayer_signer_keys"]),
            raw(gateway["fee_token"]),
            0,
        ),
        {
            8009: HostChain(
                8009, host["rpc_url"], raw(host["acl"]), raw(host["protocol_config"]), raw(host["kms_generation"])
            )
        },
        9,
    )


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chains]:
    var = tmp_path_factory.mktemp("chains")
    share_tools(var)
    install_anvil()
    layout = Layout(var)
    with ExitStack() as stack:
        for service in anvil.CHAINS:
            stack.enter_context(process(quick_command(layout, service)))
        deploy(layout)
        deployment = Deployment.read(layout.deployment)
        config = config_of(deployment)
        clients = open_clients(config)
        stack.callback(clients.close)
        traffic = Traffic(deployment)
        stack.callback(traffic.close)
        yield Chains(deployment, config, clients, traffic, LocalSigner(config.gateway.signer_keys[0], 654321))


def hexed(text: str) -> str:
    return "0x" + text.removeprefix("0x").lower()


def canonical(submission: Submission) -> dict[str, Any]:
    """The stored form of a body that the SDK would send."""
    body = submission.body
    if submission.form == "public_decrypt":
        return {"handles": [hexed(item) for item in body["ciphertextHandles"]], "extra_data": body["extraData"]}
    if submission.form == "input_proof":
        return {
            "contract_chain_id": str(int(body["contractChainId"], 16)),
            "contract": hexed(body["contractAddress"]),
            "user": hexed(body["userAddress"]),
            "ciphertext": hexed(body["ciphertextWithInputVerification"]),
            "extra_data": body["extraData"],
        }
    return unified(body) if submission.form == "unified" else legacy(submission)


def unified(body: dict[str, Any]) -> dict[str, Any]:
    payload = body["attestedPayload"]
    return {
        "type": "unified",
        "handles": [
            {
                "handle": hexed(entry["ctHandle"]),
                "contract": hexed(entry["contractAddress"]),
                "owner": hexed(entry["ownerAddress"]),
            }
            for entry in payload["handles"]
        ],
        "user": hexed(payload["userAddress"]),
        "allowed_contracts": [hexed(item) for item in payload["allowedContracts"]],
        "start_timestamp": payload["requestValidity"]["startTimestamp"],
        "duration_seconds": payload["requestValidity"]["durationSeconds"],
        "signature": hexed(body["signature"]),
        "public_key": hexed(payload["publicKey"]),
        "extra_data": payload["extraData"],
    }


def legacy(submission: Submission) -> dict[str, Any]:
    body = submission.body
    direct = submission.form == "user_decrypt"
    validity = body["requestValidity"] if direct else body
    accounts = (
        {"type": "user_decrypt", "user": hexed(body["userAddress"])}
        if direct
        else {
            "type": "delegated_user_decrypt",
            "delegator": hexed(body["delegatorAddress"]),
            "delegate": hexed(body["delegateAddress"]),
        }
    )
    return {
        **accounts,
        "handles": [
            {"handle": hexed(pair["handle"]), "contract": hexed(pair["contractAddress"])}
            for pair in body["handleContractPairs"]
        ],
        "start_timestamp": validity["startTimestamp"],
        "duration_days": validity["durationDays"],
        "contracts_chain_id": body["contractsChainId"],
        "contracts": [hexed(item) for item in body["contractAddresses"]],
        "signature": hexed(body["signature"]),
        "public_key": hexed(body["publicKey"]),
        "extra_data": body["extraData"],
    }
