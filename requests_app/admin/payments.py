"""Payments: the list, and everything that is known of one as sections."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin
from requests_app.admin.explain import INTENT_MEANING
from requests_app.admin.money import money
from requests_app.admin.orders import renewed
from requests_app.admin.page import Facts, Notice, Section, Table
from requests_app.admin.payment_deeds import carry_out, deed_sections, orders_of
from requests_app.admin.requests import MATCHES, CreatedFilter, fixed_bytes
from requests_app.admin.subject import account_link, open_case, sending
from requests_app.admin.webhooks import told_sections
from requests_app.expiry import expiry_of
from requests_app.models import (
    DeadLetter,
    IntentTransitionRow,
    LedgerEntry,
    LedgerLeg,
    PaymentIntent,
    PaymentObservation,
    QueueJob,
    ReconFinding,
)
from requests_app.states import IntentState, Kind

_LIMIT: Final = 200
_FAR: Final = 253_402_300_800  # the year 10000


def payment_sections(row: PaymentIntent) -> list[Section]:
    """State, terms, books, sending and history of one payment, in the order a reader asks for them."""
    sections: list[Section] = []
    if row.state == IntentState.FAILED.value:
        sections.append(Notice("Ended without payment", row.state_reason or "No reason was recorded.", "bad"))
    return [
        *sections,
        Facts("Where it stands", standing(row)),
        Facts("What is to be paid", terms(row)),
        entries(row),
        *sending(Kind.PAYMENT, row.pk, "payment"),
        observations(row),
        *exceptions(row),
        timeline(row),
    ]


def standing(row: PaymentIntent) -> list[tuple[str, Any]]:
    """The row's own facts."""
    job = QueueJob.objects.filter(job_key=f"{row.public_id}/settle").first()
    place = (
        f"{job.queue}, attempt {job.attempt}" + (f", with {job.leased_by}" if job.leased_by else "") if job else None
    )
    return [
        ("State", cells.badge(row.state)),
        ("Meaning", capfirst(INTENT_MEANING[IntentState(row.state)])),
        ("In this state for", cells.age(row.updated_at)),
        ("Reason", cells.wrapped(row.state_reason)),
        ("Payment id", cells.code(row.public_id, 30)),
        ("Payment ref", cells.hex_code(row.ref)),
        ("Transaction", cells.hex_code(row.tx_hash)),
        ("Client", account_link(row.account)),
        ("Version", row.version),
        ("Created", cells.moment(row.created_at)),
        ("To be authorized before", cells.moment(row.expires_at)),
        ("Job in queue", place or cells.NOTHING),
    ]


def terms(row: PaymentIntent) -> list[tuple[str, Any]]:
    """What the client asked and the payer signed. Every text came from outside and is escaped."""
    signed = row.authorization or {}
    return [
        ("Amount", money(row.amount, row.token)),
        ("Token", cells.code(row.token, 42)),
        ("Payer", cells.code(row.payer, 42)),
        ("Merchant", cells.code(row.merchant, 42)),
        ("Chain", cells.code(row.chain, 42)),
        ("Valid after", _bound(signed.get("valid_after"))),
        ("Valid before", _bound(signed.get("valid_before"))),
        ("Signature", cells.code(str(signed.get("signature", ""))) if signed else "not authorized yet"),
    ]


def _bound(seconds: Any) -> Any:
    """A bound of the payer's window: a time where it is one, else the number itself, which may be of any size."""
    if seconds is None:
        return cells.NOTHING
    text = str(seconds)
    if not text.isdecimal() or not 0 < int(text) < _FAR:
        return "any time" if text == "0" else cells.code(text, 20)
    return cells.moment(expiry_of(int(text)))


def entries(row: PaymentIntent) -> Section:
    """What the journal says of the payment."""
    found = list(LedgerEntry.objects.filter(ref=row.ref).order_by("seq")[:20])
    legs: dict[int, list[tuple[str, Decimal]]] = {}
    for leg in LedgerLeg.objects.filter(entry_seq__in=[entry.seq for entry in found]).order_by("entry_seq", "ord"):
        legs.setdefault(leg.entry_seq, []).append((leg.account, leg.amount))
    rows = [
        (
            entry.seq,
            cells.badge(entry.kind),
            postings(legs.get(entry.seq, []), entry.token),
            entry.by_actor,
            cells.hex_code(entry.tx_hash),
            cells.wrapped(entry.memo),
            cells.short_moment(entry.at),
        )
        for entry in found
    ]
    headers = ("No.", "Entry", "Postings", "By", "Transaction", "Memo", "At")
    return Table("Ledger", headers, rows, "Nothing was held: no money is spoken for.", frozenset({0}))


def postings(legs: Sequence[tuple[str, Decimal | int]], token: str) -> Any:
    """(account, amount) of an entry's legs under one another."""
    if not legs:
        return cells.NOTHING
    lines = format_html_join(
        "",
        '<div class="rl-line rl-leg"><span>{}</span><span>{}</span></div>',
        ((cells.code(account, 9), money(amount, token)) for account, amount in legs),
    )
    return format_html('<div class="rl-lines">{}</div>', lines)


def observations(row: PaymentIntent) -> Section:
    """What the log shows of the payer's authorization."""
    rows = [
        (
            cells.number(seen.position >> 20),
            cells.toned("canceled", "warn") if seen.canceled else cells.toned("used", "good"),
            cells.hex_code(seen.token),
            cells.stacked((cells.hex_code(seen.authorizer), cells.hex_code(seen.payee))),
            money(seen.amount, cells.as_hex(seen.token) or "") if seen.amount is not None else cells.NOTHING,
            cells.hex_code(seen.tx_hash),
            cells.short_moment(seen.observed_at),
        )
        for seen in PaymentObservation.objects.filter(ref=row.ref).order_by("source_id", "position")[:_LIMIT]
    ]
    headers = ("Block", "Authorization", "Token", "Payer, payee", "Amount", "Transaction", "Read")
    return Table("On the chain", headers, rows, "The log shows no use of its authorization.", frozenset({0, 4}))


def exceptions(row: PaymentIntent) -> list[Section]:
    """Dead letters and findings of the reconciliation, where there are any."""
    letters = DeadLetter.objects.filter(kind=Kind.PAYMENT, subject_id=row.pk).order_by("-id")[:20]
    findings = ReconFinding.objects.filter(ref=row.ref).order_by("-id")[:20]
    sections: list[Section] = []
    if letters:
        parked = [
            (
                cells.link(f"#{one.pk}", reverse("admin:requests_app_deadletter_change", args=(one.pk,))),
                cells.badge(one.status),
                one.attempts,
                cells.wrapped(one.reason),
                cells.short_moment(one.parked_at),
            )
            for one in letters
        ]
        sections.append(
            Table("Given up", ("Letter", "Status", "Attempts", "Reason", "When"), parked, numeric=frozenset({2}))
        )
    if findings:
        shown = [
            (one.kind.replace("_", " "), cells.hex_code(one.tx_hash), cells.document(one.detail), cells.short_moment(one.found_at))
            for one in findings
        ]  # fmt: skip
        sections.append(Table("Found by reconciliation", ("Finding", "Transaction", "Detail", "When"), shown))
    return sections


def timeline(row: PaymentIntent) -> Section:
    """Every transition with the time since the one before it."""
    rows: list[Sequence[Any]] = []
    before = None
    for entry in IntentTransitionRow.objects.filter(intent_id=row.pk).order_by("version")[:_LIMIT]:
        took = cells.duration((entry.at - before).total_seconds()) if before else cells.NOTHING
        before = entry.at
        rows.append(
            (
                f"v{entry.version}",
                cells.short_moment(entry.at),
                took,
                cells.badge(entry.to_state),
                f"{entry.actor} {entry.by_user}" if entry.by_user else entry.actor,
                cells.wrapped(entry.reason),
                cells.hex_code(entry.tx_hash),
                cells.number(entry.epoch),
            )
        )
    headers = ("Version", "When", "After", "Became", "By", "Reason", "Transaction", "Epoch")
    return Table("Timeline", headers, rows, "No transition was recorded.", frozenset({2, 7}))


def matching_payments(term: str) -> QuerySet[PaymentIntent]:
    """The payments that a search term names: payment id, ref, transaction hash or row number; exact, each by its own index."""
    term = term.strip()
    rows = PaymentIntent._default_manager.all()
    if term.startswith("pi_"):
        return rows.filter(public_id=term)
    raw = fixed_bytes(term.lower(), 32)
    if raw is not None:
        found = {*rows.filter(ref=raw).values_list("pk", flat=True)}
        found |= {*rows.filter(tx_hash=raw).order_by().values_list("pk", flat=True)[:MATCHES]}
        return rows.filter(pk__in=sorted(found))
    if term.isascii() and term.isdecimal() and len(term) <= 18:
        return rows.filter(pk=int(term))
    return rows.none()


def payments_in_review(address: str) -> list[int]:
    """Numbers of the payments in review with this payer or merchant (index payment_intent_active); at most MATCHES."""
    waiting = PaymentIntent._default_manager.filter(state=IntentState.NEEDS_REVIEW.value)
    ours = waiting.filter(Q(payer__iexact=address) | Q(merchant__iexact=address))
    return list(ours.order_by("updated_at").values_list("pk", flat=True)[:MATCHES])


@admin.register(PaymentIntent)
class PaymentAdmin(ExtraPages, RecordAdmin):
    """Payments, newest first."""

    extra_pages = (("<int:payment_id>/orders/", "requests_app_payment_orders", "orders_view"),)

    list_display = ("payment", "status", "in_state", "sum", "parties", "transaction", "created")
    list_display_links = ("payment",)
    list_filter = ("state", CreatedFilter)
    search_fields = ("=public_id",)
    search_help_text = "Payment id, ref, transaction hash or row number (exact)"
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact, indexed look-up by any id; a term that is no id finds nothing."""
        if not search_term.strip():
            return queryset, False
        return queryset.filter(pk__in=matching_payments(search_term).values("pk")), False

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """Everything known of the payment."""
        return [*deed_sections(request, obj), *payment_sections(obj), *told_sections(Kind.PAYMENT, obj.pk)]

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Cancel it: a command."""
        carry_out(request, self, obj)
        return HttpResponseRedirect(self.page_url(obj))

    def orders_view(self, request: HttpRequest, payment_id: int) -> HttpResponse:
        """The orders alone; once none is under way the whole page is asked to come anew."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return renewed(request, orders_of(payment_id))

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """The open review case."""
        case = open_case(int(Kind.PAYMENT), obj.pk)
        if case is None or not request.user.has_perm("requests_app.view_reviewcase"):
            return []
        return [("Open review case", reverse("admin:requests_app_reviewcase_change", args=(case.pk,)))]

    def page_title(self, obj: Any) -> str:
        """The payment's id."""
        return f"Payment {obj.public_id}"

    @display(description="Payment", ordering="id")
    def payment(self, obj: PaymentIntent) -> Any:
        """The payment id, shortened; links to the page."""
        return format_html('<span class="rl-time" title="{}">{}…</span>', obj.public_id, obj.public_id[:13])

    @display(description="State")
    def status(self, obj: PaymentIntent) -> Any:
        """The state as a coloured label."""
        return cells.badge(obj.state)

    @display(description="In state")
    def in_state(self, obj: PaymentIntent) -> Any:
        """How long it has been in its state."""
        return cells.age(obj.updated_at)

    @display(description="Amount")
    def sum(self, obj: PaymentIntent) -> Any:
        """In the token's decimals."""
        return money(obj.amount, obj.token)

    @display(description="Payer, merchant")
    def parties(self, obj: PaymentIntent) -> Any:
        """Who pays whom."""
        return cells.stacked((cells.code(obj.payer), cells.code(obj.merchant)))

    @display(description="Transaction")
    def transaction(self, obj: PaymentIntent) -> Any:
        """The transaction that is believed to be on chain."""
        return cells.hex_code(obj.tx_hash)

    @display(description="Created")
    def created(self, obj: PaymentIntent) -> Any:
        """When it was accepted."""
        return cells.short_moment(obj.created_at)
