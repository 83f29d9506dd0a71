"""The readers of the environment: what is malformed is named, never shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from relayer_site import env

HOST = ("chain_id", "url", "acl_address")


def hosts() -> Any:
    return env.entries("IT", [], HOST)


@pytest.mark.parametrize(
    ("value", "read", "said"),
    [
        ('[{"url":"pa55word"', hosts, "IT is not JSON: Expecting ',' delimiter at character 19"),
        ('{"chain_id":1}', hosts, "IT must be a list in JSON"),
        ('[{"chain_id":1,"url":"pa55word"}]', hosts, "IT: entry 1 lacks acl_address"),
        ('["pa55word"]', hosts, "IT: entry 1 is not an object"),
        ("https://key:pa55word@eth.example.com", lambda: env.pairs("IT"), "IT: every entry must be KEY=VALUE"),
        ("[1]", lambda: env.document("IT", {}), "IT must be an object in JSON"),
        ("pa55word", lambda: env.database_url("IT"), "IT must be postgres://"),
        ("mysql://user:pa55word@db/relayer", lambda: env.database_url("IT"), "IT must be postgres://"),
        ("many", lambda: env.number("IT", 1), "IT must be a whole number"),
        ("soon", lambda: env.seconds("IT", 1.0), "IT must be a number of seconds"),
    ],
)
def test_what_is_malformed_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, read: Callable[[], Any], said: str
) -> None:
    monkeypatch.setenv("IT", value)
    with pytest.raises(ImproperlyConfigured) as error:
        read()
    assert str(error.value).startswith(said)
    assert "pa55word" not in str(error.value), "no secret on the terminal"


def test_what_is_well_formed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IT", '[{"chain_id": 1, "url": "http://x", "acl_address": "0x1"}]')
    assert hosts()[0]["url"] == "http://x"
    monkeypatch.setenv("IT", "8009=http://a,1=http://b=c")
    assert env.pairs("IT") == {"8009": "http://a", "1": "http://b=c"}
    for url in ("postgres://u@h/d", "postgresql://u:p@/d?host=/run"):
        monkeypatch.setenv("IT", url)
        assert env.database_url("IT") == url
    monkeypatch.delenv("IT")
    assert (env.database_url("IT"), env.number("IT", 3), hosts()) == ("", 3, [])
