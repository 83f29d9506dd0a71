"""/v1/webhooks: where a client is told of the ends of its requests and payments, and what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from requests_app import services_webhooks as services
from requests_app.api import cursors, idempotency
from requests_app.api.auth import Client
from requests_app.api.body import read_body
from requests_app.api.labels import (
    WEBHOOK_LIMIT_TEXT,
    WEBHOOK_NOT_FOUND_TEXT,
    WEBHOOK_NOT_TESTABLE_TEXT,
    Label,
)
from requests_app.api.refusals import Refused
from requests_app.api.v1 import webhooks_documented as documented
from requests_app.api.v1 import webhooks_intake as intake
from requests_app.api.v1.payments import authenticate
from requests_app.api.v1.printed import time_text
from requests_app.api.v1.problems import ProblemView
from requests_app.api.v1.queries import known_only, limit_of
from requests_app.api.view import json_response
from requests_app.errors import AccountDisabled
from requests_app.services_webhooks import NotTestable, TooManyWebhooks, WebhookMissing
from requests_app.states import DeliveryState, Kind
from requests_app.store.session import web_connection
from requests_app.store.webhooks import NEWEST, Told, Webhook, list_webhooks, page_deliveries
from requests_app.webhook_messages import message_id

PATH: Final = "/v1/webhooks"
LARGEST_PAGE: Final = 500
TEST_SECONDS: Final = 2
"""When to look for what became of a test."""


@contextmanager
def refusals() -> Iterator[None]:
    """Print the domain's typed errors as refusals."""
    try:
        yield
    except WebhookMissing:
        raise not_found() from None
    except AccountDisabled:
        raise idempotency.disabled() from None
    except TooManyWebhooks:
        raise Refused(Label.WEBHOOK_LIMIT_REACHED, WEBHOOK_LIMIT_TEXT) from None
    except NotTestable:
        raise Refused(Label.WEBHOOK_NOT_TESTABLE, WEBHOOK_NOT_TESTABLE_TEXT) from None


def not_found() -> Refused:
    """No such webhook of this client."""
    return Refused(Label.NOT_FOUND, WEBHOOK_NOT_FOUND_TEXT)


class WebhookView(ProblemView):
    """A view of one webhook."""

    def asked(self, request: HttpRequest, text: str) -> tuple[Client, str]:
        """The client and the id in the path. Raises Refused, also for what cannot be an id."""
        client = authenticate(request)
        public_id = intake.public_id(text)
        if public_id is None:
            raise not_found()
        return client, public_id


@documented.webhooks
class Webhooks(ProblemView):
    """The webhooks of the asking client."""

    http_method_names: Any = ("get", "head", "post")

    def post(self, request: HttpRequest) -> HttpResponse:
        """Make a webhook: 201 with its secret, which is never shown again."""
        client = authenticate(request)
        wanted = intake.new_webhook(read_body(request))
        with refusals():
            made, secret = services.create(web_connection(), client.id, wanted)
        response = json_response(201, {**shown(made), "secret": secret})
        response.headers["Location"] = f"{PATH}/{made.public_id}"
        return response

    def get(self, request: HttpRequest) -> HttpResponse:
        """All of them, oldest first, without their secrets."""
        client = authenticate(request)
        known_only(request)
        return json_response(200, {"webhooks": [shown(one) for one in list_webhooks(web_connection(), client.id)]})


@documented.webhook
class OneWebhook(WebhookView):
    """A webhook."""

    http_method_names: Any = ("get", "head", "patch", "delete")

    def get(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """The webhook, without its secret."""
        client, public_id = self.asked(request, webhook_id)
        with refusals():
            return json_response(200, shown(services.find(web_connection(), client.id, public_id)))

    def patch(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """Change what is given; `state` pauses or enables. While it is paused, events are kept for it."""
        client, public_id = self.asked(request, webhook_id)
        wanted, state = intake.changes(read_body(request))
        with refusals():
            return json_response(200, shown(services.change(web_connection(), client.id, public_id, wanted, state)))

    def delete(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """Remove it: nothing leaves for it any more."""
        client, public_id = self.asked(request, webhook_id)
        with refusals():
            services.remove(web_connection(), client.id, public_id)
        response = HttpResponse(status=204)
        del response.headers["Content-Type"]
        return response


@documented.secret
class WebhookSecret(WebhookView):
    """The secret of a webhook."""

    http_method_names: Any = ("post",)

    def post(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """A new secret, shown this once; the one of before signs too for a day."""
        client, public_id = self.asked(request, webhook_id)
        with refusals():
            rotated, secret = services.rotate(web_connection(), client.id, public_id)
        return json_response(200, {**shown(rotated), "secret": secret})


@documented.test
class WebhookTest(WebhookView):
    """A try of the way to the receiver."""

    http_method_names: Any = ("post",)

    def post(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """Send the event `webhook.test`; what became of it is among the deliveries."""
        client, public_id = self.asked(request, webhook_id)
        with refusals():
            made = services.send_test(web_connection(), client.id, public_id)
        return json_response(202, {"id": message_id(made)}, TEST_SECONDS)


@documented.deliveries
class WebhookDeliveries(WebhookView):
    """What a webhook was told."""

    def get(self, request: HttpRequest, webhook_id: str) -> HttpResponse:
        """Its deliveries, newest first, with their last attempt."""
        client, public_id = self.asked(request, webhook_id)
        known_only(request, "cursor", "limit")
        limit = limit_of(request, LARGEST_PAGE)
        conn = web_connection()
        with refusals():
            webhook = services.find(conn, client.id, public_id)
        scope = cursors.Scope(client.id, "deliveries", [public_id])
        text = request.GET.get("cursor")
        before = NEWEST if text is None else int(cursors.unseal(conn, scope, text))
        found = page_deliveries(conn, webhook.id, before, limit + 1)
        page, more = found[:limit], len(found) > limit
        return json_response(200, {
            "deliveries": [_told(one) for one in page],
            "cursor": cursors.seal(conn, scope, page[-1].id) if more else None,
            "more": more,
        })  # fmt: skip


def shown(webhook: Webhook) -> dict[str, Any]:
    """A webhook as its client sees it."""
    return {
        "id": webhook.public_id,
        "url": webhook.url,
        "description": webhook.description,
        "events": list(webhook.events),
        "kinds": [kind.slug for kind in webhook.kinds],
        "state": webhook.state.value,
        "created_at": time_text(webhook.created_at),
        "updated_at": time_text(webhook.updated_at),
        "former_secret_until": time_text(webhook.former_until),
    }


def _told(one: Told) -> dict[str, Any]:
    waiting = one.state == DeliveryState.WAITING
    return {
        "id": message_id(one.public_id),
        "event": one.event,
        "kind": None if one.kind is None else Kind(one.kind).slug,
        "subject": one.subject,
        "occurred_at": time_text(one.occurred_at),
        "state": one.state,
        "attempts": one.attempts,
        "next_attempt_at": time_text(one.next_attempt_at) if waiting else None,
        "last_attempt_at": time_text(one.last_attempt_at),
        "last_status": one.last_status,
        "last_error": one.last_error,
        "delivered_at": time_text(one.delivered_at),
    }
