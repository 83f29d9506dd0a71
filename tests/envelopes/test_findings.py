"""Every finding of the reference is named by a test, or docs/envelopes.md says why it does not apply."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MENTION = re.compile(r"\b(?:[RSL]-\d+|D\d)\b")
NUMBERS = [
    *(f"R-{n}" for n in range(1, 30)),
    *(f"S-{n}" for n in range(1, 16)),
    *(f"D{n}" for n in range(1, 6)),
    *(f"L-{n}" for n in range(1, 12)),
]


def named_by_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path.name == "test_findings.py" or not MENTION.search(path.read_text()):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found |= set(MENTION.findall(ast.get_docstring(node) or ""))
    return found


def excused() -> set[str]:
    text = (ROOT / "docs" / "envelopes.md").read_text()
    table = text[text.index("## Findings") : text.index("## Benchmarks")]
    cells = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
    return {number for cell in cells for number in re.findall(r"[RSL]-\d+|D\d", cell)}


def test_every_finding_is_held_or_explained() -> None:
    held = named_by_tests() | excused()
    assert [number for number in NUMBERS if number not in held] == []
