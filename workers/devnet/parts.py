"""The parts of the devnet as commands: one part a process.

Each part imports what it needs when it is chosen: `anvil` is about to be replaced by another program and the file
server needs nothing, so neither should pay for the ABI library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from workers.devnet.layout import Layout

Write = Callable[[str], object]


class PartFailed(Exception):
    """A part cannot do its work; the message says why, for people."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands with their options."""
    parts = parser.add_subparsers(dest="part", required=True)
    prepare = parts.add_parser("prepare", help="install anvil and choose ports; run once before the parts start")
    chain = parts.add_parser("anvil", help="one chain, in the foreground")
    chain.add_argument("chain", choices=("gateway", "host"))
    contracts = parts.add_parser("deploy", help="deploy the contracts (again: changes nothing)")
    kms = parts.add_parser("kms", help="the 13 KMS nodes")
    coprocessors = parts.add_parser("coprocessors", help="the three coprocessors")
    parts.add_parser("storage", help="file server for the FHE public key and the CRS")
    reset = parts.add_parser("reset", help="forget chain state and deployment; reset the database with it")
    reset.add_argument("--dry-run", action="store_true", help="say what would be forgotten")
    for part in (prepare, contracts, reset):
        part.add_argument("--json", action="store_true", help="print JSON")
    for part in (contracts, kms, coprocessors):
        part.add_argument("--wait", type=float, default=60.0, help="seconds to wait for the chains (default 60)")


def run(layout: Layout, options: dict[str, Any], write: Write) -> None:
    """Runs the chosen part; all but `prepare`, `deploy` and `reset` do not return.

    Raises:
        PartFailed: a port is taken, a tool is missing, a chain is not there or not ours.
    """
    from workers.devnet.rpc import RpcFailure
    from workers.devnet.toolchain import ToolchainError

    part: Callable[[Layout, dict[str, Any], Write], None] = _PARTS[options["part"]]
    try:
        part(layout, options, write)
    except (ToolchainError, RpcFailure, OSError, ValueError) as error:
        raise PartFailed(str(error)) from error


def _prepare(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet.toolchain import anvil_binary

    binary = anvil_binary(layout.var)
    ports = layout.ports(renew=True)
    found = {"gateway": ports.gateway, "host": ports.host, "storage": ports.storage, "anvil": str(binary)}
    write(json.dumps(found) if options["json"] else "\n".join(f"{name} {value}" for name, value in found.items()))


def _anvil(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet import anvil

    anvil.run(layout, options["chain"])


def _deploy(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet.deploy import deploy

    document = deploy(layout, options["wait"])
    write(json.dumps(document) if options["json"] else f"deployment written to {layout.deployment}")


def _kms(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet import kms_bots
    from workers.devnet.deployment import wait_for_deployment

    kms_bots.run(wait_for_deployment(layout.deployment, options["wait"]), layout)


def _coprocessors(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet import coprocessor_bots
    from workers.devnet.deployment import wait_for_deployment

    coprocessor_bots.run(wait_for_deployment(layout.deployment, options["wait"]), layout)


def _storage(layout: Layout, options: dict[str, Any], write: Write) -> None:
    from workers.devnet import storage

    storage.run(layout.ports().storage)


def _reset(layout: Layout, options: dict[str, Any], write: Write) -> None:
    found = [str(path) for path in layout.kept()]
    if not options["dry_run"]:
        layout.reset()
    if options["json"]:
        write(json.dumps({"dry_run": options["dry_run"], "forgotten": found}))
        return
    write(f"devnet under {layout.home}: {len(found)} {'would be forgotten' if options['dry_run'] else 'forgotten'}")


_PARTS = {
    "prepare": _prepare,
    "anvil": _anvil,
    "deploy": _deploy,
    "kms": _kms,
    "coprocessors": _coprocessors,
    "storage": _storage,
    "reset": _reset,
}
