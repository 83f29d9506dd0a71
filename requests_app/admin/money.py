"""Amounts of payments as people read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.utils.html import format_html

_THIN: Final = "\u202f"
_MOST_DECIMALS: Final = 36


def units(amount: Decimal | int) -> Any:
    """Token units, thousands apart; which decimals they have is the token's matter."""
    return format_html("<span>{} {}</span>", _apart(int(amount)), "unit" if abs(amount) == 1 else "units")


def money(amount: Decimal | int, token: str) -> Any:
    """An amount with its token's decimals and symbol, the exact units in the tooltip; units alone where the token is not configured."""
    known = next((one for one in settings.PAYMENT_TOKENS if str(one.get("address", "")).lower() == token.lower()), None)
    decimals = known.get("decimals") if known is not None else None
    if known is None or not isinstance(decimals, int) or not 0 <= decimals <= _MOST_DECIMALS:
        return units(amount)
    sign = "-" if amount < 0 else ""
    whole, part = divmod(abs(int(amount)), 10**decimals)
    fraction = f"{part:0{decimals}d}".rstrip("0").ljust(min(decimals, 2), "0") if decimals else ""
    text = f"{sign}{_apart(whole)}.{fraction}" if fraction else f"{sign}{_apart(whole)}"
    hint = f"{_apart(int(amount))} units"
    return format_html('<span title="{}">{} {}</span>', hint, text, known.get("symbol", ""))


def _apart(value: int) -> str:
    return f"{value:,}".replace(",", _THIN)
