"""What became of a run of payments, by everything that knows: the rows, the token's events by ref, the books, the product's own checks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from psycopg.rows import namedtuple_row

from tests.chaos.foreign import Foreign
from tests.chaos.mischief import DOLLAR, Deed
from tests.chaos.orders import ENDS, MUST_SETTLE, REASONS, Fate, Order
from tests.chaos.storm import Report
from tests.chaos.uses import Token, is_paid_rightly
from tests.stack.harness import ROOT, Stack, plain_environment

SETTLED_SHARE = 0.99
SHOWN = 20

_ROWS = "SELECT id, public_id, ref, state, state_reason, tx_hash FROM payment_intent"
_CASES = (
    "SELECT c.id, c.subject_id, c.reason_code, c.evidence, c.status, p.public_id, p.state FROM review_case c"
    " LEFT JOIN payment_intent p ON p.id = c.subject_id WHERE c.kind = 4 ORDER BY c.id"
)
_LETTERS = (
    "SELECT d.subject_id, d.reason, p.public_id FROM dead_letter d JOIN payment_intent p ON p.id = d.subject_id"
    " WHERE d.kind = 4 AND d.status = 'parked' ORDER BY d.id"
)
_FINDINGS = "SELECT kind, ref, count(*) AS n FROM recon_finding GROUP BY 1, 2"
_TIMES = (
    "SELECT extract(epoch FROM max(s.at) - min(a.at)) AS span, count(*) AS n,"
    " percentile_cont(ARRAY[0.5, 0.95, 1.0]) WITHIN GROUP (ORDER BY extract(epoch FROM s.at - a.at)) AS waits"
    " FROM intent_transition a JOIN intent_transition s USING (intent_id)"
    " WHERE a.to_state = 'authorized' AND s.to_state = 'settled'"
)
_ATTEMPTS = "SELECT state, count(*) AS n, sum(send_count) AS sends FROM tx_attempt GROUP BY 1 ORDER BY 1"


class Audit:
    """Judges into `report`: problems, and lines for people."""

    def __init__(self, stack: Stack, orders: Sequence[Order], report: Report) -> None:
        self._stack, self._orders, self._report = stack, orders, report
        self._problems, self._lines = report.problems, report.lines
        with stack.connect() as conn, conn.cursor(row_factory=namedtuple_row) as cursor:
            self._rows: dict[str, Any] = {row.public_id: row for row in cursor.execute(_ROWS).fetchall()}
            self._cases: list[Any] = cursor.execute(_CASES).fetchall()
            self._letters: list[Any] = cursor.execute(_LETTERS).fetchall()
            self._findings: list[Any] = cursor.execute(_FINDINGS).fetchall()
            self._times: Any = cursor.execute(_TIMES).fetchone()
            self._attempts: list[Any] = cursor.execute(_ATTEMPTS).fetchall()
        self._by_id = {one.intent_id: one for one in orders if one.intent_id}
        self._by_ref = {one.ref: one for one in orders if one.ref}
        report.statuses.update(row.state for row in self._rows.values())

    def judge(self, done: Sequence[Deed], spent: Sequence[Foreign]) -> None:
        """Everything, one after the other."""
        token = Token.read(self._stack)
        self._everybody_has_one()
        self._ends()
        self._paid_once(token)
        self._reviews(done, spent)
        self._letters_have_causes()
        self._reconciled()
        self._books(token)
        self._numbers()

    def _everybody_has_one(self) -> None:
        """Each order became one payment, however often its client had to ask."""
        if len(self._by_id) != len(self._orders) or set(self._rows) != set(self._by_id):
            extra = sorted(set(self._rows) - set(self._by_id))[:SHOWN]
            text = f"{len(self._orders)} orders, {len(self._by_id)} known to their clients, {len(self._rows)} rows"
            self._problems.append(f"{text}; of nobody: {extra}")

    def _ends(self) -> None:
        states: dict[Fate, Counter[str]] = defaultdict(Counter)
        reviewed = {case.public_id for case in self._cases if case.status == "open"}
        for order in self._orders:
            row = self._rows.get(order.intent_id)
            state = "missing" if row is None else row.state
            states[order.fate][state] += 1
            allowed = {"canceled"} if order.withdrawn else ENDS.get(order.fate, frozenset({"settled"}))
            # Whatever a foreign nonce did is judged with its case.
            if state not in allowed and not (state == "needs_review" and order.intent_id in reviewed):
                why = "" if row is None else row.state_reason
                self._problems.append(f"{self._named(order)} is {state}: {why}")
        for fate, found in states.items():
            self._lines.append(f"{fate.value}: {dict(found)}")
        quiet = [one for one in self._orders if one.fate in MUST_SETTLE]
        settled = sum(found["settled"] for fate, found in states.items() if fate in MUST_SETTLE)
        every = self._report.statuses["settled"]
        share = settled / max(1, len(quiet))
        self._lines.append(
            f"settled: {settled} of {len(quiet)} that nothing stood against ({share:.2%}),"
            f" {every} of all {len(self._orders)} ({every / len(self._orders):.2%})"
        )
        if share < SETTLED_SHARE:
            self._problems.append(f"only {share:.2%} settled")

    def _paid_once(self, token: Token) -> None:
        """Settled: one use of its ref by its payer, with exactly its transfer, by the transaction on record. Else: none."""
        once = unpaid = otherwise = 0
        for order in self._orders:
            row = self._rows.get(order.intent_id)
            state, tx_hash = ("missing", b"") if row is None else (row.state, bytes(row.tx_hash or b""))
            uses = [one for one in token.uses.get(order.ref, []) if one.authorizer == order.payer.address]
            if not is_paid_rightly(order, state, tx_hash, uses):
                self._problems.append(f"{self._named(order)} is {state}, and its ref was used by {uses}")
            elif state == "settled":
                once += 1
            else:
                unpaid += not uses
                otherwise += bool(uses)
        strangers = [ref.hex() for ref in token.uses if ref not in self._by_ref]
        if strangers or token.loose:
            self._problems.append(f"the token moved for nobody: refs {strangers[:SHOWN]}, {token.loose[:SHOWN]}")
        self._lines.append(
            f"on chain: {once} refs paid exactly once, as asked, by the transaction on record; {unpaid} not paid,"
            f" {otherwise} used otherwise by their payers; {sum(map(len, token.uses.values()))} uses"
        )

    def _reviews(self, done: Sequence[Deed], spent: Sequence[Foreign]) -> None:
        deeds = {one.number: one for one in done}
        foreign = {(one.address, one.nonce): one for one in spent}
        for case in self._cases:
            order = self._by_id.get(case.public_id)
            text = f"review {case.id} of {case.public_id} ({case.state}) {case.reason_code}"
            cause: object = foreign.get((case.evidence.get("signer"), case.evidence.get("nonce")))
            if case.reason_code != "foreign_nonce":
                known = order is not None and (
                    case.reason_code in REASONS.get(order.fate, frozenset()) or _explained(order, case)
                )
                cause = (deeds.get(order.number) or f"order {order.number} of a payer with money for one") if known and order else None  # fmt: skip
            if cause is None:
                fate = "" if order is None else f" ({self._named(order)})"
                self._problems.append(f"{text} has no cause in what was injected{fate}: {case.evidence}")
            else:
                self._lines.append(f"{text} traced to {cause}")
        waiting = self._report.statuses["needs_review"]
        opened = sum(case.status == "open" and case.state == "needs_review" for case in self._cases)
        if waiting != opened:
            self._problems.append(f"{waiting} payments in review, {opened} open cases of them")

    def _letters_have_causes(self) -> None:
        for letter in self._letters:
            order = self._by_id[letter.public_id]
            if order.fate is Fate.REFUSED:
                self._lines.append(f"dead letter of {self._named(order)}: {letter.reason}")
            else:
                self._problems.append(f"dead letter of {self._named(order)}: {letter.reason}")

    def _reconciled(self) -> None:
        """What the second reading found is what was done to orders."""
        for found in self._findings:
            order = self._by_ref.get(bytes(found.ref or b""))
            early = order is not None and order.fate is Fate.OVERTAKEN and found.kind == "unexpected"
            if order is None or not (early or order.fate in (Fate.OTHER_AMOUNT, Fate.OTHER_PARTY)):
                self._problems.append(
                    f"reconciliation: {found.n} {found.kind} of {bytes(found.ref or b'').hex()} {order}"
                )
            else:
                self._lines.append(f"reconciliation: {found.kind} of {self._named(order)}")

    def _books(self, token: Token) -> None:
        """The product's own judgement, and its balances against the token's."""
        verified = self._manage("relayer_ledger", "verify")
        checked = self._manage("relayer_check_invariants")
        broken = {one["name"]: one["violations"][:3] for one in checked["invariants"] if one["violations"]}
        if not verified["ok"] or broken:
            self._problems.append(f"relayer_ledger verify: {verified}; relayer_check_invariants: {broken}")
        self._lines.append(
            f"relayer_ledger verify: {verified['entries']} entries, ok {verified['ok']};"
            f" relayer_check_invariants: {len(checked['invariants'])} looked at, ok {checked['ok']}"
        )
        posted: Counter[str] = Counter()
        pending: Counter[str] = Counter()
        for row in self._manage("relayer_ledger", "balances"):
            account = row["account"].partition(":")[2].lower()
            posted[account] += int(row["posted"])
            pending[account] += int(row["pending"])
        self._balances(token, posted, pending)

    def _balances(self, token: Token, posted: Counter[str], pending: Counter[str]) -> None:
        otherwise: Counter[str] = Counter()
        held: Counter[str] = Counter()
        for order in self._orders:
            row = self._rows.get(order.intent_id)
            if row is not None and row.state == "needs_review":
                held[order.merchant] += order.amount
                held[order.payer.address] -= order.amount
            for use in token.uses.get(order.ref, []):
                if use.moved is not None and use.moved != (order.payer.address, order.merchant, order.amount):
                    otherwise[use.moved[0]] -= use.moved[2]
                    otherwise[use.moved[1]] += use.moved[2]
        accounts = sorted({*posted, *pending, *otherwise, *(one.payer.address for one in self._orders)})
        address, read = self._stack.deployment.gateway["payment_tokens"][0]["address"], DOLLAR
        calls = [("eth_call", [{"to": address, "data": "0x" + read.call("balanceOf", one).hex()}, "latest"]) for one in accounts]  # fmt: skip
        balances = dict(zip(accounts, (int(found, 16) for found in self._stack.rpc.batch(calls)), strict=True))
        for account in accounts:
            wanted = token.minted[account] + posted[account] + otherwise[account]
            if balances[account] != wanted or pending[account] != held[account]:
                self._problems.append(
                    f"{account}: {balances[account]} on chain, not minted {token.minted[account]} + posted {posted[account]}"
                    f" + moved otherwise {otherwise[account]}; pending {pending[account]}, not {held[account]}"
                )
        self._lines.append(
            f"balances: {len(accounts)} accounts on chain are what was minted plus what the ledger posted"
            f" ({sum(bool(otherwise[one]) for one in accounts)} of them with what their payers moved otherwise);"
            f" posted {sum(sum_ for sum_ in posted.values() if sum_ > 0)}, held {sum(sum_ for sum_ in held.values() if sum_ > 0)}"
        )

    def _numbers(self) -> None:
        if self._times is not None and self._times.n:
            waits = ", ".join(f"{float(one):.1f}" for one in self._times.waits)
            rate = self._times.n / max(0.001, float(self._times.span))
            self._lines.append(
                f"settled a second: {rate:.1f}; seconds from authorized to settled (p50, p95, most): {waits}"
            )
        self._lines += [f"attempts {row.state}: {row.n}, broadcast {row.sends} times" for row in self._attempts]

    def _manage(self, *words: str) -> Any:
        """The JSON that a command of the product prints about the stack's database."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words, "--json"],
            env={**plain_environment(), "RELAYER_VAR": str(self._stack.var)}, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"{words} printed {done.stdout[-500:]} {done.stderr[-2000:]}") from None

    def _named(self, order: Order) -> str:
        return f"order {order.number} ({order.fate.value}) {order.intent_id}"


def _explained(order: Order, case: Any) -> bool:
    """Executed by somebody while its client's authorization still had not got through, seen as unexpected, and explained since."""
    early = case.reason_code == "unexpected_payment" and case.evidence.get("state") == "created"
    return order.fate is Fate.OVERTAKEN and early and case.status == "closed"
