"""The parts of a case's page that change while it is looked at: what was decided, who has the case, what the nodes say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse

from requests_app.admin import cells
from requests_app.admin.case_offers import TITLES, Situation
from requests_app.admin.forms import DeedForm, DeedForms, reason_input
from requests_app.admin.money import money
from requests_app.admin.page import Notice, Section, Table
from requests_app.admin.requests import fixed_bytes
from requests_app.assignments import RENEW_SECONDS, Assigned
from requests_app.models import Command, PaymentIntent, ReviewCase, ReviewDecision, TxAttempt
from requests_app.models.requests import GatewayRequest
from requests_app.models.reviews import DecisionState, ReviewAction
from requests_app.probing import NodeReport, Question, Sighting
from requests_app.states import Kind
from requests_app.store.commands import SlotView

DECIDE: Final = "requests_app.decide_review"
APPROVE: Final = "requests_app.approve_review"
OPEN: Final = (DecisionState.AWAITING_SECOND.value, DecisionState.COMMANDED.value)
OUTCOME_TONES: Final = {"applied": "good", "superseded": "warn", "rejected": "bad", "failed": "bad"}
OUTCOME_WORDS: Final = {
    "applied": "done as decided",
    "superseded": "not done: it had moved on meanwhile",
    "rejected": "not done: a precondition did not hold",
    "failed": "not done: it broke, nothing was changed",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The decisions of a case; renews itself while one is under way (`url` is then set)."""

    title: str
    table: Table
    forms: Sequence[DeedForm]
    note: str
    url: str = ""
    template: str = field(default="admin/relayer/progress.html", init=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who has the case. `epoch` is set when it is the reader: the page then renews the hold."""

    title: str
    text: str
    url: str
    epoch: int | None
    version: int
    may_claim: bool
    may_probe: bool
    every: int = RENEW_SECONDS
    template: str = field(default="admin/relayer/assignment.html", init=False)


def open_decision(case_id: int) -> ReviewDecision | None:
    """The decision that is under way."""
    return ReviewDecision.objects.filter(case_id=case_id, state__in=OPEN).first()


def progress(request: HttpRequest, case: ReviewCase) -> Progress | None:
    """What was decided about a case and what became of it; None before the first decision."""
    decisions = list(ReviewDecision.objects.filter(case_id=case.pk).order_by("-seq")[:20])
    if not decisions:
        return None
    commands = Command.objects.in_bulk([d.command_id for d in decisions if d.command_id])
    rows = [_decision_row(one, commands.get(one.command_id or "")) for one in decisions]
    under_way = next((one for one in decisions if one.state in OPEN), None)
    url = reverse("admin:relayer_case_progress", args=(case.pk,)) if under_way else ""
    headers = ("No.", "Decision", "By", "Second person", "Reason", "State", "Outcome")
    table = Table("Decisions", headers, rows, numeric=frozenset({0}))
    return Progress("Decisions", table, approval_forms(request, under_way), _waiting_note(request, under_way), url)


def _decision_row(decision: ReviewDecision, command: Command | None) -> Sequence[Any]:
    what = [TITLES[ReviewAction(decision.action)]]
    what += [_parameter(name, str(value)) for name, value in decision.parameters.items()]
    return (
        decision.seq,
        cells.stacked(what),
        cells.stacked((decision.decided_by, cells.short_moment(decision.decided_at))),
        cells.stacked((decision.second_by, cells.short_moment(decision.second_at)))
        if decision.second_by
        else cells.NOTHING,
        cells.wrapped(decision.reason),
        cells.stacked((state_of(decision, command), *_taken_back(decision))),
        outcome_of(command),
    )


def _refused(decision: ReviewDecision) -> bool:
    """Whether it was the second person who took it back."""
    return decision.withdrawn_by is not None and decision.withdrawn_by == decision.second_by


def _taken_back(decision: ReviewDecision) -> list[Any]:
    """By whom, when and why a proposal was taken back."""
    if decision.withdrawn_at is None:
        return []
    by = [decision.withdrawn_by] if decision.withdrawn_by and not _refused(decision) else []
    return [*by, cells.short_moment(decision.withdrawn_at), cells.wrapped(decision.withdrawn_reason)]


def _parameter(name: str, value: str) -> Any:
    if name == "ceiling_wei" and value.isdecimal():
        return f"up to {Decimal(value) / 10**9:f} gwei a gas"
    return cells.stacked_pairs([(name.replace("_", " "), cells.code(value))])


def state_of(decision: ReviewDecision, command: Command | None) -> Any:
    """How far a decision is."""
    words = {
        DecisionState.AWAITING_SECOND.value: ("waits for a second person", "review"),
        DecisionState.WITHDRAWN.value: ("refused" if _refused(decision) else "withdrawn", "neutral"),
        DecisionState.DONE.value: ("carried out", "good"),
    }
    if decision.state in words:
        return cells.toned(*words[decision.state])
    claimed = command is not None and command.state == "claimed"
    return cells.toned("being carried out" if claimed else "waits for the signer's owner", "info")


def outcome_of(command: Command | None) -> Any:
    """What became of a command, in words, with what its consumer found."""
    if command is None or command.outcome is None:
        return cells.NOTHING
    found = {key: value for key, value in (command.result or {}).items() if value is not None}
    badge = cells.toned(command.outcome, OUTCOME_TONES.get(command.outcome, "neutral"))
    details = [cells.document(found)] if found else []
    return cells.stacked([badge, cells.wrapped(OUTCOME_WORDS.get(command.outcome, "")), *details])


def approval_forms(request: HttpRequest, decision: ReviewDecision | None) -> list[DeedForm]:
    """What the second person may confirm, for a person who may and is not the first."""
    if decision is None or decision.state != DecisionState.AWAITING_SECOND.value or not may_approve(request, decision):
        return []
    what = TITLES[ReviewAction(decision.action)]
    agree = f"{decision.decided_by} decided: {what}. With your word the command is written."
    hidden = {"decision": str(decision.pk)}
    return [DeedForm("Confirm as the second person", agree, "confirm", "Confirm", hidden=hidden, tone="warn")]


def objections(request: HttpRequest, decision: ReviewDecision | None) -> DeedForms | None:
    """How a proposal is taken back: by its proposer, or by whoever may be its second person. Apart from the decisions, which renew
    themselves and would take what is typed with them."""
    if decision is None or decision.state != DecisionState.AWAITING_SECOND.value:
        return None
    text = "The proposal is void, no command is written, and the case stays open for another decision."
    hidden = {"decision": str(decision.pk)}
    if request.user.get_username() == decision.decided_by and request.user.has_perm(DECIDE):
        form = DeedForm("Withdraw your proposal", text, "withdraw", "Withdraw", [reason_input()], hidden, tone="warn")
    elif may_approve(request, decision):
        form = DeedForm("Refuse it", text, "refuse", "Refuse", [reason_input()], hidden, tone="info")
    else:
        return None
    return DeedForms("What you can say", "until the second person has confirmed it", [form])


def may_approve(request: HttpRequest, decision: ReviewDecision) -> bool:
    """Whether the reader may be the second person of a decision."""
    return request.user.has_perm(APPROVE) and request.user.get_username() != decision.decided_by


def _waiting_note(request: HttpRequest, decision: ReviewDecision | None) -> str:
    if decision is None:
        return ""
    if decision.state == DecisionState.COMMANDED.value:
        return "This page renews itself when it is carried out."
    if request.user.get_username() == decision.decided_by:
        return "An approver other than you must confirm it."
    return "" if may_approve(request, decision) else "An approver must confirm it."


def assignment(request: HttpRequest, case: ReviewCase, holder: Assigned | None) -> Assignment | None:
    """Who has an open case, and the way to have it."""
    if case.status != "open":
        return None
    mine = holder is not None and holder.reviewer == request.user.get_username()
    may = request.user.has_perm(DECIDE)
    if holder is None:
        text = "Nobody works on this case. Take it to decide." if may else "Nobody works on this case."
    elif mine:
        text = "Yours while this page is open; a minute and a half after it is closed, anybody may take it."
    else:
        text = f"{holder.reviewer} works on this case. You can read along."
    url = reverse("admin:relayer_case_renew", args=(case.pk,))
    epoch = holder.epoch if mine and holder is not None else None
    return Assignment("Assigned to", text, url, epoch, case.version, may and holder is None, may)


def question_of(row: GatewayRequest | PaymentIntent, slot: SlotView | None) -> Question:
    """What the nodes are asked: every attempt of its nonce, its signer, its reference; of a payment, its authorization and funds."""
    hashes: list[bytes] = []
    if slot is not None:
        found = TxAttempt.objects.filter(signer_id=slot.signer_id, nonce=slot.nonce).order_by("-seq")
        hashes = [bytes(value) for value in found.values_list("tx_hash", flat=True)[:20]]
    account = slot.address if slot else None
    if isinstance(row, PaymentIntent):
        known = [bytes(row.tx_hash)] if row.tx_hash is not None and bytes(row.tx_hash) not in hashes else []
        token, payer = fixed_bytes(row.token.lower(), 20), fixed_bytes(row.payer.lower(), 20)
        return Question(Kind.PAYMENT, [*hashes, *known], account, bytes(row.ref), token, payer)
    reference = bytes(row.gw_reference_id) if row.gw_reference_id is not None else None
    return Question(Kind(row.kind), hashes, account, reference)


def probe_sections(now: Situation, reports: Sequence[NodeReport]) -> list[Section]:
    """What every node says, side by side."""
    token = now.row.token if isinstance(now.row, PaymentIntent) else ""
    rows = [_node_row(report, token) for report in reports]
    headers = (
        "Node",
        "Answered",
        "Head / finalized",
        "Nonce latest / pending / finalized",
        "Balance",
        "Answer on chain",
    )
    note = f"asked now; the slot's nonce is {cells.number(now.slot.nonce)}" if now.slot else "asked now"
    seen = [_sighting_row(report.node, one) for report in reports for one in report.sightings]
    tables: list[Section] = [Table("What the nodes say", headers, rows, numeric=frozenset({4}), note=note)]
    if now.slot is not None or seen:
        empty = "No node answered about the transactions."
        tables.append(Table("Each transaction at each node", ("Node", "Transaction", "Seen", "Receipt"), seen, empty))
    else:
        tables.append(Notice("No transaction to ask for", f"Nothing was ever signed for this {now.noun}."))
    return tables


def _node_row(report: NodeReport, token: str) -> Sequence[Any]:
    if report.error is not None:
        answer = cells.stacked((cells.toned("no answer", "bad"), cells.wrapped(report.error)))
        return (report.node, answer, *[cells.NOTHING] * 4)
    nonces = [cells.number(report.nonces.get(block)) for block in ("latest", "pending", "finalized")]
    words = {None: "not said", True: "yes", False: "no"}
    flags = [cells.stacked_pairs([(name, words[value])]) for name, value in report.flags.items()]
    if report.funds is not None:
        flags.append(cells.stacked_pairs([("payer's funds", money(report.funds, token))]))
    return (
        report.node,
        cells.toned(f"in {report.seconds * 1000:.0f} ms", "good"),
        f"{cells.number(report.head)} / {cells.number(report.finalized)}",
        " / ".join(nonces),
        cells.tokens(Decimal(report.balance)) if report.balance is not None else cells.NOTHING,
        cells.stacked(flags) if flags else cells.NOTHING,
    )


def _sighting_row(node: str, one: Sighting) -> Sequence[Any]:
    if one.error is not None:
        return node, cells.hex_code(one.tx_hash), cells.toned("not said", "warn"), cells.wrapped(one.error)
    seen = "in the pool" if one.pending else "known" if one.known else "unknown"
    tone = "info" if one.known else "neutral"
    receipt: Any = cells.NOTHING
    if one.receipt is not None:
        ok = one.receipt.status == 1
        receipt = cells.toned(
            f"block {cells.number(one.receipt.block)}: {'success' if ok else 'reverted'}", "good" if ok else "bad"
        )
    return node, cells.hex_code(one.tx_hash), cells.toned(seen, tone), receipt
