"""One POST to a webhook: to addresses that were judged, within one deadline, without redirects, proxies or a look at the answer's body."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any, Final

from requests_app.webhook_targets import Target

# Texts that the client of the webhook gets to see: they say nothing of our network.
NOT_REACHED: Final = "the receiver could not be reached"
TOO_SLOW: Final = "the receiver did not answer in time"
NO_TLS: Final = "the receiver's certificate or TLS was refused"
NOT_HTTP: Final = "the receiver did not answer in HTTP"


class PostFailed(Exception):
    """No HTTP status came back; the text says why."""


def post(target: Target, addresses: Sequence[str], body: bytes, headers: Mapping[str, str], seconds: float) -> int:
    """The receiver's HTTP status, within `seconds` for everything. Raises PostFailed.

    `addresses` are tried in order until one takes the connection; the name serves for TLS and the Host header only.
    """
    until = monotonic() + seconds
    with _connected(target, addresses, until) as stream:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = _Timed(stream, until)  # there already: http.client does not connect
        try:
            connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
            wanted = {**headers, "host": target.authority, "content-length": str(len(body)), "connection": "close"}
            for name, value in wanted.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            return connection.getresponse().status  # its body is never read
        except TimeoutError:
            raise PostFailed(TOO_SLOW) from None
        except http.client.HTTPException:
            raise PostFailed(NOT_HTTP) from None
        except OSError:
            raise PostFailed(NOT_REACHED) from None


def _connected(target: Target, addresses: Sequence[str], until: float) -> socket.socket:
    failed = NOT_REACHED
    for address in addresses:
        try:
            stream = socket.create_connection((address, target.port), timeout=_left(until))
        except TimeoutError:
            failed = TOO_SLOW
            continue
        except OSError:
            continue
        return _secured(stream, target, until) if target.tls else stream
    raise PostFailed(failed)


def _secured(stream: socket.socket, target: Target, until: float) -> socket.socket:
    try:
        stream.settimeout(_left(until))  # of the whole handshake
        return tls_context().wrap_socket(stream, server_hostname=target.host)
    except TimeoutError:
        stream.close()
        raise PostFailed(TOO_SLOW) from None
    except OSError:  # ssl.SSLError is one
        stream.close()
        raise PostFailed(NO_TLS) from None


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """The system's certificates, verified as browsers do."""
    return ssl.create_default_context()


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Timed:
    """A socket for http.client whose every step has what is left of one deadline: a receiver that drips bytes gains nothing."""

    def __init__(self, stream: socket.socket, until: float) -> None:
        self._stream, self._until = stream, until

    def sendall(self, data: bytes) -> None:
        """Send all of it, or time out."""
        self._stream.settimeout(_left(self._until))
        self._stream.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What the answer is read from."""
        return io.BufferedReader(_Reading(self._receive))

    def close(self) -> None:
        """The socket is closed by who opened it."""

    def _receive(self, buffer: Any) -> int:
        self._stream.settimeout(_left(self._until))
        return self._stream.recv_into(buffer)


class _Reading(io.RawIOBase):
    def __init__(self, receive: Callable[[Any], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(buffer)
