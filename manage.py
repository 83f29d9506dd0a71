#!/usr/bin/env python
"""Entry point of every management command."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayer_site.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.INSTALLED_APPS  # noqa: B018 - reads the settings: what is wrong with them is said in one line, without a traceback
    except ImproperlyConfigured as error:
        sys.exit(f"Settings: {error}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
