"""One payment through the running relayer: created, signed with a payer's test key, authorized, watched to its end, checked on the chain.

The signature is made over the terms as this module knows them, not over the document that the API offers: the two check each other.
"""

from __future__ import annotations

import http
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workers.devnet.accounts import labelled
from workers.devnet.authorization import authorize
from workers.devnet.contracts import contract
from workers.devnet.demo import POLL_SECONDS, Answer, Api, clock
from workers.devnet.deployment import Deployment

PATH: Final = "/v1/payment-intents"
AMOUNT: Final = 2_500_000  # 2.50 dUSD
LASTS_SECONDS: Final = 3600
FINAL: Final = frozenset({"settled", "failed", "canceled"})
DOLLAR: Final = contract("DevnetUSD")


@dataclass
class Paid:
    """What became of the payment. `problem` empty means that everything holds."""

    intent_id: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    transfers: int = 0  # of its ref, on the whole chain
    problem: str = ""

    def report(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "form": "payment",
            "job_id": self.intent_id,
            "status": self.row.get("state", "refused"),
            "transitions": [{"status": one["to_state"], "at": one["at"]} for one in self.transitions],
            "tx_hash": self.row.get("tx_hash") or "",
            "transfers": self.transfers,
            "problem": self.problem,
        }


def pay(api: Api, deployment: Deployment, timeout: float = 90.0, payer: int = 1) -> Paid:
    """Carry one payment from its creation to its end. Never raises for a bad answer: the outcome carries it as its problem."""
    paid = Paid()
    merchant = labelled("merchant").address
    answer = _create(api, deployment, payer, merchant)
    if answer.status != http.HTTPStatus.CREATED:
        return _refused(paid, "creating", answer)
    paid.intent_id, paid.row = answer.body["id"], answer.body
    answer = api.post(f"{PATH}/{paid.intent_id}/authorize", _signed(deployment, payer, merchant, paid.row["ref"]))
    if answer.status != http.HTTPStatus.OK:
        return _refused(paid, "authorizing", answer)
    deadline = time.monotonic() + timeout
    while paid.row.get("state") not in FINAL and time.monotonic() < deadline:
        paid.row = api.get(f"{PATH}/{paid.intent_id}").body
        time.sleep(POLL_SECONDS if paid.row.get("state") not in FINAL else 0)
    paid.transitions = api.get(f"{PATH}/{paid.intent_id}/timeline").body.get("transitions", [])
    _check(deployment, paid, payer, merchant)
    return paid


def _create(api: Api, deployment: Deployment, payer: int, merchant: str) -> Answer:
    terms = {
        "chain": f"evm:{deployment.gateway['chain_id']}",
        "token": _token(deployment)["address"],
        "payer": deployment.users[payer].address,
        "merchant": merchant,
        "amount": str(AMOUNT),
    }
    return api.post(PATH, terms, {"Idempotency-Key": f"demo-{os.urandom(8).hex()}"})


def _signed(deployment: Deployment, payer: int, merchant: str, ref: str) -> dict[str, str]:
    gateway = deployment.gateway
    until = int(time.time()) + LASTS_SECONDS
    wallet = deployment.users[payer]
    return authorize(_token(deployment), gateway["chain_id"], wallet, merchant, AMOUNT, bytes.fromhex(ref[2:]), until)


def _token(deployment: Deployment) -> dict[str, Any]:
    token: dict[str, Any] = deployment.gateway["payment_tokens"][0]
    return token


def _refused(paid: Paid, doing: str, answer: Answer) -> Paid:
    paid.problem = f"{doing} answered {answer.status}: {json.dumps(answer.body)[:300]}"
    return paid


def _check(deployment: Deployment, paid: Paid, payer: int, merchant: str) -> None:
    """Settled, by the one transaction on the chain that used the authorization and moved this amount between these two."""
    used, moved = DOLLAR.event("AuthorizationUsed").topic, DOLLAR.event("Transfer")
    token = _token(deployment)["address"]
    with deployment.gateway_rpc() as rpc:
        logs = rpc.logs([token], [used, _word(deployment.users[payer].address), paid.row["ref"]], 0, rpc.head())
        paid.transfers = len(logs)
        receipt = rpc.call("eth_getTransactionReceipt", logs[0]["transactionHash"]) if logs else {"logs": []}
    if paid.row.get("state") != "settled":
        paid.problem = f"{paid.row.get('state')}: {paid.row.get('state_reason')}"
    elif paid.transfers != 1:
        paid.problem = f"its authorization was used {paid.transfers} times on chain instead of once"
    elif logs[0]["transactionHash"] != paid.row["tx_hash"]:
        paid.problem = f"the authorization was used by {logs[0]['transactionHash']}"
    else:
        wanted = [moved.topic, _word(deployment.users[payer].address), _word(merchant)]
        sums = [moved.decode(log)[0] for log in receipt["logs"] if log["topics"] == wanted]
        if sums != [AMOUNT]:
            paid.problem = f"its transaction moved {sums} instead of [{AMOUNT}]"


def _word(address: str) -> str:
    return "0x" + "00" * 12 + address[2:].lower()


def print_payment(paid: Paid, write: Callable[[str], object]) -> None:
    """The payment for people, as the requests are shown."""
    write(f"{'BAD' if paid.problem else 'ok '} {'payment':<15} {paid.intent_id or '-'}")
    for one in paid.transitions:
        write(f"      {clock(one['at'])}  {one['to_state']}")
    write(f"      tx      {paid.row.get('tx_hash') or '-'}  ({paid.transfers} transfer on chain)")
    write(
        f"      result  {AMOUNT / 10**6:.2f} dUSD, posted in the ledger"
        if not paid.problem
        else f"      problem {paid.problem}"
    )


def all_reports(outcomes: Sequence[Any], payments: Sequence[Paid]) -> list[dict[str, Any]]:
    """Requests and payments in one list."""
    return [one.report() for one in [*outcomes, *payments]]
