"""Webhooks: made and changed by their client, told of the ends of requests at least once, whoever dies between post and record."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, ClassVar

from requests_app.services_webhooks import redrive
from requests_app.states import TEST_EVENT
from tests.crash.ground import Ground
from tests.crash.scene import Kind, Scene, duty_turns
from tests.webhooks.receiver import Receiver
from workers.shift import ShiftContext, Turn
from workers.webhooks import WebhookTurn

PATH = "/v1/webhooks"
MINE = "main"
OPEN = "SELECT count(*) FROM webhook_delivery WHERE state IN ('waiting', 'failed')"


class Told(Scene):
    """Every end has one delivery for each webhook, which arrives, always with the same id and body."""

    aims: ClassVar[tuple[str, ...]] = (
        "claim_webhooks_commit", "record_webhooks_commit", "webhook_post", "drop_webhooks_commit", "expire_webhooks_commit",
        "create_webhook_commit", "change_webhook_commit", "rotate_webhook_commit", "remove_webhook_commit", "test_webhook_commit",
        "redrive_webhook_commit",
    )  # fmt: skip
    also: ClassVar[tuple[str, ...]] = ("apply_commit", "apply_now_commit")
    settings: ClassVar = {
        "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.1"],
        "WEBHOOK_POLL_SECONDS": 0.02,
        "WEBHOOK_ATTEMPTS": 1000,
        "WEBHOOKS_PER_ACCOUNT": 1000,
    }
    constants: ClassVar = {
        "workers.webhooks.LEASE_SECONDS": 0.5,
        "requests_app.transitions.deliveries.FIRST_DELAY_SECONDS": 0.05,
        "requests_app.transitions.deliveries.LONGEST_DELAY_SECONDS": 0.1,
    }

    def __init__(self, ground: Ground, kind: Kind) -> None:
        super().__init__(ground, kind)
        self.receiver = Receiver()

    def turns(self) -> list[Turn]:
        return [*super().turns(), WebhookTurn(), *duty_turns("webhooks")]

    def act(self, context: ShiftContext) -> None:
        hooks: list[dict[str, Any]] = self._call("get", PATH)["webhooks"]
        if not any(one["description"] == MINE for one in hooks):
            self._call("post", PATH, {"url": self.receiver.url, "description": MINE})
        self.ground.post_all(self.submissions)
        for one in hooks:
            if one["description"] != MINE:
                self._end(f"{PATH}/{one['id']}")
        for row in context.conn.execute("SELECT id FROM webhook_delivery WHERE state = 'failed'").fetchall():
            redrive(context.conn, row[0])
        if self.left("*_webhook_commit"):
            self._call("post", PATH, {"url": self.receiver.url})

    def weather(self) -> None:
        """Something is due while there is something to see."""
        super().weather()
        if self.left("*webhook*") and not self.ground.value(OPEN):
            self.ground.conn.execute(
                "INSERT INTO webhook_delivery (webhook_id, event, occurred_at, state, ended_at)"
                " SELECT w.id, %s, clock_timestamp(), s.state, s.ended_at FROM webhook w,"
                " (VALUES ('waiting', NULL), ('failed', clock_timestamp())) AS s(state, ended_at) WHERE w.description = %s",
                (TEST_EVENT, MINE),
            )

    def over(self) -> bool:
        return super().over() and not self.left("*webhook*") and not self.ground.value(OPEN)

    def restore(self) -> None:
        self.receiver.close()

    def check(self) -> None:
        super().check()
        told = self.ground.rows(
            "SELECT d.webhook_id, d.subject, d.state, d.public_id, d.event FROM webhook_delivery d"
            " JOIN webhook w ON w.id = d.webhook_id WHERE d.event <> %s AND w.description = %s",
            (TEST_EVENT, MINE),
        )
        assert len({row[:2] for row in told}) == len(told), "an end told of twice"
        assert {row[2:3] + row[4:] for row in told} == {("delivered", "request.completed")}
        assert {row[1] for row in told} == {
            str(row[0]) for row in self.ground.rows("SELECT ext_job_id FROM request_client")
        }
        bodies: dict[str, set[bytes]] = defaultdict(set)
        for one in self.receiver.received:
            bodies[one.headers["webhook-id"]].add(one.body)
        assert {f"msg_{row[3].hex}" for row in told} <= set(bodies), "recorded as delivered, and never arrived"
        assert {len(found) for found in bodies.values()} == {1}

    def _end(self, path: str) -> None:
        """Everything that may be done with a webhook, its end last; what a dead process has done is done again."""
        for deed, where, body in (
            ("patch", path, {"state": "paused"}),
            ("patch", path, {"state": "enabled"}),
            ("post", f"{path}/secret", None),
            ("post", f"{path}/test", None),
            ("delete", path, None),
        ):
            self._call(deed, where, body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        sent = {} if method == "get" else {"data": json.dumps(body or {}).encode(), "content_type": "application/json"}
        answer = getattr(self.ground.client(), method)(path, **sent)
        return answer.json() if answer.content else None
