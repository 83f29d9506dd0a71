"""One kept HTTP/1.1 connection to one endpoint, which always knows whether a request can have left this process."""

from __future__ import annotations

import base64
import http.client
import io
import os
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from requests_app.errors import ConfigurationError
from requests_app.sockets import is_quiet
from workers.chain.rpc_errors import RpcUnavailable

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 10.0
ANSWER_LIMIT: Final = 64 << 20
CHUNK: Final = 1 << 16


class StaleConnection(RpcUnavailable):
    """A kept connection turned out to be closed by the other side before it answered a single byte."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, body and the Retry-After seconds of one HTTP answer."""

    status: int
    body: bytes
    retry_after: float | None


class KeptConnection:
    """POSTs bodies to one URL over one connection, which is replaced when it is closed or inherited by a fork.

    Not thread-safe. `name` is "host:port" and safe to log; the URL itself never leaves this class.
    """

    def __init__(self, url: str, timeout: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS)) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("an RPC endpoint must be an http or https URL with a host")
        self._https = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._https else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["authorization"] = "Basic " + base64.b64encode(pair).decode()
        self._connect_seconds, self._read_seconds = timeout
        self._connection: http.client.HTTPConnection | None = None
        self._owner = 0
        self.name = f"{self._host}:{self._port}"

    def close(self) -> None:
        """Close the connection; the next post opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        # An endpoint that is dropped without close() must not leak its socket.
        if getattr(self, "_connection", None) is not None:
            self.close()

    def post(self, body: bytes) -> HttpAnswer:
        """POST `body` once. Raises RpcUnavailable; StaleConnection when a kept connection was closed unanswered."""
        kept = self._reusable()
        connection = kept or self._open()
        try:
            answer = self._exchange(connection, body, kept is not None)
        except BaseException:
            self.close()
            raise
        if connection.sock is None:
            self.close()
        return answer

    def _reusable(self) -> http.client.HTTPConnection | None:
        """The kept connection if it is ours and still open, else None and it is closed."""
        kept = self._connection
        if kept is not None and kept.sock is not None and self._owner == os.getpid() and is_quiet(kept.sock.fileno()):
            return kept
        self.close()
        return None

    def _open(self) -> http.client.HTTPConnection:
        maker = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = maker(self._host, self._port, timeout=self._connect_seconds)
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ssl.SSLError) as error:
            connection.close()
            raise RpcUnavailable(f"{self.name}: cannot connect: {_brief(error)}", sent=False) from None
        self._connection, self._owner = connection, os.getpid()
        return connection

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes, kept: bool) -> HttpAnswer:
        deadline = time.monotonic() + self._read_seconds
        connection.sock.settimeout(self._read_seconds)
        connection.response_class = _by(deadline)
        try:
            connection.putrequest("POST", self._path, skip_accept_encoding=True)
            for key, value in self._headers.items():
                connection.putheader(key, value)
            connection.putheader("content-length", str(len(body)))
            connection.endheaders()
        except (OSError, http.client.HTTPException) as error:
            # Nothing of the body was handed to the kernel: the node cannot have acted on it.
            raise RpcUnavailable(f"{self.name}: closed before sending: {_brief(error)}", sent=False) from None
        try:
            connection.send(body)
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            failure = StaleConnection if kept else RpcUnavailable
            raise failure(f"{self.name}: closed without an answer: {_brief(error)}", sent=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise RpcUnavailable(f"{self.name}: no answer: {_brief(error)}", sent=True) from None
        with response:
            return HttpAnswer(response.status, self._read(response), _retry_after(response))

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """The whole body within the deadline and ANSWER_LIMIT."""
        parts: list[bytes] = []
        size = 0
        try:
            while chunk := response.read1(CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > ANSWER_LIMIT:
                    raise ValueError("too large")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RpcUnavailable(f"{self.name}: broken answer: {_brief(error)}", sent=True) from None
        # read1 reports the end of a short body as a clean end; what is left of content-length tells the truth.
        if response.length:
            raise RpcUnavailable(f"{self.name}: answer ended early", sent=True)
        return b"".join(parts)


def _by(deadline: float) -> Any:
    """What http.client makes its answers of, here such that they are read by a deadline: a dripping server cannot hold a worker.

    Its own timeout begins anew with every byte, also of the headers.
    """

    def response(stream: socket.socket, **options: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(cast("socket.socket", _Timed(stream, deadline)), **options)

    return response


class _Timed:
    """The one call of a socket that an answer makes."""

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """What the answer is read from."""
        return io.BufferedReader(_Reading(self._stream, self._deadline))


class _Reading(io.RawIOBase):
    """Reads from a socket, which stays open until this is closed, by a deadline (a monotonic time)."""

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline
        self._raw = stream.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("answer too slow")
        self._stream.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    """Seconds of a numeric Retry-After header; a date or nonsense is None."""
    value = response.getheader("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 8 else None


def _brief(error: BaseException) -> str:
    """The class and text of an error, short."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
