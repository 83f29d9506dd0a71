"""Two worse ways to undo a reorganisation, and the machine of the log that has to find them out."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from requests_app import sql
from tests.listen.conftest import log
from tests.property.test_log_machine import LogMachine
from tests.reported import say

__all__ = ["log"]

MUTATIONS = {
    # Whoever applies the log goes on behind the events that came in the place of the undone ones.
    "cursor not rewound": ("lower_seal", "least(position, (%(fork)s::bigint << 20) - 1)", "position"),
    # Shares of blocks that gave way go on counting towards the threshold.
    "shares not dropped": (
        "drop_shares",
        "WHERE o.reorg_id = %(reorg)s AND",
        "WHERE o.reorg_id = %(reorg)s AND false AND",
    ),
}
EXAMPLES, STEPS = 40, 12


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(MUTATIONS))
def test_a_worse_undo_is_found_out(log: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    statement, good, bad = MUTATIONS[name]
    original = sql.statement

    def mutated(topic: str, wanted: str, **parts: str) -> str:
        text = original(topic, wanted, **parts)
        return text.replace(good, bad) if (topic, wanted) == ("reorgs", statement) else text

    assert good in original("reorgs", statement)
    monkeypatch.setattr(sql, "statement", mutated)
    machine = type("Machine", (LogMachine,), {"conn": log})
    limits = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    began = time.monotonic()
    with pytest.raises(AssertionError) as found:
        run_state_machine_as_test(machine, settings=limits)
    say(f"log machine, {name}: found out after {time.monotonic() - began:.1f} s: {str(found.value).splitlines()[0]}")
