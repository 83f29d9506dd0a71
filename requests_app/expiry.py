"""The one conversion of an expiry: seconds since 1970 to a time, None for none (reference/envelopes.md R-18, R-22, R-23)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from requests_app.errors import RelayerError

LATEST: Final = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())


class BadExpiry(RelayerError, ValueError):
    """The expiry is not a time between 1970 and the year 9999."""


def expiry_of(seconds: int | None) -> datetime | None:
    """None stays None: kept until its band leaves. 0 is refused and never means 1970. Raises BadExpiry."""
    if seconds is None:
        return None
    if type(seconds) is not int or not 1 <= seconds <= LATEST:
        raise BadExpiry(f"expiry {seconds!r} is not within 1..{LATEST} seconds")
    return datetime.fromtimestamp(seconds, UTC)
