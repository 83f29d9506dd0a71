"""One request of each form through the running relayer, from POST to a result that is checked against the chain."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from workers.devnet.deployment import Deployment
from workers.devnet.rpc import Rpc
from workers.devnet.traffic import FORMS, Form, Submission, Traffic
from workers.devnet.verify import Mismatch, Opened, Verifier, requests_for

POLL_SECONDS: Final = 0.2
HTTP_TIMEOUT_SECONDS: Final = 30.0
SHORT_RESULT: Final = 60
FINAL: Final = frozenset({"completed", "failure", "timed_out"})
_NO_HEADERS: Final[Mapping[str, str]] = {}


class ApiUnreachable(Exception):
    """The API did not become ready in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status with its JSON body ({} when it has none)."""

    status: int
    body: dict[str, Any]


class Api:
    """The relayer's HTTP API for one client. A new connection for each call: servers close idle ones."""

    def __init__(self, url: str, api_key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url} is not an http:// address")
        self._host, self._port, self._base = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"x-api-key": api_key} if api_key else {})}

    def get(self, path: str) -> Answer:
        return self._call("GET", path, None, {})

    def post(self, path: str, body: dict[str, Any], headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
        return self._call("POST", path, json.dumps(body).encode(), headers)

    def wait_ready(self, timeout: float) -> None:
        """Returns once `/healthz` answers 200. Raises ApiUnreachable."""
        deadline = time.monotonic() + timeout
        last = "no answer"
        while time.monotonic() < deadline:
            try:
                answer = self.get("/healthz")
            except (OSError, http.client.HTTPException) as error:
                last = str(error)
            else:
                if answer.status == http.HTTPStatus.OK:
                    return
                last = f"{answer.status} {json.dumps(answer.body)[:300]}"
            time.sleep(POLL_SECONDS)
        raise ApiUnreachable(f"the API at {self._host}:{self._port} is not ready after {timeout:.0f} s: {last}")

    def _call(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=HTTP_TIMEOUT_SECONDS)
        try:
            connection.request(method, self._base + path, body, {**self._headers, **headers})
            response = connection.getresponse()
            raw = response.read()
            found = json.loads(raw) if raw.lstrip().startswith(b"{") else {}
            return Answer(response.status, found)
        finally:
            connection.close()


@dataclass
class Outcome:
    """What became of one submission. `problem` empty means that everything holds."""

    submission: Submission
    job_id: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    checked: int = 0
    checked_on_chain: int = 0
    shown: str = ""
    problem: str = ""

    @property
    def status(self) -> str:
        return str(self.row.get("status", "refused"))

    @property
    def tx_hash(self) -> str:
        return str(self.row.get("gw_req_tx_hash") or "")

    def report(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "form": self.submission.form,
            "job_id": self.job_id,
            "status": self.status,
            "transitions": [{"status": one["to_status"], "at": one["at"]} for one in self.transitions],
            "tx_hash": self.tx_hash,
            "request_events": len(self.opened),
            "signatures_checked": self.checked,
            "signatures_checked_on_chain": self.checked_on_chain,
            "result": self.shown,
            "problem": self.problem,
        }


def run(
    api: Api, deployment: Deployment, forms: Sequence[Form] = FORMS, timeout: float = 90.0, operator: int = 0
) -> list[Outcome]:
    """Submits one request of each form, polls all to the end and checks each. Never raises for a bad answer: the
    outcome carries it as its problem."""
    with deployment.gateway_rpc() as rpc:
        first_block = rpc.head()
        traffic = Traffic(deployment, operator)
        outcomes = [Outcome(submission) for submission in traffic.build(forms)]
        traffic.close()
        for outcome in outcomes:
            _post(api, outcome)
        _poll(api, outcomes, timeout)
        opened = requests_for(deployment, rpc, [one.submission for one in outcomes], first_block, rpc.head())
        verifier = Verifier(deployment)
        for outcome, events in zip(outcomes, opened, strict=True):
            outcome.opened = events
            if not outcome.problem:
                _check(api, rpc, outcome, verifier)
    return outcomes


def _post(api: Api, outcome: Outcome) -> None:
    answer = api.post(outcome.submission.path, outcome.submission.body)
    if answer.status != http.HTTPStatus.ACCEPTED:
        outcome.problem = f"POST answered {answer.status}: {json.dumps(answer.body)[:300]}"
        return
    outcome.job_id = answer.body["result"]["jobId"]


def _poll(api: Api, outcomes: Sequence[Outcome], timeout: float) -> None:
    """Until every accepted job is final, or the time is over."""
    deadline = time.monotonic() + timeout
    waiting = [outcome for outcome in outcomes if not outcome.problem]
    while waiting:
        for outcome in waiting:
            outcome.row = api.get(f"/v1/{outcome.submission.kind}/{outcome.job_id}").body
        waiting = [outcome for outcome in waiting if outcome.status not in FINAL]
        if waiting and time.monotonic() > deadline:
            for outcome in waiting:
                outcome.problem = f"still {outcome.status} after {timeout:.0f} s"
            break
        time.sleep(POLL_SECONDS if waiting else 0)
    for outcome in outcomes:
        if outcome.job_id:
            outcome.transitions = api.get(f"/v1/requests/{outcome.job_id}/timeline").body.get("transitions", [])


def _check(api: Api, rpc: Rpc, outcome: Outcome, verifier: Verifier) -> None:
    """Completed, one request event by the recorded transaction, and a result that the registered keys have signed."""
    if outcome.status != "completed":
        outcome.problem = f"{outcome.status}: {outcome.row.get('err_reason')}"
    elif len(outcome.opened) != 1:
        outcome.problem = f"{len(outcome.opened)} request events on chain instead of one"
    elif outcome.opened[0].tx_hash != outcome.tx_hash:
        outcome.problem = f"the request event is of {outcome.opened[0].tx_hash}"
    else:
        _check_result(api, rpc, outcome, verifier)


def _check_result(api: Api, rpc: Rpc, outcome: Outcome, verifier: Verifier) -> None:
    submission = outcome.submission
    answer = api.get(f"{submission.path}/{outcome.job_id}")
    if answer.status != http.HTTPStatus.OK:
        outcome.problem = f"GET answered {answer.status}: {json.dumps(answer.body)[:300]}"
        return
    try:
        outcome.checked = verifier.check(submission, answer.body["result"])
        outcome.checked_on_chain = verifier.chain_answer(rpc, submission, outcome.opened[0].reference_id)
    except (Mismatch, KeyError, ValueError) as error:
        outcome.problem = f"{type(error).__name__}: {error}"
    outcome.shown = _short(submission, answer.body["result"])


def _short(submission: Submission, result: dict[str, Any]) -> str:
    """The gist of a result, for a table."""
    if submission.form == "input_proof":
        return f"accepted, {len(result.get('handles', ()))} handles"
    if submission.form == "public_decrypt":
        value = str(result.get("decryptedValue", ""))
        words = [str(int(value[start : start + 64], 16)) for start in range(0, len(value), 64)]
        return f"values {', '.join(words)}"[:SHORT_RESULT]
    return f"{len(result.get('result', ()))} shares"


def print_table(outcomes: Sequence[Outcome], write: Callable[[str], object]) -> None:
    """The outcomes for people: one block of lines a request."""
    for outcome in outcomes:
        mark = "ok " if not outcome.problem else "BAD"
        write(f"{mark} {outcome.submission.form:<15} {outcome.job_id or '-'}")
        for transition in outcome.transitions:
            write(f"      {clock(transition['at'])}  {transition['to_status']}")
        write(f"      tx      {outcome.tx_hash or '-'}  ({len(outcome.opened)} request event on chain)")
        write(
            f"      result  {outcome.shown or '-'}  ({outcome.checked} signatures checked, {outcome.checked_on_chain} on chain)"
        )
        if outcome.problem:
            write(f"      problem {outcome.problem}")


def clock(text: str) -> str:
    """The time of day of a timestamp, for a table."""
    return datetime.fromisoformat(text).strftime("%H:%M:%S.%f")[:-3]
