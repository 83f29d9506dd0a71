"""Canonical request bodies, one of each form."""

from __future__ import annotations

from typing import Any

from requests_app.config import GatewayConfig
from requests_app.states import Kind, ReqType

CONTRACT, USER, DELEGATOR = "0x" + "11" * 20, "0x" + "22" * 20, "0x" + "33" * 20
H1 = "0x000000000000000000000000000000000000000001ff0000000000001f490400"
H2 = "0x000000000000000000000000000000000000000002ff0000000000001f490000"
OTHER_CHAIN = "0x000000000000000000000000000000000000000003ff0000000000002b670400"

DIRECT: dict[str, Any] = {
    "type": "user_decrypt",
    "handles": [{"handle": H1, "contract": CONTRACT}, {"handle": H2, "contract": CONTRACT}],
    "start_timestamp": "1700000000",
    "duration_days": "10",
    "contracts_chain_id": "8009",
    "contracts": [CONTRACT],
    "user": USER,
    "signature": "0x" + "ab" * 65,
    "public_key": "0xabcd",
    "extra_data": "0x00",
}
DELEGATED: dict[str, Any] = {
    **{key: value for key, value in DIRECT.items() if key != "user"},
    "type": "delegated_user_decrypt",
    "delegator": DELEGATOR,
    "delegate": USER,
}
UNIFIED: dict[str, Any] = {
    "type": "unified",
    "handles": [
        {"handle": H1, "contract": CONTRACT, "owner": USER},
        {"handle": H2, "contract": CONTRACT, "owner": DELEGATOR},
    ],
    "user": USER,
    "allowed_contracts": [CONTRACT],
    "start_timestamp": "1700000000",
    "duration_seconds": "86400",
    "signature": "0x" + "ab" * 65,
    "public_key": "0xabcd",
    "extra_data": "0x00",
}
PUBLIC: dict[str, Any] = {"handles": [H1, H2], "extra_data": "0x00"}
PROOF: dict[str, Any] = {
    "contract_chain_id": "8009",
    "contract": CONTRACT,
    "user": USER,
    "ciphertext": "0x" + "cd" * 100,
    "extra_data": "0x00",
}
FORMS: list[tuple[Kind, ReqType | None, dict[str, Any]]] = [
    (Kind.USER_DECRYPT, ReqType.DIRECT, DIRECT),
    (Kind.USER_DECRYPT, ReqType.DELEGATED, DELEGATED),
    (Kind.USER_DECRYPT, ReqType.UNIFIED, UNIFIED),
    (Kind.PUBLIC_DECRYPT, None, PUBLIC),
    (Kind.INPUT_PROOF, None, PROOF),
]
GATEWAY = GatewayConfig(654321, ("http://127.0.0.1:1",), b"\xd0" * 20, b"\xd1" * 20, (b"\x11" * 32,), b"\xd2" * 20, 0)
