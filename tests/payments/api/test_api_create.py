"""POST /v1/payment-intents: which terms are taken in, and how a refusal looks."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from requests_app.addresses import checksummed, parse_address, spellings
from requests_app.api.auth import forget_keys
from requests_app.api.refusals import Refused
from requests_app.api.v1 import payments_intake as intake
from requests_app.authorizations import UINT256_MAX
from requests_app.identity import payment_ref
from tests.api.conftest import Api
from tests.payments.api.paying import CHAIN, MERCHANT, PATH, PAYER, PAYER_KEY, TOKEN, create, sign, terms

FIELDS = {"id", "ref", "state", "version", "chain", "token", "payer", "merchant", "amount", "tx_hash", "state_reason",
          "created_at", "updated_at", "expires_at", "typed_data"}  # fmt: skip


def test_a_payment(api: Api) -> None:
    response = create(api, "k")
    body = response.json()
    assert response.status_code == 201
    assert response.headers["Location"] == f"{PATH}/{body['id']}"
    assert set(body) == FIELDS
    assert terms().items() <= body.items()
    assert (body["state"], body["version"], body["tx_hash"], body["state_reason"]) == ("created", 1, None, None)
    assert body["ref"] == "0x" + payment_ref(body["id"], CHAIN, TOKEN, PAYER, MERCHANT, 100_000_000).hex()
    assert body["created_at"] == body["updated_at"]
    lifetime = datetime.fromisoformat(body["expires_at"]) - datetime.fromisoformat(body["created_at"])
    assert lifetime == timedelta(hours=1)
    assert api.get(response.headers["Location"]).json() == body


def test_a_wallet_signs_what_is_offered(api: Api) -> None:
    """eth_account reads the typed data as wallets do, and comes to the signature that the tests make by hand."""
    document = create(api, "k").json()["typed_data"]
    signed = Account.sign_message(encode_typed_data(full_message=document), PAYER_KEY)
    assert "0x" + signed.signature.hex().removeprefix("0x") == sign(document)["signature"]


def test_texts_are_kept_as_they_came(api: Api, conn: psycopg.Connection[Any]) -> None:
    """The ref commits to them; the typed data spells addresses as wallets want them."""
    body = create(api, "k", token=TOKEN.lower(), payer=PAYER.lower()).json()
    assert (body["token"], body["payer"], body["merchant"]) == (TOKEN.lower(), PAYER.lower(), MERCHANT)
    assert body["ref"] == "0x" + payment_ref(body["id"], CHAIN, TOKEN.lower(), PAYER.lower(), MERCHANT, 10**8).hex()
    assert body["typed_data"]["message"]["from"] == PAYER
    stored = conn.execute("SELECT token, payer, merchant FROM payment_intent").fetchone()
    assert stored == (TOKEN.lower(), PAYER.lower(), MERCHANT)


def test_the_largest_amount(api: Api) -> None:
    body = create(api, "k", amount=str(UINT256_MAX)).json()
    assert body["amount"] == body["typed_data"]["message"]["value"] == str(UINT256_MAX)


def test_an_expiry_of_ones_own(api: Api) -> None:
    until = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    body = create(api, "k", expires_at=until.strftime("%Y-%m-%dT%H:%M:%SZ")).json()
    assert datetime.fromisoformat(body["expires_at"]) == until
    assert body["typed_data"]["message"]["validBefore"] == str(int(until.timestamp()))


WRONG_CHECKSUM = PAYER.replace("C5", "c5")
BAD: list[tuple[str, Any]] = [
    *(("amount", text) for text in ("0", "-1", "+1", "01", "1.0", "1e3", "", " 1", "1 ", "0x10", "1_000", "１２３", "٣", "¹",
                                    str(UINT256_MAX + 1), "9" * 78, "1" + "0" * 400, "1\n", "NaN", "Infinity")),
    *(("chain", text) for text in ("evm:1", "evm:0654321", "EVM:654321", "654321", "evm:654321 ", "")),
    *(("token", text) for text in ("0x" + "11" * 20, "0x", "", TOKEN[2:], TOKEN.upper(), TOKEN + "00", TOKEN[:-1] + "g")),
    *((name, text) for name in ("payer", "merchant")
      for text in (WRONG_CHECKSUM, "0x" + "0" * 40, "0X" + PAYER[2:], PAYER.upper(), "0x" + "é" * 20, PAYER[:-1] + "３", "pi_1")),
    *(("expires_at", text) for text in ("2001-01-01T00:00:00Z", "tomorrow", "1796030417", "2999-02-30T00:00:00Z", "2999-01-01T00:00:00",
                                        "2999-01-01T00:00:00+01:00", "9999-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "")),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD)
def test_unacceptable_values(api: Api, conn: psycopg.Connection[Any], field: str, value: str) -> None:
    response = create(api, "k", **{field: value})
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["label"] == "validation_failed"
    assert field in {error["field"] for error in response.json()["errors"]}
    assert conn.execute("SELECT count(*) FROM payment_intent").fetchone() == (0,)


@pytest.mark.parametrize("value", [1, 1.5, -1, True, None, [], {}, ["1"], {"a": 1}])
@pytest.mark.parametrize("field", ["amount", "payer", "expires_at"])
def test_values_of_another_type(api: Api, field: str, value: Any) -> None:
    response = create(api, "k", **{field: value})
    assert (response.status_code, response.json()["label"]) == (400, "validation_failed")


def test_payer_and_merchant_differ(api: Api) -> None:
    response = create(api, "k", merchant=PAYER.lower())
    assert response.json()["errors"] == [{"field": "merchant", "issue": "Must not be the payer"}]


@pytest.mark.parametrize("missing", ["chain", "token", "payer", "merchant", "amount"])
def test_every_term_is_needed(api: Api, missing: str) -> None:
    body = terms()
    del body[missing]
    response = api.post(PATH, body, **{"Idempotency-Key": "k"})
    assert (response.status_code, response.json()["label"]) == (400, "missing_fields")
    assert response.json()["errors"][0]["field"] == missing


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        (b"", "malformed_json"),
        (b"[]", "malformed_json"),
        (b"null", "validation_failed"),
        (b"{", "malformed_json"),
        (b"\xff", "malformed_json"),
        (b'{"a":' * 5000, "malformed_json"),
        (b'{"amount":"1","amount":"2"}', "malformed_json"),
        (b'{"amount":NaN}', "malformed_json"),
        (b'{"memo":"x"}', "validation_failed"),
        (b" " * (2 * 1024 * 1024 + 1), "request_error"),
    ],
)
def test_bodies_that_are_no_payment(api: Api, raw: bytes, label: str) -> None:
    response = api.post(PATH, raw, **{"Idempotency-Key": "k"})
    assert (response.status_code, response.json()["label"]) == (400, label)


def test_a_disabled_account(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    """At once, although its key is remembered for a moment; and told apart from a wrong key when it is not."""
    assert create(api, "k").status_code == 201
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (alice,))
    remembered = create(api, "other")
    forget_keys()
    for response in (remembered, create(api, "other"), api.get(PATH), create(api, "k")):
        assert (response.status_code, response.json()["label"]) == (403, "account_disabled")
    assert conn.execute("SELECT count(*) FROM payment_intent").fetchone() == (1,)


def test_other_methods(api: Api) -> None:
    assert api.method("DELETE", PATH).headers["Allow"] == "GET, HEAD, POST"
    assert api.method("PUT", f"{PATH}/pi_{'0' * 24}").headers["Allow"] == "GET, HEAD"


@given(st.integers(1, UINT256_MAX))
def test_every_amount_is_read_exactly(amount: int) -> None:
    assert intake._number(str(amount)) == amount


@given(st.text(max_size=90))
@settings(max_examples=500)
def test_only_one_spelling_of_a_number(text: str) -> None:
    value = intake._number(text)
    assert value is None or str(value) == text


@given(st.binary(min_size=20, max_size=20))
def test_addresses_have_two_spellings(address: bytes) -> None:
    for text in spellings(address):
        assert parse_address(text) == address
    mixed = checksummed(address)
    turned = mixed.swapcase().replace("0X", "0x")
    assert parse_address(turned) is None or turned in spellings(address)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([PAYER, TOKEN, CHAIN, "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(list(terms())), inner, max_size=6),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*terms(), "expires_at", "memo"]), _JSON))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_body_is_read_or_refused(body: dict[str, Any]) -> None:
    """Nothing but a refusal may come of it; and what is read is what was sent."""
    with suppress(Refused):
        assert str(intake.new_payment(json.dumps(body).encode()).terms.amount) == body["amount"]
