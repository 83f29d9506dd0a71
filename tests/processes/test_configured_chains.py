"""What the settings say of the chains is refused by name when it is malformed, whatever JSON it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from requests_app.config import address, config
from requests_app.errors import ConfigurationError

HOST = {"chain_id": 8009, "url": "http://127.0.0.1:1", "acl_address": "0x" + "11" * 20}


@pytest.fixture(autouse=True)
def chains(settings: Settings) -> Iterator[None]:
    settings.GATEWAY_RPC_URLS, settings.GATEWAY_CHAIN_ID = ["http://127.0.0.1:1"], 1
    settings.DECRYPTION_ADDRESS = settings.INPUT_VERIFICATION_ADDRESS = "0x" + "11" * 20
    settings.FEE_TOKEN_ADDRESS = settings.PAYMENT_ADDRESS = ""
    settings.GATEWAY_SIGNER_KEYS, settings.PAYMENT_TOKENS, settings.HOST_CHAINS = [], [], [HOST]
    config.cache_clear()
    yield
    config.cache_clear()


def test_a_host_chain_is_read() -> None:
    assert config().host_chains[8009].acl == address(HOST["acl_address"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"chain_id": "mainnet"},
        {"chain_id": None},
        {"acl_address": 17},
        {"acl_address": None},
        {"acl_address": "0x12"},
        {"kms_generation_address": ["0x12"]},
        {"finality_depth": "deep"},
    ],
)
def test_a_malformed_host_chain_is_refused(settings: Settings, wrong: dict[str, Any]) -> None:
    settings.HOST_CHAINS = [{**HOST, **wrong}]
    with pytest.raises(ConfigurationError):
        config()


@pytest.mark.parametrize("entry", ["0x12", 5, None, {"address": 5}, []])
def test_what_is_no_token_is_refused(settings: Settings, entry: Any) -> None:
    settings.PAYMENT_TOKENS = [entry]
    with pytest.raises(ConfigurationError):
        config()
