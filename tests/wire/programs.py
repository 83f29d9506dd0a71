"""The node programs of tests/sdk that drive the published clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.installing import SDK
from workers.devnet.toolchain import find_node

Line = dict[str, Any]


@contextmanager
def lines_of(
    program: str, settings: Mapping[str, Any], directory: Path, hooked: bool = True
) -> Iterator[Iterator[Line]]:
    """The JSON lines that a program prints, as it prints them. Its end must be a good one."""
    path = directory / f"{Path(program).name}.json"
    path.write_text(json.dumps(settings))
    hook = ("--import", str(SDK / "register.mjs")) if hooked else ()
    line = [str(find_node().node), *hook, str(SDK / program), str(path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield (json.loads(text) for text in process.stdout)
            errors = process.stderr.read()
            assert process.wait(120) == 0, errors
        finally:
            process.kill()


def run(program: str, settings: Mapping[str, Any], directory: Path, hooked: bool = True) -> list[Line]:
    """All lines of a program."""
    with lines_of(program, settings, directory, hooked) as lines:
        return list(lines)


def ends(lines: Sequence[Line]) -> dict[str, Line]:
    """How each case of exchanges.mjs ended."""
    return {line["case"]: line for line in lines if "end" in line}


def events(lines: Sequence[Line], case: str) -> list[tuple[str, str | None, int | None]]:
    """The progress events of a case: type, method, status."""
    return [
        (line["event"][0], line["event"][1], line["event"][2])
        for line in lines
        if line.get("case") == case and "event" in line
    ]
