"""Reviewers, a case to decide about, and the owner who carries commands out, for the tests of the desk's deeds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from requests_app import models
from requests_app.states import Kind, Status
from tests.desk.scene import Scene


@dataclass
class Person:
    """Somebody logged in."""

    user: User
    client: Client

    def get(self, case: models.ReviewCase) -> str:
        """The case's page."""
        return self.client.get(case_url(case)).content.decode()

    def post(self, case: models.ReviewCase, deed: str, **fields: object) -> Any:
        """A POST to the case's page."""
        return self.client.post(case_url(case), {"deed": deed, **fields})

    def take(self, case: models.ReviewCase) -> dict[str, str]:
        """Take the case; the hidden fields of its forms."""
        self.post(case, "assign")
        return hidden_of(self.get(case))

    def decide(self, case: models.ReviewCase, deed: str, **fields: object) -> Any:
        """Take the case and decide it as the page offers."""
        return self.post(case, deed, **{"reason": "looked at it", **self.take(case), **fields})


def person(name: str, role: str = "operator") -> Person:
    """A new member of the staff with a role."""
    user = User.objects.create_user(name, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return Person(user, client)


def case_url(case: models.ReviewCase) -> str:
    """The case's page."""
    return reverse("admin:requests_app_reviewcase_change", args=(case.pk,))


def hidden_of(page: str) -> dict[str, str]:
    """Version and epoch as the page's forms carry them."""
    found = dict(re.findall(r'<input type="hidden" name="(version|epoch)" value="(\d+)">', page))
    return {str(name): str(value) for name, value in found.items()}


def offered(page: str) -> set[str]:
    """The deeds that the page offers."""
    return set(re.findall(r'<input type="hidden" name="deed" value="(\w+)">', page))


def parked(scene: Scene, kind: Kind = Kind.INPUT_PROOF, slot_state: str | None = "live") -> models.ReviewCase:
    """A request in review with its case; `slot_state` None: nothing was ever signed."""
    row = scene.request(kind, Status.NEEDS_REVIEW)
    slots = models.NonceSlot.objects.filter(kind=kind, subject_id=row.pk)
    if slot_state is None:
        slots.delete()
    else:
        slots.update(state=slot_state)
    return models.ReviewCase.objects.get(kind=kind, subject_id=row.pk)
