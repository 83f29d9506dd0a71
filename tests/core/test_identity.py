"""Golden vectors of the content hash (reference: HTTP facts 19.1)."""

from __future__ import annotations

import pytest

from requests_app.identity import content_hash, uuid7
from requests_app.states import Kind, ReqType

CONTRACT, USER, DELEGATOR = ("0x" + byte * 20 for byte in ("11", "22", "33"))
H1 = "0x000000000000000000000000000000000000000001ff0000000000001f490400"
H2 = "0x000000000000000000000000000000000000000002ff0000000000001f490000"
_TYPED = {
    "handles": [{"handle": H1, "contract": CONTRACT}],
    "contracts_chain_id": "8009",
    "contracts": [CONTRACT],
    "public_key": "0xabcd",
    "extra_data": "0x00",
}
_UNIFIED = {
    "type": "unified",
    "handles": [{"handle": H1, "contract": CONTRACT, "owner": USER}],
    "public_key": "0xabcd",
    "extra_data": "0x00",
    "user": USER,
}

VECTORS = [
    (
        Kind.INPUT_PROOF,
        None,
        {
            "contract_chain_id": "8009",
            "contract": CONTRACT,
            "user": USER,
            "ciphertext": "0xdeadbeef",
            "extra_data": "0x00",
        },
        "0df8a78a73ffd52581c7ca6bc41a22b293af975fae715a578a84dcde82c4c6a9",
    ),
    (
        Kind.PUBLIC_DECRYPT,
        None,
        {"handles": [H1, H2], "extra_data": "0x00"},
        "2a236b87fba5d2e1ec32bda45407d3189fef7d5fe16329d75f161ebc4e1e0fc6",
    ),
    (
        Kind.PUBLIC_DECRYPT,
        None,
        {"handles": [H2, H1], "extra_data": "0x00"},
        "cb346c697c5ef4499d200e2e1022a7d6a15543b56c951171e0d0906fa557fe9e",
    ),
    (
        Kind.USER_DECRYPT,
        ReqType.DIRECT,
        {**_TYPED, "type": "user_decrypt", "user": USER},
        "4e00f40a6f9dea6fd4b7138ab5fc564f97a2e7101e280decab15c8b3aa19cb8d",
    ),
    (
        Kind.USER_DECRYPT,
        ReqType.DELEGATED,
        {**_TYPED, "type": "delegated_user_decrypt", "delegator": DELEGATOR, "delegate": USER},
        "b6debfdfe8bff03927198b31b02bf9532eb63b1672cf165b046413cc16e1b862",
    ),
    (
        Kind.USER_DECRYPT,
        ReqType.UNIFIED,
        {**_UNIFIED, "allowed_contracts": [CONTRACT]},
        "fe8a4e42f98d6a9c223f6c144b64723d3b9fbda2dd58f5ad3ad9a97b4a14d0f1",
    ),
    (
        Kind.USER_DECRYPT,
        ReqType.UNIFIED,
        {**_UNIFIED, "allowed_contracts": []},
        "e2b59b7242c5244e79e9c5a44f40b8f81686e1b16de9a65aedd71f771d1ccea0",
    ),
]


@pytest.mark.parametrize(("kind", "req_type", "body", "expected"), VECTORS)
def test_content_hash_equals_the_golden_vector(kind, req_type, body, expected):
    assert content_hash(kind, req_type, body).hex() == expected


def test_signature_and_window_are_not_content():
    body = VECTORS[3][2]
    signed = {**body, "signature": "0x" + "aa" * 65, "start_timestamp": "1", "duration_days": "9"}
    assert content_hash(Kind.USER_DECRYPT, ReqType.DIRECT, signed) == content_hash(
        Kind.USER_DECRYPT, ReqType.DIRECT, body
    )


def test_uuid7_is_version_7_and_ordered_in_time():
    first = uuid7()
    assert first.version == 7
    assert first.variant == "specified in RFC 4122"
    assert first.int >> 80 <= uuid7().int >> 80
