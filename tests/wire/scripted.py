"""A server that answers as a test says, for answers that the relayer never gives: `/<case>/<anything>`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4


@dataclass(frozen=True)
class Reply:
    """One answer; `body` bytes go as they are."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def queued(job_id: str | None = None) -> Reply:
    """A 202: of a POST with a job id, of a GET without."""
    body: dict[str, Any] = {"status": "queued", "requestId": str(uuid4())}
    return Reply(202, {**body, "result": {"jobId": job_id}} if job_id else body, {"Retry-After": "1"})


def failed(status: int, label: str, **members: Any) -> Reply:
    """A failed envelope."""
    error = {"label": label, "message": f"{label} it is", **members}
    return Reply(status, {"status": "failed", "requestId": str(uuid4()), "error": error})


@contextmanager
def serving(cases: Mapping[str, tuple[Reply, Reply | None]]) -> Iterator[str]:
    """The address of a server that answers POST and GET of each case."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the body is a second packet: no 40 ms wait for an acknowledgement

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self._answer(cases[self.path.split("/")[1]][0])

        def do_GET(self) -> None:
            reply = cases[self.path.split("/")[1]][1]
            assert reply is not None
            self._answer(reply)

        def _answer(self, reply: Reply) -> None:
            raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
