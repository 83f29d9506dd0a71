"""The two chains: how anvil is started. The process that calls `run` becomes anvil."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, Final

import orjson

from requests_app.sockets import is_free
from workers.devnet.accounts import FUNDED, MNEMONIC
from workers.devnet.layout import ADDRESS, GATEWAY_CHAIN_ID, HOST_CHAIN_ID, Layout, write_atomically
from workers.devnet.toolchain import anvil_binary

BALANCE_ETHER: Final = 1_000_000
# Far above what the bots' bulk answers need; real gateways are rollups with large blocks as well.
BLOCK_GAS: Final = 1_000_000_000
# States of this many blocks answer historical calls ("finalized" is two blocks back); more would fill the disk.
KEPT_STATES: Final = 256
FIRST_BASE_FEE: Final = 500_000_000
DEFAULT_BASE_FEE: Final = 1_000_000_000  # above every base fee that we choose
CHAINS: Final = {"gateway": GATEWAY_CHAIN_ID, "host": HOST_CHAIN_ID}


class PortTaken(OSError):
    """Another program listens where this chain should."""


def command(layout: Layout, service: str) -> list[str]:
    """The command line of one chain.

    State is read at the start and written at SIGTERM and every `DEVNET_STATE_SECONDS`, so that a restart finds the
    chain where the database left it. One slot an epoch makes `finalized` follow the head by two blocks.
    """
    block_time = os.environ.get("DEVNET_BLOCK_SECONDS", "0.25")
    ports = layout.ports()
    state = layout.state(service)
    # The genesis header carries the first base fee; a random one gives every chain its own genesis hash, also when
    # both start in the same second. A kept chain has its own.
    genesis = (
        [] if state.exists() else ["--block-base-fee-per-gas", str(FIRST_BASE_FEE + secrets.randbelow(FIRST_BASE_FEE))]
    )
    return [
        str(anvil_binary(layout.var)),
        *("--host", ADDRESS, "--port", str(getattr(ports, service))),
        *("--chain-id", str(CHAINS[service])),
        *("--block-time", block_time, "--slots-in-an-epoch", "1"),
        *("--hardfork", "prague", "--gas-limit", str(BLOCK_GAS), "--prune-history", str(KEPT_STATES)),
        *("--mnemonic", MNEMONIC, "--accounts", str(FUNDED), "--balance", str(BALANCE_ETHER)),
        *("--state", str(state)),
        *("--state-interval", os.environ.get("DEVNET_STATE_SECONDS", "60")),
        # A proof may be as large as the API takes, and the bots answer hundreds of requests in one batch.
        "--no-request-size-limit",
        "--quiet",
        *genesis,
    ]


def keep_first_genesis(state: Path) -> int:
    """Removes every block 0 but the chain's own from a kept state; how many there were too many.

    At each start anvil 1.7.1 makes a block 0 before it loads the state, saves it beside the kept one, and at the next
    start answers `eth_getBlockByNumber(0)` with any of them: the genesis hash, which names the chain, would change. The
    chain's own block 0 is the one with our base fee; the others have anvil's default.
    """
    if not state.exists():
        return 0
    document = orjson.loads(state.read_bytes())
    blocks = document["blocks"]
    kept = [block for block in blocks if not _is_late_genesis(block["header"])]
    if len(kept) == len(blocks):
        return 0
    document["blocks"] = kept
    write_atomically(state, orjson.dumps(document).decode())
    return len(blocks) - len(kept)


def _is_late_genesis(header: dict[str, Any]) -> bool:
    return int(header["number"], 16) == 0 and int(header["baseFeePerGas"], 16) == DEFAULT_BASE_FEE


def run(layout: Layout, service: str) -> None:
    """Replaces this process by anvil. Does not return.

    Raises:
        PortTaken: something listens on the chain's port.
        ToolchainError: anvil cannot be installed.
    """
    line = command(layout, service)
    port = getattr(layout.ports(), service)
    if not is_free(port, ADDRESS):
        raise PortTaken(
            f"port {port} for the {service} chain is taken: set DEVNET_{service.upper()}_PORT or run `relayer_devnet prepare`"
        )
    keep_first_genesis(layout.state(service))
    scratch = layout.home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    # anvil keeps scratch files under HOME; two checkouts must not share them.
    os.execve(line[0], line, {**os.environ, "HOME": str(scratch), "TMPDIR": str(scratch)})
