"""The operations desk. Importing this package registers every page (Django's autodiscovery does)."""

from requests_app.admin import (
    accounts,
    chain,
    decisions,
    ledger,
    letters,
    payments,
    q2,
    requests,
    reviews,
    runtime,
    signing,
    webhooks,
    work,
)

__all__ = [
    "accounts",
    "chain",
    "decisions",
    "ledger",
    "letters",
    "payments",
    "q2",
    "requests",
    "reviews",
    "runtime",
    "signing",
    "webhooks",
    "work",
]
