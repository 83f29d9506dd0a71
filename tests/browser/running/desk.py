"""The running stack as people at the desk see it: cases driven into review by the chain or by faults on the way to it, decided in browsers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from requests_app.states import Kind
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Fault, Rule
from tests.stack.harness import ChainProxies, Stack
from tests.waiting import wait_until
from workers.devnet.accounts import Wallet, labelled, wallet
from workers.devnet.authorization import authorize
from workers.devnet.contracts import contract
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Form, Traffic

PASSWORD = "a-Long-passw0rd"
WAIT_MS = 120_000
SECONDS = 120.0
INTENTS = "/v1/payment-intents"
AMOUNT = 1_250_000
LASTS_SECONDS = 3600
DOLLAR = contract("DevnetUSD")
PRIORITY_WEI = 200 * 10**9  # whoever offers this is first in a block


def refusing(message: str = "Internal error", code: int = -32603, times: int | None = None) -> Rule:
    """Submissions are answered with this error and do not reach the node."""
    return Rule(Fault.ERROR, "eth_sendRawTransaction", times=times, options={"code": code, "message": message})


REFUSED = refusing()
UNDERPRICED = refusing("transaction underpriced", -32000)


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment of the stack, with what its payer signed."""

    intent_id: str
    ref: bytes
    payer: Wallet
    merchant: str
    signed: dict[str, str]


@dataclass
class Desk:
    """The stack with its people, each in a browser profile of their own. The relayer reaches the gateway on two ways."""

    stack: Stack
    proxies: ChainProxies
    second: FaultProxy
    traffic: Traffic
    browser: Browser
    pages: dict[str, Page]  # made when somebody first comes

    # faults on both ways to the gateway

    def add(self, *rules: Rule) -> None:
        """Faults from now on."""
        self.proxies.gateway.add(*rules)
        self.second.add(*rules)

    def clear(self) -> None:
        """No faults from now on."""
        self.proxies.clear()
        self.second.clear()

    # the database, as an observer sees it

    def one(self, query: str, *values: Any) -> Any:
        """The first row, or None."""
        with self.stack.database() as conn:
            return conn.execute(query, values).fetchone()

    def do(self, query: str, *values: Any) -> None:
        """A statement of the test's own; where it stands for a fact of the chain, the test says so."""
        with self.stack.database() as conn:
            conn.execute(query, values)

    def row(self, job_id: str) -> Any:
        """A request's row."""
        with self.stack.database() as conn:
            return self.stack.rows(conn, [job_id])[0]

    def case_of(self, kind: Kind, subject: int, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str]:
        """The open case of a subject, waited for: its id and reason code."""

        def case() -> Any:
            meanwhile()
            return self.one(
                "SELECT id, reason_code FROM review_case WHERE kind = %s AND subject_id = %s AND status = 'open'",
                kind.value,
                subject,
            )

        found = wait_until(case, SECONDS, f"a case of {kind.slug} {subject}")
        return int(found[0]), str(found[1])

    # requests

    def post(self, form: Form = "input_proof") -> tuple[str, int]:
        """A new request: its job id and the number of its row."""
        (job_id,) = self.stack.post_all(self.traffic.build([form]))
        found = self.one("SELECT id FROM input_proof_req WHERE ext_job_id = %s", job_id)
        return job_id, int(found[0])

    def patient(self, request: int) -> None:
        """The request's deadline, which is short here, is not what its test is about."""
        self.do("UPDATE input_proof_req SET deadline_at = now() + interval '1 hour' WHERE id = %s", request)

    def park(self, rule: Rule = REFUSED, reason: str = "outcome_unknown") -> tuple[str, int]:
        """A request that cannot be sent, until it waits for a person: its job id and its case."""
        self.add(rule)
        job_id, request = self.post()
        case, found = self.case_of(Kind.INPUT_PROOF, request)
        assert found == reason
        return job_id, case

    def nonce_of(self, job_id: str) -> tuple[int, int, str] | None:
        """(signer, nonce, address) that a request was signed for."""
        found = self.one(
            "SELECT n.signer_id, n.nonce, '0x' || encode(s.address, 'hex') FROM nonce_slot n JOIN signer s ON s.id = n.signer_id"
            " JOIN input_proof_req r ON r.id = n.subject_id WHERE n.kind = 3 AND r.ext_job_id = %s ORDER BY n.opened_at DESC LIMIT 1",
            job_id,
        )
        return None if found is None else (int(found[0]), int(found[1]), str(found[2]))

    def ends(self, job_id: str, *statuses: str) -> Any:
        """The row once the faults are gone."""
        self.clear()
        (row,) = self.stack.wait_final([job_id], SECONDS)
        wait_until(lambda: self.row(job_id).status in statuses, SECONDS, f"{statuses}, not {row.status}")
        return self.row(job_id)

    # payments

    @property
    def token(self) -> dict[str, Any]:
        """The devnet's dollar."""
        found: dict[str, Any] = self.stack.deployment.gateway["payment_tokens"][0]
        return found

    @property
    def chain_id(self) -> int:
        return int(self.stack.deployment.gateway["chain_id"])

    def create(self, payer: int = 1, merchant: str = "merchant", lasts: float = LASTS_SECONDS) -> Payment:
        """A new payment whose payer has signed, without our being told."""
        who, to = self.stack.deployment.users[payer], labelled(merchant).address
        terms = {
            "chain": f"evm:{self.chain_id}", "token": self.token["address"], "payer": who.address, "merchant": to,
            "amount": str(AMOUNT),
        }  # fmt: skip
        answer = self.stack.api.post(INTENTS, terms, {"Idempotency-Key": f"desk-{secrets.token_hex(8)}"})
        assert answer.status == 201, answer
        ref = bytes.fromhex(answer.body["ref"][2:])
        return Payment(answer.body["id"], ref, who, to, self.signed(who, to, AMOUNT, ref, lasts))

    def signed(self, payer: Wallet, merchant: str, amount: int, ref: bytes, lasts: float = LASTS_SECONDS) -> Any:
        """What a payer signs."""
        return authorize(self.token, self.chain_id, payer, merchant, amount, ref, int(time.time() + lasts))

    def authorize(self, payment: Payment) -> None:
        """We are told what the payer signed."""
        answer = self.stack.api.post(f"{INTENTS}/{payment.intent_id}/authorize", payment.signed)
        assert answer.status == 200, answer

    def pay(self, payer: int = 1, lasts: float = LASTS_SECONDS) -> Payment:
        """A payment that is on its way."""
        made = self.create(payer, lasts=lasts)
        self.authorize(made)
        return made

    def number(self, payment: Payment) -> int:
        """The number of its row."""
        return int(self.one("SELECT id FROM payment_intent WHERE public_id = %s", payment.intent_id)[0])

    def state(self, payment: Payment) -> str:
        """Where it stands, as its client is told."""
        return str(self.stack.api.get(f"{INTENTS}/{payment.intent_id}").body["state"])

    def until(self, payment: Payment, *states: str) -> str:
        """Wait until it stands in one of these."""
        wait_until(
            lambda: self.state(payment) in states, SECONDS, f"{payment.intent_id} {states}, not {self.state(payment)}"
        )
        return self.state(payment)

    def payment_case(self, payment: Payment, reason: str) -> int:
        """Its case, which must be open for this reason."""
        case, found = self.case_of(Kind.PAYMENT, self.number(payment))
        assert found == reason
        return case

    def nonce_is_final(self, payment: Payment) -> None:
        """Wait until the holder of its signer has seen that what became of its nonce cannot be taken back."""
        query = "SELECT state FROM nonce_slot WHERE kind = 4 AND subject_id = %s"
        number = self.number(payment)
        wait_until(lambda: self.one(query, number) == ("final",), SECONDS, f"the nonce of {payment.intent_id} is final")

    def park_payment(self, lasts: float = LASTS_SECONDS) -> tuple[Payment, int]:
        """A payment that cannot be sent, until it waits for a person."""
        self.add(REFUSED)
        payment = self.pay(lasts=lasts)
        return payment, self.payment_case(payment, "outcome_unknown")

    def entries(self, payment: Payment) -> list[str]:
        """What the books hold of it."""
        with self.stack.database() as conn:
            query = "SELECT kind FROM ledger_entry WHERE ref = %s ORDER BY seq"
            return [str(row[0]) for row in conn.execute(query, (payment.ref,))]

    # the chain

    def transfer(self, payment: Payment, signed: dict[str, str] | None = None, **other: Any) -> Call:
        """The transfer that anybody may carry out, or (`signed`) another one with the same ref."""
        signed = signed or payment.signed
        raw = bytes.fromhex(signed["signature"][2:])
        members = (
            payment.payer.address, other.get("merchant", payment.merchant), other.get("amount", AMOUNT),
            int(signed["valid_after"]), int(signed["valid_before"]),
        )  # fmt: skip
        data = DOLLAR.call("transferWithAuthorization", *members, payment.ref, raw[64], raw[:32], raw[32:64])
        return Call(self.token["address"], data)

    def as_somebody(self, call: Call) -> str:
        """By an operator of the devnet, mined and successful: the hash."""
        sender = Sender(self.stack.rpc, self.stack.deployment.operators[2], self.chain_id)
        (sent,) = sender.send([call])
        (receipt,) = self.stack.rpc.receipts([sent])
        assert receipt["status"] == "0x1"
        return sent

    def as_owner(self, function: str, *values: Any) -> None:
        """By the owner of the dollar, mined."""
        call = Call(self.token["address"], DOLLAR.call(function, *values))
        Sender(self.stack.rpc, self.stack.deployment.deployer, self.chain_id).run([call])

    def as_owner_first(self, function: str, *values: Any) -> str:
        """By the owner of the dollar, first in the next block: the hash."""
        call = Call(self.token["address"], DOLLAR.call(function, *values))
        return self.first_in_block(self.stack.deployment.deployer, call)

    def first_in_block(self, account: Wallet, call: Call) -> str:
        """Into the pool, above everybody's price: the hash. The devnet's node signs for its test accounts."""
        fields = {
            "from": account.address, "to": call.to, "data": "0x" + call.data.hex(), "gas": hex(call.gas),
            "maxPriorityFeePerGas": hex(PRIORITY_WEI), "maxFeePerGas": hex(2 * PRIORITY_WEI),
        }  # fmt: skip
        return str(self.stack.rpc.call("eth_sendTransaction", fields))

    @contextmanager
    def no_blocks(self) -> Iterator[None]:
        """The chain makes none meanwhile."""
        self.stack.rpc.call("evm_setIntervalMining", 0)
        try:
            yield
        finally:
            self.stack.rpc.call("evm_setIntervalMining", 1)

    def use_key(self, address: str, times: int) -> None:
        """A signer's key is used outside the relayer."""
        keys = (bytes.fromhex(key.removeprefix("0x")) for key in self.stack.deployment.raw["relayer_signer_keys"])
        account = next(one for one in map(wallet, keys) if one.address.lower() == address)
        Sender(self.stack.rpc, account, self.chain_id).run([Call(account.address, b"", 21_000)] * times)

    # people

    def open(self, who: str, case: int) -> Page:
        """The case in somebody's browser."""
        page = self.pages[who]
        page.goto(f"{self.stack.url}/admin/requests_app/reviewcase/{case}/change/")
        return page

    def take(self, who: str, case: int) -> Page:
        """The case, assigned to whoever looks."""
        page = self.open(who, case)
        if page.get_by_role("button", name="Assign to me").count():
            page.get_by_role("button", name="Assign to me").click()
            page.get_by_role("button", name="Give it back").wait_for()
        return page

    def deed(self, page: Page, title: str) -> Locator:
        """One deed of the page, opened."""
        deed = page.locator("details.rl-deed", has=page.locator("summary", has_text=title))
        if deed.get_attribute("open") is None:
            deed.locator("summary").click()
        return deed

    def fill(self, who: str, case: int, title: str, reason: str, **inputs: str) -> Locator:
        """Take the case and fill a deed in, without sending it off."""
        page = self.take(who, case)
        deed = self.deed(page, title)
        for name, value in inputs.items():
            field = deed.locator(f"[name={name}]")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        deed.locator("[name=reason]").fill(reason)
        return deed

    def decide(self, who: str, case: int, title: str, button: str, reason: str, **inputs: str) -> Page:
        """Take the case and decide it."""
        self.fill(who, case, title, reason, **inputs).get_by_role("button", name=button).click()
        return self.pages[who]

    def outcome(self, page: Page, word: str = "applied") -> None:
        """Wait until the page itself, without being touched, shows what became of the decision."""
        expect(page.locator("#case-progress .rl-badge", has_text=word).first).to_be_visible(timeout=WAIT_MS)

    def confirm(self, case: int, proposed_by: str = "ada", who: str = "bob") -> None:
        """The first person cannot, another does."""
        page = self.pages[proposed_by]
        expect(page.locator("#case-progress", has_text="waits for a second person")).to_be_visible(timeout=WAIT_MS)
        assert page.get_by_role("button", name="Confirm").count() == 0
        other = self.open(who, case)
        other.get_by_role("button", name="Confirm").click()
        self.outcome(other)

    def resume_signer(self, signer_id: int) -> None:
        """Bob explains the other use of the key, if the relayer blocked it."""
        page = self.pages["bob"]
        page.goto(f"{self.stack.url}/admin/requests_app/signer/{signer_id}/change/")
        if page.locator("summary", has_text="Resume the signer").count():
            page.locator("summary", has_text="Resume the signer").click()
            page.locator("details[open] [name=reason]").fill("the other use is explained")
            page.get_by_role("button", name="Resume").click()
            self.outcome(page)
            # The page also shows what became of earlier orders.
            active = lambda: self.one("SELECT status FROM signer WHERE id = %s", signer_id) == ("active",)  # noqa: E731
            wait_until(active, SECONDS, f"signer {signer_id} active")

    def dead_nonce(self, signer_id: int, nonce: int) -> None:
        """Wait until two endpoints, a minute apart, have shown that none of our transactions took the nonce (rule R5)."""
        wait_until(
            lambda: (
                self.one("SELECT state FROM nonce_slot WHERE signer_id = %s AND nonce = %s", signer_id, nonce)
                == ("dead",)
            ),
            180,
            f"nonce {nonce} of signer {signer_id} proven dead",
        )
