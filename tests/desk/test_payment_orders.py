"""Canceling a payment from its page: who may, while what holds, and that it happens once."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from requests_app import models
from requests_app.states import IntentState, Kind
from requests_app.store.commands import SINGLETON
from requests_app.store.session import web_connection
from tests.desk.paying import payment
from tests.desk.people import Person, offered, person
from tests.payments.terms import add_account
from tests.send.scenes import hold
from tests.txm.test_commands import serve

pytestmark = pytest.mark.django_db
S = IntentState
HASH = b"\x07" * 32


@pytest.fixture
def ada(db: None) -> Person:
    return person("ada")


def made(state: IntentState) -> models.PaymentIntent:
    """A payment in this state."""
    return models.PaymentIntent.objects.get(pk=payment(add_account(web_connection(), "acme"), state, HASH).id)


def url_of(row: models.PaymentIntent) -> str:
    return reverse("admin:requests_app_paymentintent_change", args=(row.pk,))


def page_of(who: Person, row: models.PaymentIntent) -> str:
    return who.client.get(url_of(row)).content.decode()


def order(who: Person, row: models.PaymentIntent, **fields: Any) -> int:
    given = {"deed": "cancel", "token": str(uuid4()), "reason": "the client called", **fields}
    return int(who.client.post(url_of(row), given).status_code)


@pytest.mark.parametrize("state", [S.CREATED, S.AUTHORIZED])
def test_it_is_canceled_by_one_order(state: IntentState, ada: Person) -> None:
    row = made(state)
    page = page_of(ada, row)
    assert offered(page) == {"cancel"}
    token = re.search(r'name="token" value="([0-9a-f-]+)"', page)
    assert token is not None
    assert [order(ada, row, token=token[1]) for _ in range(2)] == [302, 302]
    (command,) = models.Command.objects.all()
    assert (command.kind, command.target_kind, command.target_id) == ("cancel", Kind.PAYMENT, row.pk)
    row.refresh_from_db()
    assert row.state == state  # nothing changes in the web request
    assert "hx-get" in page_of(ada, row)
    hold(web_connection(), SINGLETON)
    assert serve(web_connection()) == 1
    row.refresh_from_db()
    assert (row.state, row.state_reason) == (S.CANCELED, "the client called")
    last = models.IntentTransitionRow.objects.order_by("-version").first()
    assert last is not None
    assert (last.actor, last.by_user) == ("operator", "ada")
    assert not models.QueueJob.objects.filter(kind=Kind.PAYMENT, subject_id=row.pk).exists()
    page = page_of(ada, row)
    assert offered(page) == set()
    assert "applied" in page
    answer = ada.client.get(reverse("admin:requests_app_payment_orders", args=(row.pk,)))
    assert answer["HX-Refresh"] == "true"


def test_a_worker_that_signs_first_wins(ada: Person) -> None:
    row = made(S.AUTHORIZED)
    assert order(ada, row) == 302
    models.PaymentIntent.objects.filter(pk=row.pk).update(state=S.SETTLING)
    hold(web_connection(), SINGLETON)
    assert serve(web_connection()) == 1
    assert models.Command.objects.get().outcome == "superseded"
    row.refresh_from_db()
    assert row.state == S.SETTLING


@pytest.mark.parametrize("state", [S.SETTLING, S.CONFIRMING, S.NEEDS_REVIEW, S.SETTLED, S.FAILED, S.CANCELED])
def test_what_is_signed_or_over_is_not_canceled(state: IntentState, ada: Person) -> None:
    row = made(state)
    assert "cancel" not in offered(page_of(ada, row))
    assert order(ada, row) == 302
    assert not models.Command.objects.exists()


@pytest.mark.parametrize("fields", [{"reason": " "}, {"token": "x"}, {"deed": "burn"}], ids=["reason", "token", "deed"])
def test_orders_that_do_not_fit_are_not_written(fields: dict[str, str], ada: Person) -> None:
    assert order(ada, made(S.CREATED), **fields) == 302
    assert not models.Command.objects.exists()


def test_viewers_cancel_nothing(ada: Person) -> None:
    row, viewer = made(S.CREATED), person("vera", "viewer")
    assert offered(page_of(viewer, row)) == set()
    assert order(viewer, row) == 403
    stranger = person("otto", "viewer")
    stranger.user.groups.clear()
    assert stranger.client.get(reverse("admin:requests_app_payment_orders", args=(row.pk,))).status_code == 403
    assert not models.Command.objects.exists()
