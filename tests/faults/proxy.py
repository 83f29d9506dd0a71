"""A JSON-RPC proxy that fails on demand. In a thread: `FaultProxy(url)`. As a process: `python -m tests.faults.proxy`.

    with FaultProxy(node_url, seed=7) as proxy:
        proxy.add(Rule(Fault.DROP_ANSWER, "eth_sendRawTransaction", times=1))
        ...talk to proxy.url...
        assert proxy.script.injected["drop_answer"] == 1

Another process is steered over its own port: POST /faults with {"add": [rule, ..]} or {"clear": true}; the answer holds the counters.
`ProxyClient` does that.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from tests.faults.node import answers
from tests.faults.rules import Fault, Rule, Script

CONTROL = "/faults"
UPSTREAM_SECONDS = 30.0
HTML_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class FaultProxy:
    """Stands before the node at `target` and listens on 127.0.0.1:`port` (0: a free one). One thread a connection."""

    def __init__(self, target: str, *, seed: int = 0, port: int = 0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.script = Script(seed)
        self._port = port
        self._server: socket.socket | None = None
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.listen()
        self.url = f"http://127.0.0.1:{self._port}"

    def add(self, *rules: Rule) -> None:
        """Put rules into force, after those that are."""
        for rule in rules:
            self.script.add(rule)

    def clear(self) -> None:
        """No faults from now on."""
        self.script.clear()

    def listen(self) -> None:
        """Take connections (again)."""
        if self._server is not None:
            return
        self._server = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def cut(self) -> None:
        """Refuse connections and reset the open ones, as a node that is gone does; `listen` ends it."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            reset(client)

    close = cut

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = http.client.HTTPConnection(*self._target, timeout=UPSTREAM_SECONDS)
        try:
            with client.makefile("rb") as stream:
                while (request := _read(stream)) is not None:
                    reply = self._reply(*request, upstream)
                    if reply is None:
                        return
                    client.sendall(reply)
        except (OSError, http.client.HTTPException, ValueError):
            return  # a client or a node that is gone: the other side sees a closed connection
        finally:
            upstream.close()
            reset(client)
            with self._lock:
                self._clients.discard(client)

    def _reply(self, path: str, body: bytes, upstream: http.client.HTTPConnection) -> bytes | None:
        """The raw HTTP answer; None resets the connection."""
        document = orjson.loads(body)
        if path == CONTROL:
            return _http(orjson.dumps(self._steer(document)))
        calls = document if isinstance(document, list) else [document]
        methods = [str(call.get("method")) for call in calls]
        self.script.saw(methods)
        faults = {rule.fault: rule for rule in self.script.whole(methods)}
        early = self._early(faults, isinstance(document, list))
        if early is not None:
            return early or None
        rules = [self.script.single(method) for method in methods]

        def forward(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return self._forward(upstream, wanted)

        if Fault.DUPLICATE in faults:
            answers(calls, rules, forward, None)
        found = answers(calls, rules, forward, faults.get(Fault.STALE_HEAD))
        if Fault.DROP_ANSWER in faults:
            return None
        return _http(orjson.dumps(found if isinstance(document, list) else found[0]))

    def _early(self, faults: dict[Fault, Rule], batch: bool) -> bytes | None:
        """The answer of a fault that comes before the node, empty for a reset; None when the request goes on."""
        if Fault.REFUSE in faults:
            return b""
        if Fault.DELAY in faults:
            time.sleep(float(faults[Fault.DELAY].options.get("seconds", 0.2)))
        if Fault.DROP_REQUEST in faults:
            time.sleep(float(faults[Fault.DROP_REQUEST].options.get("seconds", 0.0)))
            return b""
        if Fault.RATE_LIMIT in faults:
            after = faults[Fault.RATE_LIMIT].options.get("retry_after")
            extra = () if after is None else (f"retry-after: {after}",)
            return _http(b"Too Many Requests", 429, "text/plain", *extra)
        if Fault.HTML in faults:
            return _http(HTML_PAGE, 502, "text/html")
        if Fault.ONE_ERROR in faults and batch:
            return _http(
                orjson.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32005, "message": "limit exceeded"}})
            )
        return None

    def _forward(self, upstream: http.client.HTTPConnection, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.script.reached(calls)
        body = orjson.dumps(calls)
        for attempt in (1, 2):
            try:
                upstream.request("POST", "/", body, {"content-type": "application/json"})
                break
            except (OSError, http.client.HTTPException):  # the node closed the kept connection before it read anything
                upstream.close()
                if attempt == 2:
                    raise
        answered = orjson.loads(upstream.getresponse().read())
        by_id = {answer["id"]: answer for answer in answered}
        return [by_id[call["id"]] for call in calls]

    def _steer(self, document: dict[str, Any]) -> dict[str, Any]:
        if document.get("clear"):
            self.clear()
        self.add(*(Rule.read(rule) for rule in document.get("add", ())))
        return {
            "injected": self.script.injected,
            "seen": self.script.seen,
            "sent": self.script.sent if document.get("sent") else {},
        }


class ProxyClient:
    """Steers a proxy of another process through its own port."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add(self, *rules: Rule) -> None:
        """Put rules into force."""
        self.control({"add": [rule.document() for rule in rules]})

    def clear(self) -> None:
        """No faults from now on."""
        self.control({"clear": True})

    def injected(self) -> dict[str, int]:
        """How often each kind of fault was made."""
        found: dict[str, int] = self.control({})["injected"]
        return found

    def control(self, document: dict[str, Any]) -> dict[str, Any]:
        """One exchange with the control port. Raises OSError while the proxy is away."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        try:
            connection.request("POST", CONTROL, orjson.dumps(document))
            found: dict[str, Any] = orjson.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()


def _read(stream: Any) -> tuple[str, bytes] | None:
    """Path and body of the next request, None at the end of the connection, also one in the middle of a request: its client was killed."""
    first = stream.readline()
    length = 0
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = stream.read(length) if line else b""
    return (first.split(b" ")[1].decode(), body) if line and len(body) == length else None


def _http(body: bytes, status: int = 200, kind: str = "application/json", *extra: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", f"content-type: {kind}", *extra]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def reset(client: socket.socket) -> None:
    """Close so that the other side sees a reset, not an orderly end."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RDWR)
    client.close()


def main(arguments: Iterable[str] | None = None) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(None if arguments is None else list(arguments))
    proxy = FaultProxy(options.target, seed=options.seed, port=options.port)
    print(proxy.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
