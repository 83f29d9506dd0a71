"""A halted source on the desk: what it says, who may lift the halt, and that the order is carried out once."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from requests_app import models
from requests_app.store.commands import SINGLETON, Target
from requests_app.store.session import web_connection
from requests_app.store.signing import Fence
from tests.desk.people import Person, offered, person
from tests.desk.scene import HOSTILE
from tests.send.scenes import hold
from tests.txm.test_commands import serve

pytestmark = pytest.mark.django_db
WHY = "2 stored events differ from what the chain shows now"


@pytest.fixture
def source(db: None) -> models.EnvelopeSource:
    return models.EnvelopeSource.objects.create(
        source_id=1, name="gateway", chain_id=654321, start_block=1, retain="14 days", halted=WHY
    )


@pytest.fixture
def ada(db: None) -> Person:
    return person("ada")


def url_of(source: models.EnvelopeSource) -> str:
    return reverse("admin:requests_app_envelopesource_change", args=(source.pk,))


def page_of(who: Person, source: models.EnvelopeSource) -> str:
    return who.client.get(url_of(source)).content.decode()


def order(who: Person, source: models.EnvelopeSource, **fields: Any) -> int:
    given = {"deed": "lift_halt", "token": str(uuid4()), "reason": "node b was wrong", **fields}
    return int(who.client.post(url_of(source), given).status_code)


def test_the_halt_is_lifted_by_one_order(source: models.EnvelopeSource, ada: Person) -> None:
    page = page_of(ada, source)
    assert offered(page) == {"lift_halt"}
    assert WHY in page
    token = re.search(r'name="token" value="([0-9a-f-]+)"', page)
    assert token is not None
    assert [order(ada, source, token=token[1]) for _ in range(2)] == [302, 302]
    (command,) = models.Command.objects.all()
    assert (command.kind, command.target_kind, command.target_id) == ("redrive", Target.SOURCE, 1)
    assert (command.resource, command.requested_by) == (SINGLETON, "ada")
    assert command.payload == {"reason": "node b was wrong"}
    source.refresh_from_db()
    assert source.halted == WHY  # nothing changes in the web request
    assert "hx-get" in page_of(ada, source)
    hold(web_connection(), SINGLETON)
    assert serve(web_connection()) == 1
    source.refresh_from_db()
    assert source.halted is None
    page = page_of(ada, source)
    assert offered(page) == set()
    assert "applied" in page
    answer = ada.client.get(reverse("admin:requests_app_source_orders", args=(source.pk,)))
    assert answer["HX-Refresh"] == "true"


def test_a_second_lift_finds_nothing_halted(source: models.EnvelopeSource, ada: Person) -> None:
    assert [order(ada, source) for _ in range(2)] == [302, 302]
    hold(web_connection(), SINGLETON)
    assert serve(web_connection(), Fence(SINGLETON, "one", 1)) == 2
    outcomes = models.Command.objects.order_by("created_at").values_list("outcome", flat=True)
    assert list(outcomes) == ["applied", "superseded"]


@pytest.mark.parametrize(
    "fields",
    [{"reason": " "}, {"token": "x"}, {"deed": "burn"}, {"deed": HOSTILE}],
    ids=["reason", "token", "deed", "text"],
)
def test_orders_that_do_not_fit_are_not_written(
    fields: dict[str, str], source: models.EnvelopeSource, ada: Person
) -> None:
    assert order(ada, source, **fields) == 302
    assert not models.Command.objects.exists()


def test_what_is_not_halted_is_not_lifted(source: models.EnvelopeSource, ada: Person) -> None:
    models.EnvelopeSource.objects.update(halted=None)
    assert offered(page_of(ada, source)) == set()
    assert order(ada, source) == 302
    assert not models.Command.objects.exists()


def test_viewers_and_disabled_people_lift_nothing(source: models.EnvelopeSource, ada: Person) -> None:
    viewer = person("vera", "viewer")
    assert offered(page_of(viewer, source)) == set()
    assert order(viewer, source) == 403
    ada.user.is_active = False
    ada.user.save()
    assert order(ada, source) in (302, 403)
    assert not models.Command.objects.exists()
