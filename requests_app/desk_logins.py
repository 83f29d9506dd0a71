"""Who may try to log in to the desk, and how often: money stands behind it.

A try is counted before its password is looked at, for the name at its address and for the address. Beyond either bound no password is
looked at until the window is over, a right one neither: whoever guesses learns nothing more. A name is bounded only together with an address,
so nobody shuts out somebody else who is elsewhere. Refused tries count for nothing: a window ends when it ends.
"""

from __future__ import annotations

import ipaddress
import unicodedata
from collections.abc import Mapping
from typing import Any

import psycopg
from django.conf import settings
from django.utils.crypto import salted_hmac

from requests_app.store import desk_logins as store

Connection = psycopg.Connection[Any]


def address_of(meta: Mapping[str, Any]) -> str:
    """The address that an exchange (its WSGI environment) came from: an IPv4 address, or an IPv6 network of 64 bits, which one person has whole.

    Behind `TRUSTED_PROXIES` proxies it is what the outermost of them appended to `X-Forwarded-For`: what stands before that is anybody's word.
    """
    hops = [hop.strip() for hop in str(meta.get("HTTP_X_FORWARDED_FOR", "")).split(",") if hop.strip()]
    proxies = settings.TRUSTED_PROXIES
    text = hops[-min(proxies, len(hops))] if proxies and hops else str(meta.get("REMOTE_ADDR", ""))
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found.packed[:8] + bytes(8), 64)))
    return str(found)


def admit(conn: Connection, address: str, name: str) -> int:
    """Count a try of a name at an address. Returns 0 when its password may be looked at, else the seconds until one may be."""
    bounds = store.Bounds(
        settings.DESK_LOGIN_FAILURES, settings.DESK_LOGIN_FAILURES_PER_ADDRESS, settings.DESK_LOGIN_WINDOW_SECONDS
    )
    keys = _keys(address, name)
    return store.wait_of(conn, bounds, *keys) or store.count_try(conn, bounds, *keys)


def welcome(conn: Connection, address: str, name: str) -> None:
    """The try that was admitted has succeeded: the name's failures at this address are forgotten, the address's others stand."""
    counted, person = _keys(address, name)
    store.forget_person(conn, person)
    store.take_back_try(conn, counted)


def _keys(address: str, name: str) -> tuple[str, str]:
    """Names are kept as keyed digests: what is typed there is a password now and then."""
    same = unicodedata.normalize("NFKC", name).casefold()
    return (
        f"address {address}",
        f"name {salted_hmac('desk login', f'{address} {same}', algorithm='sha256').hexdigest()}",
    )
