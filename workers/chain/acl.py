"""Host ACL checks: which questions a decrypt asks on which host chain, in one multicall a chain, and the denial text.

Rules: fhevm_internals 4.5; texts: fhevm_http 10.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eth_utils.address import to_checksum_address

from requests_app.states import Kind, ReqType
from workers.chain.abi_reader import MalformedAbi, bytes_list
from workers.chain.calldata import Body, Function, Unencodable
from workers.chain.hexdata import data

IS_ALLOWED: Final = Function("isAllowed", "bytes32", "address")
IS_ALLOWED_FOR_DECRYPTION: Final = Function("isAllowedForDecryption", "bytes32")
IS_DELEGATED: Final = Function("isHandleDelegatedForUserDecryption", "address", "address", "address", "bytes32")
MULTICALL: Final = Function("multicall", "bytes[]")
DENIAL_PREFIX: Final = "Not allowed on host ACL:"
FAILURE_PREFIX: Final = "Host ACL check failed:"


@dataclass(frozen=True, slots=True)
class AclCheck:
    """One yes/no question to an ACL: the 32-byte handle it is about, its calldata, and who is named in texts about it."""

    handle: bytes
    calldata: bytes
    function: str
    accounts: tuple[tuple[str, bytes], ...] = ()

    @property
    def name(self) -> str:
        """The check as texts name it, for example `isAllowed(user 0x…)` with a checksummed address."""
        if not self.accounts:
            return self.function
        named = ", ".join(f"{role} {to_checksum_address(account)}" for role, account in self.accounts)
        return f"{self.function}({named})"


def handle_chain_id(handle: bytes) -> int:
    """The host chain id inside a 32-byte handle (bytes 22 to 29, big-endian)."""
    return int.from_bytes(handle[22:30], "big")


def acl_checks(kind: Kind, req_type: ReqType | str | None, body: Body) -> dict[int, list[AclCheck]]:
    """The questions of one decrypt by host chain id, in the order of its handles.

    Raises Unencodable for a body of another shape, ValueError for an input proof, which has none.
    """
    if kind is Kind.INPUT_PROOF:
        raise ValueError("an input proof has no ACL check")
    try:
        checks = _public(body) if kind is Kind.PUBLIC_DECRYPT else _user(ReqType(req_type or body["type"]), body)
    except (KeyError, TypeError, ValueError) as error:
        raise Unencodable(f"{kind.slug} body: {type(error).__name__}: {error}"[:300]) from None
    by_chain: dict[int, list[AclCheck]] = {}
    for check in checks:
        by_chain.setdefault(handle_chain_id(check.handle), []).append(check)
    return by_chain


def encode_multicall(checks: Sequence[AclCheck]) -> bytes:
    """Calldata of `ACL.multicall` over all checks of one chain."""
    return MULTICALL.encode([check.calldata for check in checks])


def denied(checks: Sequence[AclCheck], answer: bytes) -> list[AclCheck]:
    """The checks that the multicall answered with no. Positive is: at least 32 bytes, byte 31 not zero.

    Raises MalformedAbi when the answer is not one entry a check.
    """
    entries = bytes_list(answer, 0)
    if len(entries) != len(checks):
        raise MalformedAbi(f"multicall answered {len(entries)} of {len(checks)} checks")
    return [check for check, entry in zip(checks, entries, strict=True) if not (len(entry) >= 32 and entry[31] != 0)]


def denial_text(checks: Sequence[AclCheck]) -> str:
    """The stored reason of a denied request; `checks` are all denied ones of all its chains."""
    count = len({check.handle for check in checks})
    listed = ", ".join(f"handle=0x{check.handle.hex()} check={check.name}" for check in checks)
    return f"{DENIAL_PREFIX} ACL check failed for {count} handle(s): {listed}"


def failure_text(chain_id: int, reason: str) -> str:
    """The stored reason when a host chain could not be asked; `reason` is already redacted."""
    return f"{FAILURE_PREFIX} Host chain {chain_id} call failed: {reason}"


def unbound_text(chain_id: int) -> str:
    """The stored reason when a handle names a host chain without a configured ACL."""
    return f"{FAILURE_PREFIX} No ACL binding configured for host chain {chain_id}"


def _public(body: Body) -> list[AclCheck]:
    handles = [data(handle, 32) for handle in body["handles"]]
    return [AclCheck(item, IS_ALLOWED_FOR_DECRYPTION.encode(item), IS_ALLOWED_FOR_DECRYPTION.name) for item in handles]


def _user(form: ReqType, body: Body) -> list[AclCheck]:
    checks: list[AclCheck] = []
    for item in body["handles"]:
        handle, contract = data(item["handle"], 32), data(item["contract"], 20)
        if form is ReqType.DIRECT:
            user = data(body["user"], 20)
            checks += [_allowed(handle, "user", user), _allowed(handle, "contract", contract)]
        elif form is ReqType.DELEGATED:
            calldata = IS_DELEGATED.encode(data(body["delegator"], 20), data(body["delegate"], 20), contract, handle)
            checks.append(AclCheck(handle, calldata, IS_DELEGATED.name))
        else:
            checks.append(_unified(handle, contract, data(item["owner"], 20), data(body["user"], 20)))
    return checks


def _allowed(handle: bytes, role: str, account: bytes) -> AclCheck:
    return AclCheck(handle, IS_ALLOWED.encode(handle, account), IS_ALLOWED.name, ((role, account),))


def _unified(handle: bytes, contract: bytes, owner: bytes, user: bytes) -> AclCheck:
    if owner == user:
        return _allowed(handle, "user", user)
    calldata = IS_DELEGATED.encode(owner, user, contract, handle)
    return AclCheck(handle, calldata, IS_DELEGATED.name, (("owner", owner), ("user", user)))
