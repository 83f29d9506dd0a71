"""What schemathesis cannot know: bodies that are accepted, jobs that exist, and which server errors the contract wants.

Runs in schemathesis's own environment, so it imports nothing of this project. FUZZ_INPUT names a JSON file with
`bodies` (by path of the POST: valid ones), `jobs` (by kind: ids), `window` (a file that exists while the test has made the queues
full); every exchange is written as a line to FUZZ_LOG.
"""

from __future__ import annotations

import copy
import json
import os
import random
import secrets
import threading
from pathlib import Path
from typing import Any

import schemathesis

INPUT = json.loads(Path(os.environ["FUZZ_INPUT"]).read_text())
LOG = Path(os.environ["FUZZ_LOG"])
VALID_SHARE = 0.6
KNOWN_SHARE = 0.85
HANDLE = "0x" + "{}" + "ff" + "0000000000001f49" + "0400"
# Labels with which a request may have ended for good; only `internal_server_error` also means "we are broken".
ENDED = {
    "host_acl_failed",
    "readiness_check_timed_out",
    "response_timed_out",
    "protocol_paused",
    "insufficient_balance",
    "insufficient_allowance",
}
BROKEN = {"Internal server error", "Database error"}
OTHERS = ("envelopes", "payment-intents", "webhooks")  # kinds whose ids are no jobs of requests
_lock = threading.Lock()
# Not the global generator: hypothesis seeds that one, and complains of others who use it.
_chance = random.SystemRandom()
_jobs: dict[str, list[str]] = {kind: list(ids) for kind, ids in INPUT["jobs"].items()}


def fresh_handle() -> str:
    return HANDLE.format(secrets.token_hex(21))


def fresh(path: str) -> Any:
    """A valid body that nobody has posted; no signature covers handles."""
    body = copy.deepcopy(_chance.choice(INPUT["bodies"][path]))
    if "ciphertextHandles" in body:
        body["ciphertextHandles"] = [fresh_handle()]
    elif "ciphertextWithInputVerification" in body:
        body["ciphertextWithInputVerification"] = secrets.token_hex(64)
    elif "payload" in body:
        body["payload"] = "0x" + secrets.token_hex(8)
    elif "merchant" in body:
        body["amount"] = str(1 + secrets.randbits(200))
    elif "url" in body:
        body["description"] = secrets.token_hex(8)
    elif "attestedPayload" in body:
        body["attestedPayload"]["handles"][0]["ctHandle"] = fresh_handle()
    else:
        body["handleContractPairs"][0]["handle"] = fresh_handle()
    return body


def kind_of(path: str) -> str:
    """The kind whose jobs a route knows; any kind for the routes that know all."""
    for kind in (*OTHERS, "input-proof", "public-decrypt", "user-decrypt"):
        if kind in path:
            return kind
    return _chance.choice([kind for kind in _jobs if kind not in OTHERS])


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Let most POSTs be valid and most ids known; the rest stays as generated."""
    path = case.operation.path
    if case.method == "POST" and path in INPUT["bodies"] and _chance.random() < VALID_SHARE:
        case.body = fresh(path)
        case.media_type = "application/json"
        case.query = {}
        if "payment-intents" in path:
            case.headers["Idempotency-Key"] = secrets.token_hex(8)
    place = next((name for name in ("intent_id", "webhook_id") if f"{{{name}}}" in path), "job_id")
    if f"{{{place}}}" in path and case.method in ("GET", "POST", "PATCH", "DELETE") and _chance.random() < KNOWN_SHARE:
        with _lock:
            known = _jobs[kind_of(path)]
        if known:
            case.path_parameters = {place: _chance.choice(known)}
        if case.query:
            case.query = {name: value for name, value in case.query.items() if name != "wait"}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Write the exchange down, and remember the job of an accepted request."""
    path = case.operation.path
    key = any(name.lower() == "x-api-key" for name in response.request.headers)
    line = {
        "method": response.request.method,
        "operation": case.operation.method.upper(),
        "path": path,
        "status": response.status_code,
        "key": key,
    }
    with _lock, LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")
    if case.method == "POST" and response.status_code in (201, 202) and path in INPUT["bodies"]:
        location = response.headers.get("location")
        location = location[0] if isinstance(location, list) else location
        job = location.rsplit("/", 1)[1] if location else json.loads(response.content)["result"]["jobId"]
        with _lock:
            _jobs[kind_of(path)].append(job)


@schemathesis.check
def only_server_errors_of_the_contract(ctx: Any, response: Any, case: Any) -> None:
    """A 5xx tells how a request has ended, and is documented; anything else is a failure of this server."""
    if response.status_code < 500:
        return
    body = json.loads(response.content)
    error = body.get("error", body)
    label, message = (
        error.get("label") or error.get("err_label"),
        error.get("message") or error.get("detail") or error.get("err_reason"),
    )
    if label in ENDED:
        return
    if label == "internal_server_error" and message not in BROKEN:
        return  # a request that failed, told with its reason
    handles = case.body.get("ciphertextHandles") if isinstance(case.body, dict) else None
    if isinstance(handles, list) and any(isinstance(handle, str) and len(handle) > 66 for handle in handles):
        return  # fhevm_http 6.2 wants 500 for a public handle of more than 32 bytes
    raise AssertionError(f"{response.status_code} {label}: {message}")
