"""Numbers that a run reports: printed where they were measured, and again under the run's summary, where nobody has to ask for them."""

from __future__ import annotations

LINES: list[str] = []


def say(text: str) -> None:
    """Print a line now and under the summary."""
    print(text, flush=True)
    LINES.append(text)
