"""Amounts as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from requests_app.admin.money import money

TOKEN = "0x" + "Ab" * 20


@pytest.mark.parametrize(
    ("decimals", "amount", "text"),
    [
        (6, 1_250_000, "1.25 dUSD"),
        (6, 1_000_000, "1.00 dUSD"),
        (6, 1, "0.000001 dUSD"),
        (6, -2_500_000_000_000, "-2\u202f500\u202f000.00 dUSD"),
        (0, 12_345, "12\u202f345 dUSD"),
        (1, 15, "1.5 dUSD"),
        (18, 2**256 - 1, "457.584007913129639935 dUSD"),
        (99, 5, ">5 units<"),  # no such token
    ],
)
def test_an_amount_in_the_decimals_of_its_token(decimals: int, amount: int, text: str, settings: Any) -> None:
    settings.PAYMENT_TOKENS = [{"address": TOKEN.lower(), "symbol": "dUSD", "decimals": decimals}]
    shown = str(money(amount, TOKEN))
    assert text in shown


def test_an_amount_of_a_token_that_is_not_configured_is_in_units(settings: Any) -> None:
    settings.PAYMENT_TOKENS = [{"address": "0x" + "00" * 20, "symbol": "<b>", "decimals": 6}]
    assert "1\u202f250\u202f000 units<" in str(money(1_250_000, TOKEN))
    settings.PAYMENT_TOKENS = [{"address": TOKEN, "symbol": "<b>", "decimals": 6}]
    assert "&lt;b&gt;" in str(money(1_250_000, TOKEN))
