"""Everything that is known of one request, as sections: used by the request's page and by the review case's page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst

from requests_app.admin import cells
from requests_app.admin.explain import EVENTS, STATUS_MEANING, step
from requests_app.admin.page import Facts, Notice, Section, Table
from requests_app.models import (
    Account,
    EnvelopeMeta,
    GatewayRef,
    InputProofRequest,
    NonceSlot,
    PaymentIntent,
    PublicDecryptRequest,
    QueueJob,
    RequestClient,
    RequestPayload,
    RequestTransition,
    ReviewCase,
    Signer,
    TxAttempt,
    UserDecryptRequest,
    UserDecryptShare,
)
from requests_app.models.requests import GatewayRequest
from requests_app.states import Kind, Status

MODELS: dict[Kind, type[GatewayRequest]] = {
    Kind.USER_DECRYPT: UserDecryptRequest,
    Kind.PUBLIC_DECRYPT: PublicDecryptRequest,
    Kind.INPUT_PROOF: InputProofRequest,
}
_TIMELINE_LIMIT = 200
_EVENT_LIMIT = 50
_SLOT_LIMIT = 20
_ATTEMPT_LIMIT = 200
_SECONDS_DIGITS = 10
_ADDRESS_CHARACTERS = 42


def find_subject(kind: int, subject_id: int) -> GatewayRequest | PaymentIntent | None:
    """The request or payment behind a (kind, id) pair."""
    if kind == Kind.PAYMENT:
        return PaymentIntent.objects.select_related("account").filter(pk=subject_id).first()
    model = MODELS[Kind(kind)]
    return model._default_manager.filter(pk=subject_id).first()


def request_sections(row: GatewayRequest) -> list[Section]:
    """State, question, answer, sending and history of one request, in the order a reader asks for them."""
    sections: list[Section] = [Facts("Where it stands", standing(row))]
    if row.fail_label:
        sections.insert(0, failure_notice(row))
    sections += [question(row), *answer(row), *sending(row.kind, row.pk, "request"), timeline(row), events(row)]
    return sections


def failure_notice(row: GatewayRequest) -> Notice:
    """Why a request ended without an answer."""
    points = [f"revert selector 0x{bytes(row.fail_selector).hex()}"] if row.fail_selector else []
    return Notice(f"Ended: {row.fail_label}", row.fail_detail or "No further text was recorded.", "bad", points)


def standing(row: GatewayRequest) -> list[tuple[str, Any]]:
    """The row's own facts."""
    rows: list[tuple[str, Any]] = [
        ("Status", cells.badge(row.status)),
        ("Meaning", capfirst(STATUS_MEANING[Status(row.status)])),
        ("In this state for", cells.age(row.state_entered_at)),
        ("Deadline", cells.moment(row.deadline_at)),
        ("Job id", cells.code(str(row.ext_job_id), 34)),
        ("Content hash", cells.hex_code(row.int_job_id)),
        ("Reference id", cells.uint256(row.gw_reference_id)),
        ("Request transaction", cells.hex_code(row.gw_req_tx_hash)),
        ("Receipt block", cells.number(row.receipt_block)),
        ("Created", cells.moment(row.created_at)),
        ("Updated", cells.moment(row.updated_at)),
        ("Finished", cells.moment(row.completed_at)),
        ("Clients", clients(row)),
        ("Job in queue", queue_place(row)),
    ]
    if isinstance(row, UserDecryptRequest):
        rows.insert(2, ("Form", row.get_req_type_display()))
    return rows


def clients(row: GatewayRequest) -> Any:
    """Who asked; clients with the same content share one row."""
    views = RequestClient.objects.filter(kind=row.kind, request_id=row.pk)[:20]
    names = Account.objects.in_bulk([view.client_id for view in views])
    lines = [
        format_html("{}{}", account_link(names[view.client_id]), " (withdrawn)" if view.canceled_at else "")
        for view in views
    ]
    return cells.stacked(lines) if lines else cells.NOTHING


def account_link(account: Account) -> Any:
    """A client's name, which leads to its page."""
    return cells.link(account.name, reverse("admin:requests_app_account_change", args=(account.pk,)))


def queue_place(row: GatewayRequest) -> Any:
    """The job that carries the row now, if one does."""
    job = QueueJob.objects.filter(job_key=f"{int(row.kind)}/{row.pk}").first()
    if job is None:
        return cells.NOTHING
    return f"{job.queue}, attempt {job.attempt}" + (f", with {job.leased_by}" if job.leased_by else "")


def question(row: GatewayRequest) -> Section:
    """What the client asked, field by field; long texts shortened."""
    payload = RequestPayload.objects.filter(kind=row.kind, request_id=row.pk).first()
    if payload is None:
        return Facts("What was asked", [("Payload", "No longer kept.")])
    body: dict[str, Any] = payload.body
    return Facts(
        "What was asked", [(name.replace("_", " ").capitalize(), asked(value, name)) for name, value in body.items()]
    )


def asked(value: Any, name: str = "") -> Any:
    """One field of a payload, by its name's meaning and its form. Everything in it came from outside and is escaped."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return cells.stacked(cells.code(item) for item in value) if value else cells.NOTHING
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return cells.stacked(
            cells.stacked_pairs((name, cells.code(str(text))) for name, text in item.items()) for item in value
        )
    text = str(value)
    if name.endswith("timestamp") and text.isascii() and text.isdecimal() and len(text) <= _SECONDS_DIGITS:
        return cells.moment(datetime.fromtimestamp(int(text), UTC))
    if not text.startswith("0x"):
        return cells.wrapped(text.replace("_", " ") if name == "type" else text)
    if len(text) > 2 * 65 + 2:
        return cells.long_code(text)
    return cells.code(text, 20 if len(text) <= _ADDRESS_CHARACTERS else 10)


def answer(row: GatewayRequest) -> list[Section]:
    """What the gateway answered."""
    if isinstance(row, UserDecryptRequest):
        return [shares(row)]
    if isinstance(row, PublicDecryptRequest | InputProofRequest):
        facts: list[tuple[str, Any]] = [("Response transaction", cells.hex_code(row.gw_response_tx_hash))]
        if isinstance(row, InputProofRequest):
            verdict = {
                True: cells.toned("accepted", "good"),
                False: cells.toned("rejected", "warn"),
                None: cells.NOTHING,
            }
            facts.append(("Verdict", verdict[row.accepted]))
        facts.append(("Result", cells.document(row.res)))
        return [Facts("Answer", facts)]
    return []


def shares(row: UserDecryptRequest) -> Section:
    """The KMS nodes' shares and the count that decides."""
    headers = ("Index", "Share", "KMS signature", "Transaction", "Read")
    if row.gw_reference_id is None:
        return Table("Shares", headers, [], "None yet: the gateway has not given a reference id.")
    reference = GatewayRef.objects.filter(pk=row.gw_reference_id).first()
    found = UserDecryptShare.objects.filter(gw_reference_id=row.gw_reference_id).order_by("share_index")[:100]
    needed = row.resolved_threshold or (reference.threshold if reference else None)
    return Table(
        "Shares",
        headers,
        [
            (
                share.share_index,
                cells.size(len(bytes(share.share))),
                cells.hex_code(share.kms_signature),
                cells.hex_code(share.tx_hash),
                cells.short_moment(share.created_at),
            )
            for share in found
        ],
        "No share has arrived yet.",
        frozenset({0}),
        f"{reference.n if reference else 0} read, {needed if needed is not None else 'an unknown number'} needed",
    )


def sending(kind: int, subject_id: int, noun: str) -> list[Section]:
    """Nonces that a request or payment held and every transaction that was signed for it; `noun` is what it is called."""
    slots = list(NonceSlot.objects.filter(kind=kind, subject_id=subject_id).order_by("opened_at")[:_SLOT_LIMIT])
    if not slots:
        return [Table("Sending", (), [], f"No nonce was taken: nothing was ever signed for this {noun}.")]
    places = {(slot.signer_id, slot.nonce): place for place, slot in enumerate(slots)}
    at_them = Q(*(Q(signer_id=signer, nonce=nonce) for signer, nonce in places), _connector=Q.OR)
    found = TxAttempt.objects.filter(at_them).order_by("seq")[:_ATTEMPT_LIMIT]
    return [slot_table(slots), attempt_table(sorted(found, key=lambda one: places[one.signer_id, one.nonce]))]


def slot_table(slots: Sequence[NonceSlot]) -> Table:
    """Nonce slots, oldest first."""
    signers = Signer.objects.in_bulk({slot.signer_id for slot in slots})
    return Table(
        "Nonce slots",
        ("Signer", "Nonce", "State", "Opened", "Closed", "Epoch", "Winner"),
        [
            (
                cells.code(str(signers[slot.signer_id])),
                cells.number(slot.nonce),
                cells.badge(slot.state),
                cells.short_moment(slot.opened_at),
                cells.short_moment(slot.closed_at),
                slot.opened_epoch,
                cells.hex_code(slot.winner_hash),
            )
            for slot in slots
        ],
        numeric=frozenset({1, 5}),
    )


def attempt_table(attempts: Sequence[TxAttempt]) -> Table:
    """Signed transactions, in the order they were signed."""
    return Table(
        "Attempts",
        ("Nonce / no.", "State", "Transaction", "Fee cap, tip", "Gas", "Sent", "Block", "Receipt", "Last error"),
        [
            (
                f"{cells.number(attempt.nonce)} / {attempt.seq}",
                cells.badge(attempt.state),
                cells.hex_code(attempt.tx_hash),
                cells.stacked((cells.gwei(attempt.max_fee_per_gas), cells.gwei(attempt.max_priority_fee))),
                cells.number(attempt.gas_limit),
                cells.stacked((f"{attempt.send_count}×", cells.short_moment(attempt.last_sent_at))),
                cells.number(attempt.block_number),
                {None: cells.NOTHING, 1: "success", 0: "reverted"}.get(attempt.receipt_status, cells.NOTHING),
                cells.stacked(text for text in (attempt.error_class, attempt.error_text) if text) or cells.NOTHING,
            )
            for attempt in attempts
        ],
        "Nothing was signed.",
        frozenset({3, 4, 6}),
    )


def timeline(row: GatewayRequest) -> Section:
    """Every transition with the time since the one before it."""
    steps = RequestTransition.objects.filter(kind=row.kind, request_id=row.pk).order_by("id")[:_TIMELINE_LIMIT]
    rows: list[Sequence[Any]] = []
    before = None
    for entry in steps:
        took = cells.duration((entry.at - before).total_seconds()) if before else cells.NOTHING
        before = entry.at
        rows.append(
            (
                cells.short_moment(entry.at),
                took,
                cells.badge(entry.to_status),
                cells.wrapped(step(entry.verb)),
                entry.actor,
                cells.wrapped(entry.reason),
                cells.hex_code(entry.tx_hash),
                cells.number(entry.epoch),
            )
        )
    headers = ("When", "After", "Became", "Because", "By", "Reason", "Transaction", "Epoch")
    return Table("Timeline", headers, rows, "No transition was recorded.", frozenset({1, 7}))


def events(row: GatewayRequest) -> Section:
    """The chain's events about this request, from the envelope log."""
    headers = ("Block", "Log", "Kind", "Transaction", "Contract", "Recorded")
    if row.gw_reference_id is None:
        return Table("Chain events", headers, [], "None known: the request has no reference id yet.")
    found = EnvelopeMeta.objects.filter(ref=row.gw_reference_id).order_by("source_id", "position")[:_EVENT_LIMIT]
    rows = [
        (
            cells.number(event.position >> 20),
            event.position & 0xFFFFF,
            EVENTS.get(event.kind, str(event.kind)),
            cells.hex_code(event.tx_hash),
            cells.hex_code(event.contract),
            cells.short_moment(event.recorded_at),
        )
        for event in found
    ]
    return Table("Chain events", headers, rows, "None recorded, or their bands were retired.", frozenset({0, 1}))


def open_case(kind: int, subject_id: int) -> ReviewCase | None:
    """The open review case of a request, if it has one."""
    return ReviewCase.objects.filter(kind=kind, subject_id=subject_id, status="open").first()
