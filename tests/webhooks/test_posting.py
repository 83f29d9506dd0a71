"""One POST: to the judged address, in time, without redirects."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from time import monotonic

import pytest

from requests_app.sockets import free_port
from requests_app.webhook_targets import Target, parse_target
from tests.webhooks.receiver import Receiver
from workers import webhook_posting
from workers.webhook_posting import PostFailed, post

HEADERS = {"webhook-id": "msg_1"}


def test_what_arrives_is_what_was_sent(receiver: Receiver) -> None:
    assert post(parse_target(receiver.url), ["127.0.0.1"], b'{"a": 1}', HEADERS, 30) == 204
    (one,) = receiver.received
    assert (one.path, one.body) == ("/hook?from=relayer", b'{"a": 1}')
    assert one.headers == {
        "webhook-id": "msg_1",
        "host": f"127.0.0.1:{receiver.port}",
        "content-length": "8",
        "connection": "close",
    }


def test_the_name_is_never_looked_up_again(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: what the name means by now does not matter."""

    def getaddrinfo(host: str, *rest: object, **more: object) -> object:
        assert host == "127.0.0.1"
        return real(host, *rest, **more)  # type: ignore[arg-type]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    target = Target(False, "rebound.example", receiver.port, "/", False)
    assert post(target, ["127.0.0.1"], b"", HEADERS, 30) == 204
    assert receiver.received[0].headers["host"] == f"rebound.example:{receiver.port}"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_an_answer_like_any_other(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    assert post(parse_target(receiver.url), ["127.0.0.1"], b"", HEADERS, 30) == status
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    ("answer", "seconds", "why"),
    [
        (0, 30, webhook_posting.NOT_HTTP),
        (-3, 30, webhook_posting.NOT_HTTP),
        (-1, 0.5, webhook_posting.TOO_SLOW),
        (-2, 0.5, webhook_posting.TOO_SLOW),
    ],
)
def test_what_is_no_answer(receiver: Receiver, answer: int, seconds: float, why: str) -> None:
    """One that drips a byte now and then is no faster than one that says nothing."""
    receiver.answers = [answer]
    started = monotonic()
    with pytest.raises(PostFailed, match=why):
        post(parse_target(receiver.url), ["127.0.0.1"], b"", HEADERS, seconds)
    assert monotonic() - started < 10


def test_the_next_address_is_tried(receiver: Receiver) -> None:
    assert post(parse_target(receiver.url), ["127.0.0.2", "127.0.0.1"], b"", HEADERS, 30) == 204
    nobody = Target(False, "127.0.0.1", free_port(), "/", True)
    with pytest.raises(PostFailed, match=webhook_posting.NOT_REACHED):
        post(nobody, ["127.0.0.1", "127.0.0.2"], b"", HEADERS, 30)


def test_no_proxy_of_the_environment_is_asked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert post(parse_target(receiver.url), ["127.0.0.1"], b"", HEADERS, 30) == 204


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_tls_is_verified_by_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=receiver.example"
    names = ["-addext", "subjectAltName=DNS:receiver.example", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"]
    subprocess.run(["openssl", *command.split(), *names], check=True, capture_output=True)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(3):
            plain, _ = listening.accept()
            try:
                with serving.wrap_socket(plain, server_side=True) as stream:
                    asked = b""
                    while not asked.endswith(b"{}"):  # what is left unread would cost the answer
                        asked += (piece := stream.recv(65_536))
                        if not piece:
                            break
                    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def told(host: str) -> int:
        return post(Target(True, host, listening.getsockname()[1], "/", False), ["127.0.0.1"], b"{}", HEADERS, 10)

    with pytest.raises(PostFailed, match="TLS"):
        told("receiver.example")  # signed by nobody whom the system trusts
    trusting = ssl.create_default_context(cafile=tmp_path / "cert")
    monkeypatch.setattr(webhook_posting, "tls_context", lambda: trusting)
    assert told("receiver.example") == 200
    with pytest.raises(PostFailed, match="TLS"):
        told("other.example")
    thread.join(10)
    listening.close()
