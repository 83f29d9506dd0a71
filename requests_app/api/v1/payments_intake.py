"""From the bodies and parameters of payments to checked values. Every refusal names its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest, QueryDict

from requests_app.addresses import parse_address, spellings
from requests_app.api import rules
from requests_app.api.json_reader import TEXT, Record, read_record, top_level_keys
from requests_app.api.v1.queries import known_only, refused
from requests_app.authorizations import UINT256_MAX, Authorization
from requests_app.config import config
from requests_app.services_payments import gateway_chain
from requests_app.states import IntentState
from requests_app.store.payments import Filter
from requests_app.transitions.intents import Terms

_TERMS: Final = {"chain": TEXT, "token": TEXT, "payer": TEXT, "merchant": TEXT, "amount": TEXT}
_PLAIN: Final = Record(_TERMS, closed=True)
_EXPIRING: Final = Record({**_TERMS, "expires_at": TEXT}, closed=True)
_AUTHORIZATION: Final = Record(
    {"valid_after": TEXT, "valid_before": TEXT, "nonce": TEXT, "signature": TEXT}, closed=True
)
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,77}").fullmatch
_REF: Final = re.compile(r"0x[0-9a-f]{64}").fullmatch
_SIGNATURE: Final = re.compile(r"0x[0-9a-fA-F]{130}").fullmatch
_PUBLIC_ID: Final = re.compile(r"pi_[0-9a-f]{24}").fullmatch
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z").fullmatch

NOT_AN_ADDRESS: Final = "Must be an address in lower case, or with its checksum (EIP-55)"
NOT_AN_AMOUNT: Final = "Must be a whole number of token units from 1 to 2^256 - 1, in decimal text"
NOT_A_NUMBER: Final = "Must be a whole number below 2^256, in decimal text"
NOT_A_TIME: Final = "Must be a time in UTC as in 2026-01-31T12:00:00Z"
NOT_A_SIGNATURE: Final = "Must be 65 bytes as 0x hex: r, s and v"
NOT_A_REF: Final = "Must be 32 bytes as 0x hex in lower case"
FILTERS: Final = ("state", "payer", "merchant", "ref", "created_from", "created_to")
_NOBODY: Final = bytes(20)


@dataclass(frozen=True, slots=True)
class NewPayment:
    """A payment as it was asked for; without `expires_at` it gets the usual time."""

    terms: Terms
    expires_at: datetime | None


def new_payment(raw: bytes) -> NewPayment:
    """The body of a POST. Raises Refused."""
    expiring = "expires_at" in top_level_keys(raw)
    fields = read_record(raw, _EXPIRING if expiring else _PLAIN)
    found = rules.Findings()
    found.add("chain", None if fields["chain"] == gateway_chain() else f"Payments settle on {gateway_chain()} only")
    found.add("token", _token_complaint(fields["token"]))
    for name in ("payer", "merchant"):
        found.add(name, _party_complaint(fields[name]))
    if fields["payer"].lower() == fields["merchant"].lower():
        found.add("merchant", "Must not be the payer")
    found.add("amount", None if _number(fields["amount"]) else NOT_AN_AMOUNT)
    expires_at = _time(fields["expires_at"]) if expiring else None
    found.add("expires_at", NOT_A_TIME if expiring and expires_at is None else None)
    found.settle()
    amount = int(fields["amount"])
    return NewPayment(Terms(fields["chain"], fields["token"], fields["payer"], fields["merchant"], amount), expires_at)


def authorization(raw: bytes) -> Authorization:
    """The body of an authorization. Whether it fits the payment is not judged here. Raises Refused."""
    fields: Mapping[str, Any] = read_record(raw, _AUTHORIZATION)
    after, before = _number(fields["valid_after"]), _number(fields["valid_before"])
    found = rules.Findings()
    found.add("valid_after", NOT_A_NUMBER if after is None else None)
    found.add("valid_before", NOT_A_NUMBER if before is None else None)
    found.add("nonce", None if _REF(fields["nonce"]) else NOT_A_REF)
    found.add("signature", None if _SIGNATURE(fields["signature"]) else NOT_A_SIGNATURE)
    found.settle()
    nonce, signature = (bytes.fromhex(fields[name][2:]) for name in ("nonce", "signature"))
    return Authorization(after or 0, before or 0, nonce, signature)


def public_id(text: str) -> str | None:
    """The id in a path, or None when it cannot be one."""
    return text if _PUBLIC_ID(text) else None


def filter_of(request: HttpRequest) -> Filter:
    """The filters of a list. Raises Refused, also for a parameter that the list does not know."""
    known_only(request, *FILTERS, "cursor", "limit")
    query = request.GET
    text = query.get("ref")
    if text is not None and not _REF(text):
        raise refused("ref", NOT_A_REF)
    return Filter(
        _states(query.getlist("state")),
        _party(query, "payer"),
        _party(query, "merchant"),
        bytes.fromhex(text[2:]) if text else None,
        _moment(query, "created_from"),
        _moment(query, "created_to"),
    )


def bound(chosen: Filter) -> list[str]:
    """What a cursor of this list is bound to."""
    return [
        *("|".join(part) for part in (chosen.states, chosen.payers, chosen.merchants)),
        chosen.ref.hex() if chosen.ref else "",
        *(time.isoformat() if time else "" for time in (chosen.since, chosen.until)),
    ]


def _states(texts: list[str]) -> tuple[str, ...]:
    known = {state.value for state in IntentState}
    if not known.issuperset(texts):
        raise refused("state", f"Must be one of {', '.join(sorted(known))}")
    return tuple(sorted(set(texts)))


def _party(query: QueryDict, name: str) -> tuple[str, ...]:
    text = query.get(name)
    if text is None:
        return ()
    address = parse_address(text)
    if address is None:
        raise refused(name, NOT_AN_ADDRESS)
    return tuple(spellings(address))


def _moment(query: QueryDict, name: str) -> datetime | None:
    text = query.get(name)
    if text is None:
        return None
    time = _time(text)
    if time is None:
        raise refused(name, NOT_A_TIME)
    return time


def _token_complaint(text: str) -> str | None:
    address = parse_address(text)
    if address is None:
        return NOT_AN_ADDRESS
    return None if address in config().gateway.tokens else "Not a token in which payments settle here"


def _party_complaint(text: str) -> str | None:
    address = parse_address(text)
    if address is None:
        return NOT_AN_ADDRESS
    return "Must not be the zero address" if address == _NOBODY else None


def _number(text: str) -> int | None:
    """A uint256 in its one decimal spelling: ASCII digits, no sign, no zero in front."""
    value = int(text) if _NUMBER(text) else None
    return value if value is not None and value <= UINT256_MAX else None


def _time(text: str) -> datetime | None:
    if not _TIME(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
