"""The applier: moves requests and payments on by the envelope log, a page in one transaction, exactly once (design 3.6).

The consumer cursor moves in the transaction of the effects, as its first statement, and only from the position this applier
read: of two appliers one applies the page and the other finds it done. A page that cannot be applied is halved until
the envelope at fault stands alone; that one is parked with its reason and the rest goes on.

An answer whose reference is not bound yet waits in the log: whoever binds a reference looks back for it. Nothing is lost
between the two, because both lock the reference's counter row before they look (engine_spike T1, T2).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.store import consumers
from requests_app.store.answers import Absorbed
from requests_app.store.envelopes import last_position, position_of
from requests_app.store.session import retry_serialization, transaction
from requests_app.transitions import answers, observing
from requests_app.transitions.answers import Advanced, Facts
from workers.chain.events import REQUEST_KINDS, Event
from workers.facts import Applicable, Reader

log = logging.getLogger("relayer.listener")

PAGE: Final = 1000
LOOK_BACK_BLOCKS: Final = 64
CATCH_UP_SECONDS: Final = 5.0
Decoded: TypeAlias = Sequence[tuple[Applicable, Event]]
Bad: TypeAlias = Mapping[int, BaseException]


class Overtaken(Exception):
    """Another applier moved the cursor first."""


class Applier:
    """Applies one source for the consumer `requests`. Not thread-safe; each process has its own."""

    def __init__(self, source_id: int, reader: Reader, *, page: int = PAGE) -> None:
        self._source = source_id
        self._reader = reader
        self._page = page
        self._position: int | None = None
        self.behind = True  # whether the seal may be ahead of what is applied

    def forget(self) -> None:
        """Read the cursor anew next time: somebody else may have moved it."""
        self._position = None

    def catch_up(self, conn: Connection[Any]) -> int:
        """Apply what is sealed: how many envelopes. `behind` stays true when time ran out or another applier is at work.

        A long backlog is taken in pieces of CATCH_UP_SECONDS, so that the loop comes round and the lease lives.
        """
        self.behind = True  # also when the database goes away under it
        standing = consumers.read_consumer(conn, self._source)
        position = self._position = standing.position
        upto = last_position(standing.sealed)
        applied = 0
        give_back = monotonic() + CATCH_UP_SECONDS
        while position < upto and monotonic() < give_back:
            page = consumers.read_page(conn, self._source, position, upto, self._page)
            end = page[-1].position if len(page) == self._page else upto
            if not self._claim(conn, page, end):
                break
            applied, position = applied + len(page), end
        self.behind = position < upto
        return applied

    def offer(self, conn: Connection[Any], envelopes: Sequence[Applicable], lo: int, hi: int) -> int:
        """Apply blocks lo..hi, just recorded by this process, without reading them back: how many envelopes.

        Falls back to `catch_up` when something below is not applied yet.
        """
        if self._position is None or self._position < last_position(lo - 1):
            return self.catch_up(conn)
        after, self.behind = self._position, True
        fresh = sorted(
            {one.position: one for one in envelopes if one.position > after}.values(), key=lambda one: one.position
        )
        for start in range(0, len(fresh), self._page):
            page = fresh[start : start + self._page]
            end = page[-1].position if start + self._page < len(fresh) else last_position(hi)
            if not self._claim(conn, page, end):
                return self.catch_up(conn)
        self.behind = False
        return len(fresh)

    def apply_now(self, conn: Connection[Any], envelopes: Sequence[Applicable]) -> Advanced:
        """Apply envelopes outside the cursor (found by asking the chain once more), in one transaction; idempotent.

        Raises the first error of an envelope that cannot be read.
        """
        decoded, bad = self._reader.decode(envelopes)
        if bad:
            raise next(iter(bad.values()))
        self._reader.prepare(decoded)
        standing = consumers.read_consumer(conn, self._source)
        places = [(envelope.position, envelope.block_hash) for envelope, _ in decoded]

        def work() -> Advanced:
            with transaction(conn):
                # Blocks may have given way since the chain was asked: only what the log holds now is applied.
                kept = consumers.still_logged(conn, self._source, places)
                facts = self._reader.facts(pair for pair in decoded if pair[0].position in kept)
                done = self._effects(conn, facts, last_position(standing.sealed))
                crash_point("before_apply_now_commit")
            crash_point("after_apply_now_commit")
            return done

        return retry_serialization(work)

    def hold(self, conn: Connection[Any]) -> None:
        """Keep the other appliers and reorganisations away until the caller's transaction ends."""
        consumers.still_logged(conn, self._source, [])

    def apply_answers(self, conn: Connection[Any], refs: Sequence[bytes]) -> Advanced:
        """Apply the logged answers to references that were just bound by hand, in the caller's transaction. No network."""
        standing = consumers.read_consumer(conn, self._source)
        found = consumers.read_by_refs(conn, self._source, refs, 0, standing.position)
        decoded, _ = self._reader.decode(one for one in found if one.kind not in REQUEST_KINDS)
        facts = self._reader.facts(decoded)
        return answers.advance(conn, facts, answers.absorb(conn, facts))

    def _claim(self, conn: Connection[Any], page: Sequence[Applicable], end: int) -> bool:
        """Apply a page and move the cursor to `end`; False when another applier was ahead."""
        decoded, bad = self._reader.decode(page)
        self._reader.prepare(decoded)
        try:
            self._apply(conn, decoded, bad, end)
        except Overtaken:
            self._position = None
            log.info("another applier is at work", extra={"action": "apply_overtaken", "source": self._source})
            return False
        return True

    def _apply(self, conn: Connection[Any], decoded: Decoded, bad: Bad, end: int) -> None:
        """One transaction, or two halves of it after a failure, down to the envelope at fault."""
        try:
            retry_serialization(lambda: self._transaction(conn, decoded, bad, end))
        except Overtaken:
            raise
        except Exception as error:
            if _transient(error, len(decoded)) or not decoded:
                raise
            if len(decoded) == 1:
                self._transaction(conn, [], {**bad, decoded[0][0].position: error}, end)
                return
            middle = len(decoded) // 2
            edge = decoded[middle - 1][0].position
            self._apply(conn, decoded[:middle], {at: why for at, why in bad.items() if at <= edge}, edge)
            self._apply(conn, decoded[middle:], {at: why for at, why in bad.items() if at > edge}, end)

    def _transaction(self, conn: Connection[Any], decoded: Decoded, bad: Bad, end: int) -> None:
        assert self._position is not None  # noqa: S101 - set by every caller
        facts = self._reader.facts(decoded)
        with transaction(conn):
            if not consumers.move_consumer(conn, self._source, self._position, end):
                raise Overtaken
            consumers.park_envelopes(conn, self._source, bad)
            done = self._effects(conn, facts, self._position) if facts else None
            crash_point("before_apply_commit")
        self._position = end
        crash_point("after_apply_commit")
        if bad:
            reasons = {str(at): f"{type(why).__name__}: {why}"[:200] for at, why in bad.items()}
            log.error(
                "envelopes parked", extra={"action": "envelopes_parked", "source": self._source, "reasons": reasons}
            )
        if done:
            _report(done, len(decoded))

    def _effects(self, conn: Connection[Any], facts: Facts, upto: int) -> Advanced:
        """Bind, look back for answers up to `upto` of what was bound here, move the rows; payments last, as their books are."""
        absorbed = {one.ref: one for one in answers.absorb(conn, facts)}
        early = self._early(conn, [one for one in absorbed.values() if one.tx_hash is not None], upto)
        if early:
            for one in answers.absorb(conn, early):
                bound = absorbed.get(one.ref)
                absorbed[one.ref] = one._replace(tx_hash=bound.tx_hash, block=bound.block) if bound else one
            facts.extend(early)
        done = answers.advance(conn, facts, list(absorbed.values()))
        confirming = observing.observe(conn, self._source, facts)
        return replace(done, payments=len(confirming))

    def _early(self, conn: Connection[Any], bound: Sequence[Absorbed], upto: int) -> Facts:
        """Answers to the references just bound that were read before them. Thresholds come from memory: no network here."""
        if not bound:
            return Facts()
        first = min(one.block or 0 for one in bound)
        floor = position_of(max(0, first - LOOK_BACK_BLOCKS))
        found = consumers.read_by_refs(conn, self._source, [one.ref for one in bound], floor, upto)
        decoded, _ = self._reader.decode(one for one in found if one.kind not in REQUEST_KINDS)
        return self._reader.facts(decoded)


def _transient(error: Exception, size: int) -> bool:
    """Whether the database or the network was at fault, not an envelope: the same page is tried again later.

    A statement that ran too long is halved first, like a page with a bad envelope.
    """
    if isinstance(error, psycopg.errors.QueryCanceled) and size > 1:
        return False
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def _report(done: Advanced, envelopes: int) -> None:
    moved = {f"{kind.slug}_receipts": n for kind, n in done.receipts.items() if n}
    moved |= {f"{kind.slug}_completed": n for kind, n in done.completed.items() if n}
    if done.payments:
        moved["payments_confirming"] = done.payments
    if moved:
        log.info("page applied", extra={"action": "page_applied", "envelopes": envelopes, **moved})
