"""A TCP proxy whose line can be cut: before a database, or whatever else speaks over a socket.

with CutLine(target) as line:     # target: the path of a Unix socket
    ...connect to 127.0.0.1:line.port...
    line.cut()                    # connections are reset, new ones refused, as behind a machine that is gone
    line.hold()                   # nothing passes any more, and nobody is told, as behind a network that is gone
    line.mend()
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.faults.proxy import reset

PIECE = 65536


class CutLine:
    """Stands before the Unix socket at `target` and listens on a port of 127.0.0.1. Two threads a connection."""

    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self.port = 0
        self._server: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._passing = threading.Event()
        self.mend()

    def mend(self) -> None:
        """Let everything pass (again)."""
        self._passing.set()
        if self._server is None:
            self._server = socket.create_server(("127.0.0.1", self.port), backlog=256)
            self.port = int(self._server.getsockname()[1])
            threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def hold(self) -> None:
        """Nothing passes; connections stay, new ones come to be and get no answer."""
        self._passing.clear()

    def cut(self) -> None:
        """Reset what is open, refuse what comes."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        with self._lock:
            ends = list(self._open)
        for end in ends:
            reset(end)
        self._passing.set()  # whoever waits finds its connection gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        self._passing.wait()
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(self._target)
        except OSError:
            reset(client)
            far.close()
            return
        with self._lock:
            self._open |= {client, far}
        threading.Thread(target=self._pump, args=(far, client), daemon=True).start()
        self._pump(client, far)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(PIECE):
                self._passing.wait()
                sink.sendall(piece)
        except OSError:
            pass  # the other end sees a closed connection below
        for end in (source, sink):
            reset(end)
        with self._lock:
            self._open -= {source, sink}
