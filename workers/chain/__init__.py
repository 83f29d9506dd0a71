"""Everything that talks to a chain. Hot paths are raw JSON-RPC; web3 serves the cold ones and is imported only there."""

from __future__ import annotations

from workers.chain.clients import Clients, open_clients, open_signers

__all__ = ["Clients", "open_clients", "open_signers"]
