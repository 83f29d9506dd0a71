"""A halted source on the desk: what it says, who may lift the halt, and that the order is carried out once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from requests_app import models
from requests_app.admin.chain import LAST_INDEX, envelope_cells, place
from requests_app.models.commands import Target
from requests_app.store.commands import SINGLETON
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
def sealed(source: models.EnvelopeSource) -> models.ReviewCase:
    """The source stands at block 90; its case says that block 70 is the first in doubt."""
    models.ChainCursor.objects.create(source=source, block=90)
    return models.ReviewCase.objects.create(
        kind=Target.SOURCE, subject_id=1, reason_code="deep_reorg", evidence={"block": 70, "note": HOSTILE}
    )


@pytest.fixture
def ann(db: None) -> Person:
    return person("ann", "approver")


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


def test_an_approver_takes_the_chain_s_version_from_the_case(
    sealed: models.ReviewCase, ann: Person, ada: Person
) -> None:
    page = ann.get(sealed)
    assert offered(page) == {"lift_halt", "take_chain"}
    for part in (WHY, 'name="block" value="70"', "Evidence when it stopped", "stored up to block 90"):
        assert part in page
    assert HOSTILE not in page
    assert offered(ada.get(sealed)) == {"lift_halt"}
    assert "an approver orders it" in ada.get(sealed)
    fields = {"token": str(uuid4()), "reason": "node b was right", "block": "69"}
    assert ada.post(sealed, "take_chain", **fields).status_code == 403
    assert [ann.post(sealed, "take_chain", **fields).status_code for _ in range(2)] == [302, 302]
    (command,) = models.Command.objects.all()
    assert (command.kind, command.target_kind, command.resource) == ("hitl", Target.SOURCE, SINGLETON)
    assert command.payload == {"action": "take_chain", "block": 69, "reason": "node b was right"}
    assert "take chain from block 69" in ann.get(sealed)
    hold(web_connection(), SINGLETON)
    assert serve(web_connection()) == 1
    sealed.refresh_from_db()
    assert (sealed.status, sealed.outcome) == ("closed", "take_chain")
    assert models.ChainCursor.objects.get().block == 68
    assert offered(ann.get(sealed)) == set()
    listed = ann.client.get(reverse("admin:requests_app_reviewcase_changelist") + "?case=all").content.decode()
    assert "source #1" in listed


@pytest.mark.parametrize("block", ["", "x", "-1", "1.5", "99999999999999", "9" * 13, "²"])
def test_what_is_no_block_is_not_ordered(block: str, sealed: models.ReviewCase, ann: Person) -> None:
    fields = {"token": str(uuid4()), "reason": "looked", "block": block}
    assert ann.post(sealed, "take_chain", **fields).status_code == 302
    assert not models.Command.objects.exists()
    assert "A block is a number" in ann.get(sealed)


def test_a_source_s_case_knows_no_deed_of_requests(sealed: models.ReviewCase, ann: Person) -> None:
    for deed in ("assign", "probe", "resume", "fail", "acknowledge", "confirm"):
        assert ann.post(sealed, deed, reason="looked", token=str(uuid4()), version="1").status_code == 302
    assert not models.Command.objects.exists()
    assert not models.ReviewDecision.objects.exists()
    listed = reverse("admin:requests_app_reviewcase_changelist")
    chosen = {"action": "bulk_acknowledge", "_selected_action": str(sealed.pk)}
    preview = ann.client.post(listed, chosen).content.decode()
    assert "its own page says what can be done" in preview
    bulk = {"bulk": "acknowledge", "cases": f"{sealed.pk}:1", "reason": "looked"}
    assert ann.client.post(reverse("admin:relayer_case_bulk"), bulk).status_code == 200
    assert not models.Command.objects.exists()
    exported = b"".join(ann.client.get(reverse("admin:relayer_case_export")).streaming_content).decode()
    assert f"{sealed.pk},source,1,deep_reorg,open" in exported
    assert ann.client.get("/admin/").status_code == 200


def test_the_metrics_count_cases_of_sources(sealed: models.ReviewCase, client: Any) -> None:
    text = client.get("/metrics").content.decode()
    assert 'relayer_reviews_open{reason="deep_reorg",req_type="source"} 1.0' in text


def test_what_clients_published_is_no_event_of_a_chain() -> None:
    """Its topic is no number, its position no block; and it has neither transaction nor contract."""
    now = datetime.now(UTC)
    topic, nothing = b"topic", b""
    one = models.EnvelopeMeta(
        source_id=100, position=5, kind=100, ref=topic, contract=nothing, block_hash=nothing, tx_hash=nothing,
        digest=bytes(32), recorded_at=now,
    )  # fmt: skip
    number, kind, shown, hashes, contract, _at = envelope_cells(one)
    assert (number, kind, hashes, contract) == ("5", "published", "–", "–")
    assert f"0x{topic.hex()}" in shown
    assert place(7 << 20 | 3) == "7 / 3"
    assert place(7 << 20 | LAST_INDEX) == "7 / all"
