"""Deciding a case on its page: what is offered, who may, what is written, and that nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from django.urls import reverse

from requests_app import assignments, decisions, models
from requests_app.models.reviews import ReviewAction
from requests_app.states import Kind, Status
from requests_app.store.commands import SINGLETON
from requests_app.store.session import web_connection
from tests.desk.people import Person, case_url, hidden_of, offered, parked, person
from tests.desk.scene import HOSTILE, Scene

pytestmark = pytest.mark.django_db
FAR = "99999"
DECIDING = {action.value for action in ReviewAction}


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene()


@pytest.fixture
def ada(db: None) -> Person:
    return person("ada")


@pytest.fixture
def bob(db: None) -> Person:
    return person("bob", "approver")


def commands(case: models.ReviewCase) -> list[models.Command]:
    return list(models.Command.objects.filter(target_kind=case.kind, target_id=case.subject_id))


@pytest.mark.parametrize(
    ("slot_state", "deeds"),
    [
        ("live", {"resume", "replace", "cancel_nonce", "attach"}),
        ("signed", {"resume", "replace", "cancel_nonce", "attach"}),
        ("mined", {"attach"}),
        ("final", {"attach", "fail"}),
        ("dead", {"resend", "attach", "fail"}),
        (None, {"resend", "attach", "fail"}),
    ],
)
def test_only_deeds_whose_guard_holds_are_offered(
    slot_state: str | None, deeds: set[str], scene: Scene, ada: Person
) -> None:
    case = parked(scene, slot_state=slot_state)
    ada.take(case)
    page = ada.get(case)
    assert offered(page) & DECIDING == deeds
    for action in DECIDING - deeds:
        answer = ada.post(case, action, reason="r", ceiling_gwei=FAR, tx_hash="0x" + "11" * 32, **hidden_of(page))
        assert answer.status_code == 409, action
        assert "Nothing was done" in answer.content.decode()
    assert commands(case) == []


def test_a_request_that_ended_by_itself_can_only_be_taken_note_of(scene: Scene, ada: Person) -> None:
    row = scene.request(Kind.PUBLIC_DECRYPT, Status.COMPLETED)
    case = models.ReviewCase.objects.create(
        kind=Kind.PUBLIC_DECRYPT, subject_id=row.pk, reason_code="receipt_vanished", evidence={}
    )
    ada.take(case)
    assert offered(ada.get(case)) & DECIDING == {"acknowledge"}
    assert ada.decide(case, "acknowledge").status_code == 302
    assert commands(case)[0].payload["action"] == "acknowledge"


@pytest.mark.parametrize(
    ("deed", "fields", "payload"),
    [
        ("resume", {}, {}),
        ("replace", {"ceiling_gwei": "12.5"}, {"ceiling_wei": "12500000000"}),
        ("cancel_nonce", {}, {}),
        ("attach", {"tx_hash": "0x" + "AB" * 32}, {"tx_hash": "0x" + "ab" * 32}),
    ],
)
def test_a_decision_and_its_command_are_written_together(
    deed: str, fields: dict[str, str], payload: dict[str, str], scene: Scene, ada: Person
) -> None:
    case = parked(scene)
    assert ada.decide(case, deed, reason="the node lost it", **fields).status_code == 302
    (decision,) = models.ReviewDecision.objects.filter(case=case)
    (command,) = commands(case)
    assert decision.command_id == command.command_id == f"review:{case.pk}:1"
    assert (decision.decided_by, decision.reason, decision.state) == ("ada", "the node lost it", "commanded")
    assert command.payload == {"action": deed, "reason": "the node lost it", **payload}
    assert command.expected_status == "needs_review"
    epoch = models.ExecLease.objects.get(resource=f"review:{case.pk}").epoch
    assert command.epoch == epoch
    page = ada.get(case)
    assert offered(page) & DECIDING == set()
    assert "hx-get" in page
    assert models.InputProofRequest.objects.get(pk=case.subject_id).status == "needs_review"


@pytest.mark.parametrize(
    ("deed", "fields", "words"),
    [
        ("resume", {"reason": "  "}, "Say why"),
        ("replace", {"ceiling_gwei": ""}, "number of gwei"),
        ("replace", {"ceiling_gwei": "NaN"}, "above 0"),
        ("replace", {"ceiling_gwei": "-1"}, "above 0"),
        ("replace", {"ceiling_gwei": "100001"}, "at most"),
        ("replace", {"ceiling_gwei": "0.001"}, "not above what was offered"),
        ("attach", {"tx_hash": "0x12"}, "64 hexadecimal"),
        ("attach", {"tx_hash": HOSTILE}, "64 hexadecimal"),
        ("drop_database", {}, "no such deed"),
    ],
)
def test_unreadable_input_decides_nothing_and_keeps_what_was_typed(
    deed: str, fields: dict[str, str], words: str, scene: Scene, ada: Person
) -> None:
    case = parked(scene)
    answer = ada.decide(case, deed, **fields)
    page = answer.content.decode()
    assert answer.status_code == 400
    assert words in page
    assert "<script>alert" not in page
    assert commands(case) == []
    if fields.get("ceiling_gwei"):
        assert f'value="{fields["ceiling_gwei"]}"' in page


def test_a_double_click_decides_once(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    fields = {"reason": "r", **ada.take(case)}
    assert [ada.post(case, "resume", **fields).status_code for _ in range(3)] == [302, 409, 409]
    assert len(commands(case)) == models.ReviewDecision.objects.count() == 1


def test_two_reviewers_give_one_effect(scene: Scene, ada: Person, bob: Person) -> None:
    case = parked(scene)
    first = ada.take(case)
    second = bob.take(case)
    assert second == {}
    assert "ada works on this case" in bob.get(case)
    assert bob.post(case, "cancel_nonce", reason="r", **first).status_code == 409
    assert commands(case) == []
    assert ada.post(case, "resume", reason="r", **first).status_code == 302
    assert bob.post(case, "cancel_nonce", reason="r", **first).status_code == 409
    assert [command.payload["action"] for command in commands(case)] == ["resume"]


def test_a_page_that_lost_the_case_decides_nothing(scene: Scene, ada: Person, bob: Person) -> None:
    case = parked(scene)
    mine = ada.take(case)
    models.ExecLease.objects.filter(resource=f"review:{case.pk}").update(lease_until="2020-01-01T00:00:00Z")
    assert bob.take(case)["epoch"] != mine["epoch"]
    answer = ada.post(case, "resume", reason="r", **mine)
    assert answer.status_code == 409
    assert "no longer yours" in answer.content.decode()
    assert commands(case) == []


def test_a_changed_row_shows_fresh_evidence_instead_of_acting(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    mine = ada.take(case)
    models.ReviewCase.objects.filter(pk=case.pk).update(version=7, evidence={"news": "seen in block 99"})
    answer = ada.post(case, "resume", reason="r", **mine)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "has changed since you read it" in page
    assert "seen in block 99" in page
    assert commands(case) == []


def test_a_row_that_left_review_is_not_decided(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    mine = ada.take(case)
    models.InputProofRequest.objects.filter(pk=case.subject_id).update(status="tx_in_flight")
    assert ada.post(case, "resume", reason="r", **mine).status_code == 409
    assert commands(case) == []


def test_the_web_process_judges_again_under_locks(scene: Scene, ada: Person) -> None:
    """A nonce closed between the page's look and the transaction: the decision's own check, not the page's, must hold."""
    case = parked(scene)
    assigned = assignments.assign(web_connection(), case.pk, ada.user.pk)
    assert assigned is not None
    models.InputProofRequest.objects.filter(pk=case.subject_id).update(status="tx_in_flight")
    models.ReviewCase.objects.filter(pk=case.pk).update(status="closed", closed_at="2026-01-01T00:00:00Z")
    made = decisions.decide(
        web_connection(),
        case_id=case.pk,
        version=case.version,
        action=ReviewAction.RESUME,
        reason="r",
        reviewer_id=ada.user.pk,
        held=assigned.held,
    )
    assert made.outcome is decisions.Decided.STALE


@pytest.mark.parametrize(
    ("slot_state", "deed"), [("dead", "resend"), ("dead", "fail"), ("final", "fail"), (None, "resend")]
)
def test_some_deeds_need_another_person(
    slot_state: str | None, deed: str, scene: Scene, ada: Person, bob: Person
) -> None:
    case = parked(scene, slot_state=slot_state)
    ada.decide(case, deed, reason="proven")
    (decision,) = models.ReviewDecision.objects.all()
    assert (decision.state, commands(case)) == ("awaiting_second", [])
    carl = person("carl")
    for helpless in (ada, carl):
        assert "confirm" not in offered(helpless.get(case))
        assert helpless.post(case, "confirm", decision=decision.pk).status_code == 403
    assert commands(case) == []
    assert {"confirm", "refuse"} <= offered(bob.get(case))
    assert bob.post(case, "confirm", decision=decision.pk).status_code == 302
    decision.refresh_from_db()
    assert (decision.state, decision.second_by) == ("commanded", "bob")
    assert [(one.payload["action"], one.resource) for one in commands(case)] == [
        (deed, SINGLETON)
    ]  # no signer has to be there for it
    assert bob.post(case, "confirm", decision=decision.pk).status_code == 409
    assert len(commands(case)) == 1


def test_an_approver_does_not_confirm_the_own_decision(scene: Scene, bob: Person) -> None:
    case = parked(scene, slot_state="dead")
    bob.decide(case, "resend")
    (decision,) = models.ReviewDecision.objects.all()
    assert "confirm" not in offered(bob.get(case))
    assert bob.post(case, "confirm", decision=decision.pk).status_code == 403
    assert commands(case) == []


def test_a_refused_decision_leaves_the_case_open_for_another(scene: Scene, ada: Person, bob: Person) -> None:
    case = parked(scene, slot_state="dead")
    ada.decide(case, "resend")
    (decision,) = models.ReviewDecision.objects.all()
    assert bob.post(case, "refuse", decision=decision.pk).status_code == 400
    assert bob.post(case, "refuse", decision=decision.pk, reason="not proven").status_code == 302
    decision.refresh_from_db()
    assert (decision.state, commands(case)) == ("withdrawn", [])
    assert (decision.second_by, decision.withdrawn_by, decision.withdrawn_reason) == ("bob", "bob", "not proven")
    assert "refused" in bob.get(case)
    case.refresh_from_db()
    assert ada.decide(case, "fail").status_code == 302


def test_a_failure_of_what_was_never_signed_needs_one_person(scene: Scene, ada: Person) -> None:
    case = parked(scene, slot_state=None)
    assert ada.decide(case, "fail").status_code == 302
    assert len(commands(case)) == 1


def test_a_second_person_confirms_only_what_belongs_to_the_case(scene: Scene, ada: Person, bob: Person) -> None:
    case, other = parked(scene, slot_state="dead"), parked(scene, slot_state="dead")
    ada.decide(case, "resend")
    (decision,) = models.ReviewDecision.objects.all()
    assert bob.post(other, "confirm", decision=decision.pk).status_code == 400
    assert commands(case) == []


@pytest.mark.parametrize("deed", ["assign", "probe", "resume", "give_up", "confirm", "refuse", "withdraw"])
def test_viewers_and_strangers_do_nothing(deed: str, scene: Scene) -> None:
    case = parked(scene)
    viewer = person("vera", "viewer")
    assert viewer.post(case, deed, reason="r", version=1, epoch=1, decision=1).status_code == 403
    assert offered(viewer.get(case)) == set()
    assert not models.ExecLease.objects.exists()
    assert commands(case) == []


def test_a_reviewer_disabled_mid_decision_completes_nothing(scene: Scene, ada: Person, bob: Person) -> None:
    case = parked(scene, slot_state="dead")
    mine = ada.take(case)
    bob.user.is_active = ada.user.is_active = False
    bob.user.save()
    ada.user.save()
    assert ada.post(case, "fail", reason="r", **mine).status_code in (302, 403)
    assert assignments.assign(web_connection(), case.pk, ada.user.pk) is None
    assert not assignments.renew(web_connection(), case.pk, ada.user.pk, int(mine["epoch"]))
    made = decisions.decide(
        web_connection(),
        case_id=case.pk,
        version=case.version,
        action=ReviewAction.FAIL,
        reason="r",
        reviewer_id=ada.user.pk,
        held=decisions.Held("desk:ada", int(mine["epoch"])),
    )
    assert made.outcome is decisions.Decided.FORBIDDEN
    assert commands(case) == []
    assert not models.ReviewDecision.objects.exists()


def test_a_post_without_the_token_of_the_form_is_refused(scene: Scene, ada: Person) -> None:
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(ada.user)
    case = parked(scene)
    assert client.post(case_url(case), {"deed": "assign"}).status_code == 403
    assert not models.ExecLease.objects.exists()


def test_a_get_changes_nothing(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    mine = ada.take(case)
    ada.client.get(case_url(case), {"deed": "resume", "reason": "r", **mine})
    assert ada.client.get(reverse("admin:relayer_case_renew", args=(case.pk,))).status_code == 405
    assert commands(case) == []


def test_the_hold_is_renewed_while_the_page_is_open_and_says_when_it_is_old(
    scene: Scene, ada: Person, bob: Person
) -> None:
    case = parked(scene)
    mine = ada.take(case)
    url = reverse("admin:relayer_case_renew", args=(case.pk,))
    models.ExecLease.objects.filter(resource=f"review:{case.pk}").update(lease_until="2020-01-01T00:00:00Z")
    assert b"Yours" in ada.client.post(url, mine).content
    assert assignments.assigned(web_connection(), case.pk) is not None
    assert b"no longer yours" in bob.client.post(url, mine).content
    assert b"has changed" in ada.client.post(url, {**mine, "version": "9"}).content
    assert b"no longer yours" in ada.client.post(url, {"epoch": "²"}).content
    ada.post(case, "give_up", epoch=mine["epoch"])
    assert bob.take(case) != {}


def test_outcomes_appear_in_words_and_the_page_asks_for_itself(scene: Scene, ada: Person) -> None:
    case = parked(scene)
    ada.decide(case, "resume")
    url = reverse("admin:relayer_case_progress", args=(case.pk,))
    waiting = ada.client.get(url)
    assert "HX-Refresh" not in waiting
    for outcome, words in (
        ("applied", "done as decided"),
        ("superseded", "had moved on"),
        ("rejected", "precondition did not hold"),
    ):
        case = parked(scene)
        ada.decide(case, "resume")
        models.Command.objects.filter(target_id=case.subject_id).update(
            state="consumed", outcome=outcome, result={"reason": HOSTILE}
        )
        models.ReviewDecision.objects.filter(case=case).update(state="done")
        done = ada.client.get(reverse("admin:relayer_case_progress", args=(case.pk,)))
        assert done["HX-Refresh"] == "true"
        page = ada.get(case)
        assert words in page
        assert "<script>alert" not in page


def test_hostile_text_in_every_field_is_escaped(scene: Scene, ada: Person) -> None:
    body = {"handles": [HOSTILE], "extra_data": HOSTILE, HOSTILE: HOSTILE, "contracts": [HOSTILE], "user": HOSTILE}
    row = scene.request(Kind.PUBLIC_DECRYPT, Status.NEEDS_REVIEW, body=body)
    case = models.ReviewCase.objects.get(kind=Kind.PUBLIC_DECRYPT, subject_id=row.pk)
    models.ReviewCase.objects.filter(pk=case.pk).update(evidence={HOSTILE: HOSTILE}, reason_code="outcome_unknown")
    models.TxAttempt.objects.update(error_text=HOSTILE, error_class=HOSTILE)
    models.Account.objects.filter(pk=scene.client.pk).update(name=HOSTILE)
    models.RequestTransition.objects.create(
        kind=2, request_id=row.pk, verb=HOSTILE, to_status="needs_review", actor=HOSTILE, reason=HOSTILE
    )
    ada.decide(case, "resume", reason=HOSTILE)
    for url in (
        case_url(case),
        reverse("admin:requests_app_reviewdecision_changelist"),
        reverse("admin:requests_app_reviewcase_changelist"),
    ):
        page = ada.client.get(url).content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_a_case_with_everything_asks_a_bounded_number_of_questions(
    scene: Scene, ada: Person, django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    """Whatever the queue's length: forty statements of the ORM at most."""
    case = parked(scene)
    for _ in range(20):
        parked(scene)
    ada.decide(case, "resume")
    ada.client.get("/admin/")
    with django_assert_max_num_queries(40):
        ada.get(case)
