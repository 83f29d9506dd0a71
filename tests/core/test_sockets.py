"""Ports for servers that start later."""

from __future__ import annotations

import socket
from pathlib import Path

from requests_app.sockets import free_port, is_free


def test_a_free_port_is_none_that_a_connection_is_given() -> None:
    """An outgoing connection that took the port meanwhile would keep its server from starting."""
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(50)}
    assert len(ports) > 40
    assert all(1024 <= port < given for port in ports)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
