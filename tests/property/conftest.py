"""The machines run on the log of the listener's tests."""

from __future__ import annotations

from tests.listen.conftest import log

__all__ = ["log"]
