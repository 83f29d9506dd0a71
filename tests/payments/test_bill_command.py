"""relayer_bill: from picodollars to a payment that its client can sign."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from eth_account import Account
from eth_account.messages import encode_typed_data
from pytest_django import Settings

from requests_app import billing
from requests_app.authorizations import Authorization, is_signed_by_payer
from requests_app.config import config
from requests_app.management.commands.relayer_bill import EXIT_NOT_BILLED
from requests_app.services_payments import transfer_of
from requests_app.store.intents import find_intent
from tests.payments.terms import MERCHANT, add_account
from tests.payments.test_bills import rows, used

KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
TOKEN = {
    "address": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
    "name": "Devnet USD",
    "version": "1",
    "symbol": "USDX",
    "decimals": 6,
}


@pytest.fixture(autouse=True)
def configured(settings: Settings) -> Any:
    settings.GATEWAY_RPC_URLS = ["http://127.0.0.1:1"]
    settings.GATEWAY_CHAIN_ID = 31337
    settings.DECRYPTION_ADDRESS = settings.INPUT_VERIFICATION_ADDRESS = "0x" + "11" * 20
    settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS = [], []
    settings.FEE_TOKEN_ADDRESS = settings.PAYMENT_ADDRESS = ""
    settings.PAYMENT_TOKENS = [TOKEN]
    settings.BILLING_MERCHANT, settings.BILLING_TOKEN = MERCHANT, ""
    settings.BILLING_PAYERS = {"rich": PAYER}
    config.cache_clear()
    yield
    config.cache_clear()


def run(*words: str, code: int | None = None) -> str:
    """What it prints when it ends with this exit code."""
    out = io.StringIO()
    with pytest.raises(SystemExit) if code else contextlib.nullcontext() as ended:
        call_command("relayer_bill", *words, stdout=out)
    assert ended is None or ended.value.code == code
    return out.getvalue()


def test_a_client_can_sign_what_the_bill_says(conn: psycopg.Connection[Any]) -> None:
    rich, nameless = add_account(conn, "rich"), add_account(conn, "nameless")
    used(conn, rich, 5, 2_500_001)
    used(conn, nameless, 5, 10**6)
    planned = json.loads(run("--dry-run", "--json", code=EXIT_NOT_BILLED))["bills"]
    assert [(one["account"], one["amount"], one["payment"]) for one in planned] == [
        ("rich", "3", None),
        ("nameless", "1", None),
    ]
    assert rows(conn)["billed"] == 0
    answer = json.loads(run("--json", code=EXIT_NOT_BILLED))
    bills = {one["account"]: one for one in answer["bills"]}
    assert bills["nameless"]["payment"] is None
    assert "BILLING_PAYERS" in bills["nameless"]["obstacle"]
    assert answer["not_billed"] == [{"account": "nameless", "why": bills["nameless"]["obstacle"]}]
    bill = bills["rich"]
    intent = find_intent(conn, bill["payment"], rich)
    assert intent is not None
    assert (intent.amount, intent.payer, intent.merchant, f"0x{intent.ref.hex()}") == (3, PAYER, MERCHANT, bill["ref"])
    signed = Account.sign_message(encode_typed_data(full_message=bill["sign"]), KEY)
    until = int(bill["sign"]["message"]["validBefore"])
    transfer = transfer_of(intent)
    assert transfer is not None
    assert is_signed_by_payer(transfer, Authorization(0, until, intent.ref, bytes(signed.signature)))
    assert json.loads(run("--open", "--json"))[0]["reference"] == bill["payment"]
    assert "1 open bills" in run("--open")
    again = json.loads(run("--json", code=EXIT_NOT_BILLED))
    assert again["bills"] == [bills["nameless"]]  # nothing is billed twice


def test_one_account_with_its_payer(conn: psycopg.Connection[Any]) -> None:
    used(conn, add_account(conn, "nameless"), 5, 10**6)
    used(conn, add_account(conn, "rich"), 5, 10**6)
    assert "1 of 1 billed" in run("--account", "nameless", "--payer", PAYER.lower())
    assert "would be billed" in run("--dry-run")
    assert "0 of 0 billed" in run("--least", "2000000")
    assert "0 of 0 billed" in run("--least", str(10**30))


def test_a_disabled_account_is_not_billed(conn: psycopg.Connection[Any]) -> None:
    used(conn, add_account(conn, "rich"), 5, 10**6)
    conn.execute("UPDATE client_account SET status = 'disabled'")
    assert "disabled" in run(code=EXIT_NOT_BILLED)
    assert rows(conn) == {"unsettled": 10**6, "billed": 0, "settled": 0}


def test_one_that_is_disabled_while_the_others_are_billed(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be left out without a word, and the command said that all was well."""
    for name in ("rich", "late"):
        used(conn, add_account(conn, name), 5, 10**6)
    monkeypatch.setitem(django_settings.BILLING_PAYERS, "late", PAYER)
    find = billing.due

    def disabled_after(*args: Any, **words: Any) -> Any:
        found = find(*args, **words)
        conn.execute("UPDATE client_account SET status = 'disabled' WHERE name = 'late'")
        return found

    monkeypatch.setattr(billing, "due", disabled_after)
    answer = json.loads(run("--json", code=EXIT_NOT_BILLED))
    assert answer["not_billed"] == [{"account": "late", "why": "the account is disabled"}]
    assert [one["account"] for one in answer["bills"] if one["payment"]] == ["rich"]


def test_what_another_run_bills_at_the_same_time_is_no_failure(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    used(conn, add_account(conn, "rich"), 5, 10**6)
    find = billing.due

    def billed_after(*args: Any, **words: Any) -> Any:
        found = find(*args, **words)
        monkeypatch.setattr(billing, "due", find)
        assert "1 of 1 billed" in run()
        return found

    monkeypatch.setattr(billing, "due", billed_after)
    assert "billed meanwhile" in run()


@pytest.mark.parametrize(
    ("words", "changes", "text"),
    [
        (["--payer", PAYER], {}, "--account"),
        (["--account", "nobody"], {}, "no account"),
        ([], {"BILLING_MERCHANT": ""}, "BILLING_MERCHANT"),
        ([], {"BILLING_TOKEN": "0x" + "12" * 20}, "BILLING_TOKEN"),
        ([], {"BILLING_PAYERS": {"rich": "0x12"}}, "not an address"),
        (["--account", "rich", "--payer", "nobody"], {}, "not an address"),
        (["--account", "rich", "--payer", MERCHANT.lower()], {}, "pay itself"),
        (["--account", "rich", "--payer", "0x" + "0" * 40], {}, "not an address"),
        ([], {"BILLING_MERCHANT": "0x" + "0" * 40}, "BILLING_MERCHANT"),
    ],
)
def test_refusals(
    transactional_db: None, settings: Settings, words: list[str], changes: dict[str, Any], text: str
) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    with pytest.raises(CommandError, match=text):
        run(*words)
