"""The option `--json` of commands that have sub-commands."""

from __future__ import annotations

import argparse
from typing import Any

HELP = "print JSON"


def offer_json(parser: argparse.ArgumentParser, actions: argparse._SubParsersAction[Any]) -> None:
    """Take `--json` before the sub-command and after it. Call it when every sub-command has been added."""
    parser.add_argument("--json", action="store_true", help=HELP)
    for action in actions.choices.values():
        # Without a default: that one would undo what stands before the sub-command.
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=HELP)
