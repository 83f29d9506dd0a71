"""The first page and its numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from requests_app import models
from requests_app.admin.troubles import troubles
from requests_app.models.commands import Target
from requests_app.overview import Cached, forget, overview
from requests_app.states import ACTIVE, Kind, Status
from tests.desk.scene import Scene


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene().build(each=2)


def test_counts_agree_with_the_tables(scene: Scene) -> None:
    counts = overview().counts()
    for kind, model in (
        (Kind.USER_DECRYPT, models.UserDecryptRequest),
        (Kind.PUBLIC_DECRYPT, models.PublicDecryptRequest),
        (Kind.INPUT_PROOF, models.InputProofRequest),
    ):
        for status in Status:
            assert counts[kind][status] == model.objects.filter(status=status.value).count(), (kind, status)


def test_live_and_final_statements_together_know_every_state(scene: Scene) -> None:
    """A state added to states.py and forgotten in overview.sql would vanish from the page."""
    now = overview()
    assert {row.status for row in now.live} == {status.value for status in ACTIVE}
    assert {row.status for row in now.final} == {status.value for status in set(Status) - ACTIVE}


def test_the_first_page_names_each_trouble(scene: Scene, as_role: Callable[[str], Client]) -> None:
    text = as_role("viewer").get("/admin/").content.decode()
    for words in (
        "Needs attention",
        "is paused",
        "given up",
        "could not be applied",
        "Requests by kind and state",
        'title="0 base units">0<',
    ):
        assert words in text
    assert "Nobody listens" not in text


def test_no_trouble_when_all_is_well(scene: Scene) -> None:
    models.Signer.objects.update(status="active", balance_wei=10**18)
    models.DeadEnvelope.objects.all().delete()
    models.DeadLetter.objects.update(status="dropped")
    for model in (models.UserDecryptRequest, models.PublicDecryptRequest, models.InputProofRequest):
        model.objects.filter(deadline_at__lt=datetime.now(UTC)).update(deadline_at=None)
    assert troubles(overview()) == []


def test_payments_stand_beside_the_requests(scene: Scene, as_role: Callable[[str], Client]) -> None:
    text = as_role("viewer").get("/admin/").content.decode()
    assert "Payments by state" in text
    assert "3 open holds" in text  # settling, confirming, in review
    assert "1 dead letter " in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: models.ExecLease.objects.filter(resource="listener:1").delete(), "Nobody listens to gateway"),
        (lambda: models.EnvelopeSource.objects.update(halted="two blocks 7"), "halted: two blocks 7"),
        (lambda: models.ExecLease.objects.filter(resource__startswith="shift:settle").delete(), "settle cluster"),
        (lambda: models.ExecLease.objects.filter(resource__startswith="shift:sweep").delete(), "sweep cluster"),
        (
            lambda: models.Command.objects.update(created_at=datetime.now(UTC) - timedelta(minutes=3)),
            "waiting for more than 1 min",
        ),
        (
            lambda: models.WorkerBeat.objects.update(turn_at=datetime.now(UTC) - timedelta(minutes=2)),
            "has not turned for 2 min",
        ),
        (
            lambda: models.InputProofRequest.objects.filter(status="processing").update(
                deadline_at=datetime.now(UTC) - timedelta(minutes=2)
            ),
            "Past the deadline",
        ),
    ],
)
def test_each_trouble_is_seen(change: Callable[[], object], words: str, scene: Scene) -> None:
    for model in (models.UserDecryptRequest, models.PublicDecryptRequest, models.InputProofRequest):
        model.objects.exclude(status__in=("completed", "failure", "timed_out")).update(deadline_at=None)
    assert words not in "\n".join(troubles(overview()))
    forget()
    change()
    assert words in "\n".join(troubles(overview()))


def test_the_page_renews_itself_with_the_sections_alone(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    page = client.get("/admin/").content.decode()
    assert f'hx-get="{reverse("admin:relayer_overview")}?span=1h"' in page
    fragment = client.get(reverse("admin:relayer_overview")).content.decode()
    assert "<html" not in fragment
    assert "Requests by kind and state" in fragment


def test_ten_readers_cost_one_reading() -> None:
    made: list[int] = []
    gate = threading.Barrier(10)

    def make() -> int:
        made.append(1)
        return len(made)

    cached = Cached(make, seconds=60)

    def read() -> None:
        gate.wait()
        assert cached.get() == 1

    threads = [threading.Thread(target=read) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_slow_making_counts_from_its_end_and_a_failed_one_is_not_kept() -> None:
    clock = [0.0]

    def slow() -> str:
        clock[0] += 5
        return "value"

    cached = Cached(slow, seconds=1, clock=lambda: clock[0])
    cached.get()
    cached.get()
    assert clock[0] == 5
    outcomes = iter([ValueError("away"), "back"])

    def flaky() -> object:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    flaky_cache = Cached(flaky, seconds=60)
    with pytest.raises(ValueError, match="away"):
        flaky_cache.get()
    assert flaky_cache.get() == "back"


def test_status_command_prints_both_forms(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    with pytest.raises(SystemExit) as ended:
        call_command("relayer_status")
    assert ended.value.code == 2
    assert "needs attention:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        call_command("relayer_status", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["requests"]["input-proof"]["completed"] == 2
    assert document["signers"][0]["address"].startswith("0x")


def test_every_reader_of_cases_knows_one_that_is_about_a_source(
    scene: Scene, admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is about no request: what looked its kind up among those failed just when a source had halted."""
    case = models.ReviewCase.objects.create(kind=Target.SOURCE, subject_id=1, reason_code="deep_reorg", evidence={})
    models.EnvelopeSource.objects.filter(pk=1).update(halted="block 7 changed")
    queue = reverse("admin:requests_app_reviewcase_changelist")
    for path in (
        "/admin/",
        queue,
        f"{queue}{case.pk}/change/",
        f"{queue}?kind__exact={Target.SOURCE.value}",
        "/metrics",
    ):
        answer = admin_client.get(path)
        assert answer.status_code == 200, path
        assert "source" in answer.content.decode()
    lines = b"".join(admin_client.get(reverse("admin:relayer_case_export")).streaming_content).decode()
    assert f"{case.pk},source,1,deep_reorg" in lines
    chosen = {"action": "bulk_acknowledge", "_selected_action": case.pk, "index": "0"}
    assert "left out" in admin_client.post(queue, chosen).content.decode()
    with pytest.raises(SystemExit):
        call_command("relayer_status")
    assert "deep_reorg" in capsys.readouterr().out


def test_cases_that_somebody_once_had_do_not_fill_the_page(scene: Scene) -> None:
    now = datetime.now(UTC)
    for number, until in ((1, now - timedelta(hours=1)), (2, now + timedelta(hours=1))):
        models.ExecLease.objects.create(resource=f"review:{number}", instance="desk:ada", epoch=1, lease_until=until)
    assert [row.resource for row in overview().leases if row.resource.startswith("review:")] == ["review:2"]
