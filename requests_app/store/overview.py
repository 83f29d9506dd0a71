"""Summaries for people and monitors: what waits, how old it is, who owns what.

Every function is one read-only statement of ``sql/overview.sql`` and returns typed rows. Ages are seconds by the
database clock; None means "never" or "nothing there".
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, NamedTuple

import psycopg

from requests_app.store.session import fetch_all, fetch_only

LIVE_CAP: Final = 500  # rows of a kind in a state: 14 such counts are one statement
JOBS_CAP: Final = 4000


class LiveRequests(NamedTuple):
    """Rows of one kind in one waiting state."""

    kind: int
    status: str
    rows: int
    oldest_seconds: float
    overdue: int


class LivePayments(NamedTuple):
    """Payments in one waiting state, and how long the oldest has been in it."""

    state: str
    rows: int
    oldest_seconds: float


class ParkedLetters(NamedTuple):
    """Dead letters that wait for a person, and how long the oldest has."""

    rows: int
    oldest_seconds: float


class Reconciled(NamedTuple):
    """How far the reconciliation of a source is behind the seal, and how many findings of one kind it has (None: none at all)."""

    source: str
    lag_blocks: int
    kind: str | None
    findings: int | None


class QueueDepth(NamedTuple):
    """Jobs of one kind in one queue; `visible` may be claimed now, `leased` are being worked on."""

    queue: str
    kind: int
    jobs: int
    leased: int
    visible: int
    oldest_visible_seconds: float | None
    highest_attempt: int


class Lease(NamedTuple):
    """An execution lease; negative `seconds_left` means expired."""

    resource: str
    instance: str
    epoch: int
    seconds_left: float
    held_seconds: float
    how: str


class Listener(NamedTuple):
    """A chain source with its seal, its lease and its last turn."""

    source_id: int
    name: str
    chain_id: int
    start_block: int
    block: int | None
    cursor_age_seconds: float | None
    turn_age_seconds: float | None
    lease_seconds_left: float | None
    instance: str | None
    halted: str | None
    lag_blocks: int | None = None
    reorgs: int = 0


class Beat(NamedTuple):
    """The last sign of life of a process on a resource."""

    resource: str
    instance: str
    beat_age_seconds: float
    turn_age_seconds: float | None
    pid: int
    host: str


class Signer(NamedTuple):
    """A sending account; wei amounts are exact, `owner` is the instance that holds its lease now."""

    id: int
    chain_id: int
    address: bytes
    status: str
    next_nonce: int | None
    chain_nonce_latest: int | None
    max_inflight: int
    balance_wei: Decimal | None
    fee_balance: Decimal | None
    fee_allowance: Decimal | None
    synced_seconds_ago: float | None
    open_slots: int
    owner: str | None

    @property
    def nonce_distance(self) -> int | None:
        """Nonces given out that the chain has not consumed yet; None before the first look at the chain."""
        if self.next_nonce is None or self.chain_nonce_latest is None:
            return None
        return self.next_nonce - self.chain_nonce_latest


class OpenAttempts(NamedTuple):
    """Signed transactions without a known fate, by state."""

    state: str
    rows: int
    oldest_seconds: float


class OpenReviews(NamedTuple):
    """Open review cases by kind and reason code."""

    kind: int
    reason_code: str
    rows: int
    oldest_seconds: float


class WaitingCommands(NamedTuple):
    """Commands that were not consumed yet."""

    kind: str
    state: str
    rows: int
    oldest_seconds: float


class DeadEnvelopes(NamedTuple):
    """Events that a consumer could not apply and that nobody has resolved."""

    consumer: str
    source_id: int
    rows: int


def live_requests(conn: psycopg.Connection[Any]) -> list[LiveRequests]:
    """Count the rows that still wait, with the age of the oldest in its state and how many are past their deadline.

    More than LIVE_CAP of one kind in one state are as many as the figures duty counted last.
    """
    return [LiveRequests(*row) for row in fetch_all(conn, "overview", "live_requests", {"cap": LIVE_CAP})]


def live_payments(conn: psycopg.Connection[Any]) -> list[LivePayments]:
    """Count the payments that wait, by state; more than LIVE_CAP as `live_requests`."""
    return [LivePayments(*row) for row in fetch_all(conn, "overview", "live_payments", {"cap": LIVE_CAP})]


def parked_letters(conn: psycopg.Connection[Any]) -> ParkedLetters:
    """Jobs that were given up."""
    return ParkedLetters(*fetch_only(conn, "overview", "parked_letters"))


def reconciled(conn: psycopg.Connection[Any]) -> list[Reconciled]:
    """How the chain's payments compare with the books."""
    return [Reconciled(*row) for row in fetch_all(conn, "overview", "reconciled")]


def queue_depths(conn: psycopg.Connection[Any]) -> list[QueueDepth]:
    """Count the jobs by queue and kind; with more than JOBS_CAP of them, as the figures duty counted last."""
    return [QueueDepth(*row) for row in fetch_all(conn, "overview", "queue_depths", {"cap": JOBS_CAP})]


def leases(conn: psycopg.Connection[Any]) -> list[Lease]:
    """List the execution leases, live or expired; of those on review cases the live ones."""
    return [Lease(*row) for row in fetch_all(conn, "overview", "leases")]


def listeners(conn: psycopg.Connection[Any]) -> list[Listener]:
    """List every chain source with its progress."""
    return [Listener(*row) for row in fetch_all(conn, "overview", "listeners")]


def beats(conn: psycopg.Connection[Any]) -> list[Beat]:
    """List the last sign of life of every worker."""
    return [Beat(*row) for row in fetch_all(conn, "overview", "beats")]


def signers(conn: psycopg.Connection[Any]) -> list[Signer]:
    """List the sending accounts with their open slots and present owner."""
    return [Signer(*row) for row in fetch_all(conn, "overview", "signers")]


def open_attempts(conn: psycopg.Connection[Any]) -> list[OpenAttempts]:
    """Count signed transactions whose fate is not known yet."""
    return [OpenAttempts(*row) for row in fetch_all(conn, "overview", "open_attempts")]


def open_reviews(conn: psycopg.Connection[Any]) -> list[OpenReviews]:
    """Count the cases that wait for a person."""
    return [OpenReviews(*row) for row in fetch_all(conn, "overview", "open_reviews")]


def waiting_commands(conn: psycopg.Connection[Any]) -> list[WaitingCommands]:
    """Count the commands that no consumer has taken to their end."""
    return [WaitingCommands(*row) for row in fetch_all(conn, "overview", "waiting_commands")]


def dead_envelopes(conn: psycopg.Connection[Any]) -> list[DeadEnvelopes]:
    """Count unresolved dead letters of the envelope log."""
    return [DeadEnvelopes(*row) for row in fetch_all(conn, "overview", "dead_envelopes")]


def database_answers(conn: psycopg.Connection[Any]) -> bool:
    """Whether the database answers a trivial statement."""
    return bool(fetch_all(conn, "overview", "database_answers"))
