"""Publications: staged by clients, put into the log in one transaction each batch, poison set aside."""

from __future__ import annotations

import json
from typing import ClassVar
from uuid import uuid4

from requests_app.store import publish
from tests.crash.scene import Deeds, Scene
from workers.publisher import PublishTurn
from workers.shift import ShiftContext, Turn

PUBLISHER = 100
ENOUGH = 3
POISON = """CREATE OR REPLACE FUNCTION crash_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.payload = '\\xbad0' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '22003'; END IF; RETURN NEW; END $$;
    CREATE OR REPLACE TRIGGER crash_poison BEFORE INSERT ON envelope_blob FOR EACH ROW EXECUTE FUNCTION crash_poison()"""


class Published(Scene):
    """Every staged publication is in the log once, or parked with its reason; positions are dense; usage is counted once."""

    aims: ClassVar[tuple[str, ...]] = (
        "stage_commit", "open_publisher_commit", "publisher_band_commit", "append", "append_and_finish",
        "publish_commit", "publish_park_commit", "cursor_key_commit",
    )  # fmt: skip
    settings: ClassVar = {"PUBLISH_WAIT_SECONDS": 0.0, "PUBLISH_POLL_SECONDS": 0.02}
    count = 0

    def prepare(self) -> None:
        self.ground.conn.execute(POISON)

    def turns(self) -> list[Turn]:
        return [Deeds(self), PublishTurn(PUBLISHER)]

    def weather(self) -> None:
        """A cursor may find no key."""
        if self.left("cursor_key_commit"):
            self.ground.conn.execute("DELETE FROM cursor_key")

    def act(self, context: ShiftContext) -> None:
        counts = "SELECT (SELECT count(*) FROM staged_envelope WHERE parked_at IS NULL), (SELECT count(*) FROM published_envelope)"
        waiting, published = context.conn.execute(counts).fetchone() or (0, 0)
        if waiting == 0 and published < ENOUGH:
            for payload in ("0x01", "0xbad0"):
                body = json.dumps({"topic": "0x74", "payload": payload}).encode()
                self.ground.client().post("/v1/envelopes", body, content_type="application/json")
        self.ground.client().get("/v1/envelopes")

    def over(self) -> bool:
        waiting = self.ground.value("SELECT count(*) FROM staged_envelope WHERE parked_at IS NULL")
        return waiting == 0 and int(self.ground.value("SELECT count(*) FROM published_envelope")) >= ENOUGH

    def check(self) -> None:
        stored = [
            row[0]
            for row in self.ground.rows(
                "SELECT position FROM envelope_meta WHERE source_id = %s ORDER BY 1", (PUBLISHER,)
            )
        ]
        told = [row[0] for row in self.ground.rows("SELECT position FROM published_envelope ORDER BY 1")]
        head = self.ground.value("SELECT last FROM publisher_head")
        assert stored == told == list(range(head - len(stored) + 1, head + 1))
        parked = self.ground.rows("SELECT DISTINCT error_class FROM staged_envelope WHERE parked_at IS NOT NULL")
        assert parked == [("NumericValueOutOfRange",)]

    def restore(self) -> None:
        self.ground.conn.execute("DROP FUNCTION IF EXISTS crash_poison CASCADE")


class Bandless(Scene):
    """The band of the next position is gone when the publisher comes to it: made on the way, and the publication is there once."""

    aims: ClassVar[tuple[str, ...]] = ("append_band_commit",)
    settings: ClassVar = {"PUBLISH_WAIT_SECONDS": 0.0, "PUBLISH_POLL_SECONDS": 0.02}
    count = 0

    def prepare(self) -> None:
        conn = self.ground.conn
        publish.open_publisher(conn, PUBLISHER)
        self.ground.drop_bands(PUBLISHER)
        publish.stage(conn, uuid4(), self.ground.account, b"t", b"p", None)

    def turns(self) -> list[Turn]:
        turn = PublishTurn(PUBLISHER)
        turn._opened = True  # it was there when the process looked
        return [turn]

    def over(self) -> bool:
        return bool(self.ground.value("SELECT count(*) FROM published_envelope"))

    def check(self) -> None:
        assert self.ground.value("SELECT count(*) FROM envelope_meta WHERE source_id = %s", (PUBLISHER,)) == 1
        assert self.ground.value("SELECT count(*) FROM staged_envelope") == 0
