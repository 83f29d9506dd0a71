"""What is done with the log after it is written: applied, retired, billed; scenes for tests that kill the process at it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from requests_app.states import Kind
from requests_app.store import consumers, retirement, usage
from requests_app.store.session import connect
from tests.envelopes import scene
from tests.envelopes.lives_writing import Shift, happened
from tests.envelopes.scene import CHAIN, WIDTH, Connection, item
from tests.listen import world
from workers.duties import bands_retire
from workers.replay import redrive


class Apply:
    """A request's event and its answer, applied as a page of the log."""

    def __init__(self, conn: Connection) -> None:
        scene.chain(conn, world.SOURCE)
        (self.ours,) = world.sent(conn, Kind.USER_DECRYPT)
        self.found = [world.requested(self.ours, (1, 0)), *(world.share(self.ours.ref, n, (2, n)) for n in range(9))]
        world.record(conn, 1, 3, self.found)

    def work(self, conn: Connection) -> None:
        world.applier().catch_up(conn)

    def halfway(self, conn: Connection, point: str) -> None:
        assert world.status(conn, self.ours) == ("completed" if happened(point) else "tx_in_flight")
        assert (consumers.read_consumer(conn, world.SOURCE).position >> 20 >= 3) == happened(point)

    def whole(self, conn: Connection) -> None:
        assert world.status(conn, self.ours) == "completed"
        assert world.verbs(conn, self.ours) == ["record_receipt", "complete"]
        assert conn.execute("SELECT n FROM gateway_ref").fetchone() == (9,)
        assert conn.execute("SELECT count(*) FROM user_decrypt_share").fetchone() == (9,)


class ApplyNow(Apply):
    """The same outside the cursor, as replay and redrive do."""

    def work(self, conn: Connection) -> None:
        world.applier().apply_now(conn, self.found)

    def halfway(self, conn: Connection, point: str) -> None:
        assert world.status(conn, self.ours) == ("completed" if happened(point) else "tx_in_flight")


class Redrive(Apply):
    """Two parked envelopes once more: one is applied, one is no longer stored."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        for position in (self.found[0].position, 999 << 20):
            consumers.park_envelopes(conn, world.SOURCE, {position: RuntimeError("a defect of ours")})

    def work(self, conn: Connection) -> None:
        redrive(conn, world.applier(), world.SOURCE)

    def halfway(self, conn: Connection, point: str) -> None:
        assert 999 << 20 in consumers.parked_positions(conn, world.SOURCE)

    def whole(self, conn: Connection) -> None:
        assert consumers.parked_positions(conn, world.SOURCE) == [999 << 20]
        assert world.status(conn, self.ours) == "completed"
        assert world.verbs(conn, self.ours) == ["record_receipt", "complete"]


class Retire:
    """Three old bands leave: rows, payloads, receipts."""

    def __init__(self, conn: Connection) -> None:
        scene.put(conn, *(item(b * WIDTH + n, payload=b"%d" % n) for b in range(3) for n in range(4)))
        conn.execute("UPDATE envelope_meta SET recorded_at = recorded_at - interval '30 days'")
        conn.execute("UPDATE chain_cursor SET block = 100")
        conn.execute("UPDATE consumer_cursor SET position = %s", (100 * WIDTH,))

    def work(self, conn: Connection) -> None:
        bands_retire.run(Shift(conn), Shift(conn))  # type: ignore[arg-type]

    def halfway(self, conn: Connection, point: str) -> None: ...

    def whole(self, conn: Connection) -> None:
        assert [row[0] for row in conn.execute("SELECT state FROM envelope_band")] == ["dropped"] * 3
        assert scene.stored(conn) == []
        assert conn.execute(
            "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^envelope_(meta|blob)_s11_b'"
        ).fetchone() == (0,)


class RetirePending(Retire):
    """The same when an earlier detach stopped between its two transactions."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        band = retirement.live_bands(conn)[0]
        assert retirement.mark(conn, band, retirement.BandState.OPEN, retirement.BandState.RETIRING)
        with connect("worker") as reader, connect("maintenance") as own, reader.transaction():
            reader.execute("SELECT count(*) FROM envelope_blob").fetchone()
            with pytest.raises((psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)):
                retirement.remove_partition(own, "envelope_blob", CHAIN, 0)


class Bill:
    """Usage claimed by a bill."""

    def __init__(self, conn: Connection) -> None:
        self.payer = scene.account(conn)
        self.last = scene.minute(conn, 1)
        conn.execute("INSERT INTO usage_unsettled VALUES (%s, 11, %s, 5, 1, 1)", (self.payer, self.last))

    def work(self, conn: Connection) -> None:
        usage.bill_usage(conn, self.payer, self.last, "one")

    def halfway(self, conn: Connection, point: str) -> None:
        assert self.places(conn) == ((0, 1, 0) if happened(point) else (1, 0, 0))

    def whole(self, conn: Connection) -> None:
        assert self.places(conn) == (0, 1, 0)

    def places(self, conn: Connection) -> tuple[Any, ...]:
        """Rows that are unsettled, billed, settled."""
        found = [
            conn.execute(f"SELECT count(*) FROM usage_{name}").fetchone() for name in ("unsettled", "billed", "settled")
        ]
        return tuple(row[0] for row in found if row is not None)
