"""docs/scenarios.md names tests that exist, and leaves no number out."""

from __future__ import annotations

import re

from tests.stack.harness import ROOT

TEXT = (ROOT / "docs" / "scenarios.md").read_text()


def test_every_named_test_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 70
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_no_number_is_missing() -> None:
    numbers = set(re.findall(r"^\| (20\.[13]-\d+) ", TEXT, re.MULTILINE))
    assert numbers == {f"20.1-{number}" for number in range(1, 28)} | {f"20.3-{number}" for number in range(1, 18)}


def test_deviations_are_explained() -> None:
    assert set(re.findall(r"\*\*deviation (\d)\*\*", TEXT)) == set(re.findall(r"^(\d)\. \*\*", TEXT, re.MULTILINE))
