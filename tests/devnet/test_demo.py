"""The demo calls bad what is bad: its own checks, on rows as the API would serve them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import orjson
import pytest

from tests.devnet.conftest import Devnet, request_id
from tests.devnet.test_round import result
from workers.devnet.demo import Api, ApiUnreachable, Outcome, _check, _post, print_table
from workers.devnet.traffic import Submission
from workers.devnet.verify import Opened, Verifier

JOB = "0b7f2f2e-0000-4000-8000-000000000001"


class Answers(BaseHTTPRequestHandler):
    """Serves what a test has put into `served`: path to (status, body)."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second packet: no 40 ms wait for an acknowledgement
    served: ClassVar[dict[str, tuple[int, dict[str, Any]]]] = {}

    def do_GET(self) -> None:
        status, body = self.served.get(self.path, (404, {}))
        raw = orjson.dumps(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def api() -> Iterator[Api]:
    Answers.served.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Api(f"http://127.0.0.1:{server.server_address[1]}", "key")
        server.shutdown()


@pytest.fixture(scope="module")
def finished(devnet: Devnet) -> tuple[Submission, Opened, dict[str, Any]]:
    """A public decryption that the chain has answered, with the API's result."""
    (submission,) = devnet.traffic.build(["public_decrypt"])
    (receipt,) = devnet.request(submission)
    opened = request_id(receipt)
    return submission, Opened(opened, receipt["transactionHash"]), result(devnet, submission, opened)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        ("nothing", ""),
        ("status", "failure: reverted"),
        ("twice", "2 request events"),
        ("never", "0 request events"),
        ("other transaction", "the request event is of"),
        ("result", "Mismatch: the decrypted value"),
        ("missing", "KeyError"),
        ("refused", "GET answered 500"),
    ],
)
def test_check(
    devnet: Devnet, api: Api, finished: tuple[Submission, Opened, dict[str, Any]], spoil: str, problem: str
) -> None:
    submission, opened, found = finished
    row = {"status": "completed", "gw_req_tx_hash": opened.tx_hash, "err_reason": "reverted"}
    events = {"twice": [opened, opened], "never": []}.get(spoil, [opened])
    if spoil == "status":
        row["status"] = "failure"
    if spoil == "other transaction":
        row["gw_req_tx_hash"] = "0x" + "00" * 32
    served = {**found, "decryptedValue": "00" * 64} if spoil == "result" else found
    served = {} if spoil == "missing" else served
    Answers.served[f"/v2/public-decrypt/{JOB}"] = (500 if spoil == "refused" else 200, {"result": served})
    outcome = Outcome(submission, JOB, row, opened=events)
    _check(api, devnet.rpc, outcome, Verifier(devnet.deployment))
    assert outcome.problem.startswith(problem) if problem else outcome.problem == ""
    assert (outcome.checked, outcome.checked_on_chain) == ((9, 9) if spoil == "nothing" else (0, 0))
    lines: list[str] = []
    print_table([outcome], lines.append)
    assert lines[0].startswith("BAD" if problem else "ok ")


def test_a_refused_post_is_a_problem(api: Api, finished: tuple[Submission, Opened, dict[str, Any]]) -> None:
    Answers.served["/v2/public-decrypt"] = (429, {"error": {"label": "rate_limited"}})
    outcome = Outcome(finished[0])
    _post(api, outcome)
    assert outcome.problem.startswith("POST answered 429")
    assert "rate_limited" in outcome.problem


def test_an_api_that_is_not_there_or_not_ready(api: Api) -> None:
    Answers.served["/healthz"] = (503, {"database": "down"})
    with pytest.raises(ApiUnreachable, match=r"503.*down"):
        api.wait_ready(0.1)
    Answers.served["/healthz"] = (200, {})
    api.wait_ready(0.1)
    with pytest.raises(ApiUnreachable, match="not ready"):
        Api("http://127.0.0.1:9", "").wait_ready(0.1)
