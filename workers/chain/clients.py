"""All chain clients of one process, from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from requests_app.config import Config
from workers.chain.connection import CONNECT_SECONDS
from workers.chain.endpoints import Endpoints
from workers.chain.gateway import GatewayClient
from workers.chain.host import HostClient
from workers.chain.signer import LocalSigner


@dataclass(frozen=True, slots=True)
class Clients:
    """The gateway, the host chains by chain id, and the gateway's endpoints for raw calls and sends. Not thread-safe."""

    gateway: GatewayClient
    hosts: dict[int, HostClient]
    endpoints: Endpoints
    protocol: HostClient | None

    def close(self) -> None:
        """Close every kept connection."""
        self.gateway.close()
        for host in self.hosts.values():
            host.close()


def open_clients(config: Config) -> Clients:
    """Clients for every configured chain. Nothing is connected before its first use; call it after a fork."""
    timeout = (CONNECT_SECONDS, float(settings.RPC_TIMEOUT_SECONDS))
    budget = float(settings.RPC_CALLS_PER_SECOND)
    gateway = config.gateway
    endpoints = Endpoints(
        gateway.rpc_urls, gateway.chain_id, timeout, budget=budget, finality_depth=gateway.finality_depth
    )
    hosts = {
        chain_id: HostClient(Endpoints([host.url], chain_id, timeout, budget=budget), host)
        for chain_id, host in config.host_chains.items()
    }
    protocol = config.protocol_host
    return Clients(
        GatewayClient(endpoints, gateway),
        hosts,
        endpoints,
        hosts[protocol.chain_id] if protocol is not None else None,
    )


def open_signers(config: Config) -> dict[bytes, LocalSigner]:
    """The configured signers of the gateway chain by 20-byte address. Raises ValueError for an impossible key."""
    signers = (LocalSigner(key, config.gateway.chain_id) for key in config.gateway.signer_keys)
    return {signer.address: signer for signer in signers}
