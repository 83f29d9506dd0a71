"""`manage.py relayer_devnet …`: the chains, contracts and bots that stand in for the real network."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers.devnet.layout import Layout
from workers.devnet.parts import PartFailed, add_arguments, run


class Command(BaseCommand):
    """One subcommand a process. SIGTERM ends each at once: nothing here needs a farewell."""

    help = "Runs one part of the local devnet: two anvil chains, contracts, KMS and coprocessor bots, key storage."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run(Layout(settings.RELAYER_VAR), options, self.stdout.write)
        except PartFailed as error:
            raise CommandError(str(error)) from error
