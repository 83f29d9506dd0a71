"""Persons of the desk: a disabled one completes nothing, a name stays whose it was, and nobody is two."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.urls import reverse

from requests_app import models
from tests.desk.people import Person, person
from tests.desk.scene import Scene

pytestmark = pytest.mark.django_db
DEEDS = {
    "letter redriven": (models.DeadLetter, {"deed": "redrive"}),
    "letter dropped": (models.DeadLetter, {"deed": "drop"}),
    "delivery sent again": (models.WebhookDelivery, {"deed": "redrive", "reason": "r"}),
    "client disabled": (models.Account, {"deed": "disable", "reason": "r"}),
    "key issued": (models.Account, {"deed": "issue", "reason": "r"}),
}


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene().build(each=1)


@pytest.fixture
def ada(db: None) -> Person:
    return person("ada")


@pytest.fixture
def disabled_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is disabled between the check of their permission and what they do."""
    allowed = User.has_perm

    def has_perm(self: User, perm: str, obj: Any = None) -> bool:
        found = allowed(self, perm, obj)
        User.objects.filter(pk=self.pk).update(is_active=False)
        return found

    monkeypatch.setattr(User, "has_perm", has_perm)


def rows() -> list[Any]:
    """Everything that those deeds write."""
    written = (models.DeadLetter, models.WebhookDelivery, models.Account, models.ApiKey, models.QueueJob, LogEntry)
    return [list(model._default_manager.order_by("pk").values()) for model in (*written, models.RuntimeSetting)]


def page_of(model: type, key: object) -> str:
    return reverse(f"admin:requests_app_{model.__name__.lower()}_change", args=(key,))


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.usefixtures("disabled_on_the_way")
def test_who_is_disabled_on_the_way_completes_no_deed(deed: str, scene: Scene, ada: Person) -> None:
    """I11, for the deeds that are no decisions."""
    model, fields = DEEDS[deed]
    states = {models.DeadLetter: {"status": "parked"}, models.WebhookDelivery: {"state": "failed"}}
    row = model._default_manager.filter(**states.get(model, {"status": "active"})).first()
    before = rows()
    assert ada.client.post(page_of(model, row.pk), fields).status_code == 403
    assert rows() == before


@pytest.mark.usefixtures("disabled_on_the_way")
def test_who_is_disabled_on_the_way_makes_no_client_and_changes_no_setting(ada: Person) -> None:
    before = rows()
    made = ada.client.post(reverse("admin:relayer_account_create"), {"name": "fresh", "reason": "r"})
    User.objects.update(is_active=True)
    changed = ada.client.post(page_of(models.RuntimeSetting, "api_retry_after_seconds"), {"value": "9", "reason": "r"})
    assert (made.status_code, changed.status_code) == (403, 403)
    assert rows() == before
