"""What a process writes into the log, for tests that kill it: the work, what may be there after its death, what must be there in the end.

`work` is done by the process that dies and, from the beginning, by the one after it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Protocol

from requests_app.errors import SourceHalted
from requests_app.states import Kind
from requests_app.store import publish
from requests_app.store.appending import append
from requests_app.store.conflicts import Conflict
from requests_app.store.envelopes import record_range
from requests_app.store.signing import Fence
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, PRICE, PUBLISHER, WIDTH, Connection, item
from tests.listen import world
from workers.chain.events import REQUEST_KINDS
from workers.duties import bands as bands_ahead
from workers.listener import Listener
from workers.publisher import PublishTurn

FENCE = Fence(f"listener:{CHAIN}", "test", 1)


class Shift:
    """A shift that goes on, and its lease."""

    lost = False

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    def stopping(self) -> bool:
        return False


class Life(Protocol):
    """One scene. `halfway` looks right after the death, `whole` after the next process."""

    def __init__(self, conn: Connection) -> None: ...
    def work(self, conn: Connection) -> None: ...
    def halfway(self, conn: Connection, point: str) -> None: ...
    def whole(self, conn: Connection) -> None: ...


def happened(point: str) -> bool:
    """Whether the commit that the point stands at is over."""
    return point.startswith("after_")


class Append:
    """Three envelopes and a row of the caller's in the caller's transaction; their band is missing."""

    def __init__(self, conn: Connection) -> None:
        self.payer = scene.account(conn)

    def work(self, conn: Connection) -> None:
        with conn.transaction():
            conn.execute("INSERT INTO originator_congestion VALUES (77, 1, 1)")
            append(conn, CHAIN, [item(at, self.payer) for at in range(3)], price=PRICE)

    def halfway(self, conn: Connection, point: str) -> None:
        assert (scene.stored(conn), scene.usage(conn), scene.congestion(conn, 77)) == ([], [], 0)

    def whole(self, conn: Connection) -> None:
        assert scene.stored(conn) == [0, 1, 2]
        assert scene.usage(conn) == [(self.payer, CHAIN, 30, 3)]
        assert (scene.congestion(conn), scene.congestion(conn, 77)) == (3, 1)
        assert conn.execute("SELECT count(*) FROM envelope_blob").fetchone() == (3,)
        assert bands(conn) == {0}


class Record:
    """Blocks 1 to 2 of a chain, a request of ours and its answer; their band is missing."""

    def __init__(self, conn: Connection) -> None:
        (ours,) = world.sent(conn, Kind.PUBLIC_DECRYPT)
        self.found = [world.requested(ours, (1, 0)), world.answered(ours, (2, 0))]

    def work(self, conn: Connection) -> None:
        record_range(conn, CHAIN, 1, 2, self.found, FENCE, None, request_kinds=REQUEST_KINDS, price=PRICE)

    def halfway(self, conn: Connection, point: str) -> None:
        assert len(scene.stored(conn)) == (2 if happened(point) else 0)
        assert sealed(conn) == (2 if happened(point) else 0)

    def whole(self, conn: Connection) -> None:
        assert scene.stored(conn) == [one.position for one in self.found]
        assert sealed(conn) == 2
        assert [row[3] for row in scene.usage(conn)] == [1]
        assert scene.congestion(conn) == 2
        assert conn.execute("SELECT count(*) FROM envelope_blob").fetchone() == (2,)


class RecordOverlap(Record):
    """The same when block 1 is stored already: the seal moves in a second statement."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        record_range(conn, CHAIN, 1, 1, self.found[:1], FENCE, None, request_kinds=REQUEST_KINDS, price=PRICE)

    def halfway(self, conn: Connection, point: str) -> None:
        assert len(scene.stored(conn)) == 2
        assert sealed(conn) == (2 if happened(point) else 1)


class RecordConflict:
    """A position that holds something else: the source is halted."""

    def __init__(self, conn: Connection) -> None:
        (ours,) = world.sent(conn, Kind.PUBLIC_DECRYPT)
        first = world.requested(ours, (1, 0))
        record_range(conn, CHAIN, 1, 1, [first], FENCE, None)
        self.other = [replace(first, payload=first.payload + b"!", digest=b"d" * 32)]

    def work(self, conn: Connection) -> None:
        with contextlib.suppress(Conflict, SourceHalted):
            record_range(conn, CHAIN, 1, 2, self.other, FENCE, None)

    def halfway(self, conn: Connection, point: str) -> None:
        assert conn.execute("SELECT count(*) FROM envelope_conflict").fetchone() == (int(happened(point)),)

    def whole(self, conn: Connection) -> None:
        assert conn.execute("SELECT count(*) FROM envelope_conflict").fetchone() == (1,)
        assert conn.execute("SELECT halted IS NOT NULL FROM envelope_source").fetchone() == (True,)
        assert (len(scene.stored(conn)), sealed(conn), scene.congestion(conn)) == (1, 1, 1)


class BandAhead:
    """The listener makes a band before it is needed."""

    def __init__(self, conn: Connection) -> None: ...

    def work(self, conn: Connection) -> None:
        listener = Listener(CHAIN, None, None, FENCE)  # type: ignore[arg-type]
        listener._band_width = 1
        listener._make_band(5 * WIDTH)

    def halfway(self, conn: Connection, point: str) -> None:
        assert len(bands(conn)) == int(happened(point))

    def whole(self, conn: Connection) -> None:
        assert 5 in bands(conn)
        scene.put(conn, item(5 * WIDTH))
        assert scene.misses(conn) == {}


class BandDuty(BandAhead):
    """The duty makes the band of the seal."""

    def work(self, conn: Connection) -> None:
        conn.execute("UPDATE chain_cursor SET block = 5")
        bands_ahead.run(Shift(conn), Shift(conn))  # type: ignore[arg-type]


class Publish:
    """The publisher opens its originator and publishes three; the database refuses the second for good."""

    def __init__(self, conn: Connection) -> None:
        self.payer = scene.account(conn)
        for payload in (b"1", b"bad", b"3"):
            scene.stage(conn, self.payer, payload)

    def work(self, conn: Connection) -> None:
        PublishTurn(PUBLISHER).run(Shift(conn))  # type: ignore[arg-type]

    def halfway(self, conn: Connection, point: str) -> None:
        waiting = {row[0] for row in conn.execute("SELECT ext_id FROM staged_envelope WHERE parked_at IS NULL")}
        published = {row[0] for row in conn.execute("SELECT ext_id FROM published_envelope")}
        assert waiting & published == set()
        assert len(published) == len(scene.stored(conn, PUBLISHER))

    def whole(self, conn: Connection) -> None:
        assert scene.stored(conn, PUBLISHER) == [1, 2]
        rows = conn.execute("SELECT payload FROM envelope_blob WHERE source_id = %s ORDER BY position", (PUBLISHER,))
        assert [row[0] for row in rows] == [b"1", b"3"]
        assert conn.execute("SELECT payload FROM staged_envelope WHERE parked_at IS NOT NULL").fetchall() == [(b"bad",)]
        assert conn.execute("SELECT count(*) FROM published_envelope").fetchone() == (2,)
        assert [row[3] for row in scene.usage(conn)] == [2]
        assert publish.head(conn, PUBLISHER) == 2


def sealed(conn: Connection) -> int:
    """The sealed block of the test chain."""
    row = conn.execute("SELECT block FROM chain_cursor WHERE source_id = %s", (CHAIN,)).fetchone()
    assert row is not None
    return int(row[0])


def bands(conn: Connection) -> set[int]:
    """The numbers of its bands."""
    return {row[0] for row in conn.execute("SELECT band_no FROM envelope_band WHERE source_id = %s", (CHAIN,))}
