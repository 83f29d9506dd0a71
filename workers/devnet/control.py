"""How the bots behave, for tests: a JSON file that they read again whenever it changes.

`{"user": {...}, "public": {...}, "input": {...}}`; each member overrides fields of `Behaviour`. No file: the defaults.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from workers.devnet.layout import write_atomically

Kind = Literal["user", "public", "input"]
KINDS: Final[tuple[Kind, ...]] = ("user", "public", "input")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a bot does with requests of one kind. Node numbers count from 1."""

    # False: requests wait, and are answered once this is true again.
    answer: bool = True
    # Wait this long after the request was seen.
    delay_seconds: float = 0.0
    # Nodes that never answer.
    withhold_nodes: tuple[int, ...] = ()
    # Order in which the nodes' answers reach the chain.
    order: Literal["forward", "reverse", "shuffle"] = "forward"
    # User: send the shares one by one with this pause, instead of all in one transaction.
    share_pause_seconds: float = 0.0
    # User: nodes whose share is garbage under a valid signature. Public: nodes that sign another result.
    corrupt_nodes: tuple[int, ...] = ()
    # User: nodes whose share is signed by a foreign key. The contract refuses those, so the event is emitted unchecked.
    forge_nodes: tuple[int, ...] = ()
    # User: events that repeat the first shares with their index.
    repeat_shares: int = 0
    # User: events with unknown indexes above those of the nodes.
    extra_shares: int = 0
    # Input: refuse the proof.
    reject: bool = False


class Control:
    """The current behaviour by kind, read from the file when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._found: dict[str, Behaviour] = {}

    def of(self, kind: Kind) -> Behaviour:
        return self._found.get(kind, Behaviour())

    def refresh(self) -> None:
        """Raises ValueError for a file that is not as described, so that a test's mistake shows at once."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._found = None, {}
            return
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._found = parse(json.loads(self._path.read_text(encoding="utf-8")))
            self._stamp = stamp


def parse(document: dict[str, dict[str, Any]]) -> dict[str, Behaviour]:
    """Raises ValueError for an unknown kind or field."""
    fields = {field.name for field in dataclasses.fields(Behaviour)}
    for kind, values in document.items():
        if kind not in KINDS or not fields.issuperset(values):
            raise ValueError(f"unknown behaviour {kind}: {sorted(set(values) - fields)}")
    return {kind: _behaviour(values) for kind, values in document.items()}


def _behaviour(values: dict[str, Any]) -> Behaviour:
    lists_as_tuples: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Behaviour(**lists_as_tuples)


def write(path: Path, **behaviours: Behaviour) -> None:
    """Sets the behaviour by kind; kinds not named go back to the defaults."""
    unknown = set(behaviours) - set(KINDS)
    if unknown:
        raise ValueError(f"unknown kinds {sorted(unknown)}")
    write_atomically(path, json.dumps({kind: dataclasses.asdict(value) for kind, value in behaviours.items()}))
