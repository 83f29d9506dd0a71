"""Which database errors blame the item and which the moment (reference/envelopes.md 4.1, R-13). By type and code, never by text."""

from __future__ import annotations

from typing import Final

import psycopg

from requests_app.errors import RelayerError
from requests_app.store.bands import is_missing

# Data, integrity, syntax or access rule: the same item fails again. 55000: its band is retired.
PERMANENT_CLASSES: Final = frozenset({"22", "23", "42"})
PERMANENT_STATES: Final = frozenset({"55000"})


def is_permanent(error: BaseException) -> bool:
    """Whether trying the same item again can never succeed. What is not known to be permanent is transient."""
    if isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
        return (state[:2] in PERMANENT_CLASSES or state in PERMANENT_STATES) and not is_missing(error)
    return isinstance(error, RelayerError)
