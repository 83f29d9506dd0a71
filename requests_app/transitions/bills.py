"""Bills: a client's unsettled usage becomes a payment that the client has to authorize (design 5.4.6).

The usage is claimed for the payment in the transaction that creates it, so nothing is billed twice; it is settled, or waits for
another bill, in the transaction that ends the payment (`transitions.intents.move`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.store import usage
from requests_app.store.intents import Intent
from requests_app.store.session import transaction
from requests_app.transitions import intents
from requests_app.transitions.intents import Terms

_DOLLAR: Final = 12  # a picodollar is 10**-12


class Bill(NamedTuple):
    """A payment for usage: what it covers in picodollars, rows and envelopes."""

    intent: Intent
    covers: usage.Covered


def token_units(picodollars: int, decimals: int) -> int:
    """A dollar token's smallest units for an amount, rounded up to a whole one."""
    if decimals >= _DOLLAR:
        return picodollars * int(10 ** (decimals - _DOLLAR))
    return -(-picodollars // int(10 ** (_DOLLAR - decimals)))


def make_bill(
    conn: Connection[Any],
    account_id: int,
    upto_minute: int,
    terms: Terms,
    decimals: int,
    lifetime_seconds: float,
) -> Bill | None:
    """Claim the account's usage up to a minute and make the payment for it, in one transaction. None when nothing is to be paid.

    `terms.amount` is not looked at: it follows from what was claimed. Raises AccountDisabled, and RelayerError for no such account.
    """
    reference = intents.new_public_id()
    with transaction(conn) as opened:
        covers = usage.bill_usage(conn, account_id, upto_minute, reference)
        amount = token_units(covers.spend, decimals)
        if not amount:
            opened.force_rollback = True
            return None
        intent = intents.create(
            conn,
            account_id,
            terms._replace(amount=amount),
            lifetime_seconds=lifetime_seconds,
            public_id=reference,
        )
        crash_point("before_make_bill_commit")
    crash_point("after_make_bill_commit")
    return Bill(intent, covers)
