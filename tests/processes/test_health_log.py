"""What a failed health check leaves in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic

import pytest

from relayer_site.health import Probe


def _broken() -> Mapping[str, bool]:
    raise LookupError("the row that is always there")


def test_a_failed_check_says_where_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The type of an error alone told nobody which statement, of which check."""
    probe = Probe("database", _broken)
    with caplog.at_level(logging.WARNING, "relayer.health"):
        assert probe.finish(probe.start(), monotonic() + 5) == {"database": False}
    (record,) = [one for one in caplog.records if one.name == "relayer.health"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert record.exc_info[1].__traceback__ is not None
