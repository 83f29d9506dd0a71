"""POST /v3/user-decrypt: fhevm_http 20.3 and the wallet cases of 20.5, with a wallet that the test plays."""

from __future__ import annotations

import json
import time
from typing import Any

import coincurve
import psycopg
import pytest
from pytest_django import Settings

from requests_app.api.signatures import unified_digest, verifier
from requests_app.errors import WalletCheckFailed
from requests_app.states import Kind
from tests.api import bodies
from tests.api.conftest import Api
from tests.api.rows import counts

PATH = "/v3/user-decrypt"
SIGNATURE_ERROR = {
    "label": "validation_failed",
    "message": "Validation failed for 1 field(s)",
    "details": [{"field": "signature", "issue": "Signature is invalid"}],
}


class Wallet:
    """A host chain with at most one wallet contract, which accepts one signature."""

    accepts: bytes | None = None
    down = False
    asked: list[tuple[int, bytes, bytes, bytes]] = []  # noqa: RUF012  reset by the fixture

    def is_valid(self, chain_id: int, wallet: bytes, digest: bytes, signature: bytes) -> bool:
        self.asked.append((chain_id, wallet, digest, signature))
        if self.down:
            raise WalletCheckFailed
        return signature == self.accepts


@pytest.fixture
def wallet(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Wallet:
    settings.SIGNATURE_VERIFIER = f"{__name__}.Wallet"
    verifier.cache_clear()
    made = verifier()
    assert isinstance(made, Wallet)
    made.asked = []
    return made


def signed(chain_id: int = 8009, **changes: Any) -> dict[str, Any]:
    """A body signed by the golden key for its own address."""
    payload = bodies.payload(userAddress=bodies.SIGNER, **changes)
    body = {
        "user": payload["userAddress"].lower(),
        "public_key": payload["publicKey"],
        "allowed_contracts": payload["allowedContracts"],
        "start_timestamp": payload["requestValidity"]["startTimestamp"],
        "duration_seconds": payload["requestValidity"]["durationSeconds"],
        "extra_data": payload["extraData"],
    }
    raw = coincurve.PrivateKey(bodies.SIGNER_KEY).sign_recoverable(unified_digest(body, chain_id), hasher=None)
    return bodies.unified(attestedPayload=payload, signature="0x" + (raw[:64] + bytes([27 + raw[64]])).hex())


def owned_by(*owners: str) -> list[dict[str, str]]:
    return [{"ctHandle": bodies.H1, "contractAddress": bodies.CONTRACT, "ownerAddress": owner} for owner in owners]


@pytest.mark.parametrize(
    "changes",
    [
        {"handles": owned_by(bodies.SIGNER)},
        {"handles": owned_by(bodies.SIGNER, bodies.DELEGATOR)},
        {"allowedContracts": []},
        {"allowedContracts": [bodies.CONTRACT, bodies.USER, bodies.DELEGATOR]},
        {"extraData": bodies.CONTEXT_V1},
        {"extraData": bodies.CONTEXT_V2},
    ],
    ids=["20.3-1", "20.3-2", "20.3-3", "20.3-4", "context", "context-epoch"],
)
def test_20_3_1_to_4_good_signature_without_any_call(api: Api, wallet: Wallet, changes: dict[str, Any]) -> None:
    response = api.post(PATH, signed(**changes))
    assert response.status_code == 202, response.content
    assert response.headers["Retry-After"] == "8"
    assert wallet.asked == []
    job = response.json()["result"]["jobId"]
    for path in ("/v3/user-decrypt/", "/v2/user-decrypt/", "/v2/delegated-user-decrypt/"):
        assert api.get(f"{path}{job}").status_code == 202


def test_20_3_2_handles_are_not_signed(api: Api, wallet: Wallet) -> None:
    body = signed()
    body["attestedPayload"]["handles"] = [
        {"ctHandle": bodies.H2, "contractAddress": bodies.CONTRACT, "ownerAddress": bodies.DELEGATOR}
    ]
    assert api.post(PATH, body).status_code == 202


@pytest.mark.parametrize(
    "signature", ["0x" + "77" * 100, "0x", "", "0x" + "00" * 65], ids=["20.3-5", "20.3-6", "empty", "zero"]
)
def test_20_3_5_and_6_wrong_signature_of_a_plain_account(
    api: Api, wallet: Wallet, conn: psycopg.Connection[Any], signature: str
) -> None:
    response = api.post(PATH, {**signed(), "signature": signature})
    assert response.status_code == 400
    assert response.json()["error"] == SIGNATURE_ERROR
    assert len(wallet.asked) == 1
    assert set(counts(conn).values()) == {0}


def test_signature_for_another_chain_is_wrong(api: Api, wallet: Wallet) -> None:
    assert api.post(PATH, signed(chain_id=9001)).json()["error"] == SIGNATURE_ERROR


def test_handles_of_two_chains_cannot_be_signed_for(api: Api, wallet: Wallet) -> None:
    other = bodies.H1.replace("1f49", "2329")  # chain 9001
    handles = [{**owned_by(bodies.SIGNER)[0], "ctHandle": handle} for handle in (bodies.H1, other)]
    assert api.post(PATH, signed(handles=handles)).json()["error"] == SIGNATURE_ERROR
    assert wallet.asked == []


def test_20_5_wallet_contract(api: Api, wallet: Wallet) -> None:
    wallet.accepts = b"\x01\x02"
    body = bodies.unified(signature="0x0102")
    assert api.post(PATH, body).status_code == 202
    chain_id, address, digest, signature = wallet.asked[0]
    assert (chain_id, address.hex(), signature) == (8009, "22" * 20, b"\x01\x02")
    assert len(digest) == 32
    assert api.post(PATH, {**body, "signature": "0x0103"}).json()["error"] == SIGNATURE_ERROR


def test_20_5_wallet_chain_down(api: Api, wallet: Wallet, conn: psycopg.Connection[Any]) -> None:
    wallet.down = True
    response = api.post(PATH, bodies.unified())
    assert response.status_code == 500
    assert response.json()["error"] == {"label": "internal_server_error", "message": "Internal server error"}
    assert counts(conn)["user_decrypt_req"] == 0


def test_the_check_can_be_switched_off(api: Api, wallet: Wallet, settings: Settings) -> None:
    settings.V3_SIGNATURE_CHECK = False
    assert api.post(PATH, bodies.unified()).status_code == 202
    assert wallet.asked == []


def test_the_check_runs_on_duplicates_too(api: Api, wallet: Wallet) -> None:
    body = signed()
    assert api.post(PATH, body).status_code == 202
    assert api.post(PATH, {**body, "signature": "0x"}).status_code == 400


@pytest.mark.parametrize(
    ("change", "label", "field"),
    [
        ({"attestationType": "other"}, "validation_failed", "attestationType"),
        ({"attestationType": None}, "missing_fields", "attestationType"),
        ({"payload": {"version": "1.0"}}, "validation_failed", "attestedPayload.version"),
        ({"payload": {"type": "other"}}, "validation_failed", "attestedPayload.type"),
        ({"payload": {"handles": []}}, "validation_failed", "attestedPayload.handles"),
        (
            {"payload": {"handles": [{"ctHandle": bodies.H1, "contractAddress": bodies.CONTRACT}]}},
            "missing_fields",
            "ownerAddress",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "1", "durationSeconds": "1"}}},
            "validation_failed",
            "attestedPayload.requestValidity",
        ),
        ({"payload": {"extraData": "0x01" + "00" * 32}}, "validation_failed", "attestedPayload.extraData"),
        ({"extraneousField": 1}, "validation_failed", "extraneousField"),
    ],
    ids=["7", "8", "9", "10", "11", "12", "13", "14", "15"],
)
def test_20_3_7_to_15_refusals(api: Api, wallet: Wallet, change: dict[str, Any], label: str, field: str) -> None:
    body = {key: value for key, value in bodies.unified(**change).items() if value is not None}
    response = api.post(PATH, body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["label"], [detail["field"] for detail in error["details"]]) == (label, [field])


def test_20_3_16_not_json(api: Api) -> None:
    assert api.post(PATH, b"not json").json()["error"]["label"] == "malformed_json"


def test_20_5_probe_of_the_new_sdk(api: Api) -> None:
    response = api.post(PATH, b"{}")
    assert response.status_code == 400
    assert response.json()["error"]["details"] == [{"field": "attestationType", "issue": "Required but missing"}]


def test_unsupported_chain_comes_before_the_signature(api: Api, wallet: Wallet) -> None:
    handles = [{**owned_by(bodies.SIGNER)[0], "ctHandle": bodies.FOREIGN}]
    assert api.post(PATH, signed(handles=handles)).json()["error"]["label"] == "host_chain_id_not_supported"


def test_a_signature_of_the_future_window_is_not_asked_for(api: Api, wallet: Wallet) -> None:
    validity = {"startTimestamp": str(int(time.time()) + 500), "durationSeconds": "1"}
    assert api.post(PATH, bodies.unified(payload={"requestValidity": validity})).status_code == 400
    assert wallet.asked == []


def test_kind_of_the_stored_row(api: Api, wallet: Wallet, conn: psycopg.Connection[Any]) -> None:
    api.post(PATH, signed())
    handles = [{"handle": bodies.H1, "contract": bodies.CONTRACT, "owner": bodies.USER}]
    row = conn.execute(
        "SELECT r.req_type, p.body -> 'handles' = %s::jsonb FROM user_decrypt_req r JOIN request_payload p ON p.request_id = r.id",
        (json.dumps(handles),),
    ).fetchone()
    assert row == ("unified", True)
    assert counts(conn)[Kind.USER_DECRYPT.table] == 1
