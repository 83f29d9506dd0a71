"""Print the OpenAPI document, write the committed copy, or check it."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from requests_app.api.openapi.document import document


class Command(BaseCommand):
    """`--write` renews docs/openapi.json, `--check` exits 1 when it differs; without either it is printed."""

    help = "Print the OpenAPI document; --write renews docs/openapi.json, --check compares it."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Two exclusive switches."""
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--write", action="store_true", help="write docs/openapi.json")
        group.add_argument("--check", action="store_true", help="exit 1 when docs/openapi.json is not up to date")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run one of the three. Raises CommandError when the check finds a difference."""
        path = Path(settings.BASE_DIR) / "docs" / "openapi.json"
        if options["write"]:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(document())
            self.stderr.write(f"{path} written")
        elif options["check"]:
            if not path.is_file() or path.read_bytes() != document():
                raise CommandError(f"{path} is not up to date: run `manage.py relayer_openapi --write`")
        else:
            self.stdout.write(document().decode(), ending="")
