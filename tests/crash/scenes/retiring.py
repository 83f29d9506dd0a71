"""Old bands of the log leave whole, however often the one who takes them down ends."""

from __future__ import annotations

from typing import ClassVar

import psycopg

from requests_app.store.appending import append
from tests.crash.process import target
from tests.crash.scene import Scene
from tests.envelopes.scene import CHAIN, PRICE, WIDTH, chain, item
from workers.duties import bands_retire
from workers.shift import Turn
from workers.sweep import DutyTurn

BANDS = 3
GIVEN_UP = """SELECT count(*) FROM pg_inherits WHERE inhdetachpending AND NOT EXISTS (
    SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%DETACH PARTITION%')"""


class Retired(Scene):
    """Each step once, a detach that waits for a reader is finished later."""

    aims: ClassVar[tuple[str, ...]] = (
        "mark_band_commit",
        "band_detach",
        "band_finalize",
        "band_drop",
        "purge_published_commit",
    )
    count = 0

    def prepare(self) -> None:
        conn = self.ground.conn
        self.ground.drop_source(CHAIN)
        chain(conn, CHAIN)
        conn.execute("DELETE FROM exec_lease")
        with conn.transaction():
            append(
                conn,
                CHAIN,
                [item(b * WIDTH + n, payload=b"%d" % n) for b in range(BANDS) for n in range(2)],
                price=PRICE,
            )
        conn.execute("UPDATE envelope_meta SET recorded_at = recorded_at - interval '30 days'")
        conn.execute("UPDATE chain_cursor SET block = 100")
        conn.execute("UPDATE consumer_cursor SET position = %s", (100 * WIDTH,))
        self.reader = psycopg.connect(**target(), autocommit=True)
        self.hold()

    def hold(self) -> None:
        """A reader of the log that takes its time."""
        self.reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self.reader.execute("SELECT count(*) FROM envelope_blob")

    def turns(self) -> list[Turn]:
        return [DutyTurn("bands_retire", 0.05, bands_retire.run)]

    def weather(self) -> None:
        """The reader stays until a detach has given up waiting for it; that one is to be finalized."""
        if self.ground.value(GIVEN_UP) or not self.left("band_finalize"):
            self.reader.rollback()

    def over(self) -> bool:
        return self.ground.rows("SELECT DISTINCT state FROM envelope_band WHERE source_id = %s", (CHAIN,)) == [
            ("dropped",)
        ]

    def check(self) -> None:
        left = self.ground.value(
            "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ %s", (f"_s{CHAIN}_b[0-9]+$",)
        )
        assert left == 0

    def restore(self) -> None:
        self.reader.close()
        self.ground.drop_source(CHAIN)
