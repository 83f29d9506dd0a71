"""A client's usage is billed, signed, paid on the chain and settled, and the books of the running stack hold."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from requests_app.management.commands.relayer_check_invariants import looks
from requests_app.management.commands.relayer_ledger import walk
from requests_app.models.ledger import EntryKind
from requests_app.store import ledger
from requests_app.store.bills import open_bills
from requests_app.store.invariants import INVARIANTS, check
from tests.payments.journal import entries_of
from tests.stack.harness import ROOT, Stack, plain_environment
from tests.stack.test_bad_input import exchange
from tests.stack.test_envelopes import get, publish
from tests.waiting import wait_until
from workers.devnet.accounts import labelled
from workers.devnet.authorization import authorize

pytestmark = [pytest.mark.stack, pytest.mark.timeout(500)]


def bills(stack: Stack, *words: str) -> Any:
    """The answer of `relayer_bill` against the stack's database and deployment."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "relayer_bill", "--json", *words],
        env={**plain_environment(), "RELAYER_VAR": str(stack.var), "BILLING_MERCHANT": labelled("merchant").address},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["bills"]


def settled(stack: Stack, path: str) -> Any:
    answer = get(stack, path)
    assert answer["state"] not in ("failed", "canceled", "needs_review"), answer
    return answer if answer["state"] == "settled" else None


def test_usage_is_billed_paid_and_settled(stack: Stack) -> None:
    with stack.database() as conn:
        published = ledger.head(conn)
    publish(stack, json.dumps({"topic": "0x626f6f6b73", "payload": "0x01"}).encode())
    with stack.database() as conn:  # the running minute is never billed: let it be over
        conn.execute("UPDATE usage_unsettled SET minute = minute - 100000")
        name = conn.execute(
            "SELECT name FROM client_account JOIN api_key k ON k.account_id = client_account.id LIMIT 1"
        )
        account = next(name)[0]
    payer = stack.deployment.users[2]
    (bill,) = bills(stack, "--account", account, "--payer", payer.address)
    assert int(bill["picodollars"]) > 0
    message, token = bill["sign"]["message"], stack.deployment.gateway["payment_tokens"][0]
    assert message["value"] == bill["amount"]
    signed = authorize(
        token, stack.deployment.gateway["chain_id"], payer, bill["merchant"], int(bill["amount"]),
        bytes.fromhex(bill["ref"][2:]), int(message["validBefore"]),
    )  # fmt: skip
    path = f"/v1/payment-intents/{bill['payment']}"
    status, answer = exchange(stack, "POST", f"{path}/authorize", json.dumps(signed).encode(), stack.api_key)
    assert status == 200, answer
    wait_until(lambda: settled(stack, path), 120, bill["payment"])
    paid = get(stack, "/v1/usage?state=settled&limit=1000")["usage"]
    mine = [one for one in paid if one["reference"] == bill["payment"]]
    assert sum(int(one["picodollars"]) for one in mine) == int(bill["picodollars"])

    with stack.database() as conn:
        assert open_bills(conn) == []
        broken, head = walk(ledger.journal(conn), published)
        assert broken is None
        assert head.seq >= published.seq + 2
        entries = [one.entry.kind for one in entries_of(conn, bytes.fromhex(bill["ref"][2:]))]
        assert entries == [EntryKind.HOLD, EntryKind.POST]
        looked = [one for look in looks(conn, list(INVARIANTS), 10_000) for one in check(conn, *look)]
        assert looked == []
