"""Typed calls of a host chain: ACL, thresholds of KMS contexts, ERC-1271 wallets, published key material."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from requests_app.config import HostChain
from requests_app.errors import ConfigurationError
from workers.chain.abi_reader import MalformedAbi
from workers.chain.acl import AclCheck, denied, encode_multicall
from workers.chain.calldata import ContractCall, Function, decode_uint
from workers.chain.client import LATEST, ChainClient
from workers.chain.endpoints import Endpoints
from workers.chain.errors import is_revert
from workers.chain.hexdata import data, hex_data
from workers.chain.rpc import Call
from workers.chain.rpc_errors import Answer, RpcError, RpcUnavailable
from workers.chain.views import mapped

if TYPE_CHECKING:
    from workers.chain.key_material import KeyMaterial

THRESHOLD: Final = Function("getUserDecryptionThresholdForContext", "uint256")
IS_VALID_SIGNATURE: Final = Function("isValidSignature", "bytes32", "bytes")
THRESHOLD_SECONDS: Final = 600.0
THRESHOLD_ENTRIES: Final = 10_000
ERC1271_GAS: Final = 100_000


class HostClient(ChainClient):
    """One host chain's contracts behind its endpoint."""

    def __init__(self, endpoints: Endpoints, host: HostChain, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(endpoints)
        self.config = host
        self._clock = clock
        self._thresholds: dict[int, tuple[float, int]] = {}

    def acl_check(self, requests: Sequence[Sequence[AclCheck]]) -> list[Answer[list[AclCheck]]]:
        """The denied checks of each request (an empty list: allowed), one multicall a request, many in a batch.

        A failed multicall is that request's Failed or Missing only.
        """
        acl = hex_data(self.config.acl)
        calls: list[Call] = [
            ("eth_call", [{"to": acl, "data": hex_data(encode_multicall(checks))}, LATEST]) for checks in requests
        ]
        answers = self.endpoints.batch(calls)
        return [mapped([answer], partial(_denied, checks))[0] for answer, checks in zip(answers, requests, strict=True)]

    def threshold_for_context(self, context_id: int) -> int:
        """Shares that a user decryption under this KMS context needs; remembered for THRESHOLD_SECONDS.

        Raises ConfigurationError without a ProtocolConfig, RpcError for a context that the contract refuses (or a value
        that is no positive u32), RpcUnavailable. A failure is never remembered.
        """
        known = self._thresholds.get(context_id)
        if known is not None and self._clock() < known[0]:
            return known[1]
        if self.config.protocol_config is None:
            raise ConfigurationError(f"host chain {self.config.chain_id} has no ProtocolConfig address")
        answer = self.call_contract(ContractCall(self.config.protocol_config, THRESHOLD.encode(context_id)))
        try:
            value = decode_uint(answer)
        except MalformedAbi as error:
            raise RpcError(0, f"no threshold for the context: {error}") from None
        if not 0 < value < 1 << 32:
            raise RpcError(0, "the threshold of the context is no positive u32")
        if len(self._thresholds) >= THRESHOLD_ENTRIES:
            self._thresholds.clear()
        self._thresholds[context_id] = (self._clock() + THRESHOLD_SECONDS, value)
        return value

    def wallet_accepts(self, wallet: bytes, digest: bytes, signature: bytes, gas: int = ERC1271_GAS) -> bool:
        """Whether the contract at `wallet` accepts the signature by ERC-1271, within `gas`.

        No code, a short or another answer, and a revert mean no. Raises RpcUnavailable when the chain did not say.
        """
        call = ContractCall(wallet, IS_VALID_SIGNATURE.encode(digest, signature))
        try:
            answer = self.call_contract(call, gas=gas)
        except RpcError as error:
            if is_revert(error) or error.revert_data is not None or "out of gas" in error.message.lower():
                return False
            raise RpcUnavailable(f"wallet check failed: {error.message}", sent=True) from None
        return len(answer) >= 32 and answer[:4] == IS_VALID_SIGNATURE.selector

    def key_material(self) -> KeyMaterial:
        """What GET /v2/keyurl publishes, read at the finalized block.

        Raises ConfigurationError without the two contract addresses, KeyMaterialUnavailable.
        """
        from workers.chain.key_material import read_key_material  # web3 takes over a second to import

        return read_key_material(self.config)


def _denied(checks: Sequence[AclCheck], value: Any) -> list[AclCheck]:
    return denied(checks, data(value))
