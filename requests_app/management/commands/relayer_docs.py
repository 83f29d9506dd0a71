"""Write the pages of docs/ that are made from code, or say which of them are out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from requests_app.management.documents import pages, undocumented


class Command(BaseCommand):
    """Exit code 0; 1 with --check when a page differs, or when a setting has no text."""

    help = "Generate docs/states.md, docs/settings.md, docs/runtime.md and docs/reasons.md from the code."

    def add_arguments(self, parser: CommandParser) -> None:
        """Writing is the default."""
        parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Compare or write every page."""
        root = Path(settings.BASE_DIR)
        missing, stale = undocumented(root)
        if missing:
            raise CommandError(f"no text in setting_texts.py for: {', '.join(sorted(missing))}")
        if stale:
            raise CommandError(f"setting_texts.py describes what no code reads: {', '.join(sorted(stale))}")
        differing = []
        for path, text in pages(root).items():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            differing.append(str(path.relative_to(root)))
            if not options["check"]:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        if options["check"] and differing:
            raise CommandError(f"out of date: {', '.join(differing)} (run manage.py relayer_docs)")
        if options["json"]:
            self.stdout.write(json.dumps({"written": differing}))
            return
        self.stdout.write("up to date" if not differing else f"written: {', '.join(differing)}")
