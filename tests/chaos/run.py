"""`make chaos`: requests over the fault proxy while random processes die; everything that came of it is printed and judged.

CHAOS_SECONDS (300), CHAOS_REQUESTS (2000), CHAOS_SEED (random, printed), CHAOS_FAULTS (0.05 of each kind),
CHAOS_STOPPED_SECONDS (60, of a frozen owner), CHAOS_FOREIGN (2 nonces spent behind the relayer's back), CHAOS_PATIENCE (0: seconds
that a kill waits for everything to work again).
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg.rows import namedtuple_row

from tests.chaos.foreign import Foreign, Intruder
from tests.chaos.storm import VAR, Plan, Report, closed, judge_signers, storm, tell
from tests.chaos.victims import Killer
from tests.reported import say
from tests.stack.harness import ChainProxies, Stack, poll
from workers.devnet.traffic import FORMS, Form, Submission, Traffic

CHUNK = 40
COMPLETED_SHARE = 0.99


def run(plan: Plan, var: Path = VAR) -> Report:
    """One run. The stack is stopped in any case."""
    say(
        f"chaos: seed {plan.seed}, {plan.count} requests, {plan.seconds:.0f} s, {plan.faults:.0%} of each fault,"
        f" {plan.foreign} foreign nonces"
    )
    proxies = ChainProxies.make(plan.seed)
    stack = Stack(var, through=proxies)
    killer = Killer(stack, plan.seed, patience=plan.patience)
    intruder = Intruder(stack, plan.seed, plan.foreign, plan.seconds, killer.note)
    with closed(stack, proxies, killer, intruder) as report:
        _run(plan, stack, proxies, killer, intruder, report)
    return report


def _run(plan: Plan, stack: Stack, proxies: ChainProxies, killer: Killer, intruder: Intruder, report: Report) -> None:
    start = stack.block() + 1
    job_ids: list[str] = []
    posting = threading.Thread(target=_post_all, args=(plan, stack, job_ids), daemon=True)
    began = time.monotonic()
    storm(plan, proxies, killer, intruder, posting)
    _drain(stack, job_ids, plan)
    judge(plan, stack, job_ids, start, intruder.spent, report)
    tell(report, killer, proxies, time.monotonic() - began)


def _post_all(plan: Plan, stack: Stack, job_ids: list[str]) -> None:
    """Evenly over the time; each POST again until it is accepted."""
    began, lock = time.monotonic(), threading.Lock()
    forms: list[Form] = [FORMS[number % len(FORMS)] for number in range(plan.count)]
    with closing(Traffic(stack.deployment, operator=1)) as traffic:
        for first in range(0, plan.count, CHUNK):
            submissions = _built(traffic, forms[first : first + CHUNK])
            threads = [
                threading.Thread(target=_post, args=(stack, submissions[n::4], job_ids, lock), daemon=True)
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            due = began + plan.seconds * 0.95 * (first + CHUNK) / plan.count
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


def judge(plan: Plan, stack: Stack, job_ids: list[str], start: int, spent: Sequence[Foreign], report: Report) -> None:
    """Compare rows, reviews, slots and chain."""
    with stack.connect() as conn:
        rows = stack.rows(conn, job_ids)
        with conn.cursor(row_factory=namedtuple_row) as cursor:
            reviews = cursor.execute(_REVIEWS).fetchall()
            attempts = cursor.execute(
                "SELECT state, count(*) AS n, sum(send_count) AS sends FROM tx_attempt GROUP BY 1"
            ).fetchall()
    report.statuses.update(row.status for row in rows)
    problems, lines = report.problems, report.lines
    if len(job_ids) != plan.count or len(set(job_ids)) != len(job_ids) or len(rows) != len(job_ids):
        problems.append(f"{len(job_ids)} accepted, {len(set(job_ids))} distinct, {len(rows)} rows of {plan.count}")
    share = report.statuses["completed"] / plan.count
    lines.append(f"completed: {share:.2%}")
    if share < COMPLETED_SHARE:
        problems.append(f"only {share:.2%} completed")
    problems += [
        f"{row.kind} {row.id}: {row.status}: {row.fail_detail}"
        for row in rows
        if row.status in ("failure", "timed_out")
    ]
    left = plan.count - report.statuses["completed"] - report.statuses["needs_review"]
    if left:
        problems.append(f"{left} rows neither completed nor in review")
    if len(spent) != plan.foreign:
        problems.append(f"{len(spent)} of {plan.foreign} foreign transactions came in")
    _judge_reviews(plan, reviews, report.statuses["needs_review"], spent, problems, lines)
    _judge_events(stack, rows, start, problems, lines)
    judge_signers(stack, spent, report)
    lines += [f"attempts {row.state}: {row.n}, broadcast {row.sends} times" for row in attempts]


_REVIEWS = "SELECT kind, subject_id, reason_code, evidence FROM review_case WHERE status = 'open' ORDER BY id"


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


if __name__ == "__main__":
    sys.exit(1 if run(Plan.from_environment("CHAOS_REQUESTS", 2000)).problems else 0)
