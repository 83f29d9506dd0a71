"""The real, unmodified @zama-fhe/relayer-sdk 0.4.3 against the running stack."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address

from tests.installing import SDK, relayer_sdk
from tests.stack.harness import Stack
from tests.waiting import wait_until
from workers.devnet.toolchain import find_node
from workers.devnet.traffic import Traffic

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

INSTALLS = ("relayer_sdk",)


@pytest.fixture(scope="module")
def steps(stack: Stack, traffic: Traffic) -> dict[str, dict[str, Any]]:
    """What every step of the SDK round reported."""
    home, node = relayer_sdk(), find_node()
    wait_until(lambda: stack.api.get("/v2/keyurl").status == 200, 60, "the first poll publishes the key")
    settings = stack.var / "sdk.json"
    settings.write_text(json.dumps(_settings(stack, traffic, home)))
    done = subprocess.run(
        [str(node.node), str(SDK / "round.mjs"), str(settings)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line["step"]: line for line in map(json.loads, done.stdout.splitlines())}


def _settings(stack: Stack, traffic: Traffic, home: Path) -> dict[str, Any]:
    gateway, host = stack.deployment.gateway, stack.deployment.host
    public, direct = traffic.build(["public_decrypt", "user_decrypt"])
    user = next(
        wallet for wallet in stack.deployment.users if to_checksum_address(wallet.address) == direct.body["userAddress"]
    )
    contract = to_checksum_address(stack.deployment.dapp_contracts[0])
    return {
        "modules": str(home),
        "apiKey": stack.api_key,
        "instance": {
            "chainId": host["chain_id"],
            "gatewayChainId": gateway["chain_id"],
            "aclContractAddress": to_checksum_address(host["acl"]),
            "kmsContractAddress": to_checksum_address(host["kms_verifier"]),
            "inputVerifierContractAddress": to_checksum_address(host["input_verifier"]),
            "verifyingContractAddressDecryption": to_checksum_address(gateway["decryption"]),
            "verifyingContractAddressInputVerification": to_checksum_address(gateway["input_verification"]),
            "network": host["rpc_url"],
            "relayerUrl": stack.url + "/v2",
        },
        "publicHandles": public.body["ciphertextHandles"],
        "encrypt": {"contract": contract, "user": to_checksum_address(user.address)},
        "userDecrypt": {
            "handles": [pair["handle"] for pair in direct.body["handleContractPairs"]],
            "contract": contract,
            "userKey": "0x" + bytes(user.key).hex(),
        },
    }


def test_create_instance_reads_the_key_urls(steps: dict[str, dict[str, Any]]) -> None:
    assert steps["createInstance"]["publicKeyBytes"] > 30_000


def test_public_decrypt_of_two_handles_passes_the_sdks_signature_checks(steps: dict[str, dict[str, Any]]) -> None:
    step = steps["publicDecrypt"]
    assert step["ok"], step
    assert len(step["clearValues"]) == 2
    assert step["events"][0] == ["queued", "POST", 202]
    assert step["events"][-1] == ["succeeded", "GET", 200]


def test_encrypt_is_accepted_with_the_handles_the_sdk_derives(steps: dict[str, dict[str, Any]]) -> None:
    step = steps["encrypt"]
    assert step["ok"], step
    assert len(step["handles"]) == 2


def test_user_decrypt_completes_its_http_exchange(stack: Stack, steps: dict[str, dict[str, Any]]) -> None:
    """The devnet's shares are no real signcryptions: the SDK gets them all and fails only in its KMS library."""
    step = steps["userDecrypt"]
    assert step["ok"] is False
    assert "An error occured during decryption" in step["message"]
    with stack.database() as conn:
        row = conn.execute(
            "SELECT status, resolved_threshold FROM user_decrypt_req ORDER BY id DESC LIMIT 1"
        ).fetchone()
    assert row == ("completed", 9)
