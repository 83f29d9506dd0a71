"""Every answer of the webhook routes, from the running stack."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.wire.client import Client, Response
from tests.wire.paying import disabled
from tests.wire.world import World

PATH = "/v1/webhooks"
ONE = PATH + "/{webhook_id}"
SECRET, TEST, DELIVERIES = ONE + "/secret", ONE + "/test", ONE + "/deliveries"
# Nobody listens there: what is told stays where it is.
WANTED = {"url": "http://127.0.0.1:9/hook"}
OPERATIONS = (
    ("GET", PATH), ("POST", PATH), ("GET", ONE), ("PATCH", ONE), ("DELETE", ONE), ("POST", SECRET), ("POST", TEST), ("GET", DELIVERIES),
)  # fmt: skip
Seen = Counter[tuple[str, str, int]]


class Telling:
    """A client of the webhook routes that counts what it was answered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: Seen = Counter()

    def ask(
        self, method: str, path: str, body: Any = None, *, webhook: str = "", query: str = "", client: Any = None
    ) -> Response:
        """One exchange."""
        raw = None if body is None else json.dumps(body).encode()
        place = path.replace("{webhook_id}", webhook or "wh_" + "0" * 24) + query
        response: Response = (client or self._client).exchange(method, place, raw)
        self.seen[method, path, response.status] += 1
        return response

    def clear(self) -> None:
        """Remove all there are."""
        for one in self.ask("GET", PATH).body["webhooks"]:
            assert self.ask("DELETE", ONE, webhook=one["id"]).status == 204


def every_answer(world: World) -> Seen:
    """Each status of each webhook route that does not need a broken server."""
    telling = Telling(world.client)
    telling.clear()
    while (made := telling.ask("POST", PATH, WANTED)).status == 201:
        webhook = made.body["id"]
    assert made.body["label"] == "webhook_limit_reached"
    for method, path, body in (
        ("GET", ONE, None), ("PATCH", ONE, {}), ("POST", SECRET, None), ("POST", TEST, None), ("POST", TEST, None), ("GET", DELIVERIES, None),
    ):  # fmt: skip
        assert telling.ask(method, path, body, webhook=webhook).status in (200, 202, 409)
    assert telling.ask("PATCH", ONE, {"state": "removed"}, webhook=webhook).status == 400
    assert telling.ask("GET", DELIVERIES, webhook=webhook, query="?limit=x").status == 400
    assert telling.ask("POST", PATH, {"url": "https://10.0.0.1/"}).status == 400
    assert telling.ask("GET", PATH, query="?limit=1").status == 400
    for method, path in OPERATIONS:
        if path != PATH:
            assert telling.ask(method, path, {} if method == "PATCH" else None).status == 404
    with disabled(world) as nobody:
        for method, path in OPERATIONS:
            body = {} if method == "PATCH" else WANTED if (method, path) == ("POST", PATH) else None
            assert telling.ask(method, path, body, client=nobody).status == 403
    telling.clear()
    return telling.seen
