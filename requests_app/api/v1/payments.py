"""/v1/payment-intents: create once per Idempotency-Key, authorize by EIP-3009, cancel, watch (design 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec
import psycopg
from django.http import HttpRequest, HttpResponse

from requests_app import services_payments as services
from requests_app.api import auth, cursors, idempotency
from requests_app.api.auth import AccountIsDisabled, Client
from requests_app.api.body import read_body
from requests_app.api.jobs import not_found
from requests_app.api.labels import (
    AUTHORIZATION_EXPIRED_TEXT,
    NOT_AUTHORIZABLE_TEXT,
    OTHER_AUTHORIZATION_TEXT,
    PAYMENT_NOT_CANCELABLE_TEXT,
    RATE_LIMITED_TEXT,
    Label,
)
from requests_app.api.refusals import Refused
from requests_app.api.retry_after import pace
from requests_app.api.v1 import payments_documented as documented
from requests_app.api.v1 import payments_intake as intake
from requests_app.api.v1.payments_answers import payment, seconds_until_poll, timeline
from requests_app.api.v1.problems import ProblemView
from requests_app.api.v1.queries import limit_of, refused
from requests_app.api.v1.views import wait_seconds
from requests_app.api.view import JSON, json_response
from requests_app.api.waiting import watch
from requests_app.errors import AccountDisabled, IntentExpired, IntentMissing
from requests_app.services_payments import (
    AuthorizationRefused,
    ExpiredAlready,
    OtherAuthorization,
    PaymentConflict,
    QueueFull,
    WindowOver,
)
from requests_app.states import Kind
from requests_app.store.idempotency import Completed
from requests_app.store.intents import Intent, history
from requests_app.store.payments import LARGEST_PAGE, NEWEST, page_payments
from requests_app.store.session import retry_serialization, web_connection

PATH: Final = "/v1/payment-intents"


def authenticate(request: HttpRequest) -> Client:
    """The client. Payments tell one whose account is disabled that this is why. Raises Refused."""
    try:
        return auth.authenticate(request)
    except AccountIsDisabled:
        raise idempotency.disabled() from None


@contextmanager
def refusals(conflict: str, label: Label) -> Iterator[None]:
    """Print the domain's typed errors as refusals; `label` and `conflict` are for a payment in another state."""
    try:
        yield
    except IntentMissing:
        raise not_found() from None
    except AccountDisabled:
        raise idempotency.disabled() from None
    except QueueFull:
        raise Refused(Label.RATE_LIMITED, RATE_LIMITED_TEXT, retry_after=pace().rate_limited_seconds) from None
    except ExpiredAlready:
        raise refused("expires_at", "Must be in the future") from None
    except (IntentExpired, WindowOver):
        raise Refused(Label.AUTHORIZATION_EXPIRED, AUTHORIZATION_EXPIRED_TEXT) from None
    except AuthorizationRefused as error:
        raise refused(error.field, str(error)) from None
    except OtherAuthorization as error:
        raise Refused(label, OTHER_AUTHORIZATION_TEXT, members=_standing(error.intent)) from None
    except PaymentConflict as error:
        raise Refused(label, conflict, members=_standing(error.intent)) from None


def _standing(intent: Intent) -> dict[str, Any]:
    return {"state": intent.state.value, "version": intent.version, "state_reason": intent.state_reason}


class PaymentView(ProblemView):
    """A view of one payment."""

    def find(self, client: Client, text: str) -> Intent:
        """The client's payment of the id in the path. Raises Refused(not_found)."""
        public_id = intake.public_id(text)
        if public_id is None:
            raise not_found()
        with refusals("", Label.NOT_FOUND):
            return services.find(web_connection(), client.id, public_id)

    def change(
        self, client: Client, text: str, work: Callable[[str], Intent], conflict: str, label: Label
    ) -> HttpResponse:
        """The payment after `work` on it. Raises Refused."""
        public_id = intake.public_id(text)
        if public_id is None:
            raise not_found()
        with refusals(conflict, label):
            intent = retry_serialization(lambda: work(public_id))
        return answer(intent)


def answer(intent: Intent) -> HttpResponse:
    """The payment as it stands: 200 whatever its state, with Retry-After while somebody works on it."""
    return json_response(200, payment(intent), seconds_until_poll(intent))


@documented.payments
class Payments(ProblemView):
    """The payments of the asking client."""

    http_method_names: Any = ("get", "head", "post")

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a payment: 201, and for the same Idempotency-Key and body ever after the same 201."""
        client = authenticate(request)
        return idempotency.once(request, client, read_body(request), intake.new_payment, partial(_create, client))

    def get(self, request: HttpRequest) -> HttpResponse:
        """The payments, newest first; filters apply together."""
        client = authenticate(request)
        chosen = intake.filter_of(request)
        limit = limit_of(request, LARGEST_PAGE)
        conn = web_connection()
        scope = cursors.Scope(client.id, "payments", intake.bound(chosen))
        text = request.GET.get("cursor")
        before = NEWEST if text is None else int(cursors.unseal(conn, scope, text))
        page = page_payments(conn, client.id, chosen, before, limit)
        return json_response(200, {
            "payments": [payment(intent) for intent in page.intents],
            "cursor": None if page.before is None else cursors.seal(conn, scope, page.before),
            "more": page.before is not None,
        })  # fmt: skip


@documented.payment
class Payment(PaymentView):
    """A payment."""

    def get(self, request: HttpRequest, intent_id: str) -> HttpResponse:
        """The payment; `?wait=` seconds (at most 25) holds the answer back until it has ended."""
        client = authenticate(request)
        seconds = wait_seconds(request.GET.get("wait"))
        intent = self.find(client, intent_id)
        if seconds and not services.has_ended(intent):
            watch.wait((Kind.PAYMENT.value, intent.id), seconds)
            intent = self.find(client, intent_id)
        return answer(intent)


@documented.payment_timeline
class PaymentTimeline(PaymentView):
    """The history of a payment."""

    def get(self, request: HttpRequest, intent_id: str) -> HttpResponse:
        """Every transition, oldest first."""
        intent = self.find(authenticate(request), intent_id)
        return json_response(200, timeline(intent, history(web_connection(), intent.id)))


@documented.authorize
class Authorize(PaymentView):
    """The payer's permission."""

    http_method_names: Any = ("post",)

    def post(self, request: HttpRequest, intent_id: str) -> HttpResponse:
        """Verify the signed authorization, store it and queue the payment. The same one again changes nothing."""
        client = authenticate(request)
        signed = intake.authorization(read_body(request))
        return self.change(
            client,
            intent_id,
            lambda public_id: services.authorize(web_connection(), client.id, public_id, signed),
            NOT_AUTHORIZABLE_TEXT,
            Label.NOT_AUTHORIZABLE,
        )


@documented.cancel_payment
class CancelPayment(PaymentView):
    """Withdrawal of a payment."""

    http_method_names: Any = ("post",)

    def post(self, request: HttpRequest, intent_id: str) -> HttpResponse:
        """Withdraw the payment while no transaction carries it."""
        client = authenticate(request)
        return self.change(
            client,
            intent_id,
            lambda public_id: services.cancel(web_connection(), client.id, public_id),
            PAYMENT_NOT_CANCELABLE_TEXT,
            Label.NOT_CANCELABLE,
        )


def _create(client: Client, conn: psycopg.Connection[Any], asked: intake.NewPayment) -> Completed:
    """Create the payment, in the caller's transaction: the answer that its key keeps."""
    with refusals("", Label.NOT_FOUND):
        intent = services.create(conn, client.id, asked.terms, asked.expires_at)
    headers = {"Content-Type": JSON, "Location": f"{PATH}/{intent.public_id}"}
    return Completed(201, headers, msgspec.json.encode(payment(intent)))
