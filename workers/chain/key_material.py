"""The published FHE key and CRS of the protocol, read with web3 at the finalized block (fhevm_http 14).

This runs every few seconds in one duty, so web3's codec and checks are worth more than speed here. Its own retries are
off: they would outlive a lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, cast

import orjson
import requests
from eth_typing import BlockNumber, HexStr
from web3 import HTTPProvider, Web3
from web3.contract import Contract
from web3.exceptions import Web3Exception
from web3.types import BlockIdentifier, LogReceipt

from requests_app.config import HostChain
from requests_app.crash_points import crash_point
from requests_app.errors import ConfigurationError, RelayerError
from workers.chain.connection import CONNECT_SECONDS, READ_SECONDS
from workers.chain.rpc_errors import WrongChain, redact

FINALIZED: Final[BlockIdentifier] = "finalized"


class KeyMaterialUnavailable(RelayerError):
    """The key material could not be read; the one published before stays valid."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """Ids are 32 bytes; the storage is that of the context's first KMS node."""

    key_id: bytes
    crs_id: bytes
    context_id: bytes
    storage_url: str
    storage_prefix: str

    def url(self, folder: str, item: bytes) -> str:
        """Where an object lies: `<storage>/<prefix>/<folder>/<64 hex digits>`."""
        return f"{self.storage_url.rstrip('/')}/{self.storage_prefix}/{folder}/{item.hex()}"

    def body(self) -> dict[str, Any]:
        """The `response` member of GET /v2/keyurl."""
        public_key = {"dataId": "0x" + self.key_id.hex(), "urls": [self.url("PublicKey", self.key_id)]}
        crs = {"dataId": "0x" + self.crs_id.hex(), "urls": [self.url("CRS", self.crs_id)]}
        return {"fheKeyInfo": [{"fhePublicKey": public_key}], "crs": {"2048": crs}}


@lru_cache(maxsize=16)
def abi(name: str) -> list[dict[str, Any]]:
    """The committed ABI of a contract, for example `ProtocolConfig`."""
    return cast(list[dict[str, Any]], orjson.loads(files("workers.chain").joinpath(f"abi/{name}.json").read_bytes()))


def read_key_material(host: HostChain) -> KeyMaterial:
    """The current key, CRS and storage.

    Raises ConfigurationError without contract addresses, WrongChain, KeyMaterialUnavailable for everything that the
    chain answers wrongly, late or not at all.
    """
    if host.protocol_config is None or host.kms_generation is None:
        raise ConfigurationError(f"host chain {host.chain_id} has no ProtocolConfig and KMSGeneration addresses")
    crash_point("before_key_material_rpc")
    try:
        with requests.Session() as session:
            material = _read(_connect(host, session), host)
    except requests.RequestException as error:
        # Its text carries the path of the endpoint, which may be an access key.
        raise KeyMaterialUnavailable(f"the host chain did not answer: {type(error).__name__}") from None
    except (Web3Exception, OSError, ValueError) as error:
        raise KeyMaterialUnavailable(redact(f"{type(error).__name__}: {error}")) from None
    crash_point("after_key_material_rpc")
    return material


def _connect(host: HostChain, session: requests.Session) -> Web3:
    session.trust_env = False
    timeouts = {"timeout": (CONNECT_SECONDS, READ_SECONDS)}
    # Retries would outlive a lease: five of them, up to 30 s each, by default.
    provider = HTTPProvider(host.url, request_kwargs=timeouts, session=session, exception_retry_configuration=None)
    web3 = Web3(provider)
    actual = web3.eth.chain_id
    if actual != host.chain_id:
        raise WrongChain("of the host chain", host.chain_id, actual)
    return web3


def _read(web3: Web3, host: HostChain) -> KeyMaterial:
    protocol = _contract(web3, "ProtocolConfig", host.protocol_config or b"")
    generation = _contract(web3, "KMSGeneration", host.kms_generation or b"")
    depth = host.finality_depth
    final: BlockIdentifier = BlockNumber(max(0, web3.eth.block_number - depth)) if depth else FINALIZED
    key_id = _view(generation, final, "getActiveKeyId")
    crs_id = _view(generation, final, "getActiveCrsId")
    context_id, _ = _view(protocol, final, "getCurrentKmsContextAndEpoch")
    # Existence checks: the contract reverts for ids without published material.
    _view(generation, final, "getKeyMaterials", key_id)
    _view(generation, final, "getCrsMaterials", crs_id)
    block, _ = _view(protocol, final, "getKmsContextAnchor", context_id)
    if block == 0:
        raise ValueError("the KMS context has no anchor block")
    nodes = _context_nodes(web3, protocol, context_id, block)
    if not nodes or not nodes[0]["storageUrl"]:
        raise ValueError("the KMS context names no node with a storage")
    return KeyMaterial(
        key_id.to_bytes(32, "big"),
        crs_id.to_bytes(32, "big"),
        context_id.to_bytes(32, "big"),
        nodes[0]["storageUrl"],
        nodes[0]["storagePrefix"],
    )


def _context_nodes(web3: Web3, protocol: Contract, context_id: int, block: int) -> list[dict[str, Any]]:
    """The nodes of the last NewKmsContext of this context in exactly its anchor block."""
    event = protocol.events["NewKmsContext"]()
    topic = HexStr("0x" + context_id.to_bytes(32, "big").hex())
    logs: list[LogReceipt] = web3.eth.get_logs(
        {"address": protocol.address, "fromBlock": block, "toBlock": block, "topics": [event.topic, topic]}
    )
    if not logs:
        raise ValueError("the anchor block has no NewKmsContext event of the context")
    return list(event.process_log(logs[-1])["args"]["kmsNodeParams"])


def _contract(web3: Web3, name: str, address: bytes) -> Contract:
    return web3.eth.contract(address=Web3.to_checksum_address(address), abi=abi(name))


def _view(contract: Contract, block: BlockIdentifier, name: str, *arguments: Any) -> Any:
    return contract.functions[name](*arguments).call(block_identifier=block)
