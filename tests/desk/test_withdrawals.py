"""A proposal that waits for its second person is taken back: by its proposer, by another person, or with its case."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.test import Client

from requests_app import decisions, models
from requests_app.decisions import Decided
from requests_app.models.reviews import DecisionState
from requests_app.states import Kind
from requests_app.store.session import connect, web_connection
from requests_app.transitions import generic
from tests.desk.people import Person, case_url, offered, parked, person
from tests.desk.scene import Scene
from tests.desk.test_deeds import ada, bob, commands, scene

__all__ = ["ada", "bob", "scene"]
pytestmark = pytest.mark.django_db

# (state of the decision, who) -> what becomes of "withdraw" by its proposer and of "refuse" by a second person.
GOLDEN = {
    ("awaiting_second", "proposer"): (Decided.WITHDRAWN, Decided.FORBIDDEN),
    ("awaiting_second", "approver"): (Decided.FORBIDDEN, Decided.WITHDRAWN),
    ("awaiting_second", "disabled"): (Decided.FORBIDDEN, Decided.FORBIDDEN),
    ("commanded", "proposer"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("commanded", "approver"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("commanded", "disabled"): (Decided.FORBIDDEN, Decided.FORBIDDEN),
    ("done", "proposer"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("done", "approver"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("done", "disabled"): (Decided.FORBIDDEN, Decided.FORBIDDEN),
    ("withdrawn", "proposer"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("withdrawn", "approver"): (Decided.ALREADY_DECIDED, Decided.ALREADY_DECIDED),
    ("withdrawn", "disabled"): (Decided.FORBIDDEN, Decided.FORBIDDEN),
}


def proposal(scene: Scene, ada: Person) -> tuple[models.ReviewCase, models.ReviewDecision]:
    case = parked(scene, slot_state="dead")
    assert ada.decide(case, "resend", reason="the nonce is dead").status_code == 302
    return case, models.ReviewDecision.objects.get(case=case)


def withdraw(decision: models.ReviewDecision, who: Person, *, second: bool = False) -> decisions.Decision:
    return decisions.withdraw(
        web_connection(), decision_id=decision.pk, reviewer_id=who.user.pk, reason="I was wrong", second=second
    )


def test_the_table_is_complete() -> None:
    assert {state for state, _ in GOLDEN} == {state.value for state in DecisionState}


@pytest.mark.parametrize(("state", "who"), sorted(GOLDEN))
@pytest.mark.parametrize("second", [False, True], ids=["withdraw", "refuse"])
def test_who_may_take_back_what(state: str, who: str, second: bool, scene: Scene, ada: Person, bob: Person) -> None:
    case, decision = proposal(scene, ada)
    models.ReviewDecision.objects.update(state=state)
    speaker = {"proposer": ada, "approver": bob, "disabled": ada}[who]
    if who == "disabled":
        speaker.user.is_active = False
        speaker.user.save()
    before = models.ReviewCase.objects.get(pk=case.pk).version
    made = withdraw(decision, speaker, second=second)
    assert made.outcome is GOLDEN[state, who][second]
    decision.refresh_from_db()
    changed = made.outcome is Decided.WITHDRAWN
    assert decision.state == ("withdrawn" if changed else state)
    assert models.ReviewCase.objects.get(pk=case.pk).version == before + changed
    assert (decision.withdrawn_by is not None) is changed
    assert commands(case) == []


def test_the_proposer_withdraws_on_the_page_and_decides_anew(scene: Scene, ada: Person, bob: Person) -> None:
    case, decision = proposal(scene, ada)
    carl = person("carl")
    assert "withdraw" in offered(ada.get(case))
    for other in (bob, carl):
        assert "withdraw" not in offered(other.get(case))
        assert other.post(case, "withdraw", decision=decision.pk, reason="r").status_code == 403
    assert ada.post(case, "withdraw", decision=decision.pk, reason=" ").status_code == 400
    decision.refresh_from_db()
    assert decision.state == "awaiting_second"
    assert ada.post(case, "withdraw", decision=decision.pk, reason="the <b>wrong</b> case").status_code == 302
    decision.refresh_from_db()
    assert (decision.state, decision.withdrawn_by, decision.second_by) == ("withdrawn", "ada", None)
    page = ada.get(case)
    assert "the &lt;b&gt;wrong&lt;/b&gt; case" in page
    assert "withdraw" not in offered(page)
    assert bob.post(case, "confirm", decision=decision.pk).status_code == 409
    assert ada.post(case, "withdraw", decision=decision.pk, reason="r").status_code == 409
    assert commands(case) == []
    assert ada.decide(case, "fail").status_code == 302


def test_only_with_the_token_of_the_form(scene: Scene, ada: Person) -> None:
    case, decision = proposal(scene, ada)
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada.user)
    fields = {"deed": "withdraw", "decision": decision.pk, "reason": "r"}
    assert client.post(case_url(case), fields).status_code == 403
    decision.refresh_from_db()
    assert decision.state == "awaiting_second"


def test_a_proposal_of_another_case_is_not_touched(scene: Scene, ada: Person) -> None:
    _, decision = proposal(scene, ada)
    other = parked(scene, slot_state="dead")
    assert ada.post(other, "withdraw", decision=decision.pk, reason="r").status_code == 400
    decision.refresh_from_db()
    assert decision.state == "awaiting_second"


def test_what_a_closed_case_had_proposed_is_void(scene: Scene, ada: Person, bob: Person) -> None:
    """The chain decided the request meanwhile: nobody is asked to confirm any more."""
    case, decision = proposal(scene, ada)
    assert generic.close_reviews(web_connection(), Kind(case.kind), [case.subject_id], "record_receipt") == 1
    decision.refresh_from_db()
    assert (decision.state, decision.withdrawn_by) == ("withdrawn", None)
    assert decision.withdrawn_reason == "the case was closed: record_receipt"
    assert "confirm" not in offered(bob.get(case))
    assert "hx-get" not in bob.get(case).split('id="case-progress"')[0].rsplit("<section", 1)[-1]


@pytest.mark.django_db(transaction=True)
def test_confirmed_and_withdrawn_at_once_has_one_effect(scene: Scene, ada: Person, bob: Person) -> None:
    case, decision = proposal(scene, ada)
    outcomes: list[Decided] = []
    gate = threading.Barrier(2)

    def say(speak: Any) -> None:
        with connect("worker") as conn:
            gate.wait(timeout=60)
            outcomes.append(speak(conn).outcome)
        connections.close_all()

    def confirm(conn: psycopg.Connection[Any]) -> decisions.Decision:
        return decisions.approve(conn, decision_id=decision.pk, reviewer_id=bob.user.pk)

    def take_back(conn: psycopg.Connection[Any]) -> decisions.Decision:
        return decisions.withdraw(conn, decision_id=decision.pk, reviewer_id=ada.user.pk, reason="no", second=False)

    threads = [threading.Thread(target=say, args=(one,)) for one in (confirm, take_back)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    decision.refresh_from_db()
    expected = {"commanded": (Decided.COMMANDED, 1), "withdrawn": (Decided.WITHDRAWN, 0)}[decision.state]
    assert sorted(outcomes) == sorted([Decided.ALREADY_DECIDED, expected[0]])
    assert len(commands(case)) == expected[1]
