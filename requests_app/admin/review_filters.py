"""How the queue of cases is narrowed down: status, age, client, assignee, second person; and the exact search by any id."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.contrib.admin import SimpleListFilter
from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Concat, Now, Substr
from django.http import HttpRequest

from requests_app.admin.payments import matching_payments, payments_in_review
from requests_app.admin.requests import fixed_bytes, matching
from requests_app.admin.subject import MODELS
from requests_app.assignments import PREFIX
from requests_app.models import Account, ExecLease, NonceSlot, PaymentIntent, RequestClient, Signer, TxAttempt
from requests_app.models.reviews import DecisionState
from requests_app.states import Kind

SPANS: Final = {
    "10m": timedelta(minutes=10),
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
}
CLIENTS_SHOWN: Final = 40
OPEN_SLOTS: Final = 1000  # of one signer; its window is smaller


def live_leases() -> QuerySet[ExecLease]:
    """The lease of the outer case, while it lasts."""
    resource = Concat(Value("review:"), Cast(OuterRef("pk"), TextField()))
    return ExecLease.objects.filter(resource=resource, lease_until__gt=Now())


def with_assignee(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Cases with `assignee`, the name of who has them, or None."""
    name = live_leases().annotate(name=Substr("instance", len(PREFIX) + 1, output_field=CharField())).values("name")[:1]
    return queryset.annotate(assignee=Subquery(name))  # type: ignore[no-any-return]


class StatusFilter(SimpleListFilter):
    """Open cases unless asked otherwise: this list is a queue, not an archive."""

    title = "status"
    parameter_name = "case"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Open is the default and needs no entry of its own."""
        return [("closed", "Closed"), ("all", "All")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The default choice reads Open."""
        for index, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "Open"} if index == 0 else choice

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Open, closed or all."""
        if self.value() == "all":
            return queryset
        return queryset.filter(status="closed" if self.value() == "closed" else "open")


class AgeFilter(SimpleListFilter):
    """How long a case has waited at least."""

    title = "waiting for more than"
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The offered spans."""
        return [("10m", "10 minutes"), ("1h", "an hour"), ("24h", "a day"), ("7d", "a week")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Cases opened before the span began."""
        span = SPANS.get(self.value() or "")
        return queryset.filter(opened_at__lt=Now() - span) if span else queryset


class ClientFilter(SimpleListFilter):
    """Whose request it is."""

    title = "client"
    parameter_name = "client"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The first clients by name."""
        found = Account.objects.order_by("name").values_list("id", "name")[:CLIENTS_SHOWN]
        return [(str(number), name) for number, name in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Cases of requests that the client asked for."""
        value = self.value() or ""
        if not value.isdecimal() or len(value) > 18:
            return queryset
        views = RequestClient.objects.filter(
            kind=OuterRef("kind"), request_id=OuterRef("subject_id"), client_id=int(value)
        )
        payments = PaymentIntent.objects.filter(pk=OuterRef("subject_id"), account_id=int(value))
        return queryset.filter(Exists(views) | Q(Exists(payments), kind=Kind.PAYMENT.value))


class AssigneeFilter(SimpleListFilter):
    """Who works on it."""

    title = "assigned to"
    parameter_name = "assignee"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Me, nobody, somebody."""
        return [("me", "Me"), ("nobody", "Nobody"), ("somebody", "Somebody")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """By the live lease."""
        match self.value():
            case "me":
                return queryset.filter(Exists(live_leases().filter(instance=f"{PREFIX}{request.user.get_username()}")))
            case "nobody":
                return queryset.filter(~Exists(live_leases()))
            case "somebody":
                return queryset.filter(Exists(live_leases()))
        return queryset


class SecondFilter(SimpleListFilter):
    """Whether a decision waits for its second person."""

    title = "second person"
    parameter_name = "second"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """One choice."""
        return [("waits", "Waits for one")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Cases with such a decision."""
        if self.value() != "waits":
            return queryset
        return queryset.filter(reviewdecision__state=DecisionState.AWAITING_SECOND.value)


def search(queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Cases that an exact id names: job or payment id, transaction hash (any attempt), reference id or payment ref, row number, the
    address of a signer, or of payer or merchant.

    First the requests, each by an index of its own; then their cases.
    """
    subjects = {(kind.value, number) for kind, model in MODELS.items() for number in matching(model, term)}
    subjects |= {(Kind.PAYMENT.value, number) for number in matching_payments(term).values_list("pk", flat=True)}
    text = term.strip().lower()
    if (raw := fixed_bytes(text, 32)) is not None:
        attempt = TxAttempt.objects.filter(tx_hash=raw).values("signer_id", "nonce").first()
        if attempt:
            subjects |= set(NonceSlot.objects.filter(**attempt).values_list("kind", "subject_id"))
    elif (raw := fixed_bytes(text, 20)) is not None:
        signers = list(Signer.objects.filter(address=raw).values_list("id", flat=True))
        open_slots = NonceSlot.objects.filter(signer_id__in=signers, state__in=("signed", "live"))
        subjects |= (
            set(open_slots.order_by("nonce").values_list("kind", "subject_id")[:OPEN_SLOTS]) if signers else set()
        )
        subjects |= {(Kind.PAYMENT.value, number) for number in payments_in_review(text)}
    found = Q(pk__in=[])
    for kind in {kind for kind, _ in subjects}:
        found |= Q(kind=kind, subject_id__in=[number for owner, number in subjects if owner == kind])
    return queryset.filter(found)
