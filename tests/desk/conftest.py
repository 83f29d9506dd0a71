"""People of the three roles, and a client that is logged in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from requests_app import overview
from requests_app.admin import charts


@pytest.fixture(autouse=True)
def _fresh_overview() -> Iterator[None]:
    """No picture of an earlier test."""
    overview.forget()
    charts.forget()
    yield
    overview.forget()
    charts.forget()


@pytest.fixture
def as_role(db: None) -> Callable[[str], Client]:
    """A logged-in client with the given role ("" = staff without any)."""

    def log_in(role: str) -> Client:
        user = User.objects.create_user(f"{role or 'nobody'}-person", is_staff=True)
        if role:
            user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return log_in
