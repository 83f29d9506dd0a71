"""`/admin/config`: runtime settings over HTTP, for an operator's API key (fhevm_http 15.4; design 5.3.6).

Routed before the admin site and off unless ADMIN_CONFIG is set: then 403, before anything is read. Kept from the original: the
forms and texts of its answers, and that GET prints names in PascalCase where POST takes snake_case. Ours: the key, the audit row,
min above max is refused, and `values` shows every parameter, changed or not.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

import psycopg
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from requests_app import runtime
from requests_app.api.auth import Client, authenticate, unauthorized
from requests_app.api.body import read_body
from requests_app.api.labels import HTTP_STATUS
from requests_app.api.refusals import Refused
from requests_app.api.view import FaceView, json_response
from requests_app.runtime import REGISTRY, Parameter, SettingRefused, Type
from requests_app.store import accounts
from requests_app.store.session import web_connection

DISABLED_TEXT: Final = "Admin endpoints are not enabled"
NO_OPERATOR_TEXT: Final = "An operator's API key is needed"
LARGEST_BODY: Final = 1000
UPDATED_TEXT: Final = "Configuration updated successfully"


class AdminConfig(FaceView):
    """GET shows the parameters, POST `{"param": name, "value": number}` changes one."""

    http_method_names: Any = ("get", "head", "post")
    schema: Any = (
        None  # an operator's route: no part of the documented API, and nothing for `check --deploy` to guess about
    )

    def get(self, request: HttpRequest) -> HttpResponse:
        """Every parameter that may be changed here, with its value and range."""
        refused, _ = self._operator(request)
        if refused is not None:
            return refused
        now = runtime.values(web_connection)
        offered = [parameter for parameter in REGISTRY.values() if parameter.http]
        values = {parameter.pascal: now[parameter.name] for parameter in offered}
        return json_response(200, {"values": values, "available_params": [_described(one) for one in offered]})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Change one parameter, audited under the account's name; every process follows within 5 s."""
        refused, client = self._operator(request)
        if refused is not None or client is None:
            return refused or _error(403, NO_OPERATOR_TEXT)
        if request.content_type != "application/json":
            return _text(415, "Expected request with `Content-Type: application/json`")
        try:
            document = _document(read_body(request))
        except ValueError:
            return _text(400, "Failed to parse the request body as JSON")
        found = _name_and_value(document)
        if found is None:
            return _text(422, "Failed to deserialize the JSON body into the target type")
        name, value = found
        try:
            if name in REGISTRY and not REGISTRY[name].http:
                raise SettingRefused(f"Unknown configuration parameter: {name}")
            runtime.change(web_connection(), name, value, by=partial(_author, client), reason="POST /admin/config")
        except SettingRefused as error:
            return _error(400, str(error))
        return json_response(200, {"name": name, "value": value, "message": UPDATED_TEXT})

    def refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        """The short error form of this route."""
        return _error(HTTP_STATUS[refused.label], refused.message)

    def _operator(self, request: HttpRequest) -> tuple[HttpResponse | None, Client | None]:
        """(the refusal, the operator's account): one of them. Raises Refused for a wrong key."""
        if not settings.ADMIN_CONFIG:
            return _error(403, DISABLED_TEXT), None
        client = authenticate(request)
        return (None, client) if client.operator else (_error(403, NO_OPERATOR_TEXT), None)


def _author(client: Client, conn: psycopg.Connection[Any]) -> str:
    """Who changes it, in the transaction of the change: the key is remembered for a moment, the account is asked now (I11).

    Raises Refused.
    """
    if not accounts.lock_operator(conn, client.id):
        raise unauthorized()
    return f"account:{client.name}"


def _document(raw: bytes) -> object:
    """The JSON value of a body. Raises ValueError, also for one that no parameter needs.

    The limit bounds the nesting too: the standard library's parser recurses in C and takes the process down with it.
    """
    if len(raw) > LARGEST_BODY:
        raise ValueError("too large")
    document: object = json.loads(raw)
    return document


def _name_and_value(document: object) -> tuple[str, int | float] | None:
    if not isinstance(document, dict):
        return None
    name, value = document.get("param", document.get("name")), document.get("value")
    if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return name[:100].encode(
        "utf-8", "replace"
    ).decode(), value  # the answer repeats it, and a lone surrogate is no UTF-8


def _described(parameter: Parameter) -> dict[str, Any]:
    whole = parameter.type is Type.U32
    bounds = {
        "min": int(parameter.low) if whole else parameter.low,
        "max": int(parameter.high) if whole else parameter.high,
    }
    return {
        "name": parameter.pascal,
        "description": parameter.meaning,
        "constraints": {"type": parameter.type.value, **bounds},
    }


def _error(status: int, message: str) -> HttpResponse:
    return json_response(status, {"error": message})


def _text(status: int, message: str) -> HttpResponse:
    return HttpResponse(message, status=status, content_type="text/plain; charset=utf-8")
