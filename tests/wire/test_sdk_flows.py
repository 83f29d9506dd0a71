"""Ways through the unmodified SDK 0.4.3 and the newer @fhevm/sdk against the running stack: throttling, abort, time-out, resume, idleness."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from requests_app.states import REQUEST_KINDS
from tests.installing import fhevm_sdk, relayer_sdk
from tests.wire import programs
from tests.wire.client import Client
from tests.wire.scripted import failed, queued, serving
from tests.wire.world import SOFT_LIMIT, World
from workers.devnet.traffic import Form, Submission

INSTALLS = ("relayer_sdk", "fhevm_sdk")
OPERATION: dict[Form, str] = {"input_proof": "INPUT_PROOF", "public_decrypt": "PUBLIC_DECRYPT", "user_decrypt": "USER_DECRYPT", "delegated": "DELEGATED_USER_DECRYPT"}  # fmt: skip


def case(world: World, submission: Submission, **more: Any) -> dict[str, Any]:
    return {
        "name": "it",
        "operation": OPERATION[submission.form],
        "url": world.stack.url + submission.path,
        "payload": submission.body,
        "auth": {"__type": "ApiKeyHeader", "value": world.stack.api_key},
        **more,
    }


def settings(world: World, *cases: dict[str, Any]) -> dict[str, Any]:
    return {"modules": str(relayer_sdk()), "cases": cases}


def test_sdk_429_then_success(world: World, tmp_path: Path) -> None:
    """throttled POST 429, queued POST 202, (queued GET 202)*, succeeded GET 200, for each operation."""
    submissions = {form: world.submission(form) for form in OPERATION}
    cases = [case(world, one, name=form) for form, one in submissions.items()]
    seen: list[dict[str, Any]] = []
    with programs.lines_of("exchanges.mjs", settings(world, *cases), tmp_path) as lines:
        with ExitStack() as full:
            for kind in REQUEST_KINDS:
                full.enter_context(world.filled("send", kind.value, SOFT_LIMIT))
            while {line["case"] for line in seen if "event" in line} != set(submissions):
                seen.append(next(lines))
        seen += list(lines)
    for form in submissions:
        events = programs.events(seen, form)
        assert events[0] == ("throttled", "POST", 429)
        first = next(place for place, event in enumerate(events) if event[0] != "throttled")
        assert events[first] == ("queued", "POST", 202)
        assert set(events[first + 1 : -1]) <= {("queued", "GET", 202)}
        assert events[-1] == ("succeeded", "GET", 200)
        assert programs.ends(seen)[form]["end"] == "resolved"
    throttled = [line["retryAfterMs"] for line in seen if "event" in line and line["event"][0] == "throttled"]
    assert set(throttled) == {4000}


def test_sdk_old_name_of_throttling(world: World, tmp_path: Path) -> None:
    """Scripted: the label of older relayers. It is taken as throttling until the server says otherwise; abort ends it."""
    with serving({"x": (failed(429, "protocol_overload"), None)}) as address:
        one = {
            "name": "it",
            "operation": "PUBLIC_DECRYPT",
            "url": f"{address}/x/v2",
            "payload": {},
            "abortOn": "throttled",
        }
        seen = programs.run("exchanges.mjs", settings(world, one), tmp_path)
    assert programs.events(seen, "it")[0] == ("throttled", "POST", 429)
    assert programs.ends(seen)["it"]["end"] == "RelayerV2AbortError"


def test_sdk_abort_time_out_and_resume(world: World, tmp_path: Path) -> None:
    """Three clients of requests that wait for their ciphertexts. The relayer goes on after abort and time-out; a fourth resumes."""
    waiting = [world.allow(world.draft("public_decrypt"), commit=False) for _ in range(2)]
    cases = [
        case(world, waiting[0], name="aborted", abortOn="queued"),
        case(world, waiting[1], name="timed out", timeout=1500),
    ]
    seen = programs.run("exchanges.mjs", settings(world, *cases), tmp_path)
    ends = programs.ends(seen)
    assert ends["aborted"]["end"] == "RelayerV2AbortError"
    assert ends["timed out"]["end"] == "RelayerV2TimeoutError"
    assert ("abort", "POST", None) in [(kind, method, None) for kind, method, _ in programs.events(seen, "aborted")]
    assert "timeout" in [kind for kind, _, _ in programs.events(seen, "timed out")]
    jobs = [world.post(one) for one in waiting]
    world.give_time(*jobs)
    for one in waiting:
        world.allow(one)
    resumed = programs.run(
        "exchanges.mjs",
        settings(world, *(case(world, one, name=job, jobId=job) for one, job in zip(waiting, jobs, strict=True))),
        tmp_path,
    )
    for job in jobs:
        assert programs.ends(resumed)[job]["end"] == "resolved"
        assert {method for _, method, _ in programs.events(resumed, job)} == {"GET"}


def test_sdk_retry_after_below_a_second_and_absent(world: World, tmp_path: Path) -> None:
    """Scripted: less than a second counts as one second, none as two and a half."""
    scripts: Any = {}
    for name, headers in (
        ("zero", {"Retry-After": "0"}),
        ("none", {}),
        ("date", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
    ):
        reply = queued("6f1f0f5e-6d2c-4c51-9d0e-000000000000")
        scripts[name] = (type(reply)(reply.status, reply.body, headers), None)
    with serving(scripts) as address:
        cases = [
            {
                "name": name,
                "operation": "PUBLIC_DECRYPT",
                "url": f"{address}/{name}/v2",
                "payload": {},
                "abortOn": "queued",
            }
            for name in scripts
        ]
        seen = programs.run("exchanges.mjs", settings(world, *cases), tmp_path)
    waits = {line["case"]: line["retryAfterMs"] for line in seen if "event" in line and line["event"][0] == "queued"}
    assert waits == {"zero": 1000, "none": 2500, "date": 2500}


@pytest.fixture(scope="module", autouse=True)
def meanwhile(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Any]]]:
    """Programs that mostly wait, run while the other tests of this module do."""
    with ThreadPoolExecutor(2) as pool:
        yield {
            "idle": pool.submit(idle, world, tmp_path_factory.mktemp("idle"), 7),
            "newer": pool.submit(newer_round, world, tmp_path_factory.mktemp("fhevm")),
        }


def idle(world: World, directory: Path, seconds: int) -> None:
    submission = world.submission("public_decrypt")
    given = {
        "modules": str(relayer_sdk()),
        "base": world.stack.url,
        "auth": {"__type": "ApiKeyHeader", "value": world.stack.api_key},
        "payload": submission.body,
        "seconds": seconds,
    }
    (answer,) = programs.run("idle.mjs", given, directory)
    assert answer["ok"], answer
    assert len(bytes.fromhex(answer["value"])) == 32 * len(submission.handles)


@pytest.fixture
def idling(meanwhile: dict[str, Future[Any]]) -> Future[Any]:
    return meanwhile["idle"]


def test_20_5_idle_connection_between_keyurl_and_post(idling: Future[Any]) -> None:
    idling.result(240)


@pytest.mark.full
def test_20_5_idle_connection_for_a_minute(world: World, tmp_path: Path) -> None:
    idle(world, tmp_path, 60)


def newer_round(world: World, directory: Path) -> tuple[dict[str, Submission], dict[str, Any]]:
    forms: dict[str, Form] = {
        "publicDecrypt": "public_decrypt",
        "userDecrypt": "user_decrypt",
        "inputProof": "input_proof",
    }
    made = {name: world.submission(form) for name, form in forms.items()}
    public = world.stack.url + "/v2/public-decrypt"
    failing = [
        {"name": "missing", "operation": "PUBLIC_DECRYPT", "url": public, "payload": {"extraData": "0x00"}},
        {"name": "keyless", "operation": "PUBLIC_DECRYPT", "url": public, "payload": {}, "auth": False},
    ]
    given = {
        "modules": str(fhevm_sdk()),
        "base": world.stack.url,
        "chainId": world.stack.deployment.host["chain_id"],
        "apiKey": world.stack.api_key,
        "bodies": {name: one.body for name, one in made.items()},
        "failing": failing,
    }
    lines = programs.run("fhevm/round.mjs", given, directory, hooked=False)
    return made, {line["step"]: line for line in lines}


@pytest.fixture
def newer(meanwhile: dict[str, Future[Any]]) -> tuple[dict[str, Submission], dict[str, Any]]:
    """What every step of the newer client reported."""
    found: tuple[dict[str, Submission], dict[str, Any]] = meanwhile["newer"].result(240)
    return found


def test_newer_sdk_key_source(world: World, newer: Any) -> None:
    step = newer[1]["keys"]
    assert step["ok"], step
    response = Client(world.stack.url, None).get("/v2/keyurl").body["response"]
    assert step["value"]["publicKeySource"]["url"] == response["fheKeyInfo"][0]["fhePublicKey"]["urls"][0]
    assert step["value"]["crsSource"]["id"] == response["crs"]["2048"]["dataId"]


def test_newer_sdk_public_decrypt(newer: Any) -> None:
    step = newer[1]["publicDecrypt"]
    assert step["ok"], step
    assert len(step["value"]["kmsPublicDecryptEIP712Signatures"]) >= 9
    assert len(bytes.fromhex(step["value"]["orderedAbiEncodedClearValues"][2:])) == 32 * len(newer[0]["publicDecrypt"].handles)  # fmt: skip


def test_newer_sdk_user_decrypt(newer: Any) -> None:
    step = newer[1]["userDecrypt"]
    assert step["ok"], step
    assert len(step["value"]) == 9
    assert {share["extraData"] for share in step["value"]} == {"00"}


def test_newer_sdk_input_proof(newer: Any) -> None:
    step = newer[1]["inputProof"]
    assert step["ok"], step
    assert step["value"]["handles"]
    assert len(step["value"]["coprocessorEip712Signatures"]) >= 2


def test_newer_sdk_errors(newer: Any) -> None:
    missing, keyless = newer[1]["missing"], newer[1]["keyless"]
    assert (missing["ok"], missing["name"], missing["label"]) == (False, "RelayerResponseApiError", "missing_fields")
    assert (keyless["ok"], keyless["name"], keyless["label"]) == (False, "RelayerResponseApiError", "unauthorized")


def test_newer_sdk_polls_without_its_key(newer: Any) -> None:
    """Its own fault: the key goes with the POST only. With API_AUTH=required the application must add it to the polls."""
    step = newer[1]["unhelped"]
    assert (step["ok"], step["name"], step["label"]) == (False, "RelayerResponseApiError", "unauthorized")
