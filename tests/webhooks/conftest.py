"""A receiver on this machine, which the settings trust."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.webhooks.receiver import Receiver


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """Told at its own url; everything is looked for at once."""
    settings.WEBHOOK_ALLOWED_HOSTS = ["127.0.0.1"]
    settings.WEBHOOK_POLL_SECONDS = 0.01
    found = Receiver()
    yield found
    found.close()
