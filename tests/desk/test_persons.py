"""Persons of the desk: a disabled one completes nothing, a name stays whose it was, and nobody is two."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from requests_app import models
from tests.desk.people import Person, parked, person
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


def test_a_person_keeps_their_name_and_is_not_deleted(scene: Scene, ada: Person, admin_client: Client) -> None:
    """Decisions name persons: under a new name the proposer would be another, and a deletion would take the log of deeds along."""
    page = reverse("admin:auth_user_change", args=(ada.user.pk,))
    assert "first_name" in admin_client.get(page).content.decode()
    posted = {"username": "eve", "first_name": "Ada", "is_active": "on", "is_staff": "on"}
    fields = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "last_login_0": "", "last_login_1": ""}
    assert admin_client.post(page, {**posted, **fields}).status_code == 302
    ada.user.refresh_from_db()
    assert (ada.user.username, ada.user.first_name) == ("ada", "Ada")
    ada.client.post(page_of(models.Account, scene.client.pk), {"deed": "disable", "reason": "r"})
    noted = LogEntry.objects.count()
    deletion = reverse("admin:auth_user_delete", args=(ada.user.pk,))
    assert admin_client.post(deletion, {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": ada.user.pk, "post": "yes"}
    admin_client.post(reverse("admin:auth_user_changelist"), chosen)
    assert User.objects.filter(pk=ada.user.pk).exists()
    assert LogEntry.objects.count() >= noted


def test_a_proposer_under_a_new_name_does_not_confirm_it(scene: Scene, admin_client: Client) -> None:
    """The sequence that the name prevents: propose, be renamed, confirm."""
    eve = person("eve", "approver")
    case = parked(scene, slot_state="dead")
    assert eve.decide(case, "fail").status_code == 302
    page = reverse("admin:auth_user_change", args=(eve.user.pk,))
    fields = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "is_active": "on", "is_staff": "on"}
    admin_client.post(page, {"username": "adam", "groups": [group.pk for group in eve.user.groups.all()], **fields})
    decision = models.ReviewDecision.objects.get(case=case)
    assert eve.post(case, "confirm", decision=decision.pk).status_code == 403
    decision.refresh_from_db()
    assert decision.state == "awaiting_second"
