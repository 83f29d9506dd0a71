"""`manage.py relayer_devnet …`: the chains, contracts and bots that stand in for the real network."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers.devnet import anvil, coprocessor_bots, deploy, kms_bots, storage
from workers.devnet.deployment import wait_for_deployment
from workers.devnet.layout import Layout
from workers.devnet.rpc import RpcFailure
from workers.devnet.sending import TransactionFailed
from workers.devnet.toolchain import ToolchainError, anvil_binary

FAILURES = (
    anvil.PortTaken,
    deploy.ForeignChain,
    ToolchainError,
    TransactionFailed,
    RpcFailure,
    TimeoutError,
    OSError,
    ValueError,
)


class Command(BaseCommand):
    """One subcommand a process. SIGTERM ends each at once: nothing here needs a farewell."""

    help = "Runs one part of the local devnet: two anvil chains, contracts, KMS and coprocessor bots, key storage."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True)
        prepare = parts.add_parser("prepare", help="install anvil and choose ports; run once before the parts start")
        prepare.add_argument("--json", action="store_true")
        chain = parts.add_parser("anvil", help="one chain, in the foreground")
        chain.add_argument("chain", choices=sorted(anvil.CHAINS))
        contracts = parts.add_parser("deploy", help="deploy the contracts (again: changes nothing)")
        contracts.add_argument("--json", action="store_true")
        for name, text in (
            ("kms", "the 13 KMS nodes"),
            ("coprocessors", "the three coprocessors"),
            ("storage", "file server for the FHE public key and the CRS"),
        ):
            parts.add_parser(name, help=text)
        for part in (contracts, *(parts.choices[name] for name in ("kms", "coprocessors"))):
            part.add_argument("--wait", type=float, default=60.0, help="seconds to wait for the chains (default 60)")
        parts.add_parser("reset", help="forget chain state and deployment; reset the database with it")

    def handle(self, *args: Any, **options: Any) -> None:
        layout = Layout(settings.RELAYER_VAR)
        try:
            getattr(self, f"_{options['part']}")(layout, options)
        except FAILURES as error:
            raise CommandError(str(error)) from error

    def _prepare(self, layout: Layout, options: dict[str, Any]) -> None:
        binary = anvil_binary(layout.var)
        ports = layout.ports(renew=True)
        found = {"gateway": ports.gateway, "host": ports.host, "storage": ports.storage, "anvil": str(binary)}
        self.stdout.write(json.dumps(found) if options["json"] else "\n".join(f"{k} {v}" for k, v in found.items()))

    def _anvil(self, layout: Layout, options: dict[str, Any]) -> None:
        anvil.run(layout, options["chain"])

    def _deploy(self, layout: Layout, options: dict[str, Any]) -> None:
        document = deploy.deploy(layout, options["wait"])
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            self.stdout.write(f"deployment written to {layout.deployment}")

    def _kms(self, layout: Layout, options: dict[str, Any]) -> None:
        kms_bots.run(wait_for_deployment(layout.deployment, options["wait"]), layout)

    def _coprocessors(self, layout: Layout, options: dict[str, Any]) -> None:
        coprocessor_bots.run(wait_for_deployment(layout.deployment, options["wait"]), layout)

    def _storage(self, layout: Layout, options: dict[str, Any]) -> None:
        storage.run(layout.ports().storage)

    def _reset(self, layout: Layout, options: dict[str, Any]) -> None:
        layout.reset()
        self.stdout.write(f"devnet under {layout.home} reset")
