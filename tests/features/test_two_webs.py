"""Two web processes share one queue depth and one set of runtime settings; requests without a key have their account at start."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from requests_app import runtime
from requests_app.states import Kind
from tests.api.rows import fill_queue
from tests.features.web import WebServer, database_url
from tests.waiting import wait_until

PATH = "/v2/public-decrypt"
LIMIT = 20


@pytest.fixture
def webs(committed: psycopg.Connection[Any]) -> Iterator[list[WebServer]]:
    """Two servers that take 20 waiting requests a kind, without keys."""
    settings = {
        "QUEUE_CAPACITY": "25",
        "QUEUE_SAFETY_MARGIN": "5",
        "API_AUTH": "optional",
        "API_DEFAULT_ACCOUNT": "everybody",
    }
    running: list[WebServer] = []
    try:
        url = database_url()  # Django's settings of this thread's connection
        with ThreadPoolExecutor(2) as pool:
            running = list(pool.map(lambda _: WebServer(DATABASE_URL=url, **settings), range(2)))
        yield running
    finally:
        for web in running:
            web.close()


def fresh() -> dict[str, Any]:
    handle = "0x" + os.urandom(22).hex() + "0000000000001f49" + "0400"
    return {"ciphertextHandles": [handle], "extraData": "0x00"}


def test_429_by_the_shared_depth_and_one_pace(webs: list[WebServer], committed: psycopg.Connection[Any]) -> None:
    assert committed.execute("SELECT name, status FROM client_account").fetchall() == [("everybody", "active")]
    first = fresh()
    status, headers, _ = webs[0].call("POST", PATH, first)
    assert (status, headers["retry-after"]) == (202, "8")

    with ThreadPoolExecutor(4) as pool:
        outcomes = Counter(pool.map(lambda n: webs[n % 2].call("POST", PATH, fresh())[0], range(60)))
    (stored,) = committed.execute("SELECT count(*) FROM public_decrypt_req").fetchone() or (0,)
    assert outcomes == {202: stored - 1, 429: 61 - stored}
    # The depth is read in the statement that inserts: four writers at once can each see one place too many.
    assert LIMIT <= stored <= LIMIT + 3

    for web in webs:
        status, headers, body = web.call("POST", PATH, fresh())
        assert (status, headers["retry-after"], body["error"]["label"]) == (429, "4", "rate_limited")
        assert web.call("POST", PATH, first)[0] == 202, "a duplicate of a live request is never bounced"
        # Another kind has queues of its own.
        assert web.call("POST", "/v2/input-proof", {"contractAddress": "0x" + "11" * 20, "userAddress": "0x" + "22" * 20,
            "ciphertextWithInputVerification": os.urandom(8).hex(), "contractChainId": "8009", "extraData": "0x00"})[0] == 202  # fmt: skip

    runtime.change(committed, "api_retry_after_seconds", 17, by="shell:test", reason="test")
    began = time.monotonic()
    wait_until(lambda: all(web.call("POST", PATH, fresh())[1]["retry-after"] == "17" for web in webs), 60)
    assert time.monotonic() - began < 5

    committed.execute("DELETE FROM queue_job")
    assert [web.call("POST", PATH, fresh())[0] for web in webs] == [202, 202]


def test_retry_after_follows_the_real_depth(api: Any, conn: psycopg.Connection[Any]) -> None:
    """fhevm_http 19.3 with rows in the queue, through POST and GET, and after a change of the pace."""
    answer = api.post(PATH, fresh())
    job = answer.json()["result"]["jobId"]
    assert answer.headers["Retry-After"] == "8"
    fill_queue(conn, "ready", Kind.PUBLIC_DECRYPT, 249)
    fill_queue(conn, "send", Kind.PUBLIC_DECRYPT, 100)
    assert api.get(f"{PATH}/{job}").headers["Retry-After"] == "19"  # 250 to check, 100 to send
    runtime.change(conn, "public_decrypt_throttler_tps", 1, by="shell:test", reason="test")
    assert api.get(f"{PATH}/{job}").headers["Retry-After"] == "133"
    runtime.change(conn, "retry_after_max_seconds", 60, by="shell:test", reason="test")
    assert api.get(f"{PATH}/{job}").headers["Retry-After"] == "60"


@pytest.mark.parametrize(("seconds", "expected"), [(0, "4"), (61, "10"), (121, "30"), (301, "60"), (901, "300")])
def test_waiting_for_the_answer_backs_off_by_the_time_that_passed(
    api: Any, conn: psycopg.Connection[Any], seconds: int, expected: str
) -> None:
    job = api.post(PATH, fresh()).json()["result"]["jobId"]
    conn.execute(
        "UPDATE public_decrypt_req SET status = 'receipt_received', state_entered_at = clock_timestamp() - make_interval(secs => %s)",
        (seconds,),
    )
    assert api.get(f"{PATH}/{job}").headers["Retry-After"] == expected


@pytest.mark.parametrize("version", ["v2", "v1"])
def test_a_request_in_review_waits_the_longest(api: Any, conn: psycopg.Connection[Any], version: str) -> None:
    """Design 5.2.4."""
    job = api.post(PATH, fresh()).json()["result"]["jobId"]
    conn.execute("UPDATE public_decrypt_req SET status = 'needs_review'")
    answer = api.get(f"/{version}/public-decrypt/{job}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (202, "300")
