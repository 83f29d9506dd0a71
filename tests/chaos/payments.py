"""`make chaos-payments`: payments through the API over the fault proxy while random processes die; each is paid once or not at all.

CHAOS_INTENTS (10,000), CHAOS_SECONDS (300), CHAOS_SEED (random, printed), CHAOS_FAULTS (0.05 of each kind), CHAOS_STOPPED_SECONDS (60,
of a frozen owner), CHAOS_FOREIGN (2 nonces spent behind the relayer's back), CHAOS_PATIENCE (6: seconds that a kill waits for everything
to work again). What the world does to the payments beside that, and how each may end, is in tests/chaos/orders.py.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psycopg

from tests.chaos.audit import Audit
from tests.chaos.buyers import Buyers
from tests.chaos.foreign import Intruder
from tests.chaos.mischief import Mischief
from tests.chaos.orders import make_orders
from tests.chaos.storm import VAR, Plan, Report, closed, judge_signers, storm, tell
from tests.chaos.victims import Killer
from tests.reported import say
from tests.stack.harness import ChainProxies, Stack

LATEST_SECONDS = 1800.0  # how much longer than planned the posting may take, under kills
FUNDS_SECONDS = 60.0
DRAIN_SECONDS = 900.0
LOOK_SECONDS = 0.5
# anvil copies its state for every block: with ten thousand payments in it a busy machine makes fewer than the usual four a second,
# and those that are due queue up in it, empty, before the one with our transactions.
BLOCK_SECONDS = "1"

_OPEN = (
    "SELECT p.state, count(*) FROM payment_intent p WHERE p.state IN ('created', 'settling', 'confirming') OR (p.state = 'authorized'"
    " AND NOT EXISTS (SELECT FROM dead_letter d WHERE d.kind = 4 AND d.subject_id = p.id AND d.status = 'parked')) GROUP BY 1"
)


def run(plan: Plan, var: Path = VAR) -> Report:
    """One run. The stack is stopped in any case."""
    say(
        f"chaos of payments: seed {plan.seed}, {plan.count} intents, {plan.seconds:.0f} s, {plan.faults:.0%} of each fault,"
        f" {plan.foreign} foreign nonces"
    )
    proxies = ChainProxies.make(plan.seed)
    stack = Stack(var, through=proxies, environment={"DEVNET_BLOCK_SECONDS": BLOCK_SECONDS})
    killer = Killer(stack, plan.seed, patience=plan.patience)
    intruder = Intruder(stack, plan.seed, plan.foreign, plan.seconds, killer.note)
    with closed(stack, proxies, killer, intruder) as report:
        _run(plan, stack, proxies, killer, intruder, report)
    return report


def _run(plan: Plan, stack: Stack, proxies: ChainProxies, killer: Killer, intruder: Intruder, report: Report) -> None:
    orders = make_orders(plan.seed, plan.count)
    mischief = Mischief(stack, orders, min(FUNDS_SECONDS, plan.seconds * 0.3), killer.note)
    mischief.start()
    buyers = Buyers(stack, mischief, orders, plan.seconds * 0.9)
    began = time.monotonic()
    storm(plan, proxies, killer, intruder, threading.Thread(target=buyers.run, daemon=True), LATEST_SECONDS)
    stormed = time.monotonic() - began
    mischief.finish()
    left = _drain(stack, plan)
    report.problems += buyers.complaints
    if left:
        report.problems.append(f"not at rest after {plan.drain_seconds:.0f} s: {left}")
    report.lines.append(f"kills and posting for {stormed:.0f} s, at rest after {time.monotonic() - began:.0f} s")
    report.lines.append(f"clients tried again: {dict(buyers.tried_again)}")
    report.lines.append(f"deeds of others: {len(mischief.done)}")
    audit = Audit(stack, orders, report)
    audit.judge(mischief.done, intruder.spent)
    judge_signers(stack, intruder.spent, report)
    if len(intruder.spent) != plan.foreign:
        report.problems.append(f"{len(intruder.spent)} of {plan.foreign} foreign transactions came in")
    tell(report, killer, proxies, time.monotonic() - began)


def _drain(stack: Stack, plan: Plan) -> dict[str, int]:
    """Wait until nobody has to do anything any more; what has still to be done after all that time."""
    until = time.monotonic() + plan.drain_seconds
    left: dict[str, int] = {"unknown": 1}
    while left and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        try:
            with stack.database() as conn:
                left = dict(conn.execute(_OPEN).fetchall())
        except psycopg.OperationalError:
            left = {"unknown": 1}
    return left


if __name__ == "__main__":
    planned = replace(Plan.from_environment("CHAOS_INTENTS", 10_000, patience=6), drain_seconds=DRAIN_SECONDS)
    sys.exit(1 if run(planned).problems else 0)
