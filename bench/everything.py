"""All the bars of design 4.1 in one table and one JSON file: `make bench`.

Each benchmark is a program of its own, run one after the other on the same machine. P9 wants two large databases (15 GB, half an hour
the first time) and is left out unless they are there or --scale is given. P7 is what `make test` prints under "take-over".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.table import Result, Table, leave, publish

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = ("jobs", "settle", "http", "flow", "envelopes", "webhooks")


def _run(program: str, arguments: list[str], directory: Path) -> list[Result]:
    """The results of one benchmark. Raises SystemExit when it ends without any."""
    answer = directory / f"{program}.json"
    print(f"\n== bench.{program} {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", f"bench.{program}", *arguments, "--json", str(answer)], cwd=ROOT)
    if not answer.exists():
        raise SystemExit(f"bench.{program} ended with {done.returncode} and without results")
    return [Result.of(line) for line in json.loads(answer.read_text())]


def main() -> None:
    """Run everything, print the whole table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshot", default="600", help="seconds of P10's open snapshot")
    parser.add_argument("--scale", action="store_true", help="P9 too, even when its databases must be built first")
    parser.add_argument("--only", nargs="+", choices=(*PROGRAMS, "scale"), help="these alone")
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    kept = Path(os.environ.get("SCALE_DATA", ROOT / "var" / "scale"))
    wanted = options.only or [
        *PROGRAMS,
        *(["scale"] if options.scale or (kept / "10M" / "seeded.json").exists() else []),
    ]
    table = Table()
    with tempfile.TemporaryDirectory(prefix="relayer-bench-") as directory:
        found = {
            program: _run(program, ["--snapshot", options.snapshot] if program == "jobs" else [], Path(directory))
            for program in wanted
        }
    print("\n== everything")
    for results in found.values():
        for result in results:
            table.add(result)
    publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
