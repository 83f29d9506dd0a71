"""A parked envelope is applied once more: in vain while its payload is broken, and for good when it is mended."""

from __future__ import annotations

from typing import ClassVar

from requests_app.config import config
from tests.crash.scene import Scene
from workers import replay
from workers.apply import Applier
from workers.facts import Reader, contracts_of
from workers.shift import ShiftContext
from workers.thresholds import thresholds_of


class Redriven(Scene):
    """The operator's command is given again until it has worked."""

    aims: ClassVar[tuple[str, ...]] = ("park_again_commit", "resolve_parked_commit")
    also: ClassVar[tuple[str, ...]] = ("apply_now_commit",)
    count = 1
    _payload: bytes | None = None
    _position = 0

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        if context.conn.execute("SELECT 1 FROM dead_envelope WHERE resolved_at IS NULL").fetchone():
            reader = Reader(contracts_of(config()), thresholds_of(config(), context.clients))
            replay.redrive(context.conn, Applier(1, reader), 1)

    def weather(self) -> None:
        super().weather()
        if self._payload is None and self.ground.statuses() == {"completed": 1}:
            self._position, self._payload = self.ground.rows(
                "SELECT position, payload FROM envelope_blob WHERE source_id = 1 ORDER BY position DESC LIMIT 1"
            )[0]
            self._store(b"\x00")
            self.ground.conn.execute(
                "INSERT INTO dead_envelope (consumer, source_id, position, error_class, error) VALUES ('requests', 1, %s, 'E', 'e')",
                (self._position,),
            )
        elif self._payload is not None and not self.left("park_again_commit"):
            self._store(self._payload)

    def over(self) -> bool:
        resolved = self.ground.value("SELECT count(*) FROM dead_envelope WHERE resolved_at IS NOT NULL")
        return super().over() and bool(resolved)

    def check(self) -> None:
        super().check()
        assert self.ground.value("SELECT count(*) FROM dead_envelope") == 1

    def _store(self, payload: bytes) -> None:
        self.ground.conn.execute(
            "UPDATE envelope_blob SET payload = %s WHERE source_id = 1 AND position = %s", (payload, self._position)
        )
