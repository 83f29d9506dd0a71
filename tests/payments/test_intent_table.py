"""The table of transitions is pinned: a change to it must be seen in review."""

from __future__ import annotations

import os
from pathlib import Path

from requests_app.admin.explain import INTENT_MEANING
from requests_app.management.intent_document import intent_table
from requests_app.states import INTENT_ACTIVE, INTENT_FINAL, INTENT_TRANSITIONS, IntentState

GOLDEN = Path(__file__).parent / "golden" / "intent_table.md"
# The twelve edges of the original scenario (reference queue_settle 1.2), without our two ways out of review, the expiry of an
# authorized intent by the system (5.2.7) and the log's word for one in review.
ORIGINAL = {
    ("created", "authorized"): ({"api"}, set()),
    ("created", "canceled"): ({"api", "operator", "system"}, {"reason"}),
    ("authorized", "settling"): ({"relayer"}, set()),
    ("authorized", "canceled"): ({"api", "operator"}, {"reason"}),
    ("settling", "confirming"): ({"relayer", "listener"}, {"tx_hash"}),
    ("settling", "failed"): ({"relayer"}, {"reason"}),
    ("settling", "needs_review"): ({"relayer"}, {"reason"}),
    ("confirming", "settled"): ({"listener"}, {"tx_hash"}),
    ("confirming", "settling"): ({"listener"}, {"reason"}),
    ("confirming", "needs_review"): ({"listener"}, {"reason"}),
    ("needs_review", "settled"): ({"operator"}, {"tx_hash", "reason"}),
    ("needs_review", "failed"): ({"operator"}, {"reason"}),
}


def test_the_table_is_the_golden_one() -> None:
    text = "\n".join(intent_table()) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "run with GOLDEN=write when the change is meant"


def test_it_holds_the_original_and_what_was_added() -> None:
    table = {pair: (set(edge.actors), set(edge.evidence)) for pair, edge in INTENT_TRANSITIONS.items()}
    added = {pair: row for pair, row in table.items() if row != ORIGINAL.get(pair)}  # type: ignore[call-overload]
    assert set(ORIGINAL) <= set(table)
    assert added == {
        ("authorized", "canceled"): ({"api", "operator", "system"}, {"reason"}),
        ("needs_review", "confirming"): ({"operator", "listener"}, {"tx_hash", "reason"}),
        ("needs_review", "settling"): ({"operator"}, {"reason"}),
    }


def test_every_active_state_has_a_way_out_and_no_final_one_has() -> None:
    assert {edge.source for edge in INTENT_TRANSITIONS.values()} == INTENT_ACTIVE
    assert {edge.target for edge in INTENT_TRANSITIONS.values()} == set(IntentState) - {IntentState.CREATED}
    assert INTENT_ACTIVE | INTENT_FINAL == set(INTENT_MEANING) == set(IntentState)
