"""What an envelope costs: a base by kind and a congestion fee, in integer picodollars, from the settings (design 5.4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings


@dataclass(frozen=True, slots=True)
class Prices:
    """Price = `by_kind` (or `base`) + congestion units x `congestion_fee`.

    Units: by how many per cent the messages of the last 5 minutes were above `congestion_target`, 0 to 100.
    """

    base: int
    by_kind: Mapping[int, int] = field(default_factory=dict)
    congestion_target: int = 3000
    congestion_fee: int = 0

    def __post_init__(self) -> None:
        amounts = (self.base, self.congestion_fee, *self.by_kind.values())
        if any(type(amount) is not int or not 0 <= amount < 1 << 53 for amount in amounts):
            raise ValueError("prices are whole picodollars, 0 or more")
        if self.congestion_target < 1:
            raise ValueError("the congestion target is at least one message")

    def parameters(self) -> dict[str, Any]:
        """The parameters of the SQL function count_envelopes."""
        return {
            "priced_kinds": list(self.by_kind),
            "kind_prices": list(self.by_kind.values()),
            "base_price": self.base,
            "congestion_target": self.congestion_target,
            "congestion_fee": self.congestion_fee,
        }


def prices() -> Prices:
    """The prices of the settings. Raises ValueError for a fraction or a negative amount."""
    return Prices(
        settings.ENVELOPE_BASE_PICODOLLARS,
        {int(kind): price for kind, price in settings.ENVELOPE_PRICES.items()},
        settings.CONGESTION_TARGET_MESSAGES,
        settings.CONGESTION_FEE_PICODOLLARS,
    )
