"""Sending accounts, their nonces, and every signed transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin, older_than
from requests_app.admin.orders import renewed
from requests_app.admin.page import Facts, Section, Table
from requests_app.admin.requests import fixed_bytes
from requests_app.admin.signer_deeds import carry_out, deed_sections, orders_of
from requests_app.admin.subject import attempt_table
from requests_app.models import NonceSlot, Signer, TxAttempt

_PAGE = 50


def slots_with_subjects(title: str, slots: Sequence[NonceSlot], note: str = "") -> Table:
    """Nonce slots with the request each belongs to."""
    return Table(
        title,
        ("Nonce", "State", "About", "Opened", "Closed", "Epoch", "Winner"),
        [
            (
                cells.number(slot.nonce),
                cells.badge(slot.state),
                cells.subject(slot.kind, slot.subject_id),
                cells.short_moment(slot.opened_at),
                cells.short_moment(slot.closed_at),
                slot.opened_epoch,
                cells.hex_code(slot.winner_hash),
            )
            for slot in slots
        ],
        "It has taken no nonce.",
        frozenset({0, 5}),
        note,
    )


def brief(address: str) -> str:
    """A signer's address as lists and titles name it."""
    return f"{address[:10]}…{address[-6:]}"


@admin.register(Signer)
class SignerAdmin(ExtraPages, RecordAdmin):
    """Keys that send on a chain."""

    list_display = ("account", "state", "chain_id", "nonces", "balance", "fees", "allowance", "synced")
    list_display_links = ("account",)
    list_filter = ("status",)
    ordering = ("id",)
    extra_pages = (
        ("<int:signer_id>/slots/", "requests_app_signer_slots", "slots_view"),
        ("<int:signer_id>/orders/", "requests_app_signer_orders", "orders_view"),
    )

    @display(description="Signer", ordering="id")
    def account(self, obj: Signer) -> Any:
        """The address, shortened; links to the page."""
        text = str(obj)
        return format_html('<span class="rl-time" title="{}">{}</span>', text, brief(text))

    @display(description="Status")
    def state(self, obj: Signer) -> Any:
        """Active, paused or blocked."""
        return cells.badge(obj.status)

    @display(description="Next nonce / on chain")
    def nonces(self, obj: Signer) -> Any:
        """The next nonce to give out, and the chain's count."""
        return f"{cells.number(obj.next_nonce)} / {cells.number(obj.chain_nonce_latest)}"

    @display(description="Native balance")
    def balance(self, obj: Signer) -> Any:
        """Native units."""
        return cells.tokens(obj.balance_wei)

    @display(description="Fee balance")
    def fees(self, obj: Signer) -> Any:
        """Fee token units."""
        return cells.tokens(obj.fee_balance)

    @display(description="Allowance")
    def allowance(self, obj: Signer) -> Any:
        """Fee token units that the gateway may take."""
        return cells.tokens(obj.fee_allowance)

    @display(description="Synced")
    def synced(self, obj: Signer) -> Any:
        """Time since the chain was asked."""
        return cells.age(obj.last_synced_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The account and its open nonces."""
        facts = [
            ("Address", cells.code(str(obj), 40)),
            ("Chain", obj.chain_id),
            ("Status", cells.badge(obj.status)),
            ("Reason", obj.status_reason or cells.NOTHING),
            ("Next nonce", cells.number(obj.next_nonce)),
            ("Nonce on chain", cells.number(obj.chain_nonce_latest)),
            ("Window", f"at most {obj.max_inflight} open"),
            ("Native balance", cells.tokens(obj.balance_wei)),
            ("Fee token balance", cells.tokens(obj.fee_balance)),
            ("Fee allowance", cells.tokens(obj.fee_allowance)),
            ("Synced", cells.moment(obj.last_synced_at)),
        ]
        found = NonceSlot.objects.filter(signer_id=obj.pk, state__in=("signed", "live")).order_by("nonce")[:_PAGE]
        slots = slots_with_subjects("Open nonces", list(found), f"at most {_PAGE} are shown")
        return [Facts("Account", facts), *deed_sections(request, obj), slots]

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """Pause or resume: a command to the signer's owner."""
        carry_out(request, self, obj)
        return HttpResponseRedirect(self.page_url(obj))

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """All its nonces."""
        return [("All nonce slots", reverse("admin:requests_app_signer_slots", args=(obj.pk,)))]

    def orders_view(self, request: HttpRequest, signer_id: int) -> HttpResponse:
        """The orders alone; once none is under way the whole page is asked to come anew."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return renewed(request, orders_of(signer_id))

    def slots_view(self, request: HttpRequest, signer_id: int) -> HttpResponse:
        """Every nonce of a signer, newest first, by keyset."""
        if not request.user.has_perm("requests_app.view_nonceslot"):
            raise PermissionDenied
        rows, older = older_than(NonceSlot.objects.filter(signer_id=signer_id), request, "nonce", _PAGE)
        context = {
            "sections": [slots_with_subjects("Nonce slots", rows)],
            "links": [("The signer", reverse("admin:requests_app_signer_change", args=(signer_id,)))],
            "older_url": older,
            "newest_url": "?" if "before" in request.GET else "",
        }
        signer = get_object_or_404(Signer, pk=signer_id)
        return self.render_page(request, f"Nonces of signer {brief(str(signer))}", context)


@admin.register(TxAttempt)
class AttemptAdmin(RecordAdmin):
    """Every transaction that was ever signed. The raw bytes are not shown."""

    list_display = (
        "number",
        "transaction",
        "known",
        "slot",
        "max_fee",
        "sent",
        "block",
        "error",
        "prepared",
    )
    list_display_links = ("number",)
    list_filter = ("state",)
    indexed_filters = ("state__exact",)
    search_fields = ("=tx_hash",)
    search_help_text = "Transaction hash (exact)"
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without the raw bytes, which no page needs."""
        return super().get_queryset(request).defer("raw_tx")  # type: ignore[no-any-return]

    def page_title(self, obj: TxAttempt) -> str:
        """Its hash, shortened: the whole stands below, with a button that copies it."""
        text = str(obj)
        return f"Attempt {text[:10]}…{text[-6:]}"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By transaction hash."""
        if not search_term.strip():
            return queryset, False
        raw = fixed_bytes(search_term.strip().lower(), 32)
        return (queryset.filter(tx_hash=raw) if raw is not None else queryset.none()), False

    @display(description="No.", ordering="id")
    def number(self, obj: TxAttempt) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="Transaction")
    def transaction(self, obj: TxAttempt) -> Any:
        """Its hash."""
        return cells.hex_code(obj.tx_hash)

    @display(description="Nonce / no.")
    def slot(self, obj: TxAttempt) -> Any:
        """Which nonce, and the how-manieth transaction at it."""
        return format_html('<span class="rl-time">{} / {}</span>', cells.number(obj.nonce), obj.seq)

    @display(description="Sent")
    def sent(self, obj: TxAttempt) -> Any:
        """How often."""
        return f"{obj.send_count}×"

    @display(description="State")
    def known(self, obj: TxAttempt) -> Any:
        """What is known of it."""
        return cells.badge(obj.state)

    @display(description="Block")
    def block(self, obj: TxAttempt) -> Any:
        """The block that holds it."""
        return cells.number(obj.block_number)

    @display(description="Error")
    def error(self, obj: TxAttempt) -> Any:
        """Of what kind the last error was."""
        return obj.error_class or cells.NOTHING

    @display(description="Fee cap")
    def max_fee(self, obj: TxAttempt) -> Any:
        """Fee cap a gas."""
        return cells.gwei(obj.max_fee_per_gas)

    @display(description="Signed")
    def prepared(self, obj: TxAttempt) -> Any:
        """When it was signed and stored."""
        return cells.short_moment(obj.prepared_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The attempt, and whose nonce it used."""
        slot = NonceSlot.objects.filter(signer_id=obj.signer_id, nonce=obj.nonce).first()
        signer = Signer.objects.get(pk=obj.signer_id)
        facts = [
            ("Transaction", cells.code(cells.as_hex(obj.tx_hash), 64)),
            ("About", cells.subject(slot.kind, slot.subject_id) if slot else cells.NOTHING),
            (
                "Signer",
                cells.link(brief(str(signer)), reverse("admin:requests_app_signer_change", args=(signer.pk,))),
            ),
            ("Lease epoch", cells.number(obj.epoch)),
            ("Signed", cells.moment(obj.prepared_at)),
            ("First sent", cells.moment(obj.first_sent_at)),
            ("Block hash", cells.hex_code(obj.block_hash)),
        ]
        return [Facts("Transaction", facts), attempt_table([obj])]
