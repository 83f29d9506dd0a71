"""The readers of the environment: what is malformed is named, never shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from relayer_site import env, web

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
        ("ture", lambda: env.flag("IT", False), "IT must be true or false"),
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
    for word, wanted in {"TRUE": True, " on ": True, "1": True, "no": False, "off": False, "": False}.items():
        monkeypatch.setenv("IT", word)
        assert env.flag("IT", not wanted) is wanted
    monkeypatch.delenv("IT")
    assert (env.flag("IT", True), env.flag("IT", False)) == (True, False)
    assert (env.database_url("IT"), env.number("IT", 3), hosts()) == ("", 3, [])


def test_a_deployment_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    assert env.deployment(path) == {}
    path.write_text('{"relayer_signer_keys": ["pa55word"')
    with pytest.raises(ImproperlyConfigured, match=r"deployment\.json is not JSON") as error:
        env.deployment(path)
    assert "pa55word" not in str(error.value)


def test_the_web_server_reads_its_settings_as_all_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From files and `.env` too, and says which one it cannot read."""
    (tmp_path / "port").write_text("8123\n")
    monkeypatch.setenv("API_PORT_FILE", str(tmp_path / "port"))
    monkeypatch.setenv("WEB_WORKERS", "3")
    server = web.made()
    assert (server.bind_port, server.workers) == (8123, 3)
    monkeypatch.setenv("WEB_WORKERS", "many")
    with pytest.raises(ImproperlyConfigured, match="WEB_WORKERS must be a whole number"):
        web.made()


def test_a_role_that_is_none_is_named() -> None:
    program = "import django; django.setup()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "relayer_site.settings", "RELAYER_ROLE": "boss"},
        cwd=env.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "ImproperlyConfigured: RELAYER_ROLE" in done.stderr
