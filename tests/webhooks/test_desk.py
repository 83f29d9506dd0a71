"""The desk's pages of webhooks: who may send a delivery again, once, with a reason; found by every id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from requests_app.models import WebhookDelivery
from requests_app.states import Kind, Status
from requests_app.store.session import web_connection
from tests.api.rows import insert_view
from tests.core.rows import insert_account, insert_request
from tests.webhooks.rows import insert_delivery, insert_webhook, read_delivery

pytestmark = pytest.mark.django_db


@pytest.fixture
def conn(db: None) -> psycopg.Connection[Any]:
    return web_connection()


@pytest.fixture
def as_role(db: None) -> Callable[[str], Client]:
    """A logged-in client with the given role."""

    def log_in(role: str) -> Client:
        user = User.objects.create_user(f"{role}-person", is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return log_in


def page(delivery: int) -> str:
    return reverse("admin:requests_app_webhookdelivery_change", args=(delivery,))


def failed(conn: psycopg.Connection[Any], **columns: Any) -> int:
    webhook = insert_webhook(conn, insert_account(conn))
    return insert_delivery(conn, webhook, "failed", attempts=12, last_error="the receiver answered 500", **columns)


def deed(client: Client, delivery: int, **posted: str) -> tuple[int, str]:
    """(status of the POST, the messages that the page shows afterwards)."""
    answer = client.post(page(delivery), posted)
    if answer.status_code != 302:
        return answer.status_code, ""
    assert answer["location"] == page(delivery)
    shown = client.get(page(delivery))
    return 302, " ".join(str(message) for message in shown.context["messages"])


def test_a_failed_delivery_is_sent_again_once_with_a_reason(
    conn: psycopg.Connection[Any], as_role: Callable[[str], Client]
) -> None:
    delivery = failed(conn)
    operator = as_role("operator")
    assert 'value="redrive"' in operator.get(page(delivery)).content.decode()
    assert "Say why" in deed(operator, delivery, deed="redrive", reason="  ")[1]
    assert "no such deed" in deed(operator, delivery, deed="delete", reason="x")[1]
    assert read_delivery(conn, delivery).state == "failed"
    assert "due again" in deed(operator, delivery, deed="redrive", reason="their receiver is back")[1]
    row = read_delivery(conn, delivery)
    assert (row.state, row.attempts, row.ended_at) == ("waiting", 0, None)
    assert "Nothing was done" in deed(as_role("approver"), delivery, deed="redrive", reason="me too")[1]
    (entry,) = LogEntry.objects.all()
    assert (entry.user.get_username(), entry.change_message) == (
        "operator-person",
        "sent again: their receiver is back",
    )
    assert "their receiver is back" in operator.get(page(delivery)).content.decode()


def test_a_viewer_only_looks(conn: psycopg.Connection[Any], as_role: Callable[[str], Client]) -> None:
    delivery, viewer = failed(conn), as_role("viewer")
    text = viewer.get(page(delivery)).content.decode()
    assert "the receiver answered 500" in text
    assert 'value="redrive"' not in text
    assert deed(viewer, delivery, deed="redrive", reason="x")[0] == 403
    assert read_delivery(conn, delivery).state == "failed"


def test_a_url_is_whole_only_for_those_who_may_act(
    conn: psycopg.Connection[Any], as_role: Callable[[str], Client]
) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account, url="https://hooks.example:8443/T0/s3cret?key=s3cret")
    delivery = insert_delivery(conn, webhook, "failed", last_error="the receiver answered 500")
    found = {
        reverse("admin:requests_app_webhook_changelist"),
        reverse("admin:requests_app_webhook_change", args=(webhook,)),
        reverse("admin:requests_app_account_change", args=(account,)),
        page(delivery),
    }
    silent = {reverse("admin:requests_app_webhookdelivery_changelist"), "/admin/"}
    for role, whole in (("viewer", False), ("operator", True), ("approver", True)):
        client = as_role(role)
        texts = {path: client.get(path).content.decode() for path in found | silent}
        assert {path for path, text in texts.items() if "https://hooks.example:8443/" in text} == found
        assert {path for path, text in texts.items() if "s3cret" in text} == (found if whole else set())


def test_no_address_of_a_list_asks_for_what_it_does_not_show(
    conn: psycopg.Connection[Any], as_role: Callable[[str], Client]
) -> None:
    """Django's lists filter by any column that an address names: letter by letter that read URLs and signing secrets out."""
    insert_webhook(conn, insert_account(conn), url="https://hooks.example/s3cret")
    viewer, url = as_role("viewer"), reverse("admin:requests_app_webhook_changelist")
    viewer.raise_request_exception = False
    for asked in ("url__startswith=https://hooks.example/s", "url__lt=i", "secret__gte=0", "secret__startswith=x"):
        assert viewer.get(f"{url}?{asked}").status_code == 400, asked
    assert viewer.get(f"{url}?state__exact=enabled").status_code == 200


def test_what_tells_nobody_is_not_offered(conn: psycopg.Connection[Any], as_role: Callable[[str], Client]) -> None:
    webhook = insert_webhook(conn, insert_account(conn), state="removed")
    operator = as_role("operator")
    for delivery in (insert_delivery(conn, webhook, "failed"), insert_delivery(conn, 999_999, "failed")):
        text = operator.get(page(delivery)).content.decode()
        assert "nobody is there to be told" in text
        assert 'value="redrive"' not in text
        assert "Nothing was done" in deed(operator, delivery, deed="redrive", reason="x")[1]
    assert LogEntry.objects.count() == 0


def test_deliveries_are_found_by_every_id_and_no_other_term(
    conn: psycopg.Connection[Any], admin_client: Client
) -> None:
    account = insert_account(conn)
    webhook = insert_webhook(conn, account)
    row_id = insert_request(conn, Kind.INPUT_PROOF, Status.COMPLETED)
    job = insert_view(conn, account, Kind.INPUT_PROOF, row_id)  # joining what has ended is told of
    other = insert_delivery(conn, insert_webhook(conn, insert_account(conn)))
    (one,) = WebhookDelivery.objects.filter(subject=str(job))
    name = WebhookDelivery.objects.values_list("public_id", flat=True).get(pk=one.pk)
    public_id = conn.execute("SELECT public_id FROM webhook WHERE id = %s", (webhook,)).fetchall()[0][0]
    url = reverse("admin:requests_app_webhookdelivery_changelist")

    def found(term: str) -> set[int]:
        return {row.pk for row in admin_client.get(url, {"q": term}).context["cl"].result_list}

    for term in (f"msg_{name.hex}", str(name), str(job), f" {job} ", public_id):
        assert found(term) == {one.pk}, term
    for term in ("nonsense", "wh_0", "pi_0", "msg_", "' OR 1=1 --", "9" * 90):
        assert found(term) == set(), term
    assert found("") == {one.pk, other}


def test_a_request_s_page_shows_what_its_clients_were_told(conn: psycopg.Connection[Any], admin_client: Client) -> None:
    account = insert_account(conn)
    told, untold = (insert_request(conn, Kind.PUBLIC_DECRYPT, Status.COMPLETED) for _ in range(2))
    insert_view(conn, account, Kind.PUBLIC_DECRYPT, untold)
    insert_webhook(conn, account)
    insert_view(conn, account, Kind.PUBLIC_DECRYPT, told)
    for row_id, shown in ((told, True), (untold, False)):
        text = admin_client.get(
            reverse("admin:requests_app_publicdecryptrequest_change", args=(row_id,))
        ).content.decode()
        assert ("Told by webhook" in text) is shown
        assert ("request.completed" in text) is shown
