"""No webhook reaches what only we can reach, however its address is written and whatever its name comes to mean."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from pytest_django import Settings

from requests_app.webhook_targets import (
    Target,
    TargetRefused,
    TargetUnknown,
    is_public,
    judged_addresses,
    judged_within,
    parse_target,
)

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.7",
    "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%2", "fec0::1", "ff02::1",
    "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::1",
    "3fff::1", "5f00::1", "not an address", "",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "172.32.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2606:4700:4700::1111",
    "2a00:1450::1",
]


def resolved(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """The resolver answers these, one after the other; the names that were asked for."""
    asked: list[str] = []
    left = list(answers)

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in left.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_public_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_public(text)
    resolved(monkeypatch, [text])
    with pytest.raises(TargetRefused, match="private, local, or reserved"):
        judged_addresses(parse_target("https://innocent.example/hook"))


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_taken(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data", "https://[fd00:ec2::254]/", "https://[64:ff9b::7f00:1]/", "https://0.0.0.0/", "https://[::]/",
    ],
)  # fmt: skip
def test_a_literal_address_is_judged_too(url: str) -> None:
    with pytest.raises(TargetRefused, match="private, local, or reserved"):
        judged_addresses(parse_target(url))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://receiver.example/", "https"),
        ("ftp://receiver.example/", "https"),
        ("file:///etc/passwd", "https"),
        ("gopher://receiver.example/", "https"),
        ("//receiver.example/", "https"),
        ("receiver.example", "https"),
        ("https://", "https"),
        ("https:///hook", "https"),
        ("https://receiver.example:22/", "ports"),
        ("https://receiver.example:80/", "ports"),
        ("https://receiver.example:5432/", "ports"),
        ("https://receiver.example:0/", "ports"),
        ("https://receiver.example:99999/", "URL"),
        ("https://receiver.example:x/", "URL"),
        ("https://[::1/", "URL"),
        ("https://user:pass@receiver.example/", "user name"),
        ("https://receiver.example@10.0.0.1/", "user name"),
        ("https://receiver.example/#part", "fragment"),
        ("https://receiver.example/#", "fragment"),
        ("https://2130706433/", "usual spelling"),
        ("https://0x7f000001/", "usual spelling"),
        ("https://017700000001/", "usual spelling"),
        ("https://127.1/", "usual spelling"),
        ("https://0177.0.0.1/", "usual spelling"),
        ("https://0x7f.0.0.1/", "usual spelling"),
        ("https://127.0.0.1./", "usual spelling"),
        ("https://1.1.1.256/", "usual spelling"),
        ("https://receiver.0x10/", "usual spelling"),
        ("https://[fe80::1%25eth0]/", "interface"),
        ("https://[fe80::1%eth0]/", "interface"),
        ("https://rece_iver..example/", "host name"),
        ("https://-receiver.example/", "host name"),
        ("https://" + "a" * 64 + ".example/", "host name"),
        ("https://" + "a." * 130 + "example/", "host name"),
        ("https://receiver.example/" + "a" * 2048, "longer"),
        ("https://receiver.exämple/", "ASCII"),
        ("https://\uff11\uff12\uff17.0.0.1/", "ASCII"),
        ("https://receiver.example/a b", "ASCII"),
        ("https://receiver.example/\r\nhost: inside", "ASCII"),
        ("https://receiver\t.example/", "ASCII"),
        ("https://receiver.example\\@10.0.0.1/", "ASCII"),
        ("https://receiver.example/\x00", "ASCII"),
        ("", "ASCII"),
    ],
)
def test_a_url_that_a_webhook_may_not_have(url: str, why: str) -> None:
    with pytest.raises(TargetRefused, match=why):
        parse_target(url)


def test_the_parts_of_a_good_one() -> None:
    assert parse_target("https://Receiver.Example./a/b?c=d") == Target(True, "receiver.example", 443, "/a/b?c=d", False)
    assert parse_target("https://receiver.example:8443").path == "/"
    assert parse_target("https://receiver.example:8443").authority == "receiver.example:8443"
    assert parse_target("https://[2606:4700:4700:0::1111]:443/").authority == "[2606:4700:4700::1111]"
    assert parse_target("https://1.1.1.1/").host == "1.1.1.1"


def test_one_bad_address_among_good_ones_refuses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved(monkeypatch, ["8.8.8.8", "10.0.0.1"], ["8.8.8.8", "8.8.8.8", "1.1.1.1"])
    target = parse_target("https://receiver.example/")
    with pytest.raises(TargetRefused):
        judged_addresses(target)
    assert judged_addresses(target) == ["8.8.8.8", "1.1.1.1"]


def test_a_name_without_an_address_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved(monkeypatch, [])
    with pytest.raises(TargetUnknown):
        judged_addresses(parse_target("https://receiver.example/"))

    def fails(*_: Any, **__: Any) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(TargetUnknown):
        judged_addresses(parse_target("https://receiver.example/"))


def test_a_trusted_host_may_be_anywhere_and_no_other_profits(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WEBHOOK_ALLOWED_HOSTS = ["inside.example", "127.0.0.1"]
    resolved(monkeypatch, ["10.0.0.1"], ["127.0.0.1"], ["10.0.0.1"])
    assert judged_addresses(parse_target("http://INSIDE.example.:8099/")) == ["10.0.0.1"]
    assert judged_addresses(parse_target("http://127.0.0.1:8099/")) == ["127.0.0.1"]
    for url in ("http://not.inside.example/", "https://inside.example.evil:8099/", "http://127.0.0.2:8099/"):
        with pytest.raises(TargetRefused):
            parse_target(url)
    with pytest.raises(TargetRefused):
        judged_addresses(parse_target("https://outside.example/"))


def test_nobody_waits_for_a_slow_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    asked = threading.Semaphore(0)

    def slow(*_: Any, **__: Any) -> list[Any]:
        asked.release()
        release.wait(120)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    target = parse_target("https://receiver.example/")
    for _ in range(8):
        with pytest.raises(TargetUnknown, match="in time"):
            judged_within(target, 0.01)
    with pytest.raises(TargetUnknown, match="too many"):
        judged_within(target, 0.01)
    for _ in range(8):
        assert asked.acquire(timeout=60)
    release.set()
    for thread in threading.enumerate():
        if thread.name == "webhook-lookup":
            thread.join(60)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("1.1.1.1", 443))])
    assert judged_within(target, 60) == ["1.1.1.1"]
