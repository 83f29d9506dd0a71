"""Every finding of the reference is named by a test, or docs/envelopes.md says why it does not apply."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUMBERS = [
    *(f"R-{n}" for n in range(1, 30)),
    *(f"S-{n}" for n in range(1, 16)),
    *(f"D{n}" for n in range(1, 6)),
    *(f"L-{n}" for n in range(1, 12)),
]


def named_by_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path.name != "test_findings.py":
            for text in re.findall(r'def test_\w+\(.*?\).*?:\n    """(.*?)"""', path.read_text(), re.DOTALL):
                found |= set(re.findall(r"\b(?:[RSL]-\d+|D\d)\b", text))
    return found


def excused() -> set[str]:
    text = (ROOT / "docs" / "envelopes.md").read_text()
    table = text[text.index("## Findings") : text.index("## Benchmarks")]
    cells = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
    return {number for cell in cells for number in re.findall(r"[RSL]-\d+|D\d", cell)}


def test_every_finding_is_held_or_explained() -> None:
    missing = [number for number in NUMBERS if number not in named_by_tests() | excused()]
    assert missing == []
