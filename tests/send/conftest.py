"""A stub gateway node, the settings that point at it, and processes (context and lease keeper) that work against both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.store.session import connect
from tests.send.node import CHAIN_ID, Node, Server
from tests.send.scenes import HOST
from workers.chain import Clients, open_clients
from workers.leases import LeaseKeeper

KEYS = ["0x" + f"{n:02x}" * 32 for n in (0x11, 0x22)]
DECRYPTION, INPUTS, ACL = "0x" + "d0" * 20, "0x" + "e0" * 20, "0x" + "ac" * 20


@dataclass
class Context:
    """What a turn works with, as `workers.shift.ShiftContext`."""

    conn: psycopg.Connection[Any]
    instance: str
    leases: LeaseKeeper
    clients: Clients
    stopped: bool = False

    def stopping(self) -> bool:
        return self.stopped


@pytest.fixture
def node(settings: Any) -> Iterator[Node]:
    """The gateway, and the host chain too: one signer is configured, no devnet file is read."""
    server = Server()
    settings.GATEWAY_CHAIN_ID = CHAIN_ID
    settings.GATEWAY_RPC_URLS = [server.node.url]
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = DECRYPTION, INPUTS
    settings.FEE_TOKEN_ADDRESS = ""
    settings.GATEWAY_SIGNER_KEYS = KEYS[:1]
    settings.HOST_CHAINS = [{"chain_id": HOST, "url": server.node.url, "acl_address": ACL}]
    config.cache_clear()
    yield server.node
    config.cache_clear()
    server.close()


@pytest.fixture
def start(node: Node, transactional_db: None) -> Iterator[Callable[..., Context]]:
    """Start a process. `start()` again is another process, with its own session."""
    started: list[Context] = []
    numbers = itertools.count(1)

    def make() -> Context:
        instance = f"process-{next(numbers)}"
        context = Context(connect("worker"), instance, LeaseKeeper(instance, 10), open_clients(config()))
        # The host chain has its own id; the stub answers with the gateway's.
        context.clients.hosts.update({chain_id: _unchecked(host) for chain_id, host in context.clients.hosts.items()})
        started.append(context)
        return context

    yield make
    for context in started:
        context.leases.close()
        context.clients.close()
        context.conn.close()


def _unchecked(host: Any) -> Any:
    from workers.chain.endpoints import Endpoints
    from workers.chain.host import HostClient

    return HostClient(Endpoints([host.config.url]), host.config)
