"""`make chaos`: requests over the fault proxy while random processes die; everything that came of it is printed and judged.

CHAOS_SECONDS (300), CHAOS_REQUESTS (2000), CHAOS_SEED (random, printed), CHAOS_FAULTS (0.05 of each kind),
CHAOS_STOPPED_SECONDS (60, of a frozen owner), CHAOS_FOREIGN (2 nonces spent behind the relayer's back), CHAOS_PATIENCE (0: seconds
that a kill waits for everything to work again).
"""

from __future__ import annotations

import http.client
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.rows import namedtuple_row

from tests.chaos.foreign import Foreign, Intruder
from tests.chaos.victims import Killer
from tests.faults.rules import everything
from tests.reported import say
from tests.stack.harness import ROOT, ChainProxies, Stack, plain_environment, poll
from workers.devnet.traffic import FORMS, Form, Submission, Traffic

CHUNK = 40
COMPLETED_SHARE = 0.99
DRAIN_SECONDS = 240.0
STOP_SECONDS = 30.0
VAR = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("chaos-stack")


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    seconds: float
    requests: int
    seed: int
    faults: float = 0.05
    stopped_seconds: float = 60.0
    drain_seconds: float = (
        DRAIN_SECONDS  # a nonce spent elsewhere is believed after a minute, and after its block is final
    )
    foreign: int = 0
    patience: float = 0.0

    @classmethod
    def from_environment(cls) -> Plan:
        return cls(
            seconds=float(os.environ.get("CHAOS_SECONDS", "300")),
            requests=int(os.environ.get("CHAOS_REQUESTS", "2000")),
            seed=int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31),
            faults=float(os.environ.get("CHAOS_FAULTS", "0.05")),
            stopped_seconds=float(os.environ.get("CHAOS_STOPPED_SECONDS", "60")),
            foreign=int(os.environ.get("CHAOS_FOREIGN", "2")),
            patience=float(os.environ.get("CHAOS_PATIENCE", "0")),
        )


@dataclass
class Report:
    """What came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    stop_seconds: float = 0.0


def run(plan: Plan, var: Path = VAR) -> Report:
    """One run. The stack is stopped in any case."""
    say(
        f"chaos: seed {plan.seed}, {plan.requests} requests, {plan.seconds:.0f} s, {plan.faults:.0%} of each fault,"
        f" {plan.foreign} foreign nonces"
    )
    proxies = ChainProxies.make(plan.seed)
    stack = Stack(var, through=proxies)
    killer = Killer(stack, plan.seed, patience=plan.patience)
    intruder = Intruder(stack, plan.seed, plan.foreign, plan.seconds, killer.note)
    operator = _operator(stack) if plan.foreign else None
    try:
        report = _run(plan, stack, proxies, killer, intruder)
    finally:
        killer.stop()
        intruder.stop()
        if operator is not None:
            operator.kill()
            operator.wait()
        began = time.monotonic()
        stack.stop()
        stopped = time.monotonic() - began
        proxies.close()
    report.stop_seconds = stopped
    say(f"the whole stack stopped in order in {stopped:.1f} s (at most {STOP_SECONDS:.0f})")
    if stopped > STOP_SECONDS:
        report.problems.append(f"the stack took {stopped:.1f} s to stop")
    return report


def _operator(stack: Stack) -> subprocess.Popen[bytes]:
    environment = {**plain_environment(), "RELAYER_VAR": str(stack.var), "RELAYER_ROLE": "worker"}
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.operator"], env=environment, cwd=ROOT)


def _run(plan: Plan, stack: Stack, proxies: ChainProxies, killer: Killer, intruder: Intruder) -> Report:
    start = stack.block() + 1
    proxies.add(*everything(plan.faults))
    job_ids: list[str] = []
    posting = threading.Thread(target=_post_all, args=(plan, stack, job_ids), daemon=True)
    began = time.monotonic()
    posting.start()
    killer.start()
    intruder.start()
    time.sleep(plan.seconds * 0.25)
    pause = threading.Thread(target=killer.pause_owner, args=(plan.stopped_seconds,), daemon=True)
    pause.start()
    time.sleep(plan.seconds * 0.3)
    killer.restart_database()
    posting.join(max(0.0, began + plan.seconds - time.monotonic()) + 60)
    time.sleep(max(0.0, began + plan.seconds - time.monotonic()))
    killer.stop()
    intruder.stop()
    pause.join(plan.stopped_seconds)
    killer.note("no more kills; the faults stay")
    _drain(stack, job_ids, plan)
    report = judge(plan, stack, job_ids, start, intruder.spent)
    _tell(report, killer, proxies, time.monotonic() - began)
    return report


def _post_all(plan: Plan, stack: Stack, job_ids: list[str]) -> None:
    """Evenly over the time; each POST again until it is accepted."""
    began, lock = time.monotonic(), threading.Lock()
    forms: list[Form] = [FORMS[number % len(FORMS)] for number in range(plan.requests)]
    with closing(Traffic(stack.deployment, operator=1)) as traffic:
        for first in range(0, plan.requests, CHUNK):
            submissions = _built(traffic, forms[first : first + CHUNK])
            threads = [
                threading.Thread(target=_post, args=(stack, submissions[n::4], job_ids, lock), daemon=True)
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            due = began + plan.seconds * 0.95 * (first + CHUNK) / plan.requests
            time.sleep(max(0.0, due - time.monotonic()))


def _built(traffic: Traffic, forms: list[Form]) -> list[Submission]:
    """New requests with their grants; again when the chains were too slow to mine those in time."""
    while True:
        try:
            return traffic.build(forms)
        except (TimeoutError, OSError) as error:
            print(f"set-up of requests again: {error}", flush=True)


def _post(stack: Stack, submissions: list[Submission], job_ids: list[str], lock: threading.Lock) -> None:
    for submission in submissions:
        while True:
            try:
                answer = stack.api.post(submission.path, submission.body)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.2)
                continue
            if answer.status == 202:
                with lock:
                    job_ids.append(str(answer.body["result"]["jobId"]))
                break
            time.sleep(0.2)


def _drain(stack: Stack, job_ids: list[str], plan: Plan) -> None:
    def final() -> bool:
        with stack.database() as conn:
            counts = stack.counts(conn, job_ids)
        return sum(counts.get(status, 0) for status in ("completed", "failure", "timed_out", "needs_review")) == len(
            job_ids
        )

    try:
        poll(final, plan.drain_seconds, "every row final")
    except AssertionError:
        return  # judged below, with what is left


def judge(plan: Plan, stack: Stack, job_ids: list[str], start: int, spent: Sequence[Foreign]) -> Report:
    """Compare rows, reviews, slots and chain."""
    report = Report()
    with stack.connect() as conn:
        rows = stack.rows(conn, job_ids)
        with conn.cursor(row_factory=namedtuple_row) as cursor:
            reviews = cursor.execute(_REVIEWS).fetchall()
            signers = cursor.execute(_SIGNERS).fetchall()
            attempts = cursor.execute(
                "SELECT state, count(*) AS n, sum(send_count) AS sends FROM tx_attempt GROUP BY 1"
            ).fetchall()
    report.statuses.update(row.status for row in rows)
    problems, lines = report.problems, report.lines
    if len(job_ids) != plan.requests or len(set(job_ids)) != len(job_ids) or len(rows) != len(job_ids):
        problems.append(f"{len(job_ids)} accepted, {len(set(job_ids))} distinct, {len(rows)} rows of {plan.requests}")
    share = report.statuses["completed"] / plan.requests
    lines.append(f"completed: {share:.2%}")
    if share < COMPLETED_SHARE:
        problems.append(f"only {share:.2%} completed")
    problems += [
        f"{row.kind} {row.id}: {row.status}: {row.fail_detail}"
        for row in rows
        if row.status in ("failure", "timed_out")
    ]
    left = plan.requests - report.statuses["completed"] - report.statuses["needs_review"]
    if left:
        problems.append(f"{left} rows neither completed nor in review")
    if len(spent) != plan.foreign:
        problems.append(f"{len(spent)} of {plan.foreign} foreign transactions came in")
    _judge_reviews(plan, reviews, report.statuses["needs_review"], spent, problems, lines)
    _judge_events(stack, rows, start, problems, lines)
    for signer in signers:
        _judge_signer(stack, signer, spent, problems, lines)
    lines += [f"attempts {row.state}: {row.n}, broadcast {row.sends} times" for row in attempts]
    return report


_REVIEWS = "SELECT kind, subject_id, reason_code, evidence FROM review_case WHERE status = 'open' ORDER BY id"
_SIGNERS = (
    "SELECT g.id, g.address, g.next_nonce, g.status, count(n.nonce) AS slots,"
    " array_agg(n.nonce ORDER BY n.nonce) FILTER (WHERE n.nonce IS NOT NULL) AS nonces,"
    " array_agg(n.nonce) FILTER (WHERE n.state IN ('signed', 'live')) AS open"
    " FROM signer g LEFT JOIN nonce_slot n ON n.signer_id = g.id GROUP BY g.id ORDER BY g.id"
)


def _judge_reviews(
    plan: Plan, reviews: list[Any], rows: int, spent: Sequence[Foreign], problems: list[str], lines: list[str]
) -> None:
    """Each review has its cause in what the seed injected; each row in review has its case."""
    causes = {(one.address, one.nonce): one for one in spent}
    lines += [f"injected by seed {plan.seed}: {one}" for one in spent]
    for case in reviews:
        cause = causes.get((case.evidence.get("signer"), case.evidence.get("nonce")))
        text = f"review {case.kind}/{case.subject_id} {case.reason_code}"
        if cause is None or case.reason_code != "foreign_nonce":
            problems.append(f"{text} has no cause in what was injected: {case.evidence}")
        else:
            lines.append(f"{text} traced to {cause}")
    if rows != len(reviews):
        problems.append(f"{rows} rows in review, {len(reviews)} open cases")


def _judge_signer(stack: Stack, signer: Any, spent: Sequence[Foreign], problems: list[str], lines: list[str]) -> None:
    """Nonces are dense: from the first on every one is a slot of ours or was spent elsewhere, and the chain has them all."""
    address = "0x" + bytes(signer.address).hex()
    count = int(stack.rpc.call("eth_getTransactionCount", address, "latest"), 16)
    foreign = {one.nonce for one in spent if one.address == address}
    nonces = signer.nonces or []
    text = (
        f"signer {signer.id}: slots {min(nonces, default=None)}..{max(nonces, default=None)} ({signer.slots}),"
        f" foreign {sorted(foreign)}, next {signer.next_nonce}, chain {count}, {signer.status}"
    )
    lines.append(text)
    used = set(nonces) | foreign
    dense = used == set(range(min(used, default=0), signer.next_nonce or 0)) or not used
    if not dense or count != (signer.next_nonce or 0) or set(signer.open or ()) - foreign:
        problems.append(f"nonces not dense: {text}, open {signer.open}")


def _judge_events(stack: Stack, rows: list[Any], start: int, problems: list[str], lines: list[str]) -> None:
    events = stack.request_events(start)
    by_ref = Counter(bytes.fromhex(event["topics"][1][2:]) for event in events)
    hashes = Counter(bytes.fromhex(event["transactionHash"][2:]) for event in events)
    sent = [row for row in rows if row.status in ("receipt_received", "completed")]
    wrong = [row for row in sent if by_ref[row.gw_reference_id] != 1 or hashes[row.gw_req_tx_hash] != 1]
    problems += [f"{row.kind} {row.id} {row.status} has {by_ref[row.gw_reference_id]} request events" for row in wrong]
    if len(events) > len(rows):
        problems.append(f"{len(events)} request events for {len(rows)} rows")
    lines.append(
        f"request events: {len(events)}, of completed or receipted rows: {len(sent)}, rows with another number than one: {len(wrong)}"
    )


def _tell(report: Report, killer: Killer, proxies: ChainProxies, seconds: float) -> None:
    print("\n".join(killer.log))
    say(f"kills: {sum(killer.killed.values())}: {dict(killer.killed)}")
    for name, proxy in (("gateway", proxies.gateway), ("host", proxies.host)):
        calls = sum(proxy.script.seen.values())
        say(f"faults before the {name}: {dict(proxy.script.injected)} in {calls} calls")
    for line in report.lines:
        say(line)
    say(f"statuses after {seconds:.0f} s: {dict(report.statuses)}")
    print("\n".join(f"PROBLEM {problem}" for problem in report.problems) or "no problem", flush=True)


if __name__ == "__main__":
    sys.exit(1 if run(Plan.from_environment()).problems else 0)
