"""Ids, paths and methods on /v2 and /v3 (fhevm_http 1), and keyurl (14)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from requests_app.states import Kind, Status
from tests.api.conftest import OTHER_KEY, Api
from tests.api.rows import insert_job
from tests.api.test_v2_get import error
from tests.core.rows import insert_request

NOBODYS = "0b8f7a70-5c8e-4f0e-9a39-2f1c1f3f6d11"
NOT_FOUND = {"label": "not_found", "message": "Request not found"}


def test_unknown_and_foreign_ids_look_alike(api: Api, bob: int, conn: psycopg.Connection[Any]) -> None:
    his = insert_job(conn, bob, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    assert error(api.get(f"/v2/public-decrypt/{his}"), 404) == NOT_FOUND
    assert error(api.get(f"/v2/public-decrypt/{uuid4()}"), 404) == NOT_FOUND
    assert Api(OTHER_KEY).get(f"/v2/public-decrypt/{his}").status_code == 202


def test_the_row_s_own_id_is_nobody_s(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    own = uuid4()
    insert_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED, ext_job_id=own)
    assert error(api.get(f"/v2/public-decrypt/{own}"), 404) == NOT_FOUND


def test_kinds_do_not_answer_for_each_other(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    for path in ("/v2/input-proof/", "/v2/user-decrypt/", "/v3/user-decrypt/"):
        assert error(api.get(f"{path}{job}"), 404) == NOT_FOUND


def test_spellings_of_an_id(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    for text in (str(job), str(job).upper(), job.hex, f"urn:uuid:{job}", f"{{{job}}}"):
        assert api.get(f"/v2/public-decrypt/{text}").status_code == 202
    for text in ("1", f"{job}x", f"({job})", "urn:" + str(job), job.hex[:-1], f"{str(job)[:-1]}%0a", "%00"):
        response = api.get(f"/v2/public-decrypt/{text}")
        assert response.status_code == 400
        assert response.headers["content-type"].startswith("text/plain")


def test_20_4_keyurl(conn: psycopg.Connection[Any]) -> None:
    entry = {
        "dataId": "0x" + "00" * 31 + "03",
        "urls": ["http://minio:9000/kms-public/PUB-p1/PublicKey/" + "0" * 63 + "3"],
    }
    body = {"fheKeyInfo": [{"fhePublicKey": entry}], "crs": {"2048": entry}}
    stranger = Api(key=None)
    before = stranger.get("/v2/keyurl")
    assert before.status_code == 500
    assert set(before.json()) == {"status", "error"}
    assert before.json()["error"]["label"] == "internal_server_error"
    conn.execute(
        "INSERT INTO published_key (id, key_id, crs_id, context_id, body) VALUES (1, %s, %s, %s, %s)",
        (b"\3", b"\4", b"\7", json.dumps(body)),
    )
    response = stranger.get("/v2/keyurl")
    assert response.status_code == 200
    assert response.json() == {"status": "succeeded", "response": body}


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_unknown_paths_are_empty_404s(api: Api, version: str, method: str) -> None:
    for path in (
        f"/{version}",
        f"/{version}/",
        f"/{version}/keyurls",
        f"/{version}/user-decrypt/",
        "/v3/keyurl",
        "/v3/input-proof",
        f"/{version}/user-decrypt/{NOBODYS}/more",
    ):
        response = api.method(method, path)
        assert (response.status_code, response.content) == (404, b""), path


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v2/input-proof", "POST"),
        ("PUT", "/v2/public-decrypt", "POST"),
        ("OPTIONS", "/v3/user-decrypt", "POST"),
        ("POST", "/v2/keyurl", "GET, HEAD"),
        ("POST", f"/v2/user-decrypt/{NOBODYS}", "GET, HEAD"),
        ("DELETE", "/v3/user-decrypt/1", "GET, HEAD"),
    ],
)
def test_wrong_methods_are_empty_405s(api: Api, method: str, path: str, allow: str) -> None:
    response = api.method(method, path)
    assert (response.status_code, response.content) == (405, b"")
    assert response.headers["Allow"] == allow


def test_head_where_get_works(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    response = api.method("HEAD", f"/v2/public-decrypt/{job}")
    assert (response.status_code, response.content) == (202, b"")
    assert response.headers["Retry-After"] == "8"
