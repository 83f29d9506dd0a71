"""A node of one's own: an HTTP server in a thread whose every answer the test decides."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

Reply = bytes | None


class LastReply(bytes):
    """A reply after which the server closes the connection, whether its headers say so or not."""


@dataclass
class StubNode:
    """`respond(document, count)` gives the raw HTTP answer for the count-th request; None closes the connection instead."""

    respond: Callable[[Any, int], Reply]
    requests: list[Any] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    def serve(self, client: socket.socket) -> None:
        stream = client.makefile("rb")
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = stream.readline()
                    if not line:
                        return
                    head += line
                length = next(
                    int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length")
                )
                self.heads.append(head)
                self.requests.append(orjson.loads(stream.read(length)))
                reply = self.respond(self.requests[-1], len(self.requests))
                if reply is None:
                    return
                client.sendall(reply)
                if isinstance(reply, LastReply):
                    return
        except OSError:
            return
        finally:
            stream.close()
            hang_up(client)


def http(body: bytes, status: int = 200, *headers: str) -> bytes:
    """A raw HTTP/1.1 answer."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "content-type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_reply(document: Any, status: int = 200, *headers: str) -> bytes:
    """A raw HTTP/1.1 answer with a JSON body."""
    return http(orjson.dumps(document), status, *headers)


def results(document: Any, value: Callable[[str, Any], Any]) -> Any:
    """JSON-RPC answers for a single request or a batch; `value(method, params)` is the result or an {"error": ..} dict."""

    def one(call: Any) -> Any:
        found = value(call["method"], call["params"])
        body = found if isinstance(found, dict) and set(found) == {"error"} else {"result": found}
        return {"jsonrpc": "2.0", "id": call["id"], **body}

    return [one(call) for call in document] if isinstance(document, list) else one(document)


def hang_up(client: socket.socket) -> None:
    """Close a connection so that the other side notices at once."""
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    client.close()


@contextmanager
def stub_node(respond: Callable[[Any, int], Reply]) -> Iterator[StubNode]:
    """A running stub; ends with all its threads when the block ends."""
    node = StubNode(respond)
    server = socket.create_server(("127.0.0.1", 0))
    node.url = f"http://127.0.0.1:{server.getsockname()[1]}"
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            node.connections += 1
            clients.append(client)
            threads.append(threading.Thread(target=node.serve, args=(client,), daemon=True))
            threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield node
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        acceptor.join(5)
        for client in clients:
            hang_up(client)
        for thread in threads:
            thread.join(5)
