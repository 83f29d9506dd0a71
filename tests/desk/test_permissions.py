"""Who may do what, over every URL that the desk has: found by asking the URL configuration, so that a new page is asked, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from requests_app import models
from requests_app.admin.base import RecordAdmin
from tests.desk.scene import Scene

pytestmark = pytest.mark.django_db
# What the frame of the admin needs for anybody who may log in.
FRAME = {
    "login",
    "logout",
    "password_change",
    "password_change_done",
    "jsi18n",
    "view_on_site",
    "autocomplete",
    "search",
    None,
}
DEEDS = (
    "assign", "give_up", "probe", "confirm", "withdraw", "resume", "redrive", "issue", "disable", "pause", "lift_halt", "cancel",
)  # fmt: skip


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene().build(each=1)


def routes(patterns: list[Any], above: str = "admin/") -> Iterator[tuple[str, str | None]]:
    """(route, name) of every page below."""
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, above + str(one.pattern))
        elif isinstance(one, URLPattern):
            yield above + str(one.pattern), one.name


def key_of(route: str) -> str:
    """A row that exists, for the key in a route."""
    for model in admin.site._registry:
        if route.startswith(f"admin/{model._meta.app_label}/{model._meta.model_name}/"):
            row = model._default_manager.first()
            return str(row.pk) if row is not None else "1"
    return "1"


def addresses() -> dict[str, str | None]:
    """Every address of the desk, with the name of its route."""
    found = {}
    for route, name in routes(admin.site.get_urls()):
        if "(?P" in route or "<path:content" in route:
            continue
        path = route
        for part in (
            "<path:object_id>",
            "<int:case_id>",
            "<int:signer_id>",
            "<int:source_id>",
            "<int:payment_id>",
            "<id>",
            "<path:url>",
        ):
            path = path.replace(part, key_of(route))
        found[f"/{path}"] = name
    return found


def contents() -> dict[str, list[Any]]:
    """Every row of every table, but for sessions."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in apps.get_models()
        if model is not Session and model._meta.managed
    }


def test_the_addresses_are_really_found(scene: Scene) -> None:
    found = addresses()
    assert len(found) > 100
    assert not [path for path in found if "<" in path]
    assert {"relayer_case_bulk", "relayer_case_renew", "relayer_account_create"} <= set(found.values())


def test_who_has_no_role_sees_nothing(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("")
    first = {"index", "relayer_overview"}
    seen = [
        path
        for path, name in addresses().items()
        if name not in FRAME | first and client.get(path).status_code not in (302, 403, 404, 405)
    ]
    assert seen == []
    for path in ("/admin/", reverse("admin:relayer_overview")):
        page = client.get(path).content.decode()
        assert "You have no role yet" in page
        assert "Signers" not in page
        assert "rl-figure" not in page


def test_what_no_database_takes_is_refused(scene: Scene, admin_client: Client) -> None:
    """Filters, keys, places and fields: 400, or the list from its beginning, and never an error of ours."""
    admin_client.raise_request_exception = False
    account = models.Account.objects.first()
    assert account is not None
    queue = reverse("admin:requests_app_reviewcase_changelist")
    key = reverse("admin:requests_app_command_change", args=("x",)).replace("/x/", "/%00/")
    asked = {
        reverse("admin:requests_app_webhook_changelist") + "?state__exact=%00": 400,
        reverse("admin:requests_app_txattempt_changelist") + "?state__in=a,%00": 400,
        key: 400,
        f"{queue}?after=9999-12-31T23:59:59-23:59~9": 200,
        f"{queue}?after=0001-01-01T00:00:00%2B14:00~9": 200,
        f"{queue}export/?reason_code__exact=%00": 400,
        f"{queue}export/?kind__exact=x": 400,
        f"{queue}export/?no_such=1": 400,
    }
    assert {path: admin_client.get(path).status_code for path in asked} == asked
    page = reverse("admin:requests_app_account_change", args=(account.pk,))
    for deed in ("rotate", "revoke"):
        assert admin_client.post(page, {"deed": deed, "reason": "r", "prefix": "a\0b"}).status_code == 400
    setting = reverse("admin:requests_app_runtimesetting_change", args=("api_retry_after_seconds",))
    admin_client.post(setting, {"value": "9", "reason": "because\0"})
    assert models.RuntimeSetting.objects.get().value == 9


def test_a_viewer_changes_nothing_whatever_is_posted(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    case = models.ReviewCase.objects.first()
    assert case is not None
    fields = {
        "reason": "r", "version": case.version, "epoch": "1", "decision": "1", "token": "0" * 32, "prefix": "rk_1a2b3c4d",
        "name": "fresh", "bulk": "acknowledge", "cases": f"{case.pk}:{case.version}", "value": "5", "status": "completed",
        "post": "yes", "index": "0", "_selected_action": str(case.pk), "username": "eve", "is_superuser": "on",
    }  # fmt: skip
    with_deeds = {
        f"requests_app_{model._meta.model_name}_change"
        for model, page in admin.site._registry.items()
        if isinstance(page, RecordAdmin) and type(page).act is not RecordAdmin.act
    }
    before = contents()
    for path, name in addresses().items():
        if name in FRAME:
            continue
        acting = name in with_deeds
        for deed in DEEDS if acting else ("disable",):
            answer = client.post(path, {**fields, "deed": deed})
            assert answer.status_code < 500, path
        if name and name.endswith("changelist"):
            for action in ("bulk_acknowledge", "delete_selected"):
                client.post(path, {**fields, "action": action})
    after = contents()
    assert {label for label in before if before[label] != after[label]} == set()
