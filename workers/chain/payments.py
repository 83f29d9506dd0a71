"""Payments on chain: calldata of transferWithAuthorization (EIP-3009), and what a token's refusal of it means.

The calldata is written by hand: nine static words. eth_abi gives the same bytes (a test says so) in thirty times the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from workers.chain.calldata import ContractCall, Function, Unencodable
from workers.chain.events import Envelope, EventKind
from workers.chain.hexdata import MalformedHex, data
from workers.chain.keccak import selector
from workers.chain.reverts import ERROR_STRING, Revert

TRANSFER: Final = Function(
    "transferWithAuthorization",
    *("address", "address", "uint256", "uint256", "uint256", "bytes32", "uint8", "bytes32", "bytes32"),
)
AUTHORIZATION_STATE: Final = Function("authorizationState", "address", "bytes32")
SIGNATURE_BYTES: Final = 65


class Refusal(StrEnum):
    """Why a token refuses a transfer by authorization."""

    USED = "authorization used or canceled"
    EXPIRED = "authorization expired"
    NOT_YET_VALID = "authorization not yet valid"
    BAD_SIGNATURE = "invalid signature"
    INSUFFICIENT_BALANCE = "insufficient balance of the payer"
    PAUSED = "token paused"
    BLACKLISTED = "account blacklisted"
    OTHER = "refused by the token"


# What no time heals: nothing is signed for it.
FOR_GOOD: Final = frozenset({Refusal.BAD_SIGNATURE, Refusal.BLACKLISTED})

# Typed errors: those of the devnet's token, and of tokens built on OpenZeppelin.
ERRORS: Final[dict[str, Refusal]] = {
    "AuthorizationAlreadyUsed(address,bytes32)": Refusal.USED,
    "AuthorizationExpired(uint256,uint256)": Refusal.EXPIRED,
    "AuthorizationNotYetValid(uint256,uint256)": Refusal.NOT_YET_VALID,
    "InvalidAuthorizationSignature(address,address)": Refusal.BAD_SIGNATURE,
    "ECDSAInvalidSignature()": Refusal.BAD_SIGNATURE,
    "ECDSAInvalidSignatureLength(uint256)": Refusal.BAD_SIGNATURE,
    "ECDSAInvalidSignatureS(bytes32)": Refusal.BAD_SIGNATURE,
    "ERC20InsufficientBalance(address,uint256,uint256)": Refusal.INSUFFICIENT_BALANCE,
    "EnforcedPause()": Refusal.PAUSED,
    "AccountBlacklisted(address)": Refusal.BLACKLISTED,
}
# Error(string) of Circle's FiatToken 2.x and of older OpenZeppelin, matched in lower case.
TEXTS: Final[tuple[tuple[str, Refusal], ...]] = (
    (r"authorization is used or canceled", Refusal.USED),
    (r"authorization is expired", Refusal.EXPIRED),
    (r"authorization is not yet valid", Refusal.NOT_YET_VALID),
    (r"invalid signature|ecrecover:", Refusal.BAD_SIGNATURE),
    (r"transfer amount exceeds balance|insufficient balance", Refusal.INSUFFICIENT_BALANCE),
    (r"pausable: paused", Refusal.PAUSED),
    (r"blacklist", Refusal.BLACKLISTED),
)
_BY_SELECTOR: Final = {selector(signature): refusal for signature, refusal in ERRORS.items()}
_NAMES: Final = {selector(signature): signature.partition("(")[0] for signature in ERRORS}
_COMPILED: Final = tuple((re.compile(pattern), refusal) for pattern, refusal in TEXTS)


@dataclass(frozen=True, slots=True)
class AuthorizationKey:
    """What the chain knows an authorization by: the token and its authorizer (20 bytes each) and the nonce, which is our ref."""

    token: bytes
    authorizer: bytes
    ref: bytes

    @property
    def state_call(self) -> ContractCall:
        """The view that says whether it was used or canceled."""
        return ContractCall(self.token, AUTHORIZATION_STATE.selector + bytes(12) + self.authorizer + self.ref)


@dataclass(frozen=True, slots=True)
class Spent:
    """How an authorization came to its end on chain: executed, or canceled by its authorizer. 32-byte hashes."""

    tx_hash: bytes
    block_number: int
    canceled: bool


def encode_transfer(
    token: str, payer: str, merchant: str, amount: int, authorization: Mapping[str, Any]
) -> ContractCall:
    """The call that carries out a signed authorization in the form an intent keeps it.

    Raises Unencodable for what is not the API's form or does not fit the ABI.
    """
    try:
        signature = data(authorization["signature"], SIGNATURE_BYTES)
        words = (
            bytes(12),
            data(payer, 20),
            bytes(12),
            data(merchant, 20),
            amount.to_bytes(32, "big"),
            int(authorization["valid_after"]).to_bytes(32, "big"),
            int(authorization["valid_before"]).to_bytes(32, "big"),
            data(authorization["nonce"], 32),
            signature[64].to_bytes(32, "big"),
            signature[:64],
        )
        return ContractCall(data(token, 20), TRANSFER.selector + b"".join(words))
    except (MalformedHex, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unencodable(f"payment authorization: {type(error).__name__}: {error}"[:300]) from None


def refusal_of(revert: Revert) -> Refusal:
    """What a decoded revert of the transfer means; OTHER for what nobody knows, which may heal."""
    if revert.selector and revert.selector != ERROR_STRING:
        return _BY_SELECTOR.get(revert.selector, Refusal.OTHER)
    # Without data there is only the node's text, which may quote the reason.
    text = revert.message.lower()
    return next((refusal for pattern, refusal in _COMPILED if pattern.search(text)), Refusal.OTHER)


def text_of(revert: Revert) -> str:
    """As `Revert.text`, with the names of the tokens' own errors: `AccountBlacklisted 0x571f7b49`."""
    name = _NAMES.get(revert.selector)
    return revert.text if name is None else f"{name} 0x{revert.selector.hex()}"


def spent_by(envelopes: Sequence[Envelope]) -> Spent | None:
    """The end of an authorization among the events of its ref, an execution before a cancellation."""
    kinds = (EventKind.AUTHORIZATION_USED, EventKind.AUTHORIZATION_CANCELED)
    for kind in kinds:
        for one in envelopes:
            if one.kind is kind:
                return Spent(one.tx_hash, one.position >> 20, kind is kinds[1])
    return None
