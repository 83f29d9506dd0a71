"""Who pays for usage, to whom, in which token: the settings of bills, and bills made by them (design 5.4.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.conf import settings
from psycopg import Connection

from requests_app.addresses import parse_address
from requests_app.config import PaymentToken, config
from requests_app.errors import AccountDisabled, ConfigurationError
from requests_app.store import bills, usage
from requests_app.store.usage import Billable
from requests_app.transitions.bills import Bill, make_bill, token_units
from requests_app.transitions.intents import Terms

DISABLED: Final = "the account is disabled"


@dataclass(frozen=True, slots=True)
class Biller:
    """What every bill has in common. Addresses are texts as configured: the payment's ref commits to them."""

    chain: str
    token: PaymentToken
    token_text: str
    merchant: str
    lifetime_seconds: float


class Due(NamedTuple):
    """A client's usage that no bill has claimed: `amount` in token units, `payer` the address that is to sign (None: not known)."""

    account_id: int
    name: str
    active: bool
    usage: Billable
    amount: int
    payer: str | None

    @property
    def obstacle(self) -> str | None:
        """Why no bill can be made, or None."""
        if not self.active:
            return DISABLED
        if self.payer is None:
            return "no payer's address: BILLING_PAYERS, or --payer"
        return None


class Billed(NamedTuple):
    """What became of a client's usage: a bill, or why there is none. Neither: another run has billed it meanwhile."""

    due: Due
    bill: Bill | None
    obstacle: str | None


def biller() -> Biller:
    """The configured one. Raises ConfigurationError when merchant or token is missing or malformed."""
    merchant = settings.BILLING_MERCHANT
    if not any(parse_address(merchant) or b""):
        raise ConfigurationError("BILLING_MERCHANT is not the address of who is paid")
    gateway = config().gateway
    if settings.BILLING_TOKEN:
        token = gateway.tokens.get(parse_address(settings.BILLING_TOKEN) or b"")
        text = settings.BILLING_TOKEN
    else:
        token = next(iter(gateway.tokens.values())) if len(gateway.tokens) == 1 else None
        text = f"0x{token.address.hex()}" if token else ""
    if token is None:
        raise ConfigurationError("BILLING_TOKEN does not name one of PAYMENT_TOKENS")
    return Biller(f"evm:{gateway.chain_id}", token, text, merchant, settings.BILLING_LIFETIME_SECONDS)


def due(conn: Connection[Any], by: Biller, least: int, *, payers: dict[str, str] | None = None) -> list[Due]:
    """Clients with at least `least` picodollars of usage without a bill. `payers`: address by account name, before the settings'.

    Raises ConfigurationError for an address that cannot pay: as at the door of the API.
    """
    known = {**settings.BILLING_PAYERS, **(payers or {})}
    merchant = parse_address(by.merchant)
    for name, text in known.items():
        address = parse_address(str(text))
        if address is None or not any(address):
            raise ConfigurationError(f"the payer of {name!r} is not an address")
        if address == merchant:
            raise ConfigurationError(f"the payer of {name!r} is BILLING_MERCHANT: it would pay itself")
    found = usage.billable(conn, least)
    accounts = bills.accounts_of(conn, [one.payer for one in found])
    return [
        Due(
            one.payer,
            accounts[one.payer].name,
            accounts[one.payer].active,
            one,
            token_units(one.spend, by.token.decimals),
            known.get(accounts[one.payer].name),
        )
        for one in found
        if one.payer in accounts
    ]


def make_bills(conn: Connection[Any], by: Biller, wanted: Iterable[Due]) -> list[Billed]:
    """A payment for each client that can be billed, one transaction each; what became of each."""
    return [_bill(conn, by, one) for one in wanted]


def _bill(conn: Connection[Any], by: Biller, one: Due) -> Billed:
    if one.obstacle is not None or one.payer is None:
        return Billed(one, None, one.obstacle)
    terms = Terms(by.chain, by.token_text, one.payer, by.merchant, one.amount)
    try:
        bill = make_bill(conn, one.account_id, one.usage.upto_minute, terms, by.token.decimals, by.lifetime_seconds)
    except AccountDisabled:  # meanwhile
        return Billed(one, None, DISABLED)
    return Billed(one, bill, None)
