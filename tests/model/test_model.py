"""Model check of the send design (queue_settle 4.4): our statements and turns, real PostgreSQL, a chain without a duplicate guard.

Seeded kills, pauses past the lease, lost requests and answers, evictions, false nulls, reorganisations; afterwards every request
was executed exactly once, nonces are dense, nothing went to a person. MODEL_SEEDS seeds at most, MODEL_SECONDS seconds at most, in
a few processes.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from tests.core.rows import insert_account
from tests.model import mutations
from tests.model.spread import spread, trials
from tests.model.trial import Outcome, run
from tests.model.world import World, connections_of
from tests.reported import say
from tests.send.node import CHAIN_ID

pytestmark = pytest.mark.django_db(transaction=True)
SEEDS = int(os.environ.get("MODEL_SEEDS", "1000"))
SECONDS = float(os.environ.get("MODEL_SECONDS", "170"))
FIRST = int(os.environ.get("MODEL_FIRST_SEED", "1"))
LEAST = 30  # seeds that even a machine under heavy load must have done by then
MUTATED_SEEDS = 12


@pytest.fixture
def account(conn: psycopg.Connection[Any], settings: Any) -> Iterator[int]:
    """An account, and the contracts that calldata is made for. Logs are off: a storm is loud."""
    settings.GATEWAY_CHAIN_ID, settings.GATEWAY_RPC_URLS = CHAIN_ID, ["http://127.0.0.1:9"]
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = "0x" + "d0" * 20, "0x" + "e0" * 20
    settings.FEE_TOKEN_ADDRESS, settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS = "", [], []
    config.cache_clear()
    logging.disable(logging.CRITICAL)
    yield insert_account(conn)
    logging.disable(logging.NOTSET)
    config.cache_clear()


def told(name: str, outcomes: Sequence[Outcome], seconds: float) -> None:
    """One line of totals."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.happened)
    figures = {
        "requests": 12 * len(outcomes),
        "paid twice": sum(one.twice for one in outcomes),
        "unfinished": sum(one.unfinished for one in outcomes),
        "reviews": sum(one.reviews for one in outcomes),
        "jammed signers": sum(one.gaps for one in outcomes),
        "broken rules": sum(len(one.problems) for one in outcomes),
        "nonces taken by former owners": sum(one.stale_writes for one in outcomes),
    }
    say(f"model, {name}: {len(outcomes)} seeds in {seconds:.0f} s: {figures}; injected {dict(total)}")


@pytest.mark.timeout(600)
def test_every_request_is_executed_exactly_once(account: int) -> None:
    began = time.monotonic()
    outcomes = spread(range(FIRST, FIRST + SEEDS), began + SECONDS)
    told("this design", outcomes, time.monotonic() - began)
    bad = [one for one in outcomes if not one.good]
    assert not bad, [(one.seed, one.problems[:3], one.unfinished, one.twice, one.reviews, one.gaps) for one in bad[:5]]
    assert len(outcomes) >= min(LEAST, SEEDS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", [mutations.null_means_dead, mutations.fresh_nonce_after_timeout])
def test_a_worse_design_is_found_out(
    conn: psycopg.Connection[Any], account: int, mutation: Callable[[World], None]
) -> None:
    began = time.monotonic()
    outcomes = []
    with connections_of() as idle:
        for seed in range(1, 1 + MUTATED_SEEDS):
            outcomes.append(run(conn, seed, account, idle=idle, on_tick=mutation))
            conn.execute("TRUNCATE queue_job")  # what is left over is nothing to the next trial
    told(mutation.__name__, outcomes, time.monotonic() - began)
    assert any(one.twice for one in outcomes) or sum(one.unfinished for one in outcomes) >= MUTATED_SEEDS
    assert any(not one.good for one in outcomes)


@pytest.mark.timeout(600)
def test_without_the_fence(conn: psycopg.Connection[Any], account: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nonces from the row and one slot a request protect the money; without the fence former owners go on deciding."""
    began = time.monotonic()
    mutations.without_fence(monkeypatch)
    outcomes = trials(conn, account, range(1, 1 + MUTATED_SEEDS), began + 200)
    told("no fence", outcomes, time.monotonic() - began)
    assert sum(one.twice for one in outcomes) == 0
    assert sum(one.stale_writes for one in outcomes) > 0


def test_with_the_fence_no_former_owner_decides(conn: psycopg.Connection[Any], account: int) -> None:
    outcomes = trials(conn, account, range(1, 1 + MUTATED_SEEDS), time.monotonic() + 200)
    assert sum(one.stale_writes for one in outcomes) == 0
