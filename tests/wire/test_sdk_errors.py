"""What the unmodified SDK 0.4.3 throws for each pair of status and label (fhevm_http 16.4): class and label.

The running relayer produces every pair that it can. What it never answers, because upstream never does or because a proxy in front
would, comes from a scripted server, which says so in the case's name.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from requests_app.sockets import free_port
from tests.installing import relayer_sdk
from tests.wire import programs
from tests.wire.scripted import Reply, failed, queued, serving
from tests.wire.world import World

INSTALLS = ("relayer_sdk",)
API_ERROR = "RelayerV2ResponseApiError"
INVALID_BODY = "RelayerV2ResponseInvalidBodyError"
STATUS_ERROR = "RelayerV2ResponseStatusError"
FETCH_ERROR = "RelayerV2FetchError"
LONG_HANDLE = "0x" + "11" * 21 + "ff" + "0000000000001f49" + "0400" + "00"
UNKNOWN_CHAIN = "0x" + "00" * 22 + f"{99999:016x}" + "0400"
REQUEST = {"ciphertextHandles": ["0x" + "00" * 22 + "0000000000001f49" + "0400"], "extraData": "0x00"}

# Payload of a POST to the running relayer -> what the SDK throws.
POSTS: dict[str, tuple[Any, str, str | None]] = {
    "400 malformed_json": ([], API_ERROR, "malformed_json"),
    "400 request_error": ({"x": "a" * (2 * 1024 * 1024)}, API_ERROR, "request_error"),
    "400 missing_fields": ({"extraData": "0x00"}, API_ERROR, "missing_fields"),
    "400 validation_failed": ({**REQUEST, "ciphertextHandles": ["0xzz"]}, API_ERROR, "validation_failed"),
    "400 host_chain_id_not_supported": ({**REQUEST, "ciphertextHandles": [UNKNOWN_CHAIN]}, INVALID_BODY, None),
    "500 internal_server_error": ({**REQUEST, "ciphertextHandles": [LONG_HANDLE]}, API_ERROR, "internal_server_error"),
}

# A request of the running relayer that ended so, found by status and label -> what the SDK throws when it resumes it.
GETS: dict[tuple[int, str], tuple[str, str | None]] = {
    (400, "validation_failed"): (API_ERROR, "validation_failed"),
    (400, "not_allowed_on_host_acl"): (API_ERROR, "not_allowed_on_host_acl"),
    (500, "internal_server_error"): (API_ERROR, "internal_server_error"),
    (500, "host_acl_failed"): (INVALID_BODY, None),
    (503, "readiness_check_timed_out"): (API_ERROR, "readiness_check_timed_out"),
    (503, "response_timed_out"): (API_ERROR, "response_timed_out"),
    (503, "protocol_paused"): (API_ERROR, "protocol_paused"),
    (503, "insufficient_balance"): (API_ERROR, "insufficient_balance"),
    (503, "insufficient_allowance"): (API_ERROR, "insufficient_allowance"),
}
POST_503 = (
    "protocol_paused",
    "insufficient_balance",
    "insufficient_allowance",
    "gateway_not_reachable",
    "readiness_check_timed_out",
    "response_timed_out",
)
SUCCESS = {"decryptedValue": "00" * 32, "signatures": ["ab" * 65], "extraData": "0x00"}
SCRIPTED_POST: dict[str, tuple[Reply, str, str | None]] = {
    "200": (Reply(200, {"status": "succeeded", "requestId": "x", "result": SUCCESS}), STATUS_ERROR, None),
    "400 not_ready_for_decryption": (failed(400, "not_ready_for_decryption"), API_ERROR, "not_ready_for_decryption"),
    "400 not_allowed_on_host_acl": (failed(400, "not_allowed_on_host_acl"), API_ERROR, "not_allowed_on_host_acl"),
    "400 validation_failed without details": (failed(400, "validation_failed"), INVALID_BODY, None),
    "500 with a label of another status": (failed(500, "protocol_paused"), INVALID_BODY, None),
    "400 without JSON": (Reply(400, b"<html>", {"content-type": "text/html"}), FETCH_ERROR, None),
    **{f"503 {label}": (failed(503, label), API_ERROR, label) for label in POST_503},
    **{
        f"{status}": (failed(status, "internal_server_error"), STATUS_ERROR, None)
        for status in (403, 404, 413, 422, 502, 504)
    },
}
SCRIPTED_GET: dict[str, tuple[Reply, str, str | None]] = {
    "400 malformed_json": (failed(400, "malformed_json"), API_ERROR, "malformed_json"),
    "503 gateway_not_reachable": (failed(503, "gateway_not_reachable"), API_ERROR, "gateway_not_reachable"),
    "429": (failed(429, "rate_limited"), STATUS_ERROR, None),
    "403": (failed(403, "internal_server_error"), STATUS_ERROR, None),
    "502": (Reply(502, b"<html>", {"content-type": "text/html"}), STATUS_ERROR, None),
    "200 with 0x in the value": (
        Reply(200, {"status": "succeeded", "requestId": "x", "result": {**SUCCESS, "decryptedValue": "0x00"}}),
        INVALID_BODY,
        None,
    ),
}


def case(name: str, url: str, payload: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "operation": "PUBLIC_DECRYPT", "url": url, "payload": payload or REQUEST, **more}


OPERATION = {"/v2/input-proof": "INPUT_PROOF", "/v2/public-decrypt": "PUBLIC_DECRYPT"}


@pytest.fixture(scope="module")
def thrown(
    world: World, ended: dict[tuple[int, str], tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """How every case ended, all run by one process of the SDK."""
    auth = {"__type": "ApiKeyHeader", "value": world.stack.api_key}
    base = world.stack.url
    public = f"{base}/v2/public-decrypt"
    cases = [{**case(f"POST {name}", public, auth=auth), "payload": payload} for name, (payload, _, _) in POSTS.items()]
    for status, label in GETS:
        path, job = ended[status, label]
        operation = OPERATION.get(path, "USER_DECRYPT")
        cases.append({**case(f"GET {status} {label}", base + path, jobId=job, auth=auth), "operation": operation})
    path, job = ended[200, "rejected"]
    cases += [
        {**case("GET 200 rejected", base + path, jobId=job, auth=auth), "operation": "INPUT_PROOF"},
        case("POST 401", public),
        case("GET 401", public, jobId=str(uuid4())),
        case("GET 404", public, jobId=str(uuid4()), auth=auth),
        case("GET 400 bad id", public, jobId="no-uuid", auth=auth),
        case("POST nobody listens", f"http://127.0.0.1:{free_port()}/v2/public-decrypt"),
    ]
    scripts: dict[str, tuple[Reply, Reply | None]] = {}
    for number, (name, (reply, _, _)) in enumerate(SCRIPTED_POST.items()):
        scripts[f"p{number}"] = (reply, None)
        cases.append(case(f"scripted POST {name}", f"SCRIPTED/p{number}/v2"))
    for number, (name, (reply, _, _)) in enumerate(SCRIPTED_GET.items()):
        scripts[f"g{number}"] = (queued(str(uuid4())), reply)
        cases.append(case(f"scripted GET {name}", f"SCRIPTED/g{number}/v2"))
    with serving(scripts) as address:
        for one in cases:
            one["url"] = one["url"].replace("SCRIPTED", address)
        settings = {"modules": str(relayer_sdk()), "cases": cases}
        return programs.ends(programs.run("exchanges.mjs", settings, tmp_path_factory.mktemp("sdk")))


def shows(end: dict[str, Any], error: str, label: str | None) -> None:
    assert (end["end"], end["label"]) == (error, label), end


@pytest.mark.parametrize("name", POSTS)
def test_sdk_post_to_the_relayer(thrown: Any, name: str) -> None:
    _, error, label = POSTS[name]
    end = thrown[f"POST {name}"]
    shows(end, error, label)
    assert end["status"] == int(name[:3])
    assert (end["details"] is not None) == (label in ("validation_failed", "missing_fields"))


@pytest.mark.parametrize(("status", "label"), GETS)
def test_sdk_get_from_the_relayer(thrown: Any, status: int, label: str) -> None:
    end = thrown[f"GET {status} {label}"]
    shows(end, *GETS[status, label])
    assert end["status"] == status


def test_sdk_rejected_proof(thrown: Any) -> None:
    shows(thrown["GET 200 rejected"], "RelayerV2ResponseInputProofRejectedError", None)


@pytest.mark.parametrize(
    ("name", "error", "label"),
    [
        ("POST 401", API_ERROR, "unauthorized"),
        ("GET 401", API_ERROR, "unauthorized"),
        ("GET 404", API_ERROR, "not_found"),
        ("GET 400 bad id", FETCH_ERROR, None),
        ("POST nobody listens", FETCH_ERROR, None),
    ],
)
def test_sdk_key_id_and_network(thrown: Any, name: str, error: str, label: str | None) -> None:
    shows(thrown[name], error, label)


@pytest.mark.parametrize("name", SCRIPTED_POST)
def test_sdk_post_to_a_scripted_server(thrown: Any, name: str) -> None:
    shows(thrown[f"scripted POST {name}"], *SCRIPTED_POST[name][1:])


@pytest.mark.parametrize("name", SCRIPTED_GET)
def test_sdk_get_from_a_scripted_server(thrown: Any, name: str) -> None:
    shows(thrown[f"scripted GET {name}"], *SCRIPTED_GET[name][1:])
