"""A receiver of webhooks on this machine: keeps what it gets, answers as it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread


@dataclass(frozen=True, slots=True)
class Received:
    """A request: header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """`answers` are HTTP statuses, used up one by one; then 204. 0 hangs up, -1 waits for `release`, -2 drips bytes, -3 is no HTTP."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: list[int] = []
        self.release = Event()
        self._lock = Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.take(self)

            def log_message(self, format: str, *args: object) -> None:
                """Not to the test's output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?from=relayer"

    @property
    def ids(self) -> list[str]:
        """The delivery ids, in order of arrival."""
        return [one.headers["webhook-id"] for one in self.received]

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["content-length"])
        body = handler.rfile.read(length)
        if len(body) < length:  # whoever posted has died in the middle: nothing arrived
            handler.close_connection = True
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.received.append(Received(handler.path, headers, body))
            answer = self.answers.pop(0) if self.answers else 204
        handler.close_connection = True
        if answer == -1:
            self.release.wait(120)
            answer = 204
        if answer == -2:
            self._drip(handler)
        elif answer == -3:
            handler.wfile.write(b"220 mail.example ESMTP\r\n")
        elif answer:
            handler.send_response(answer)
            if 300 <= answer < 400:
                handler.send_header("location", self.url)
            handler.send_header("content-length", "2000000000")  # nobody reads it
            handler.end_headers()

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        try:
            for byte in b"HTTP/1.1 200 OK\r\nx: " + b"a" * 400:
                handler.wfile.write(bytes([byte]))
                if self.release.wait(0.05):
                    return
        except OSError:
            return

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
