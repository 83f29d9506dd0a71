"""`python -m workers.devnet <part>`: the same parts as `manage.py relayer_devnet`, without Django, which starts 2 s sooner."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from workers.devnet.layout import Layout
from workers.devnet.parts import PartFailed, add_arguments, run

ROOT = Path(__file__).resolve().parents[2]


def log_as_json() -> None:
    """One JSON object a line on stderr, as the rest of the product logs."""
    from pythonjsonlogger.json import JsonFormatter

    handler = logging.StreamHandler()
    names = {"levelname": "level", "name": "logger", "asctime": "time"}
    handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names))
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "INFO").upper(), handlers=[handler])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.devnet", description="One part of the local devnet.")
    add_arguments(parser)
    options = vars(parser.parse_args())
    if options["part"] != "anvil":
        log_as_json()
    layout = Layout(Path(os.environ.get("RELAYER_VAR") or ROOT / "var").expanduser().resolve())
    try:
        run(layout, options, lambda text: sys.stdout.write(text + "\n"))
    except PartFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
