"""Signatures of user decrypts, checked before anything is queued.

v3: ECDSA first, then the wallet contract by ERC-1271; a bad one is refused at the door (fhevm_http 13.2). v2: ECDSA only, as
the gateway contract checks it (13.3); the POST answers 202 as the contract of the API wants, and the row is stored as failed, so
that a copy of somebody's request with a bad signature never occupies its content.

The call to the host chain is made by an implementation named in the setting SIGNATURE_VERIFIER, because this package
must not import the chain layer.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from threading import BoundedSemaphore
from typing import Any, Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string

from requests_app import metrics
from requests_app.api.intake import Intake
from requests_app.api.labels import INTERNAL_TEXT, RATE_LIMITED_TEXT, SIGNATURE_ISSUE, Label
from requests_app.api.refusals import Refused, invalid_signature
from requests_app.api.retry_after import pace
from requests_app.config import config
from requests_app.errors import WalletCheckFailed
from requests_app.services import Denial
from requests_app.states import ReqType
from requests_app.typed_data import Domain, delegated_hash, direct_hash, recover, unified_hash

# A wallet check waits for somebody else's node: a flood of junk signatures must not park every web thread there.
_PLACES = BoundedSemaphore(8)
_log = logging.getLogger("relayer.api")


class SignatureVerifier(Protocol):
    """Asks a wallet contract; safe to call from several threads."""

    def is_valid(self, chain_id: int, wallet: bytes, digest: bytes, signature: bytes) -> bool:
        """Whether the contract at `wallet` (20 bytes) on the host chain accepts the signature of the 32-byte digest.

        Raises WalletCheckFailed when the chain did not answer after the configured attempts.
        """


@lru_cache(maxsize=1)
def verifier() -> SignatureVerifier:
    """The configured verifier, made once a process."""
    made: Any = import_string(settings.SIGNATURE_VERIFIER)()
    return cast("SignatureVerifier", made)


def precheck(intake: Intake) -> None:
    """Check a unified request's signature; other forms pass.

    Raises Refused: 400 for a wrong signature, 500 when the host chain is not reachable, 429 when too many wallet
    checks are under way.
    """
    if intake.req_type is not ReqType.UNIFIED or not settings.V3_SIGNATURE_CHECK:
        return
    try:
        accepted = _unified_accepted(intake)
    except Refused as refused:
        metrics.prechecks.labels("too_many" if refused.label is Label.RATE_LIMITED else "host_call_failed").inc()
        raise
    metrics.prechecks.labels("accepted" if accepted else "rejected").inc()
    if not accepted:
        raise invalid_signature()


def denial_of(intake: Intake) -> Denial | None:
    """Why a v2 user decrypt will fail for its signature, or None when it may be good (and for other forms)."""
    if intake.req_type not in (ReqType.DIRECT, ReqType.DELEGATED) or not settings.V2_SIGNATURE_CHECK:
        return None
    digest, signer = legacy_digest(intake.req_type, intake.body)
    if recover(digest, _raw(intake.body["signature"])) == signer:
        return None
    return Denial(Label.VALIDATION_FAILED, SIGNATURE_ISSUE)


def _unified_accepted(intake: Intake) -> bool:
    chains = set(intake.host_chains())
    if len(chains) != 1:
        return False
    chain_id = chains.pop()
    user, signature = _raw(intake.body["user"]), _raw(intake.body["signature"])
    digest = unified_digest(intake.body, chain_id)
    return recover(digest, signature) == user or _wallet_accepts(chain_id, user, digest, signature)


def legacy_digest(form: ReqType, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """(EIP-712 digest, 20-byte address that must have signed it) of a canonical v2 payload.

    A delegated request is signed by the delegate; the domain names the chain of the contracts.
    """
    key, extra = _raw(body["public_key"]), _raw(body["extra_data"])
    contracts = [_raw(text) for text in body["contracts"]]
    start, days = int(body["start_timestamp"]), int(body["duration_days"])
    if form is ReqType.DELEGATED:
        signer = _raw(body["delegate"])
        struct = delegated_hash(key, contracts, _raw(body["delegator"]), start, days, extra)
    else:
        signer = _raw(body["user"])
        struct = direct_hash(key, contracts, start, days, extra)
    domain = Domain("Decryption", int(body["contracts_chain_id"]), config().gateway.decryption)
    return domain.digest(struct), signer


def unified_digest(body: dict[str, Any], chain_id: int) -> bytes:
    """The EIP-712 digest of a canonical unified payload: the domain names the host chain and the gateway contract."""
    struct = unified_hash(
        _raw(body["user"]),
        _raw(body["public_key"]),
        [_raw(text) for text in body["allowed_contracts"]],
        int(body["start_timestamp"]),
        int(body["duration_seconds"]),
        _raw(body["extra_data"]),
    )
    return Domain("Decryption", chain_id, config().gateway.decryption).digest(struct)


def _wallet_accepts(chain_id: int, wallet: bytes, digest: bytes, signature: bytes) -> bool:
    if not _PLACES.acquire(blocking=False):
        raise Refused(Label.RATE_LIMITED, RATE_LIMITED_TEXT, retry_after=pace().rate_limited_seconds)
    try:
        return verifier().is_valid(chain_id, wallet, digest, signature)
    except WalletCheckFailed as error:
        _log.warning("wallet check failed", extra={"action": "wallet_check_failed", "chain_id": chain_id})
        raise Refused(Label.INTERNAL_SERVER_ERROR, INTERNAL_TEXT) from error
    finally:
        _PLACES.release()


def _raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
