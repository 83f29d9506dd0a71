"""Cases about payments: their page, what is offered when, what a decision writes, and how they are found."""

from __future__ import annotations

import pytest
from django.urls import reverse

from requests_app import models
from requests_app.models.reviews import ReasonCode, ReviewAction
from requests_app.states import IntentState, Kind
from requests_app.store.intents import Intent
from requests_app.store.session import transaction, web_connection
from requests_app.transitions import generic
from tests.desk.paying import payment
from tests.desk.people import Person, hidden_of, offered, person
from tests.desk.scene import Scene

pytestmark = pytest.mark.django_db
HASH = "0x" + "ab" * 32
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


def in_review(
    scene: Scene, slot_state: str | None = None, why: ReasonCode = ReasonCode.OUTCOME_UNKNOWN
) -> models.ReviewCase:
    """A payment that waits for a person, with a nonce in that state."""
    made = payment(scene.client.pk, IntentState.NEEDS_REVIEW, scene.bytes(32), why=why)
    if slot_state is not None:
        slot(scene, made, slot_state)
    return models.ReviewCase.objects.get(kind=Kind.PAYMENT, subject_id=made.id)


def slot(scene: Scene, intent: Intent, state: str) -> None:
    signer = scene.signers[0]
    models.NonceSlot.objects.create(
        signer_id=signer.pk, nonce=900, kind=Kind.PAYMENT, subject_id=intent.id, state=state, opened_epoch=3
    )
    models.TxAttempt.objects.create(
        signer_id=signer.pk, nonce=900, seq=1, tx_hash=scene.bytes(32), raw_tx=scene.bytes(200), epoch=3,
        max_fee_per_gas=10**9, max_priority_fee=10**8, gas_limit=90_000, state="accepted", send_count=2,
    )  # fmt: skip


def commands(case: models.ReviewCase) -> list[models.Command]:
    return list(models.Command.objects.filter(target_kind=Kind.PAYMENT, target_id=case.subject_id))


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_its_words_and_the_evidence_of_a_payment(code: ReasonCode, scene: Scene, ada: Person) -> None:
    text = ada.get(in_review(scene, "live", code))
    assert "This version has no words" not in text
    for part in ("What usually follows", "What is to be paid", "Ledger", "Attempts", "Timeline", "On the chain"):
        assert part in text


@pytest.mark.parametrize(
    ("slot_state", "deeds"),
    [
        ("live", {"resume", "replace", "cancel_nonce", "mark_sent", "settle"}),
        ("mined", {"mark_sent", "settle"}),
        ("final", {"mark_sent", "settle"}),
        ("dead", {"resend", "mark_sent", "settle", "fail"}),
        (None, {"resend", "mark_sent", "settle", "fail"}),
    ],
)
def test_only_deeds_whose_guard_holds_are_offered(
    slot_state: str | None, deeds: set[str], scene: Scene, ada: Person
) -> None:
    case = in_review(scene, slot_state)
    ada.take(case)
    page = ada.get(case)
    assert offered(page) & DECIDING == deeds
    assert "gateway" not in page.split("What you can decide")[1].split("The case")[0]
    for action in DECIDING - deeds:
        answer = ada.post(case, action, reason="r", ceiling_gwei="99999", tx_hash=HASH, **hidden_of(page))
        assert answer.status_code == 409, action
    assert commands(case) == []


@pytest.mark.parametrize(("receipt_status", "again"), [(0, True), (1, False)])
def test_a_payment_whose_call_reverted_for_good_may_be_sent_anew(
    receipt_status: int, again: bool, scene: Scene, ada: Person
) -> None:
    case = in_review(scene, "final", ReasonCode.REVERTED_FINAL)
    attempt = models.TxAttempt.objects.get(nonce=900)
    models.TxAttempt.objects.filter(pk=attempt.pk).update(state="mined", receipt_status=receipt_status)
    models.NonceSlot.objects.filter(nonce=900).update(winner_hash=attempt.tx_hash)
    ada.take(case)
    assert ("resend" in offered(ada.get(case))) is again


@pytest.mark.parametrize(
    ("deed", "fields", "payload"),
    [
        ("resume", {}, {}),
        ("mark_sent", {"tx_hash": HASH}, {"tx_hash": HASH}),
        ("cancel_nonce", {}, {}),
    ],
)
def test_one_person_decides_and_the_command_is_written_with_it(
    deed: str, fields: dict[str, str], payload: dict[str, str], scene: Scene, ada: Person
) -> None:
    case = in_review(scene, "live")
    assert ada.decide(case, deed, reason="looked at the nodes", **fields).status_code == 302
    (command,) = commands(case)
    assert command.payload == {"action": deed, "reason": "looked at the nodes", **payload}
    assert command.expected_status == "needs_review"
    assert command.resource.startswith("signer:" if deed != "mark_sent" else "singleton:")
    assert models.PaymentIntent.objects.get(pk=case.subject_id).state == "needs_review"


@pytest.mark.parametrize(("evidence", "off_chain"), [("on_chain", False), ("off_chain", True)])
def test_a_settlement_by_hand_needs_another_person(
    evidence: str, off_chain: bool, scene: Scene, ada: Person, bob: Person
) -> None:
    case = in_review(scene)
    assert ada.decide(case, "settle", tx_hash=HASH, evidence=evidence).status_code == 302
    assert commands(case) == []
    (decision,) = models.ReviewDecision.objects.filter(case=case)
    assert ada.post(case, "confirm", decision=str(decision.pk)).status_code == 403
    assert bob.post(case, "confirm", decision=str(decision.pk)).status_code == 302
    (command,) = commands(case)
    assert command.requested_by == "ada+bob"
    assert (command.payload["tx_hash"], command.payload["off_chain"]) == (HASH, off_chain)


def test_a_payment_is_sent_anew_without_the_signer_of_its_dead_nonce(scene: Scene, ada: Person, bob: Person) -> None:
    """Its key may be gone: the command would wait for its holder for ever, and the case for the command."""
    case = in_review(scene, "dead")
    assert ada.decide(case, "resend").status_code == 302
    (decision,) = models.ReviewDecision.objects.filter(case=case)
    assert bob.post(case, "confirm", decision=str(decision.pk)).status_code == 302
    (command,) = commands(case)
    assert command.resource.startswith("singleton:")


@pytest.mark.parametrize("evidence", ["", "hearsay"])
def test_a_settlement_says_what_proves_it(evidence: str, scene: Scene, ada: Person) -> None:
    case = in_review(scene)
    answer = ada.decide(case, "settle", tx_hash=HASH, evidence=evidence)
    assert answer.status_code == 400
    assert "Say what proves" in answer.content.decode()
    assert models.ReviewDecision.objects.count() == 0


def test_the_case_of_a_settled_payment_is_only_taken_note_of(scene: Scene, ada: Person) -> None:
    made = payment(scene.client.pk, IntentState.SETTLED, scene.bytes(32))
    with transaction(web_connection()) as _:
        generic.open_reviews(
            web_connection(), Kind.PAYMENT, {made.id: {"finding": "paid_twice"}}, ReasonCode.PAID_TWICE
        )
    case = models.ReviewCase.objects.get(kind=Kind.PAYMENT, subject_id=made.id)
    ada.take(case)
    assert offered(ada.get(case)) & DECIDING == {"acknowledge"}
    assert ada.decide(case, "acknowledge").status_code == 302
    (command,) = commands(case)
    assert (command.expected_status, command.payload["action"]) == ("settled", "acknowledge")


def test_a_payment_past_its_window_is_not_called_again(scene: Scene, ada: Person) -> None:
    case = in_review(scene, "live")
    row = models.PaymentIntent.objects.get(pk=case.subject_id)
    models.PaymentIntent.objects.filter(pk=row.pk).update(authorization={**row.authorization, "valid_before": "1000"})
    ada.take(case)
    page = ada.get(case)
    assert offered(page) & DECIDING == {"cancel_nonce", "mark_sent", "settle"}
    assert "authorization has ended" in page


def test_every_exact_id_finds_the_case(scene: Scene, ada: Person) -> None:
    case = in_review(scene, "live")
    row = models.PaymentIntent.objects.get(pk=case.subject_id)
    attempt = models.TxAttempt.objects.get(nonce=900)
    url = reverse("admin:requests_app_reviewcase_changelist")
    for term in (
        row.public_id, f"0x{bytes(row.ref).hex()}", f"0x{bytes(attempt.tx_hash).hex()}", row.payer, row.merchant.lower(),
    ):  # fmt: skip
        found = ada.client.get(url, {"q": term}).context["cl"].result_list
        assert [one.pk for one in found] == [case.pk], term
    for term in ("pi_000000000000000000000000", "0x" + "9" * 40):
        assert list(ada.client.get(url, {"q": term}).context["cl"].result_list) == []


def test_the_queue_is_narrowed_by_kind_and_client(scene: Scene, ada: Person) -> None:
    case = in_review(scene)
    url = reverse("admin:requests_app_reviewcase_changelist")
    for query in ({"kind__exact": "4"}, {"client": str(scene.client.pk)}):
        assert case.pk in [one.pk for one in ada.client.get(url, query).context["cl"].result_list], query
    for query in ({"kind__exact": "1"}, {"client": str(scene.other.pk)}):
        assert case.pk not in [one.pk for one in ada.client.get(url, query).context["cl"].result_list], query
