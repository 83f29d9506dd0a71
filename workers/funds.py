"""What a signer can spend: native gas money, fee tokens and the allowance of the payment contract (design 5.2.3).

A signer that is short is paused and an alert raised; requests wait instead of failing. Alerts are log lines of level error and the
gauges relayer_signer_balance_native, relayer_signer_fee_balance, relayer_signer_fee_allowance and relayer_signer_active.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.store.signing import SignerReason
from workers.chain.rpc_errors import Ok

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

FUND_REASONS: Final = frozenset({SignerReason.INSUFFICIENT_FUNDS.value, SignerReason.LOW_FEE_TOKEN.value})


class Funds(NamedTuple):
    """Wei and fee token units. None: not known now, or no fee token is configured."""

    native: int
    fee_balance: int | None
    fee_allowance: int | None

    @property
    def short(self) -> SignerReason | None:
        """What there is too little of to go on sending."""
        if self.native < max(1, int(settings.SIGNER_MIN_BALANCE_WEI)):
            return SignerReason.INSUFFICIENT_FUNDS
        least = int(settings.FEE_TOKEN_MIN)
        if any(amount is not None and amount < least for amount in (self.fee_balance, self.fee_allowance)):
            return SignerReason.LOW_FEE_TOKEN
        return None


def read(context: ShiftContext, address: bytes, native: int) -> Funds:
    """The fee token's side of an account whose native balance was just read."""
    gateway = context.clients.gateway
    if gateway.config.fee_token is None:
        return Funds(native, None, None)
    crash_point("before_fee_balance_rpc")
    (balance,) = gateway.fee_balances([address])
    allowance = gateway.fee_allowances([address], gateway.config.payment)[0] if gateway.config.payment else None
    crash_point("after_fee_balance_rpc")
    found = Funds(
        native,
        balance.value if isinstance(balance, Ok) else None,
        allowance.value if isinstance(allowance, Ok) else None,
    )
    if 0 in (found.fee_balance, found.fee_allowance):
        log.error(
            "no fee tokens, or none that the payment contract may take",
            extra={"action": "fee_token_short", "balance": found.fee_balance, "allowance": found.fee_allowance},
        )
    return found
