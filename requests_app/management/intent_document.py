"""The part of docs/states.md about payment intents, made from their table."""

from __future__ import annotations

from requests_app.admin.explain import INTENT_MEANING
from requests_app.states import INTENT_FINAL, INTENT_TRANSITIONS, IntentState


def intent_lines() -> list[str]:
    """Picture, states and transitions of an intent."""
    lines = ["", "# States of a payment", "", *_diagram(), "", "| State | Meaning | Final |", "|---|---|---|"]
    lines += [
        f"| `{state}` | {INTENT_MEANING[state]} | {'yes' if state in INTENT_FINAL else 'no'} |" for state in IntentState
    ]
    lines += [
        "",
        "A change is asked for by its target. Judged in this order: unknown state; in the target already (nothing happens, and that is",
        "success); ended; not in this table; not this actor's; evidence missing; a guard. It is written if the row still has the version",
        "and state that were read, with a row of `intent_transition`, and with the ref derived from the terms again.",
        "",
        *intent_table(),
    ]
    return lines


def intent_table() -> list[str]:
    """The transitions, one a line."""
    lines = ["| From | To | Who | Evidence | Why |", "|---|---|---|---|---|"]
    for edge in INTENT_TRANSITIONS.values():
        who = ", ".join(sorted(edge.actors))
        evidence = ", ".join(sorted(edge.evidence)) or "–"
        lines.append(f"| `{edge.source}` | `{edge.target}` | {who} | {evidence} | {edge.meaning} |")
    return lines


def _diagram() -> list[str]:
    edges = [
        f"    {edge.source} --> {edge.target}: {', '.join(sorted(edge.actors))}" for edge in INTENT_TRANSITIONS.values()
    ]
    ends = [f"    {state} --> [*]" for state in IntentState if state in INTENT_FINAL]
    return ["```mermaid", "stateDiagram-v2", f"    [*] --> {IntentState.CREATED}", *edges, *ends, "```"]
