"""The part of docs/states.md about deliveries of webhooks, made from their table."""

from __future__ import annotations

from typing import Final

from requests_app.states import DELIVERY_TRANSITIONS, DeliveryState

MEANING: Final[dict[DeliveryState, str]] = {
    DeliveryState.WAITING: "due now or later; a worker may have it in hand, for at most a minute",
    DeliveryState.DELIVERED: "the receiver answered with 2xx",
    DeliveryState.FAILED: "given up after its last attempt, or too old; an operator may send it again",
    DeliveryState.DROPPED: "its webhook was removed first",
}


def delivery_lines() -> list[str]:
    """Picture, states and transitions of a delivery."""
    lines = ["", "# States of a webhook's delivery", "", *_diagram(), "", "| State | Meaning |", "|---|---|"]
    lines += [f"| `{state}` | {MEANING[state]} |" for state in DeliveryState]
    lines += [
        "",
        "A delivery begins in `waiting`, in the transaction of the change that it tells of. What an attempt came to is recorded for the latest",
        "attempt only; that it was delivered, for any.",
        "",
        "| Verb | From | To | Who | Why |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.verb}` | `{row.source}` | `{row.target}` | {row.actor} | {row.meaning} |"
        for row in DELIVERY_TRANSITIONS.values()
    ]
    return lines


def _diagram() -> list[str]:
    edges = [f"    {row.source} --> {row.target}: {row.verb}" for row in DELIVERY_TRANSITIONS.values()]
    ends = [f"    {state} --> [*]" for state in DeliveryState if state is not DeliveryState.WAITING]
    return ["```mermaid", "stateDiagram-v2", f"    [*] --> {DeliveryState.WAITING}", *edges, *ends, "```"]
