"""What the signer of a canonical user decrypt body has signed, and who that was (EIP-712; fhevm_http 13.2, 13.3).

The struct hashes live in `requests_app.typed_data`, which the API's pre-check shares. The domain's chain id is that of the
**host** chain of the handles, its contract the **gateway's** Decryption.
"""

from __future__ import annotations

from typing import Final

from requests_app.states import ReqType
from requests_app.typed_data import Domain, delegated_hash, direct_hash, unified_hash
from requests_app.typed_data import recover as recover_or_none
from workers.chain.acl import handle_chain_id
from workers.chain.calldata import Body, Unencodable
from workers.chain.hexdata import data

DECRYPTION: Final = "Decryption"


class InvalidSignature(ValueError):
    """The bytes are no ECDSA signature from which a signer can be recovered."""


def recover(digest: bytes, signature: bytes) -> bytes:
    """The 20-byte address that made a 65-byte signature (v of 0, 1, 27 or 28) over a 32-byte digest.

    Raises InvalidSignature when the bytes are no signature; whether the address is the right one is the caller's question.
    """
    address = recover_or_none(digest, signature)
    if address is None:
        raise InvalidSignature("no address belongs to this signature")
    return address


def request_digest(form: ReqType, body: Body, decryption: bytes) -> bytes:
    """The 32-byte digest behind the signature of a canonical user decrypt body; `decryption` is the gateway contract.

    Raises Unencodable for a body of another shape.
    """
    try:
        chain_id, struct = _struct(form, body)
        return Domain(DECRYPTION, chain_id, decryption).digest(struct)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise Unencodable(f"{form} body: {type(error).__name__}: {error}"[:300]) from None


def expected_signer(form: ReqType, body: Body) -> bytes:
    """The 20-byte address to which the signature must recover: the user, or the **delegate** of a delegated request."""
    return data(body["delegate"] if form is ReqType.DELEGATED else body["user"], 20)


def _struct(form: ReqType, body: Body) -> tuple[int, bytes]:
    """(host chain id of the domain, struct hash)."""
    key, extra, start = data(body["public_key"]), data(body["extra_data"]), int(body["start_timestamp"])
    if form is ReqType.UNIFIED:
        chain_id = handle_chain_id(data(body["handles"][0]["handle"], 32))
        allowed = [data(item, 20) for item in body["allowed_contracts"]]
        return chain_id, unified_hash(data(body["user"], 20), key, allowed, start, int(body["duration_seconds"]), extra)
    contracts = [data(item, 20) for item in body["contracts"]]
    chain_id, days = int(body["contracts_chain_id"]), int(body["duration_days"])
    if form is ReqType.DELEGATED:
        return chain_id, delegated_hash(key, contracts, data(body["delegator"], 20), start, days, extra)
    return chain_id, direct_hash(key, contracts, start, days, extra)
