"""The operations desk. Importing this package registers every page (Django's autodiscovery does)."""

from requests_app.admin import accounts, chain, decisions, q2, requests, reviews, runtime, signing, work

__all__ = ["accounts", "chain", "decisions", "q2", "requests", "reviews", "runtime", "signing", "work"]
