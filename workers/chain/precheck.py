"""The ERC-1271 half of the v3 signature pre-check, for the web processes (fhevm_http 13.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from django.conf import settings

from requests_app.config import Config, config
from requests_app.errors import WalletCheckFailed
from workers.chain.endpoints import Endpoints
from workers.chain.host import HostClient
from workers.chain.rpc_errors import RpcUnavailable, WrongChain

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 1.0
TIMEOUT: Final = (1.0, 3.0)


class Verifier:
    """Asks wallet contracts on their host chains. Safe to share: every thread has its own connections."""

    def __init__(self, chains: Callable[[], Config] = config, pause: Callable[[float], object] = time.sleep) -> None:
        self._chains = chains
        self._pause = pause
        self._local = threading.local()

    def is_valid(self, chain_id: int, wallet: bytes, digest: bytes, signature: bytes) -> bool:
        """Whether the contract at `wallet` (20 bytes) accepts the signature of the 32-byte digest.

        Raises WalletCheckFailed when the chain is not configured or did not answer in three attempts, a second apart.
        """
        gas = int(settings.ERC1271_GAS_LIMIT)
        client = self._client(chain_id)
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(PAUSE_SECONDS)
            try:
                return client.wallet_accepts(wallet, digest, signature, gas)
            except WrongChain as error:
                raise WalletCheckFailed(str(error)) from error
            except RpcUnavailable as error:
                last = error
        raise WalletCheckFailed(f"host chain {chain_id}: {last.reason}")

    def _client(self, chain_id: int) -> HostClient:
        clients: dict[int, HostClient] = self._local.__dict__.setdefault("clients", {})
        if chain_id not in clients:
            host = self._chains().host_chains.get(chain_id)
            if host is None:
                raise WalletCheckFailed(f"no host chain {chain_id} is configured")
            clients[chain_id] = HostClient(Endpoints([host.url], chain_id, TIMEOUT), host)
        return clients[chain_id]
