"""Holding execution leases: one keeper a process, with its own session and its own thread (design 5.1 no. 4 and 5).

Take-over. A holder keeps a session advisory lock on (resource hash, epoch), taken *before* the row names it. A candidate that obtains
the lock of the row's epoch knows that the holder's session is gone and takes over at once; else it waits for the lease to expire.
A wrong guess is harmless, because every write is fenced by the epoch. The lock needs a direct session: behind a transaction-mode
pooler set LEASE_HINT=false, and only the expiry decides.

Fail closed. `HeldLease.lost` turns true when the row names somebody else, and also when the last renewal that we know to have
happened is older than the lease; time is counted from before that statement was sent.
"""

from __future__ import annotations

import logging
import os
import threading
from time import monotonic
from typing import Any

import psycopg
from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.store import beats
from requests_app.store import leases as table
from requests_app.store.session import connect

log = logging.getLogger("relayer.leases")

STALL_SECONDS = 20.0
"""A loop that has not come round for this long renews nothing any more (engine_spike T8)."""


class HeldLease:
    """One lease of this process. `resource`, `instance` and `epoch` are the triple that fenced writes carry."""

    def __init__(self, keeper: LeaseKeeper, resource: str, epoch: int, valid_until: float) -> None:
        self.resource = resource
        self.instance = keeper.instance
        self.epoch = epoch
        self._keeper = keeper
        self._valid_until = valid_until
        self._gone = False

    @property
    def lost(self) -> bool:
        """Whether this process must stop acting on the resource: taken over, released, or not provably renewed in time."""
        return self._gone or monotonic() >= self._valid_until

    @property
    def ended(self) -> bool:
        """Whether the lease is known to be over: taken over or released. Until then a lost lease may come back by a renewal."""
        return self._gone

    def release(self) -> None:
        """Give the lease up now, so that the next holder need not wait. Safe to call twice."""
        self._keeper.give_up(self)

    def extend(self, valid_until: float) -> None:
        """Record a renewal (monotonic seconds); the keeper calls it."""
        self._valid_until = valid_until

    def forget(self) -> None:
        """Mark the lease as lost for good; the keeper calls it."""
        self._gone = True


class LeaseKeeper:
    """Claims leases for one loop and renews them every third of their length, on its own connection and thread.

    `instance` names the holder and must be unique in the world; `seconds` is the length of the leases; `beat` is the resource under
    which this loop gives its signs of life, None for none. A loop that calls `turned` each time it comes round loses its leases
    when it hangs, instead of keeping them for ever.
    """

    def __init__(self, instance: str, seconds: float, *, beat: str | None = None) -> None:
        self.instance = instance
        self.seconds = seconds
        self._beat = beat
        self._hint = bool(settings.LEASE_HINT)
        self._held: dict[str, HeldLease] = {}
        self._found: dict[str, int] = {}
        self._unmarked: set[str] = set()  # held, but without their liveness lock since a reconnection
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._turned_at: float | None = None
        self._renewed_at = monotonic()
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"leases {instance}", daemon=True)
        self._thread.start()

    def turned(self) -> None:
        """Say that the loop has come round: it lives, not only its thread."""
        self._turned_at = monotonic()

    def beat_as(self, resource: str) -> None:
        """Give the signs of life under this name from now on, the first one at once."""
        with self._lock:
            self._beat = resource
            try:
                self._sign_of_life()
            except psycopg.Error as error:
                log.warning("no beat: %s", error, extra={"action": "beat", "resource": resource})

    def epoch_of(self, resource: str) -> int | None:
        """The epoch at which `try_hold` last found a resource, None before it was asked for."""
        return self._found.get(resource)

    def try_hold(self, resource: str, *, after: int | None = None) -> HeldLease | None:
        """The lease of a resource if it can be had now, else None; never waits for a holder.

        `after`: take it only as the successor of that epoch. A lease that this keeper holds already is returned as it is.
        Raises psycopg.OperationalError when the database cannot be reached.
        """
        with self._lock:
            held = self._held.get(resource)
            if held is not None and not held.lost:
                return held
            if held is not None:
                self.give_up(held)
            try:
                return self._claim(self._session(), resource, after)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                return None  # a fenced write of the holder is under way

    def give_up(self, lease: HeldLease) -> None:
        """End a lease. When the database does not answer, its expiry ends it."""
        with self._lock:
            lease.forget()
            if self._held.get(lease.resource) is not lease:
                return
            del self._held[lease.resource]
            try:
                session = self._session()
                crash_point("before_lease_release_commit")
                table.release_lease(session, lease.resource, self.instance, lease.epoch)
                crash_point("after_lease_release_commit")
                table.drop_liveness(session, lease.resource, lease.epoch)
            except psycopg.Error as error:
                log.warning(
                    "lease not released, it will expire", extra={"action": "lease_release", "error": str(error)}
                )

    def close(self) -> None:
        """Stop renewing, release everything, end the session."""
        self._quit.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
        with self._lock:
            for lease in list(self._held.values()):
                self.give_up(lease)
            if self._connection is not None:
                self._connection.close()

    def _claim(self, session: psycopg.Connection[Any], resource: str, after: int | None) -> HeldLease | None:
        row = table.approach_lease(session, resource, after, hint=self._hint)
        if row is None:
            crash_point("before_lease_open_commit")
            table.open_lease(session, resource)
            crash_point("after_lease_open_commit")
            row = table.Approached(epoch=0, expired=True, gone=False)
        self._found[resource] = row.epoch
        if after is not None and row.epoch != after:
            return None
        if not row.expired and not row.gone:
            return None
        try:
            return self._take(session, resource, row)
        finally:
            if row.gone:
                table.drop_liveness(session, resource, row.epoch)

    def _take(self, session: psycopg.Connection[Any], resource: str, row: table.Approached) -> HeldLease | None:
        if not table.try_liveness(session, resource, row.epoch + 1):
            return None  # another candidate is ahead by one statement
        sent_at = monotonic()
        gone = row.gone
        how = "free" if row.epoch == 0 else "session gone" if gone else "expired"
        epoch = None
        try:
            crash_point("before_lease_claim_commit")
            epoch = table.claim_lease(session, resource, self.instance, row.epoch, self.seconds, gone=gone, how=how)
            crash_point("after_lease_claim_commit")
        finally:
            if epoch is None and not session.closed:
                table.drop_liveness(session, resource, row.epoch + 1)
        if epoch is None:
            return None
        lease = HeldLease(self, resource, epoch, sent_at + self.seconds)
        self._held[resource] = lease
        log.info("lease taken", extra={"action": "lease_taken", "resource": resource, "epoch": epoch, "how": how})
        return lease

    def _session(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = connect("worker", name="leases")
            # A new session holds no advisory lock; without it a candidate would think that we are gone.
            self._unmarked = set(self._held)
        return self._connection

    def _keep(self) -> None:
        pause = min(1.0, self.seconds / 3)
        while not self._quit.wait(pause):
            try:
                with self._lock:
                    self._sign_of_life()
                    due = monotonic() - self._renewed_at >= self.seconds / 3 - pause / 2
                    if due or self._unmarked:
                        self._renew()
            except Exception as error:
                # Whatever it is (the embedded server that does not start is no psycopg.Error): a thread that ended here would
                # leave a working loop without leases and signs of life for good.
                log.warning("leases not renewed", extra={"action": "lease_renew", "error": str(error)})

    def _turn_age(self) -> float:
        return 0.0 if self._turned_at is None else monotonic() - self._turned_at

    def _sign_of_life(self) -> None:
        if self._beat is not None:
            age = self._turn_age()
            host = str(settings.HOST_NAME)
            crash_point("before_beat_commit")
            beats.write_beat(self._session(), self._beat, self.instance, turn_age=age, pid=os.getpid(), host=host)
            crash_point("after_beat_commit")

    def _renew(self) -> None:
        held = [table.LeaseRef(lease.resource, lease.epoch) for lease in self._held.values()]
        if not held or self._turn_age() > STALL_SECONDS:
            return
        session = self._session()
        sent_at = monotonic()
        crash_point("before_lease_renew_commit")
        renewed = table.renew_leases(session, self.instance, held, self.seconds)
        crash_point("after_lease_renew_commit")
        self._renewed_at = sent_at
        for ref in held:
            lease = self._held[ref.resource]
            if ref in renewed:
                lease.extend(sent_at + self.seconds)
                self._mark(session, ref)
                continue
            lease.forget()
            del self._held[ref.resource]
            table.drop_liveness(session, ref.resource, ref.epoch)
            log.warning("lease lost", extra={"action": "lease_lost", "resource": ref.resource, "epoch": ref.epoch})

    def _mark(self, session: psycopg.Connection[Any], ref: table.LeaseRef) -> None:
        # The old session may still be dying on the server and hold the lock: tried again at every renewal until it works.
        if ref.resource in self._unmarked and table.try_liveness(session, *ref):
            self._unmarked.discard(ref.resource)
