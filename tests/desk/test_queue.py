"""The queue of cases: filters, exact search, saved views, many at once, CSV; and the orders to signers and keys of clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from requests_app import models
from requests_app.admin.keyset import SEARCH_ROWS
from requests_app.clients import key_digest
from requests_app.states import Kind
from tests.desk.people import Person, offered, parked, person
from tests.desk.scene import HOSTILE, Scene

pytestmark = pytest.mark.django_db
QUEUE = "/admin/requests_app/reviewcase/"


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene()


@pytest.fixture
def ada(db: None) -> Person:
    return person("ada")


def listed(client: Client, query: str) -> set[int]:
    page = client.get(f"{QUEUE}?{query}").content.decode()
    return {int(number) for number in re.findall(r">Case (\d+)<", page)}


def test_filters(scene: Scene, ada: Person) -> None:
    mine, old, foreign = parked(scene), parked(scene, Kind.PUBLIC_DECRYPT), parked(scene)
    ada.take(mine)
    bob = person("bob")
    bob.take(foreign)
    models.ReviewCase.objects.update(opened_at=datetime.now(UTC) - timedelta(minutes=5))
    models.ReviewCase.objects.filter(pk=old.pk).update(opened_at=datetime.now(UTC) - timedelta(hours=2))
    models.RequestClient.objects.filter(kind=old.kind, request_id=old.subject_id).update(client_id=scene.other.pk)
    client = ada.client
    assert listed(client, "") == {mine.pk, old.pk, foreign.pk}
    assert listed(client, "assignee=me") == {mine.pk}
    assert listed(client, "assignee=nobody") == {old.pk}
    assert listed(client, "assignee=somebody") == {mine.pk, foreign.pk}
    assert listed(client, "age=1h") == {old.pk}
    assert listed(client, f"client={scene.other.pk}") == {old.pk}
    assert listed(client, "client=²") == {mine.pk, old.pk, foreign.pk}
    assert listed(client, "kind__exact=2") == {old.pk}
    assert listed(client, "second=waits") == set()
    models.NonceSlot.objects.filter(subject_id=mine.subject_id, kind=mine.kind).update(state="dead")
    ada.decide(mine, "resend")
    assert listed(client, "second=waits") == {mine.pk}


def test_every_exact_id_finds_its_case_alone(scene: Scene, ada: Person) -> None:
    case, _other = parked(scene, Kind.PUBLIC_DECRYPT), parked(scene)
    row = models.PublicDecryptRequest.objects.get(pk=case.subject_id)
    slot = models.NonceSlot.objects.get(kind=case.kind, subject_id=case.subject_id)
    hashes = models.TxAttempt.objects.filter(nonce=slot.nonce).values_list("tx_hash", flat=True)
    assert len(hashes) == 2
    for term in (str(row.ext_job_id), *(f"0x{bytes(value).hex()}" for value in hashes)):
        assert listed(ada.client, f"q={term}") == {case.pk}, term
    assert len(listed(ada.client, f"q=0x{bytes(scene.signers[0].address).hex()}")) == 2
    for term in ("0x" + "00" * 32, "0x" + "00" * 20, "x' OR 1=1", HOSTILE):
        assert listed(ada.client, f"q={term}") == set(), term


def test_a_search_that_finds_many_goes_on_behind_a_short_page(scene: Scene, ada: Person) -> None:
    """By a signer's address: drawing rows is what a search takes, so its pages are shorter; none is left out, none shown twice."""
    cases = {parked(scene).pk for _ in range(SEARCH_ROWS + 2)}
    url, seen = f"{QUEUE}?q=0x{bytes(scene.signers[0].address).hex()}", []
    while url:
        page = ada.client.get(url).content.decode()
        seen.append([int(number) for number in re.findall(r">Case (\d+)<", page)])
        found = re.search(r'href="(\?[^"]*after=[^"]*)" rel="next"', page)
        url = f"{QUEUE}{unescape(found[1])}" if found else ""
    assert [len(one) for one in seen] == [SEARCH_ROWS, 2]
    assert {number for one in seen for number in one} == cases


def test_saved_views_mark_the_one_that_is_shown(scene: Scene, ada: Person) -> None:
    page = ada.client.get(f"{QUEUE}?assignee=me").content.decode()
    assert re.search(r'href="\?assignee=me" aria-current="true">Mine<', page)
    assert page.count('aria-current="true"') >= 1


def test_csv_follows_the_filter_and_starts_no_formula(scene: Scene, ada: Person) -> None:
    shown, hidden = parked(scene), parked(scene)
    models.ReviewCase.objects.filter(pk=hidden.pk).update(
        status="closed", outcome="=cmd|' /C calc'!A0", closed_at=scene.now
    )
    text = b"".join(ada.client.get(reverse("admin:relayer_case_export")).streaming_content).decode()
    assert [line.split(",")[0] for line in text.splitlines()] == ["case", str(shown.pk)]
    text = b"".join(ada.client.get(f"{reverse('admin:relayer_case_export')}?case=closed").streaming_content).decode()
    assert "'=cmd" in text
    assert Client().get(reverse("admin:relayer_case_export")).status_code == 302


def chosen(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(bulk|cases)" value="([^"]*)">', page)
    return {str(name): str(value) for name, value in found}


def choose(who: Person, action: str, cases: list[models.ReviewCase]) -> str:
    data = {"action": action, "_selected_action": [case.pk for case in cases]}
    return who.client.post(QUEUE, data).content.decode()


def test_many_cases_are_previewed_then_decided_with_one_reason(scene: Scene, ada: Person) -> None:
    good, dead, taken = parked(scene), parked(scene, slot_state="dead"), parked(scene)
    person("bob").take(taken)
    page = choose(ada, "bulk_resume", [good, dead, taken])
    assert "1 cases" in page
    assert "bob works on it" in page
    assert "is dead" in page
    assert not models.Command.objects.exists()
    form = chosen(page)
    assert form["cases"] == f"{good.pk}:1"
    url = reverse("admin:relayer_case_bulk")
    again = ada.client.post(url, {**form, "reason": " "}).content.decode()
    assert "Say why" in again
    assert chosen(again) == form
    assert "decided" in ada.client.post(url, {**form, "reason": "node restarted"}).content.decode()
    ada.client.post(url, {**form, "reason": "node restarted"})
    assert [command.payload for command in models.Command.objects.all()] == [
        {"action": "resume", "reason": "node restarted"}
    ]


def test_a_case_that_changed_after_the_preview_is_left_alone(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    form = chosen(choose(ada, "bulk_resume", [case]))
    models.ReviewCase.objects.filter(pk=case.pk).update(version=2)
    page = ada.client.post(reverse("admin:relayer_case_bulk"), {**form, "reason": "r"}).content.decode()
    assert "changed since the preview" in page
    assert not models.Command.objects.exists()


@pytest.mark.parametrize("fields", [{}, {"bulk": "fail", "cases": "1:1"}, {"bulk": "resume", "cases": "x y:z ²:1"}])
def test_a_bulk_form_that_means_nothing_does_nothing(fields: dict[str, str], ada: Person) -> None:
    assert ada.client.post(reverse("admin:relayer_case_bulk"), {**fields, "reason": "r"}).status_code == 400


def test_viewers_have_no_list_actions(scene: Scene) -> None:
    viewer = person("vera", "viewer")
    parked(scene)
    assert "bulk_resume" not in viewer.client.get(QUEUE).content.decode()
    assert viewer.client.post(reverse("admin:relayer_case_bulk"), {"bulk": "resume", "cases": "1:1"}).status_code == 403


def signer_url(scene: Scene, index: int) -> str:
    return reverse("admin:requests_app_signer_change", args=(scene.signers[index].pk,))


def test_a_signer_is_paused_and_resumed_by_order(scene: Scene, ada: Person) -> None:
    for index, deed, kind in ((0, "pause", "pause_signer"), (1, "resume", "resume_signer")):
        page = ada.client.get(signer_url(scene, index)).content.decode()
        assert offered(page) == {deed}
        token = re.search(r'name="token" value="([0-9a-f-]+)"', page)
        assert token is not None
        for _ in range(2):
            assert (
                ada.client.post(signer_url(scene, index), {"deed": deed, "token": token[1], "reason": "r"}).status_code
                == 302
            )
        (command,) = models.Command.objects.filter(target_id=scene.signers[index].pk)
        address = f"0x{bytes(scene.signers[index].address).hex()}"
        assert (command.kind, command.resource, command.requested_by) == (kind, f"signer:654321:{address}", "ada")
        assert "hx-get" in ada.client.get(signer_url(scene, index)).content.decode()
    assert [signer.status for signer in models.Signer.objects.order_by("id")] == ["active", "paused"]


@pytest.mark.parametrize(
    "fields",
    [
        {"deed": "pause", "token": str(uuid4())},
        {"deed": "pause", "token": "x", "reason": "r"},
        {"deed": "resume", "token": str(uuid4()), "reason": "r"},
        {"deed": "burn", "token": str(uuid4()), "reason": "r"},
    ],
)
def test_orders_that_do_not_fit_are_not_written(fields: dict[str, str], scene: Scene, ada: Person) -> None:
    assert ada.client.post(signer_url(scene, 0), fields).status_code == 302
    assert not models.Command.objects.exists()


def test_a_viewer_orders_nothing(scene: Scene) -> None:
    viewer = person("vera", "viewer")
    fields = {"deed": "pause", "token": str(uuid4()), "reason": "r"}
    assert viewer.client.post(signer_url(scene, 0), fields).status_code == 403
    assert offered(viewer.client.get(signer_url(scene, 0)).content.decode()) == set()


def shown_key(page: str) -> str:
    found = re.search(r'<code id="new-key">(rk_[^<]+)</code>', page)
    assert found is not None
    return found[1]


def test_a_client_is_made_and_its_key_shown_once(ada: Person) -> None:
    url = reverse("admin:relayer_account_create")
    answer = ada.client.post(url, {"name": "new-wallet", "reason": "contract 7"})
    key = shown_key(answer.content.decode())
    assert "no-store" in answer["Cache-Control"]
    account = models.Account.objects.get(name="new-wallet")
    assert bytes(models.ApiKey.objects.get(account=account).digest) == key_digest(key)
    page = ada.client.get(reverse("admin:requests_app_account_change", args=(account.pk,))).content.decode()
    assert key not in page
    assert "contract 7" in page
    assert "exists already" in ada.client.post(url, {"name": "new-wallet", "reason": "r"}).content.decode()
    for name in ("", "UPPER", HOSTILE):
        page = ada.client.post(url, {"name": name, "reason": "r"}).content.decode()
        assert "a name has" in page
        assert "<script>alert" not in page
    assert models.Account.objects.count() == 1


def test_keys_are_issued_rotated_and_revoked_and_the_client_disabled(scene: Scene, ada: Person) -> None:
    url = reverse("admin:requests_app_account_change", args=(scene.client.pk,))
    assert offered(ada.client.get(url).content.decode()) == {"issue", "rotate", "revoke", "disable"}

    def do(**fields: str) -> str:
        return ada.client.post(url, {"reason": "r", **fields}, follow=True).content.decode()

    shown_key(do(deed="issue"))
    fresh = shown_key(do(deed="rotate", prefix="rk_1a2b3c4d"))
    assert models.ApiKey.objects.get(prefix="rk_1a2b3c4d").revoked_at is not None
    assert "no valid key" in do(deed="revoke", prefix="")
    assert models.ApiKey.objects.filter(account=scene.client, revoked_at=None).count() == 2
    do(deed="revoke", prefix=fresh[:11])
    do(deed="disable")
    scene.client.refresh_from_db()
    assert scene.client.status == "disabled"
    assert offered(ada.client.get(url).content.decode()) == {"enable"}
    assert "no active account" in do(deed="issue")
    assert "Say why" in do(deed="enable", reason="")
    do(deed="enable")
    assert LogEntry.objects.count() == 5


def test_viewers_manage_no_clients(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    url = reverse("admin:requests_app_account_change", args=(scene.client.pk,))
    assert client.post(url, {"deed": "issue", "reason": "r"}).status_code == 403
    assert client.post(reverse("admin:relayer_account_create"), {"name": "x", "reason": "r"}).status_code == 403
    assert models.ApiKey.objects.count() == 2
