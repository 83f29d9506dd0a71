"""`manage.py relayer_sample <form>`: a fresh request body that the devnet will answer, for a first request by hand."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers.devnet.deployment import Deployment
from workers.devnet.rpc import RpcFailure
from workers.devnet.sending import TransactionFailed
from workers.devnet.traffic import FORMS, Traffic

OPERATOR = 3
"""The devnet account that grants and commits for samples; the demo uses another, so both may run at once."""


class Command(BaseCommand):
    """Grants fresh handles on the devnet's host chain, commits their ciphertexts on its gateway, prints the body."""

    help = "Print a request body that the devnet will answer; pipe it to curl."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The form."""
        parser.add_argument("form", choices=FORMS)
        parser.add_argument("--json", action="store_true", help="print path and body together")

    def handle(self, *args: Any, **options: Any) -> None:
        """One body on standard output."""
        try:
            deployment = Deployment.read(Path(settings.RELAYER_DEPLOYMENT))
        except FileNotFoundError:
            raise CommandError("no devnet is deployed here: start `make demo` first") from None
        try:
            with closing(Traffic(deployment, OPERATOR)) as traffic:
                (sample,) = traffic.build([options["form"]])
        except (OSError, RpcFailure, TransactionFailed) as error:
            raise CommandError(f"the devnet does not take it: {error}") from None
        document = {"path": sample.path, "body": sample.body} if options["json"] else sample.body
        self.stdout.write(json.dumps(document))
