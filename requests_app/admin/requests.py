"""The three request kinds, their transitions and their shares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib import admin
from django.contrib.admin import ChoicesFieldListFilter, SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.explain import step
from requests_app.admin.page import Section
from requests_app.admin.subject import open_case, request_sections
from requests_app.admin.webhooks import told_sections
from requests_app.models import (
    InputProofRequest,
    PublicDecryptRequest,
    RequestClient,
    RequestTransition,
    UserDecryptRequest,
    UserDecryptShare,
)
from requests_app.models.requests import GatewayRequest
from requests_app.states import ReqType

MATCHES: Final = 100  # rows that one id may name: a reference may stand on a few after reorganisations


class CreatedFilter(SimpleListFilter):
    """How old a row may be."""

    title = "created"
    parameter_name = "created"
    spans = {"10m": timedelta(minutes=10), "1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The offered spans."""
        return [("10m", "last 10 minutes"), ("1h", "last hour"), ("24h", "last 24 hours"), ("7d", "last 7 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows not older than the span."""
        span = self.spans.get(self.value() or "")
        return queryset.filter(created_at__gte=datetime.now(UTC) - span) if span else queryset


class StateFilter(ChoicesFieldListFilter):
    """The state, looked up by the index on (state, number).

    Ended rows stand behind all live ones, but the planner takes rows of a frequent state for evenly spread and would read the table from its
    end: so the list begins at the newest row of the state.
    """

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows of the chosen state."""
        found = super().queryset(request, queryset)
        state = self.lookup_val[-1] if self.lookup_val else None
        if found is None or not state:
            return queryset if found is None else found
        # Two bounds that are one value: with an equality the planner would be free to walk the primary key.
        of_state = queryset.filter(status__gte=state, status__lte=state)
        newest = of_state.order_by("-status", "-id").values_list("id", flat=True).first()
        return found.filter(pk__lte=newest) if newest is not None else found.none()


def fixed_bytes(text: str, size: int) -> bytes | None:
    """The bytes of a 0x hex text of exactly `size` bytes, else None."""
    digits = text.removeprefix("0x")
    if len(digits) != 2 * size:
        return None
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return None


def matching(model: type[GatewayRequest], term: str) -> list[int]:
    """Numbers of the rows that a search term names: job id, transaction hash, reference id or row number; exact.

    Each form is looked up by its own index. One condition that joins two of them by OR would read the table.
    """
    term = term.strip().lower()
    rows = model._default_manager
    raw = fixed_bytes(term, 32)
    if raw is not None and (term.startswith("0x") or len(term) == 64):
        return _numbers(rows.filter(gw_req_tx_hash=raw), rows.filter(gw_reference_id=raw))
    try:
        job_id = UUID(term)
    except ValueError:
        pass
    else:
        views = RequestClient.objects.filter(kind=int(model.kind), ext_job_id=job_id).values_list(
            "request_id", flat=True
        )
        return _numbers(rows.filter(ext_job_id=job_id), rows.filter(pk__in=list(views[:MATCHES])))
    if term.isascii() and term.isdecimal() and len(term) <= 78 and int(term) < 2**256:
        numbered = [rows.filter(pk=int(term))] if int(term) < 2**63 else []
        return _numbers(rows.filter(gw_reference_id=int(term).to_bytes(32, "big")), *numbered)
    return []


def _numbers(*found: QuerySet[Any]) -> list[int]:
    """Row numbers of several look-ups, at most MATCHES of each."""
    return sorted({number for rows in found for number in rows.order_by().values_list("pk", flat=True)[:MATCHES]})


class RequestAdmin(RecordAdmin):
    """What the three kinds have in common."""

    list_display: tuple[str, ...] = ("job", "state", "in_state", "on_chain", "outcome", "created")
    list_display_links = ("job",)
    list_filter: tuple[Any, ...] = (("status", StateFilter), CreatedFilter)
    search_fields = ("=ext_job_id",)
    search_help_text = "Job id, transaction hash, reference id or row number (exact)"
    ordering = ("-id",)
    indexed_filters = ("status__exact",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact, indexed look-up by any id; a term that is no id finds nothing."""
        if not search_term.strip():
            return queryset, False
        return queryset.filter(pk__in=matching(self.model, search_term)), False

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """Everything known of the request."""
        return [*request_sections(obj), *told_sections(int(obj.kind), obj.pk)]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """The open review case."""
        case = open_case(int(obj.kind), obj.pk)
        if case is None or not request.user.has_perm("requests_app.view_reviewcase"):
            return []
        return [("Open review case", reverse("admin:requests_app_reviewcase_change", args=(case.pk,)))]

    def page_title(self, obj: GatewayRequest) -> str:
        """Kind and row number."""
        return f"{capfirst(self.singular)} #{obj.pk}"

    @display(description="Job id", ordering="id")
    def job(self, obj: GatewayRequest) -> Any:
        """The job id, shortened; links to the page."""
        return format_html('<span class="rl-time">{}…</span>', str(obj.ext_job_id)[:13])

    @display(description="Status")
    def state(self, obj: GatewayRequest) -> Any:
        """The state as a coloured label."""
        return cells.badge(obj.status)

    @display(description="In state")
    def in_state(self, obj: GatewayRequest) -> Any:
        """How long it has been in its state."""
        return cells.age(obj.state_entered_at)

    @display(description="On chain")
    def on_chain(self, obj: GatewayRequest) -> Any:
        """The request transaction and the gateway's id, as far as there are any."""
        known = (cells.hex_code(obj.gw_req_tx_hash), cells.uint256(obj.gw_reference_id))
        return cells.stacked(one for one in known if one != cells.NOTHING) or cells.NOTHING

    @display(description="Reason")
    def outcome(self, obj: GatewayRequest) -> Any:
        """Why it failed."""
        return cells.wrapped(obj.fail_label)

    @display(description="Created")
    def created(self, obj: GatewayRequest) -> Any:
        """When it was accepted."""
        return cells.short_moment(obj.created_at)


@admin.register(UserDecryptRequest)
class UserDecryptAdmin(RequestAdmin):
    """User decryptions."""

    list_display = ("job", "state", "in_state", "asked_as", "on_chain", "outcome", "created")
    list_filter = (("status", StateFilter), "req_type", CreatedFilter)

    @display(description="Form")
    def asked_as(self, obj: UserDecryptRequest) -> Any:
        """Direct, delegated or unified."""
        return ReqType(obj.req_type).name.lower()


@admin.register(PublicDecryptRequest)
class PublicDecryptAdmin(RequestAdmin):
    """Public decryptions."""


@admin.register(InputProofRequest)
class InputProofAdmin(RequestAdmin):
    """Input proofs."""

    list_display = ("job", "state", "in_state", "verdict", "on_chain", "outcome", "created")
    list_filter = (("status", StateFilter), "accepted", CreatedFilter)

    @display(description="Verdict")
    def verdict(self, obj: InputProofRequest) -> Any:
        """Whether the coprocessors accepted the proof."""
        if obj.accepted is None:
            return cells.NOTHING
        return cells.toned("accepted", "good") if obj.accepted else cells.toned("rejected", "warn")


@admin.register(RequestTransition)
class TransitionAdmin(RecordAdmin):
    """The append-only log of state changes."""

    list_display = ("number", "of", "became", "because", "by", "reason", "transaction", "when")
    list_display_links = ("number",)
    list_filter = ("kind",)
    ordering = ("-id",)

    @display(description="No.", ordering="id")
    def number(self, obj: RequestTransition) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="Request")
    def of(self, obj: RequestTransition) -> Any:
        """The request that changed."""
        return cells.subject(obj.kind, obj.request_id)

    @display(description="Became")
    def became(self, obj: RequestTransition) -> Any:
        """The new state."""
        return cells.badge(obj.to_status)

    @display(description="Because")
    def because(self, obj: RequestTransition) -> Any:
        """The verb; what it means in the tooltip."""
        return format_html('<span class="rl-time" title="{}">{}</span>', step(obj.verb), obj.verb.replace("_", " "))

    @display(description="By")
    def by(self, obj: RequestTransition) -> Any:
        """Which part of the relayer, or who."""
        return obj.actor

    @display(description="Transaction")
    def transaction(self, obj: RequestTransition) -> Any:
        """The transaction that proves it."""
        return cells.hex_code(obj.tx_hash)

    @display(description="When")
    def when(self, obj: RequestTransition) -> Any:
        """When it happened."""
        return cells.short_moment(obj.at)


@admin.register(UserDecryptShare)
class ShareAdmin(RecordAdmin):
    """Shares of user decryptions, newest first."""

    list_display = ("number", "reference", "share_index", "size", "transaction", "read")
    list_display_links = ("number",)
    ordering = ("-id",)
    search_fields = ("=gw_reference_id",)
    search_help_text = "Reference id (exact)"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By reference id only: the one indexed way."""
        term = search_term.strip().lower()
        if not term:
            return queryset, False
        raw = fixed_bytes(term, 32)
        if raw is None and term.isdecimal() and len(term) <= 78 and int(term) < 2**256:
            raw = int(term).to_bytes(32, "big")
        return (queryset.filter(gw_reference_id=raw) if raw is not None else queryset.none()), False

    @display(description="No.", ordering="id")
    def number(self, obj: UserDecryptShare) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="Reference")
    def reference(self, obj: UserDecryptShare) -> Any:
        """The gateway's id of the decryption."""
        return cells.uint256(obj.gw_reference_id)

    @display(description="Size")
    def size(self, obj: UserDecryptShare) -> Any:
        """Bytes of the share."""
        return cells.size(len(bytes(obj.share)))

    @display(description="Transaction")
    def transaction(self, obj: UserDecryptShare) -> Any:
        """The KMS node's transaction."""
        return cells.hex_code(obj.tx_hash)

    @display(description="Read")
    def read(self, obj: UserDecryptShare) -> Any:
        """When the listener stored it."""
        return cells.short_moment(obj.created_at)
