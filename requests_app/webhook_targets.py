"""Where webhooks may go: the guard against having us call what only we can reach (server-side request forgery).

A URL is judged twice: when a client names it, and before every delivery, because names come to mean other addresses. Whoever connects
uses the very addresses that were judged here, and never asks for the name again. Hosts in WEBHOOK_ALLOWED_HOSTS are trusted: they may be
anywhere, on any port, without TLS. Address blocks: the IANA special-purpose registries (RFC 6890 and what came after).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from requests_app.errors import RelayerError

LONGEST_URL: Final = 2048
_PRINTABLE: Final = re.compile(r"[!-~]+").fullmatch
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?").fullmatch
# WHATWG's "ends in a number": what some resolver may take for an address, however it is written (2130706433, 0x7f.1, 0177.0.0.1).
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
_looking_up = BoundedSemaphore(8)  # threads that wait for a resolver, of one process
_PORTS: Final = {"http": 80, "https": 443}

_REFUSED_V4: Final = tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # metadata of Azure: a public address that leads into the host
    )
)  # fmt: skip
# Of IPv6 only global unicast is right, without its special parts: Teredo and ORCHID, documentation, 6to4.
_GLOBAL_V6: Final = ipaddress.ip_network("2000::/3")
_REFUSED_V6: Final = tuple(
    ipaddress.ip_network(block) for block in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # carries an IPv4 address, as DNS64 makes them


class TargetRefused(RelayerError):
    """A webhook may not go there."""


class TargetUnknown(RelayerError):
    """The host's name has no address at the moment."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in parts. `host` is lower case, `port` explicit, `path` with its query; `trusted`: an operator allowed this host."""

    tls: bool
    host: str
    port: int
    path: str
    trusted: bool

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def without_path(url: str) -> str:
    """A stored URL for eyes that need not know its path and query: scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def parse_target(url: str) -> Target:
    """The parts of a URL that a webhook may have. Raises TargetRefused; no name is looked up."""
    if len(url) > LONGEST_URL:
        raise TargetRefused(f"Must not be longer than {LONGEST_URL} characters")
    if not _PRINTABLE(url) or "\\" in url:
        raise TargetRefused("Must be a URL in ASCII; other host names in their xn-- form, other characters as %XX")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise TargetRefused("Must be a URL") from None
    if parts.scheme not in _PORTS or not host:
        raise TargetRefused("Must be an https URL with a host")
    if "@" in parts.netloc:
        raise TargetRefused("Must not hold a user name or password")
    if parts.fragment or "#" in url:
        raise TargetRefused("Must not hold a fragment")
    host = _host(host)
    tls = parts.scheme == "https"
    port = _PORTS[parts.scheme] if port is None else port
    trusted = host in {name.lower().rstrip(".") for name in settings.WEBHOOK_ALLOWED_HOSTS}
    if not trusted and not tls:
        raise TargetRefused("Must be an https URL")
    if not trusted and str(port) not in settings.WEBHOOK_PORTS:
        raise TargetRefused(f"Must have one of these ports: {', '.join(settings.WEBHOOK_PORTS)}")
    if not 0 < port < 65_536:
        raise TargetRefused("Must have a port from 1 to 65535")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(tls, host, port, path, trusted)


def judged_addresses(target: Target) -> list[str]:
    """The addresses to connect to, in the resolver's order. Raises TargetRefused when one of them is not public, TargetUnknown.

    One bad address refuses all: a name that stands for a public and a private one is nobody's mistake.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        raise TargetUnknown("Its host name has no address") from None
    texts = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not texts:
        raise TargetUnknown("Its host name has no address")
    if not target.trusted and not all(is_public(text) for text in texts):
        raise TargetRefused("Must not lead to an address that is private, local, or reserved")
    return texts


def judged_within(target: Target, seconds: float) -> list[str]:
    """`judged_addresses` for callers that cannot wait for a slow resolver. Raises TargetUnknown then, too."""
    found: SimpleQueue[list[str] | RelayerError] = SimpleQueue()

    def judge() -> None:
        try:
            found.put(judged_addresses(target))
        except RelayerError as error:
            found.put(error)
        finally:
            _looking_up.release()

    if not _looking_up.acquire(blocking=False):
        raise TargetUnknown("Its host name could not be looked up: too many are at the moment")
    Thread(target=judge, name="webhook-lookup", daemon=True).start()
    try:
        answer = found.get(timeout=seconds)
    except Empty:
        raise TargetUnknown("Its host name could not be looked up in time") from None
    if isinstance(answer, RelayerError):
        raise answer
    return answer


def is_public(text: str) -> bool:
    """Whether an address, as the resolver writes it, belongs to the public internet."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if address.ipv4_mapped is not None:
            return _public_v4(address.ipv4_mapped)
        if address in _NAT64:
            return _public_v4(IPv4Address(int(address) & 0xFFFF_FFFF))
        return address in _GLOBAL_V6 and not any(address in block for block in _REFUSED_V6)
    return _public_v4(address)


def _public_v4(address: IPv4Address) -> bool:
    return not any(address in block for block in _REFUSED_V4)


def _host(text: str) -> str:
    """A host name or an address in its one spelling. Raises TargetRefused."""
    host = text.lower()
    try:
        if "%" in host:
            raise TargetRefused("Must not name a network interface")
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    name = host.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL(label) for label in labels):
        raise TargetRefused("Must have a valid host name")
    if _NUMERIC(labels[-1]):
        raise TargetRefused("Must have a host name, or an address in its usual spelling")
    return name
