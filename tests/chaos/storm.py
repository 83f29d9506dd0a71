"""What the runs of this package share: faults before both chains, kills, a frozen owner, a database restart; an orderly stop; the report."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.rows import namedtuple_row

from tests.chaos.foreign import Foreign, Intruder
from tests.chaos.victims import Killer
from tests.faults.rules import everything
from tests.reported import say
from tests.stack.harness import ROOT, ChainProxies, Stack, plain_environment

DRAIN_SECONDS = 240.0  # a nonce spent elsewhere is believed after a minute, and after its block is final
STOP_SECONDS = 30.0
VAR = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("chaos-stack")


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    seconds: float
    count: int  # of requests or payments
    seed: int
    faults: float = 0.05
    stopped_seconds: float = 60.0
    drain_seconds: float = DRAIN_SECONDS
    foreign: int = 0
    patience: float = 0.0

    @classmethod
    def from_environment(cls, what: str, count: int, patience: float = 0.0) -> Plan:
        """As CHAOS_… say; `what` names the number of things, `count` and `patience` are the usual ones."""
        return cls(
            seconds=float(os.environ.get("CHAOS_SECONDS", "300")),
            count=int(os.environ.get(what, str(count))),
            seed=int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31),
            faults=float(os.environ.get("CHAOS_FAULTS", "0.05")),
            stopped_seconds=float(os.environ.get("CHAOS_STOPPED_SECONDS", "60")),
            foreign=int(os.environ.get("CHAOS_FOREIGN", "2")),
            patience=float(os.environ.get("CHAOS_PATIENCE", str(patience))),
        )


@dataclass
class Report:
    """What came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    stop_seconds: float = 0.0


@contextmanager
def closed(stack: Stack, proxies: ChainProxies, killer: Killer, intruder: Intruder) -> Iterator[Report]:
    """Somebody on call for the block, and an orderly stop of everything after it, which the report judges."""
    report = Report()
    operator = _operator(stack) if intruder.times else None
    try:
        yield report
    finally:
        killer.stop()
        intruder.stop()
        if operator is not None:
            operator.kill()
            operator.wait()
        began = time.monotonic()
        stack.stop()
        report.stop_seconds = time.monotonic() - began
        proxies.close()
    say(f"the whole stack stopped in order in {report.stop_seconds:.1f} s (at most {STOP_SECONDS:.0f})")
    if report.stop_seconds > STOP_SECONDS:
        report.problems.append(f"the stack took {report.stop_seconds:.1f} s to stop")


def _operator(stack: Stack) -> subprocess.Popen[bytes]:
    environment = {**plain_environment(), "RELAYER_VAR": str(stack.var), "RELAYER_ROLE": "worker"}
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.operator"], env=environment, cwd=ROOT)


def storm(
    plan: Plan,
    proxies: ChainProxies,
    killer: Killer,
    intruder: Intruder,
    posting: threading.Thread,
    late_seconds: float = 60.0,
) -> None:
    """Faults, kills, a frozen owner and a restart of the database while `posting` runs, which may end so much too late.

    The faults stay when it is over.
    """
    proxies.add(*everything(plan.faults))
    began = time.monotonic()
    posting.start()
    killer.start()
    intruder.start()
    time.sleep(plan.seconds * 0.25)
    pause = threading.Thread(target=killer.pause_owner, args=(plan.stopped_seconds,), daemon=True)
    pause.start()
    time.sleep(plan.seconds * 0.3)
    killer.restart_database()
    posting.join(max(0.0, began + plan.seconds - time.monotonic()) + late_seconds)
    time.sleep(max(0.0, began + plan.seconds - time.monotonic()))
    killer.stop()
    intruder.stop()
    pause.join(plan.stopped_seconds)
    killer.note("no more kills; the faults stay")


CLOSING_SECONDS = 90.0
_SIGNERS = (
    "SELECT g.id, g.address, g.next_nonce, g.status, count(n.nonce) AS slots,"
    " array_agg(n.nonce ORDER BY n.nonce) FILTER (WHERE n.nonce IS NOT NULL) AS nonces,"
    " array_agg(n.nonce) FILTER (WHERE n.state IN ('signed', 'live')) AS open"
    " FROM signer g LEFT JOIN nonce_slot n ON n.signer_id = g.id GROUP BY g.id ORDER BY g.id"
)


def judge_signers(stack: Stack, spent: Sequence[Foreign], report: Report) -> None:
    """Each signer's nonces as its slots have them against the chain's count; what was spent elsewhere is known.

    The log may end a request before its receipt was asked for, which happens again and again, a minute apart at most.
    """
    until = time.monotonic() + CLOSING_SECONDS
    while True:
        problems: list[str] = []
        lines: list[str] = []
        with stack.connect() as conn, conn.cursor(row_factory=namedtuple_row) as cursor:
            signers = cursor.execute(_SIGNERS).fetchall()
        for signer in signers:
            _judge_signer(stack, signer, spent, problems, lines)
        if not problems or time.monotonic() >= until:
            report.problems += problems
            report.lines += lines
            return
        time.sleep(1)


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


def tell(report: Report, killer: Killer, proxies: ChainProxies, seconds: float) -> None:
    """Print everything that was done and what came of it."""
    print("\n".join(killer.log))
    say(f"kills: {sum(killer.killed.values())}: {dict(killer.killed)}")
    for name, proxy in (("gateway", proxies.gateway), ("host", proxies.host)):
        calls = sum(proxy.script.seen.values())
        say(f"faults before the {name}: {dict(proxy.script.injected)} in {calls} calls")
    for line in report.lines:
        say(line)
    say(f"statuses after {seconds:.0f} s: {dict(report.statuses)}")
    print("\n".join(f"PROBLEM {problem}" for problem in report.problems) or "no problem", flush=True)
