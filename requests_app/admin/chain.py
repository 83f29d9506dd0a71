"""What was read from the chains: sources with their seals, envelopes, and events that could not be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin, older_than
from requests_app.admin.explain import EVENTS
from requests_app.admin.orders import renewed
from requests_app.admin.page import Facts, Section, Table
from requests_app.admin.source_deeds import carry_out, deed_sections, orders_of
from requests_app.models import (
    ChainCursor,
    ChainIdentity,
    ConsumerCursor,
    DeadEnvelope,
    EnvelopeConflict,
    EnvelopeMeta,
    EnvelopeSource,
)
from requests_app.store.envelopes import INDEX_BITS
from requests_app.store.publish import PUBLISHED
from requests_app.store.readers import list_originators
from requests_app.store.retirement import band_sizes
from requests_app.store.session import web_connection

_PAGE = 50
LAST_INDEX = (1 << INDEX_BITS) - 1


def place(position: int, *, of_chain: bool = True) -> str:
    """A position as block and log index; the last index of a block means the whole block. A publisher's is a number."""
    if not of_chain:
        return cells.number(position)
    index = position & LAST_INDEX
    return f"{cells.number(position >> INDEX_BITS)} / {'all' if index == LAST_INDEX else index}"


def envelope_cells(one: EnvelopeMeta) -> tuple[Any, ...]:
    """An envelope's row: of a chain's event, or of what a client published under a topic of its own."""
    published = one.kind == PUBLISHED
    hashes = [cells.hex_code(value) for value in (one.tx_hash, one.block_hash) if value]
    return (
        place(one.position, of_chain=not published),
        "published" if published else EVENTS.get(one.kind, str(one.kind)),
        cells.hex_code(one.ref) if published else cells.uint256(one.ref),
        cells.stacked(hashes) if hashes else cells.NOTHING,
        cells.hex_code(one.contract) if one.contract else cells.NOTHING,
        cells.short_moment(one.recorded_at),
    )


def consumers(source: EnvelopeSource) -> Table:
    """Who reads a source, and how far each has come."""
    of_chain = source.chain_id > 0
    head = next((one.head for one in list_originators(web_connection()) if one.source_id == source.pk), None)
    rows = [
        (
            one.consumer,
            place(one.position, of_chain=of_chain) if one.position >= 0 else cells.NOTHING,
            cells.NOTHING if head is None else _behind(head - one.position, of_chain),
            cells.short_moment(one.updated_at),
            cells.plain(one.required),
        )
        for one in ConsumerCursor.objects.filter(source_id=source.pk).order_by("consumer")[:20]
    ]
    headers = ("Consumer", "Applied up to (block / log)", "Behind (blocks)", "Moved", "Holds retention")
    return Table("Consumers", headers, rows, "No consumer has started.", frozenset({1, 2}))


def _behind(positions: int, of_chain: bool) -> str:
    return cells.number(max(0, positions) >> INDEX_BITS if of_chain else max(0, positions))


def bands(source: EnvelopeSource) -> Table:
    """The newest bands of a source with their sizes."""
    of_chain = source.chain_id > 0
    rows = [
        (
            cells.number(one.band_no),
            place(one.lo, of_chain=of_chain),
            place(one.hi, of_chain=of_chain),
            filesizeformat(one.meta_bytes),
            filesizeformat(one.blob_bytes),
            one.state,
            cells.short_moment(one.at),
        )
        for one in band_sizes(web_connection(), source.pk, 20)
    ]
    headers = ("No.", "From (block / log)", "Below (block / log)", "Rows", "Payloads", "State", "Since")
    return Table("Bands", headers, rows, "No band exists yet.", frozenset({0, 1, 2, 3, 4}), "newest 20")


@admin.register(EnvelopeSource)
class SourceAdmin(ExtraPages, RecordAdmin):
    """Chain sources."""

    list_display = ("name", "state", "chain_id", "sealed", "moved", "start_block", "reorg_depth")
    list_select_related = ("chaincursor",)
    ordering = ("source_id",)
    extra_pages = (
        ("<int:source_id>/envelopes/", "requests_app_envelopes", "envelopes_view"),
        ("<int:source_id>/dead/", "requests_app_dead", "dead_view"),
        ("<int:source_id>/orders/", "requests_app_source_orders", "orders_view"),
    )

    @display(description="State")
    def state(self, obj: EnvelopeSource) -> Any:
        """Halted sources need a person."""
        return cells.badge("halted") if obj.halted else cells.toned("reading", "good")

    @display(description="Stored up to block")
    def sealed(self, obj: EnvelopeSource) -> Any:
        """The seal."""
        cursor: ChainCursor | None = getattr(obj, "chaincursor", None)
        return cells.number(cursor.block) if cursor else cells.NOTHING

    @display(description="Moved")
    def moved(self, obj: EnvelopeSource) -> Any:
        """Time since the seal moved."""
        cursor: ChainCursor | None = getattr(obj, "chaincursor", None)
        return cells.age(cursor.updated_at) if cursor else cells.NOTHING

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The source, its consumers, its bands."""
        cursor = ChainCursor.objects.filter(pk=obj.pk).first()
        facts = [
            ("Chain", obj.chain_id),
            ("Start block", cells.number(obj.start_block)),
            ("Stored up to block", cells.number(cursor.block) if cursor else cells.NOTHING),
            ("Head hash", cells.hex_code(cursor.head_hash) if cursor else cells.NOTHING),
            ("Seal moved", cells.moment(cursor.updated_at) if cursor else cells.NOTHING),
            ("Kept for", cells.duration(obj.retain.total_seconds())),
            ("Reorg depth", f"{obj.reorg_depth} blocks"),
            ("Halted", cells.wrapped(obj.halted) if obj.halted else "no"),
        ]
        return [Facts("Source", facts), *deed_sections(request, obj), consumers(obj), bands(obj)]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """Its envelopes and dead letters."""
        return [
            ("Envelopes", reverse("admin:requests_app_envelopes", args=(obj.pk,))),
            ("Dead letters", reverse("admin:requests_app_dead", args=(obj.pk,))),
        ]

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """Lift the halt: a command to whoever carries them out."""
        carry_out(request, self, obj)
        return HttpResponseRedirect(self.page_url(obj))

    def orders_view(self, request: HttpRequest, source_id: int) -> HttpResponse:
        """The orders alone, for as long as one is under way."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return renewed(request, orders_of(source_id))

    def envelopes_view(self, request: HttpRequest, source_id: int) -> HttpResponse:
        """Events of a source, newest first, by keyset."""
        if not request.user.has_perm("requests_app.view_envelopemeta"):
            raise PermissionDenied
        rows, older = older_than(EnvelopeMeta.objects.filter(source_id=source_id), request, "position", _PAGE)
        table = Table(
            "Envelopes",
            ("Block / log", "Kind", "Reference or topic", "Transaction, block hash", "Contract", "Recorded"),
            [envelope_cells(one) for one in rows],
            "No event has been read.",
            frozenset({0}),
        )
        return self._extra(request, source_id, "Envelopes", table, older)

    def dead_view(self, request: HttpRequest, source_id: int) -> HttpResponse:
        """Events that a consumer could not apply."""
        if not request.user.has_perm("requests_app.view_deadenvelope"):
            raise PermissionDenied
        rows, older = older_than(DeadEnvelope.objects.filter(source_id=source_id), request, "position", _PAGE)
        table = Table(
            "Dead letters",
            ("Consumer", "Block / log", "Error", "Text", "Tried", "First seen", "Resolved"),
            [
                (
                    d.consumer,
                    place(d.position),
                    d.error_class,
                    cells.wrapped(d.error),
                    f"{d.attempts}×",
                    cells.short_moment(d.first_at),
                    cells.short_moment(d.resolved_at),
                )
                for d in rows
            ],
            "Every event could be applied.",
            frozenset({1, 4}),
        )
        return self._extra(request, source_id, "Dead letters", table, older)

    def _extra(self, request: HttpRequest, source_id: int, title: str, table: Table, older: str) -> HttpResponse:
        source = get_object_or_404(EnvelopeSource, pk=source_id)
        context = {
            "sections": [table],
            "links": [("The source", reverse("admin:requests_app_envelopesource_change", args=(source_id,)))],
            "older_url": older,
            "newest_url": "?" if "before" in request.GET else "",
        }
        return self.render_page(request, f"{title} of {source.name}", context)


@admin.register(EnvelopeConflict)
class ConflictAdmin(RecordAdmin):
    """Contradictions of a chain or a node."""

    list_display = ("id", "source_id", "where", "at", "reviewed")
    ordering = ("-id",)

    @display(description="Given to a person")
    def reviewed(self, obj: EnvelopeConflict) -> Any:
        """When what the two events name got its cases."""
        return cells.short_moment(obj.reviewed_at)

    @display(description="Block / log")
    def where(self, obj: EnvelopeConflict) -> Any:
        """Where the two events differ."""
        return place(obj.position)


@admin.register(ChainIdentity)
class IdentityAdmin(RecordAdmin):
    """The chains that this database belongs to."""

    list_display = ("chain_id", "genesis", "stored")
    ordering = ("chain_id",)

    @display(description="Genesis hash")
    def genesis(self, obj: ChainIdentity) -> Any:
        """The hash of block 0."""
        return cells.hex_code(obj.genesis_hash)

    @display(description="Stored")
    def stored(self, obj: ChainIdentity) -> Any:
        """When it was first seen."""
        return cells.moment(obj.stored_at)
