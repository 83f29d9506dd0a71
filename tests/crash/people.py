"""Reviewers."""

from __future__ import annotations

from django.contrib.auth import get_user_model


def persons(*names: str) -> list[int]:
    """The ids of new active staff accounts of these names, each made by one statement."""
    return [get_user_model().objects.create(username=name, is_staff=True).pk for name in names]
