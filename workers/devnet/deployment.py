"""The deployment file: what the devnet tells everybody else. Written by `deploy`, read by relayer, bots, demo and tests."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.devnet.accounts import Wallet, wallet
from workers.devnet.rpc import Rpc


@dataclass(frozen=True, slots=True)
class Node:
    """A KMS node or coprocessor: the key that signs answers and the key that sends them."""

    signer: Wallet
    sender: Wallet


@dataclass(frozen=True)
class Deployment:
    """A parsed deployment file. Addresses are 0x text."""

    raw: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Deployment:
        """Raises FileNotFoundError before the first `deploy`."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    @property
    def gateway(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["gateway"]
        return found

    @property
    def host(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["host_chains"][0]
        return found

    @property
    def kms(self) -> tuple[Node, ...]:
        return tuple(_node(entry) for entry in self.raw["kms"])

    @property
    def coprocessors(self) -> tuple[Node, ...]:
        return tuple(_node(entry) for entry in self.raw["coprocessors"])

    @property
    def users(self) -> tuple[Wallet, ...]:
        return tuple(wallet(_key(entry["key"])) for entry in self.raw["users"])

    @property
    def operators(self) -> tuple[Wallet, ...]:
        return tuple(wallet(_key(key)) for key in self.raw["operator_keys"])

    @property
    def deployer(self) -> Wallet:
        return wallet(_key(self.raw["deployer_key"]))

    @property
    def dapp_contracts(self) -> tuple[str, ...]:
        return tuple(self.raw["contracts_for_demo"])

    def gateway_rpc(self) -> Rpc:
        return Rpc(self.gateway["rpc_urls"][0])

    def host_rpc(self) -> Rpc:
        return Rpc(self.host["rpc_url"])

    def matches_chains(self) -> bool:
        """Whether both running chains are the ones of this file. Raises OSError while one is not up."""
        for url, wanted in ((self.gateway["rpc_urls"][0], self.gateway), (self.host["rpc_url"], self.host)):
            with Rpc(url) as rpc:
                if rpc.genesis_hash() != wanted["genesis_hash"]:
                    return False
        return True


def wait_for_deployment(path: Path, timeout: float) -> Deployment:
    """The deployment of the chains that run now, waited for while chains start and contracts are deployed.

    Raises:
        TimeoutError: none within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            found = Deployment.read(path)
            if found.matches_chains():
                return found
        except (FileNotFoundError, OSError):
            pass
        time.sleep(0.1)
    raise TimeoutError(f"no deployment of the running chains in {path} within {timeout} s")


def _key(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _node(entry: dict[str, Any]) -> Node:
    return Node(wallet(_key(entry["key"])), wallet(_key(entry["tx_sender_key"])))
