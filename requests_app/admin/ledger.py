"""The journal and its balances, for finance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, TextField
from django.db.models.functions import Cast, JSONObject
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin
from requests_app.admin.money import money
from requests_app.admin.page import Facts, Section, Table
from requests_app.admin.payments import postings
from requests_app.admin.requests import fixed_bytes
from requests_app.models import LedgerBalance, LedgerEntry, LedgerLeg, PaymentIntent

_PAGE: Final = 50


@admin.register(LedgerEntry)
class LedgerAdmin(ExtraPages, RecordAdmin):
    """Entries of the journal, newest first; balances by account on a page of their own."""

    list_display = ("number", "entry", "of", "moves", "by", "transaction", "when")
    list_display_links = ("number",)
    list_filter = ("kind",)
    ordering = ("-seq",)
    search_fields = ("=entry_id",)
    search_help_text = "Payment id, payment ref, entry id or number (exact)"
    extra_pages = (("balances/", "relayer_balances", "balances_view"),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Entries with their legs, in the one statement of the list."""
        legs = LedgerLeg.objects.filter(entry_seq=OuterRef("seq")).order_by("ord")
        shown = JSONObject(account="account", amount=Cast("amount", TextField()))
        entries: QuerySet[Any] = super().get_queryset(request)
        with_legs: QuerySet[Any] = entries.annotate(legs=ArraySubquery(legs.values(leg=shown)))
        return with_legs

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By ref, entry id or number: each has its index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isascii() and term.isdecimal() and len(term) <= 18:
            return queryset.filter(pk=int(term)), False
        if term.startswith("pi_") and "/" not in term:
            refs = PaymentIntent.objects.filter(public_id=term).values("ref")
            return queryset.filter(ref__in=refs), False
        raw = fixed_bytes(term.lower(), 32)
        return queryset.filter(ref=raw) if raw is not None else queryset.filter(entry_id=term), False

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The entry with its legs and its place in the chain."""
        legs = LedgerLeg.objects.filter(entry_seq=obj.seq).order_by("ord")
        resolved = LedgerEntry.objects.filter(holds=obj.entry_id).first()
        facts: list[tuple[str, Any]] = [
            ("Number", cells.number(obj.seq)),
            ("Entry", cells.badge(obj.kind)),
            ("Entry id", cells.code(obj.entry_id, 34)),
            ("Payment ref", cells.hex_code(obj.ref)),
            ("Resolves", cells.code(obj.holds_id, 34)),
            ("Resolved by", cells.code(resolved.entry_id, 34) if resolved else cells.NOTHING),
            ("Asset", cells.stacked((cells.code(obj.chain, 20), cells.code(obj.token, 20)))),
            ("By", obj.by_actor),
            ("At", cells.moment(obj.at)),
            ("Transaction", cells.hex_code(obj.tx_hash)),
            ("Memo", cells.wrapped(obj.memo)),
            ("Hash", cells.hex_code(obj.hash)),
            ("Hash of the one before", cells.hex_code(obj.prev_hash)),
        ]
        rows = [(cells.code(leg.account, 46), money(leg.amount, obj.token)) for leg in legs]
        return [
            Facts("Entry", facts),
            Table("Postings", ("Account", "Amount"), rows, "None: it voids a hold.", frozenset({1})),
        ]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """The payment."""
        payment = PaymentIntent.objects.filter(ref=obj.ref).first()
        if payment is None:
            return []
        return [("Payment", reverse("admin:requests_app_paymentintent_change", args=(payment.pk,)))]

    def balances_view(self, request: HttpRequest) -> HttpResponse:
        """Balances by account and asset, in the accounts' order. `after` continues behind an account."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        after = request.GET.get("after", "")
        found = LedgerBalance.objects.order_by("account", "chain", "token")
        if after and "\0" not in after:
            found = found.filter(account__gt=after)
        rows = list(found[: _PAGE + 1])
        shown = rows[:_PAGE]
        table = Table(
            "Balances",
            ("Account", "Chain", "Token", "Pending", "Posted", "Available"),
            [
                (
                    cells.code(one.account, 9),
                    one.chain,
                    cells.code(one.token),
                    money(one.pending, one.token),
                    money(one.posted, one.token),
                    money(one.posted + min(one.pending, 0), one.token),
                )
                for one in shown
            ],
            "No money was held or moved yet.",
            frozenset({3, 4, 5}),
            "available = posted less pending debits",
        )
        base = reverse("admin:relayer_balances")
        links = [("Ledger", reverse("admin:requests_app_ledgerentry_changelist"))]
        if len(rows) > _PAGE:
            links.append(("Next page", f"{base}?after={shown[-1].account}"))
        return self.render_page(request, "Balances", {"sections": [table], "links": links})

    @display(description="No.", ordering="seq")
    def number(self, obj: LedgerEntry) -> Any:
        """Place in the journal."""
        return cells.number(obj.seq)

    @display(description="Entry")
    def entry(self, obj: LedgerEntry) -> Any:
        """What it does with money."""
        return cells.badge(obj.kind)

    @display(description="Payment")
    def of(self, obj: LedgerEntry) -> Any:
        """The payment's ref."""
        return cells.hex_code(obj.ref)

    @display(description="Postings")
    def moves(self, obj: Any) -> Any:
        """Its legs."""
        return postings([(leg["account"], int(leg["amount"])) for leg in obj.legs], obj.token)

    @display(description="By")
    def by(self, obj: LedgerEntry) -> Any:
        """Which part of the relayer, or who."""
        return obj.by_actor

    @display(description="Transaction")
    def transaction(self, obj: LedgerEntry) -> Any:
        """The transaction that proves it."""
        return cells.hex_code(obj.tx_hash)

    @display(description="At")
    def when(self, obj: LedgerEntry) -> Any:
        """The time of the transition it goes with."""
        return cells.short_moment(obj.at)
