"""File server for the FHE public key and the CRS, under the addresses that the chain names."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from workers.devnet.layout import ADDRESS
from workers.devnet.published import CRS_FILE, CRS_ID, FHE_KEY_FILE, KEY_ID, STORAGE_PREFIX, key_file

ROUTES: Final = {
    f"/kms-public/{STORAGE_PREFIX}/{FHE_KEY_FILE}/{KEY_ID:064x}": FHE_KEY_FILE,
    f"/kms-public/{STORAGE_PREFIX}/{CRS_FILE}/{CRS_ID:064x}": CRS_FILE,
}


class KeyHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of the two objects; everything else is a 404."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second packet: no 40 ms wait for an acknowledgement
    server_version = "devnet-storage"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a development server whose log nobody reads."""

    def _answer(self, with_body: bool) -> None:
        name = ROUTES.get(self.path.partition("?")[0])
        body = key_file(name).read_bytes() if name else b"not found\n"
        self.send_response(HTTPStatus.OK if name else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "application/octet-stream" if name else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        # Browsers fetch the key files straight from storage.
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        if with_body:
            self.wfile.write(body)


class KeyServer(ThreadingHTTPServer):
    """Ends without waiting for open connections."""

    daemon_threads = True
    block_on_close = False


def serve(port: int) -> KeyServer:
    """A bound server; the caller runs `serve_forever`. Raises OSError when the port is taken."""
    return KeyServer((ADDRESS, port), KeyHandler)


def run(port: int) -> None:
    """Serves until the process is ended."""
    serve(port).serve_forever(poll_interval=60)
