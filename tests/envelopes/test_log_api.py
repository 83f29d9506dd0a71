"""/v1/envelopes and /v1/usage: publishing waits for its own item, cursors belong to one account and one filter."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from requests_app.api import cursors
from requests_app.api.auth import forget_keys
from requests_app.api.refusals import Refused
from requests_app.store import cursor_keys, publish
from requests_app.store.session import connect
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, PUBLISHER, Connection, item
from tests.envelopes.test_publisher import run
from tests.envelopes.test_readers import put, seal

ROOT = Path(__file__).parents[2]
TOPIC, PAYLOAD = "0x746f706963", "0x68656c6c6f"
BODY = {"topic": TOPIC, "payload": PAYLOAD}


@pytest.fixture
def alice(transactional_db: None, log: Connection, settings: Any) -> Iterator[int]:
    """The id of the account behind Api(); bob is behind Api(OTHER_KEY)."""
    settings.PUBLISH_WAIT_SECONDS = 0.05
    forget_keys()
    ids = [scene.account(log, name) for name in ("alice", "bob")]
    for account, key in zip(ids, (KEY, OTHER_KEY), strict=True):
        issue_key(log, account, key)
    publish.open_publisher(log, PUBLISHER)
    yield ids[0]
    forget_keys()


@pytest.fixture
def publishing(alice: int, settings: Any) -> Iterator[None]:
    """A publisher at work beside the test."""
    settings.PUBLISH_WAIT_SECONDS, settings.PUBLISH_POLL_SECONDS = 20, 0.01
    stop = threading.Event()

    def work() -> None:
        with connect("worker") as conn:
            while not stop.wait(0.02):
                run(conn)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join(60)


def test_publish_and_read_back(publishing: None, log: Connection) -> None:
    made = Api().post("/v1/envelopes", {**BODY, "expiry": 4102444800})
    assert made.status_code == 201, made.content
    assert made.json()["status"] == "published"
    assert (made.json()["originator"], made.json()["position"]) == (PUBLISHER, "1")
    assert Api().get(made.headers["Location"]).json() == made.json()
    page = Api().get(f"/v1/envelopes?topic={TOPIC}").json()
    (found,) = page["envelopes"]
    assert (found["topic"], found["payload"], found["kind"], found["expiry"]) == (TOPIC, PAYLOAD, 100, 4102444800)
    assert page["more"] is False
    assert [row[3] for row in scene.usage(log)] == [1]


def test_the_answer_waits_for_its_own_item_only(publishing: None, log: Connection, alice: int) -> None:
    """S-14: a poisoned publication before it delays nobody; it is refused, with its reason, to its own client only."""
    log.execute(
        "INSERT INTO staged_envelope (ext_id, client_id, topic, payload, attempts) SELECT gen_random_uuid(), %s, '', '', 0 FROM generate_series(1, 5)",
        (alice,),
    )
    began = time.monotonic()
    assert Api().post("/v1/envelopes", BODY).status_code == 201
    assert time.monotonic() - began < 19
    bad = log.execute("SELECT ext_id FROM staged_envelope LIMIT 1").fetchone()
    assert bad is not None
    refused = Api().get(f"/v1/envelopes/{bad[0]}")
    assert refused.status_code == 400
    assert "topic has 0 bytes" in refused.content.decode()
    assert Api(OTHER_KEY).get(f"/v1/envelopes/{bad[0]}").status_code == 404


def test_without_a_publisher_it_is_staged(alice: int, log: Connection) -> None:
    """S-14: "accepted", never "done", when the time is over; it is published later."""
    made = Api().post("/v1/envelopes", BODY)
    assert (made.status_code, made.json()["status"], made.json()["position"]) == (202, "staged", None)
    assert made.headers["Retry-After"] == "1"
    assert Api(OTHER_KEY).get(made.headers["Location"]).status_code == 404
    assert run(log) == 1
    assert Api().get(made.headers["Location"]).json()["position"] == "1"


BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({"topic": "0x", "payload": "0x"}, "topic"),
    ({"topic": "0x" + "00" * 129, "payload": "0x"}, "topic"),
    ({"topic": "abcd", "payload": "0x"}, "topic"),
    ({"topic": TOPIC, "payload": "0xa"}, "payload"),
    ({"topic": TOPIC, "payload": "0x" + "00" * 33}, "payload"),
    ({**BODY, "expiry": 0}, "expiry"),
    ({**BODY, "expiry": -1}, "expiry"),
    ({**BODY, "expiry": 1}, "expiry"),
    ({**BODY, "expiry": 2**63}, "expiry"),
    ({**BODY, "expiry": 2**64 - 1}, "expiry"),
    ({**BODY, "expiry": "soon"}, "expiry"),
    ({**BODY, "more": 1}, "more"),
]


def test_bad_bodies(alice: int, log: Connection, settings: Any) -> None:
    """R-18, R-19: refused with the field's name before anything is staged."""
    settings.ENVELOPE_MAX_PAYLOAD_BYTES = 32
    answers = [(body, field, Api().post("/v1/envelopes", body)) for body, field in BAD_BODIES]
    for body, field, answer in answers:
        assert answer.status_code == 400, body
        assert answer.json()["errors"][0]["field"] == field, body
    assert log.execute("SELECT count(*) FROM staged_envelope").fetchone() == (0,)


def test_too_much_staged_and_disabled_accounts(alice: int, log: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "WAITING_AT_MOST", 2)
    codes = [Api().post("/v1/envelopes", BODY).status_code for _ in range(3)]
    assert codes == [202, 202, 429]
    monkeypatch.setattr(publish, "WAITING_AT_MOST", 100)
    log.execute("UPDATE client_account SET status = 'disabled'")
    assert Api().post("/v1/envelopes", BODY).status_code == 401
    assert log.execute("SELECT count(*) FROM staged_envelope").fetchone() == (2,)


@pytest.fixture
def chain(alice: int, log: Connection) -> None:
    """Ten chain envelopes, topics a and b in turn."""
    put(log, CHAIN, [scene.item(n, ref=b"ab"[n % 2 : n % 2 + 1]) for n in range(10)])
    seal(log, CHAIN, 1)


def test_cursors_go_on(chain: None) -> None:
    seen: list[str] = []
    path = "/v1/envelopes?limit=3"
    while True:
        page = Api().get(path).json()
        seen += [one["position"] for one in page["envelopes"]]
        if not page["more"]:
            break
        path = f"/v1/envelopes?limit=3&cursor={page['cursor']}"
    assert seen == [str(n) for n in range(10)]
    assert Api().get("/v1/envelopes?after=11:7").json()["envelopes"][0]["position"] == "8"


def test_both_filters_apply(chain: None) -> None:
    """R-6 over HTTP (5.4.4 wins over "refuse both")."""
    both = Api().get("/v1/envelopes?topic=0x61&originator=11").json()["envelopes"]
    assert [one["position"] for one in both] == ["0", "2", "4", "6", "8"]
    assert Api().get(f"/v1/envelopes?topic=0x61&originator={PUBLISHER}").json()["envelopes"] == []


BAD_QUERIES = [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("topic=0x", "topic"), ("topic=61", "topic"), ("originator=0", "originator"),
        ("originator=2147483648", "originator"), ("originator=-1", "originator"), ("originator=777", "originator"),
        ("after=11", "after"), ("after=11:9223372036854775808", "after"), ("after=0:1", "after"), ("topics=0x61", "topics"),
        ("cursor=abc", "cursor"), ("cursor=", "cursor"),
]  # fmt: skip


def test_bad_queries(alice: int) -> None:
    """R-8, R-11: bounds of ids and positions, and an unknown parameter is never ignored."""
    for query, field in BAD_QUERIES:
        answer = Api().get(f"/v1/envelopes?{query}")
        assert answer.status_code == 400, query
        assert answer.json()["errors"][0]["field"] == field, query


def test_a_cursor_belongs_to_one_account_list_and_filter(chain: None) -> None:
    """5.5.4: a foreign, altered or retired one is a 400 that shows nothing."""
    cursor = Api().get("/v1/envelopes?topic=0x61&limit=2").json()["cursor"]
    good = f"/v1/envelopes?topic=0x61&limit=2&cursor={cursor}"
    assert [one["position"] for one in Api().get(good).json()["envelopes"]] == ["4", "6"]
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    raw[-2] ^= 1
    altered = base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
    answers = [
        Api(OTHER_KEY).get(good),
        Api().get(f"/v1/envelopes?topic=0x62&cursor={cursor}"),
        Api().get(f"/v1/envelopes?topic=0x61&originator=11&cursor={cursor}"),
        Api().get(f"/v1/usage?cursor={cursor}"),
        Api().get(f"/v1/envelopes?topic=0x61&cursor={altered}"),
        Api().get(f"/v1/envelopes?topic=0x61&cursor={cursor}!"),
    ]
    assert {answer.status_code for answer in answers} == {400}
    bodies = [{key: value for key, value in answer.json().items() if key != "request_id"} for answer in answers]
    assert all(body == bodies[0] for body in bodies)
    assert Api().get(f"/v1/envelopes?topic=0x61&after=11:1&cursor={cursor}").status_code == 400


def test_keys_rotate_and_retire(chain: None, log: Connection) -> None:
    """5.5.4: a new key signs, the old one still opens, a retired one opens nothing."""
    old = Api().get("/v1/envelopes?limit=2").json()["cursor"]
    assert cursor_keys.add_key(log) == 2
    new = Api().get(f"/v1/envelopes?limit=2&cursor={old}").json()["cursor"]
    assert [base64.urlsafe_b64decode(text[:4])[0] for text in (old, new)] == [1, 2]
    assert cursor_keys.retire_key(log, 1)
    assert not cursor_keys.retire_key(log, 1)
    assert Api().get(f"/v1/envelopes?limit=2&cursor={old}").status_code == 400
    assert Api().get(f"/v1/envelopes?limit=2&cursor={new}").status_code == 200


CHILD = """
import sys
import django
django.setup()
from django.db import connections
connections['default'].settings_dict['NAME'] = sys.argv[1]
from requests_app.api import cursors
from requests_app.store.session import connect
scope = cursors.Scope(int(sys.argv[2]), 'envelopes', ['|'])
with connect('worker') as conn:
    print(cursors.unseal(conn, scope, sys.argv[3]) if len(sys.argv) > 3 else cursors.seal(conn, scope, [[11, 5]]))
"""


def test_cursors_across_processes_and_a_restart(log: Connection) -> None:
    """5.5.4: made by one process, opened by this one and by a third, started later; nothing is kept in memory."""
    import os

    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "relayer_site.settings"}

    def child(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(log.info.dbname), "7", *arguments],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    text = child()
    assert cursors.unseal(log, cursors.Scope(7, "envelopes", ["|"]), text) == [[11, 5]]
    assert child(text) == "[[11, 5]]"
    with pytest.raises(Refused):
        cursors.unseal(log, cursors.Scope(8, "envelopes", ["|"]), text)


def test_usage_of_the_asking_client(alice: int, log: Connection) -> None:
    """Only its own; unsettled by minute and originator, settled by settlement, totals beside."""
    from requests_app.store.bills import settle_bills
    from requests_app.store.usage import bill_usage

    bob = alice + 1
    for payer in (alice, bob):
        log.execute(
            "INSERT INTO usage_unsettled SELECT %s, s, m, 5, 2, 9 FROM unnest(ARRAY[11,12]) s, generate_series(100, 102) m",
            (payer,),
        )
    bill_usage(log, alice, 100, "invoice-1")
    settle_bills(log, ["invoice-1"])
    first = Api().get("/v1/usage?limit=3").json()
    assert [(one["originator"], one["minute"]) for one in first["usage"]] == [
        (11, "1970-01-01T01:41:00.000Z"), (12, "1970-01-01T01:41:00.000Z"), (11, "1970-01-01T01:42:00.000Z"),
    ]  # fmt: skip
    assert (first["unsettled_picodollars"], first["settled_picodollars"], first["more"]) == ("20", "10", True)
    second = Api().get(f"/v1/usage?limit=3&cursor={first['cursor']}").json()
    assert [one["originator"] for one in second["usage"]] == [12]
    settled = Api().get("/v1/usage?state=settled").json()
    assert {one["reference"] for one in settled["usage"]} == {"invoice-1"}
    assert Api().get(f"/v1/usage?state=settled&cursor={first['cursor']}").status_code == 400
    assert Api(OTHER_KEY).get("/v1/usage").json()["unsettled_picodollars"] == "30"
    assert Api().get("/v1/usage?state=all").status_code == 400
    assert Api(None).get("/v1/usage").status_code == 401


def give_way(conn: Connection, fork: int) -> None:
    """As a reorganisation leaves it: orphans gone, seal lowered, the reorganisation on record."""
    conn.execute("DELETE FROM envelope_meta WHERE source_id = %s AND position >= %s", (CHAIN, fork << 20))
    seal(conn, CHAIN, fork - 1)
    conn.execute(
        "INSERT INTO chain_reorg (source_id, fork_block, sealed, new_hash) VALUES (%s, %s, 9, '')", (CHAIN, fork)
    )


def test_a_cursor_goes_back_with_a_reorganisation(alice: int, log: Connection) -> None:
    """What the other blocks hold below the place that was read last is not skipped; what stands is not told again."""
    put(log, CHAIN, [item(2 << 20), item(8 << 20)])
    seal(log, CHAIN, 9)
    query = f"/v1/envelopes?originator={CHAIN}"
    first = Api().get(query).json()
    assert [one["position"] for one in first["envelopes"]] == [str(2 << 20), str(8 << 20)]
    give_way(log, 5)
    put(log, CHAIN, [item(6 << 20)])
    seal(log, CHAIN, 9)
    second = Api().get(f"{query}&cursor={first['cursor']}").json()
    assert [one["position"] for one in second["envelopes"]] == [str(6 << 20)]
    third = Api().get(f"{query}&cursor={second['cursor']}").json()
    assert third["envelopes"] == []
    give_way(log, 9)
    assert Api().get(f"{query}&cursor={third['cursor']}").json()["envelopes"] == []


def test_cursors_of_before_the_upgrade_are_read_on(alice: int, log: Connection) -> None:
    put(log, CHAIN, [item(2 << 20), item(8 << 20)])
    give_way(log, 20)
    seal(log, CHAIN, 9)
    scope = cursors.Scope(alice, "envelopes", ["|", str(CHAIN)])
    old = cursors.seal(log, scope, [[CHAIN, 2 << 20]])
    found = Api().get(f"/v1/envelopes?originator={CHAIN}&cursor={old}").json()
    assert [one["position"] for one in found["envelopes"]] == [str(8 << 20)]
