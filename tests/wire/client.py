"""Plain HTTP to the running relayer: raw bodies in, status, headers and body out."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from tests.waiting import wait_until

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Response:
    """One answer. Header names are lower case; `body` is the parsed JSON, or None."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def job_id(self) -> str:
        """The job of a POST that was accepted as the contract wants it."""
        assert self.status == 202, self.raw
        assert set(self.body) == {"status", "requestId", "result"}
        assert self.body["status"] == "queued"
        assert UUID(self.body["requestId"]).version == 4
        assert int(self.headers["retry-after"]) >= 1
        return str(UUID(self.body["result"]["jobId"]))

    @property
    def error(self) -> dict[str, Any]:
        """The error of a failed envelope."""
        assert self.headers["content-type"] == "application/json"
        body = self.body
        assert body["status"] == "failed", body
        UUID(body["requestId"])
        assert set(body["error"]) <= {"label", "message", "details"}
        return dict(body["error"])

    @property
    def failure(self) -> tuple[int, str]:
        """Status and label."""
        return self.status, self.error["label"]

    def details(self) -> set[tuple[str, str]]:
        """The fields to blame with their issues; their order is free."""
        return {(detail["field"], detail["issue"]) for detail in self.error["details"]}


class Client:
    """One client of the API. `key` None sends no key. A new connection for each exchange."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._headers = {} if key is None else {"x-api-key": key}

    def exchange(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        """One exchange. Raises OSError."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            raw = answer.read()
            return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, raw)
        finally:
            connection.close()

    def alive(self) -> bool:
        """Whether somebody answers."""
        try:
            return self.get("/liveness").status == 200
        except OSError:
            return False

    def wait_alive(self, timeout: float = 120.0) -> None:
        """Returns once somebody answers."""
        wait_until(self.alive, timeout, f"an answer of {self._host}:{self._port}")

    def get(self, path: str) -> Response:
        return self.exchange("GET", path)

    def post(self, path: str, body: Any = None) -> Response:
        """`body` bytes go as they are, anything else as JSON."""
        return self.exchange("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())

    def follow(self, path: str, job_id: str, timeout: float = 120.0) -> Response:
        """GET until the answer is no longer 202; every 202 on the way is as the contract wants it."""

        def final() -> Response | None:
            response = self.get(f"{path}/{job_id}")
            if response.status != 202:
                return response
            if "/v1/" not in path:
                assert set(response.body) == {"status", "requestId"}
                assert response.body["status"] == "queued"
            assert int(response.headers["retry-after"]) >= 1
            return None

        found = wait_until(final, timeout, f"{path}/{job_id} final")
        assert found is not None
        return found
