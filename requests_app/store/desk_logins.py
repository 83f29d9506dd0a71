"""Statements that count tries to log in to the desk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from requests_app.store.session import fetch_only, run

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many tries may fail in a window, of one name at one address and of all names at one address."""

    per_person: int
    per_address: int
    window: float  # seconds

    def parameters(self, address: str, person: str) -> dict[str, Any]:
        """What the statements take."""
        return {
            "address": address,
            "person": person,
            "per_person": self.per_person,
            "per_address": self.per_address,
            "window": self.window,
        }


def wait_of(conn: Connection, bounds: Bounds, address: str, person: str) -> int:
    """Seconds until a try would be let through; 0: now. Counts nothing."""
    return int(fetch_only(conn, "desk_logins", "wait_of", bounds.parameters(address, person)).seconds)


def count_try(conn: Connection, bounds: Bounds, address: str, person: str) -> int:
    """Count one try. Returns the seconds to wait when it is one too many, else 0."""
    return int(fetch_only(conn, "desk_logins", "count_try", bounds.parameters(address, person)).seconds)


def forget_person(conn: Connection, person: str) -> None:
    """The name's tries at its address are forgotten, if there are any: it logged in."""
    run(conn, "desk_logins", "forget_person", {"person": person})


def take_back_try(conn: Connection, address: str) -> None:
    """The address's last try was none that failed. A window that ended meanwhile has nothing to take back from."""
    run(conn, "desk_logins", "take_back_try", {"address": address})
