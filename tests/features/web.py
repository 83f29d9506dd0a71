"""Web servers of the product as processes, on a database of the tests."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connection

from requests_app.sockets import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent


def database_url() -> str:
    """The URL of the database that the tests use now."""
    found = connection.settings_dict
    host = str(found["HOST"] or "")
    place = f"?host={quote(host, safe='')}" if host.startswith("/") else ""
    address = "" if place else f"{host}:{found['PORT'] or 5432}"
    return f"postgres://{found['USER'] or 'postgres'}@{address}/{found['NAME']}{place}"


class WebServer:
    """One granian master with `workers` processes; close() ends it."""

    def __init__(self, workers: int = 1, **environment: str) -> None:
        self.port = free_port()
        chain = {
            "GATEWAY_CHAIN_ID": "654321",
            "GATEWAY_RPC_URLS": "http://127.0.0.1:9",
            "DECRYPTION_ADDRESS": "0xB8Ae44365c45A7C5256b14F607CaE23BC040c354",
            "INPUT_VERIFICATION_ADDRESS": "0xE61cff9C581c7c91AEF682c2C10e8632864339ab",
            "HOST_CHAINS": json.dumps(
                [{"chain_id": 8009, "url": "http://127.0.0.1:9", "acl_address": "0x" + "ac" * 20}]
            ),
        }
        own = {
            "DATABASE_URL": environment.get("DATABASE_URL") or database_url(),
            "API_PORT": str(self.port),
            "WEB_WORKERS": str(workers),
            "LOG_LEVEL": "WARNING",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "relayer_site.web"],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "relayer_site.settings", **chain, **own, **environment},
        )
        try:
            wait_until(self._alive, 90, "the web server does not answer")
        except BaseException:
            self.close()
            raise

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """(status, headers in lower case, JSON body) of one exchange on its own connection."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as link:
            raw = None if body is None else json.dumps(body)
            link.request(method, path, raw, {"content-type": "application/json", **headers})
            answer = link.getresponse()
            text = answer.read()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            json.loads(text) if text else None,
        )

    def close(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _alive(self) -> bool:
        assert self._process.poll() is None, "the web server ended"
        try:
            return self.call("GET", "/liveness")[0] == 200
        except OSError:
            return False
