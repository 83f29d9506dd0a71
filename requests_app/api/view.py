"""The base of every API view: DRF's APIView, so that the schema generator sees it, with a lean way through.

DRF's own dispatch (negotiation, request wrapper, parser, renderer, finalisation) costs 0.2 ms CPU a request and answers
in forms that the contract does not have. Here a handler takes Django's request and returns Django's response; errors are
Refused, printed by the face. Nothing that goes wrong leaves as HTML or with a stack trace.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import psycopg
from django.db import Error, InterfaceError, OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.views import APIView

from requests_app.api.labels import DATABASE_TEXT, INTERNAL_TEXT, Label
from requests_app.api.refusals import Refused

JSON = "application/json"
# Gone, shutting down, starting, pool exhausted, statement timed out: the same request may succeed in a moment.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError)
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("relayer.api")


def json_response(status: int, value: object, retry_after: int | None = None, content_type: str = JSON) -> HttpResponse:
    """A JSON answer; `retry_after` in whole seconds."""
    response = HttpResponse(_encode(value), status=status, content_type=content_type)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


class FaceView(APIView):
    """A view of one face. Subclasses name their methods and print refusals."""

    authentication_classes: Any = ()
    permission_classes: Any = ()
    parser_classes: Any = ()
    http_method_names: Any = ("get", "head")

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Call the handler of the method; turn whatever it raises into an answer of this face."""
        method = str(request.method).lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            return self.not_allowed(request)
        try:
            response: HttpResponseBase = handler(request, *args, **kwargs)
        except Refused as refused:
            response = self.refuse(request, refused)
        except (psycopg.Error, Error) as error:
            response = self._database_failed(request, error)
        except Exception:
            _log.exception("unexpected error", extra={"action": "api_error", "view": type(self).__name__})
            response = self.refuse(request, Refused(Label.INTERNAL_SERVER_ERROR, INTERNAL_TEXT))
        return response

    def refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        """The refusal in the form of this face."""
        raise NotImplementedError

    def not_allowed(self, request: HttpRequest) -> HttpResponse:
        """405 with an empty body and the Allow header."""
        response = HttpResponse(status=405)
        del response.headers["Content-Type"]
        response.headers["Allow"] = self.allowed()
        return response

    def allowed(self) -> str:
        """The methods of this route as the Allow header prints them."""
        return ", ".join(name.upper() for name in self.http_method_names)

    def _database_failed(self, request: HttpRequest, error: Exception) -> HttpResponse:
        _log.error(
            "database failed: %s",
            type(error).__name__,
            extra={"action": "api_database_error", "view": type(self).__name__, "error": type(error).__name__},
        )
        # The raw connection was used behind Django's back, so Django does not know that it may be broken.
        if not connections["default"].in_atomic_block:
            connections["default"].close()
        return self.refuse(request, self.database_refusal(request, isinstance(error, _AWAY)))

    def database_refusal(self, request: HttpRequest, away: bool) -> Refused:
        """What a failed statement answers; `away`: nothing is wrong with it, the database did not take or finish it."""
        message = INTERNAL_TEXT if request.method == "POST" else DATABASE_TEXT
        return Refused(Label.INTERNAL_SERVER_ERROR, message)


def empty_not_found(_request: HttpRequest, *_args: object, **_kwargs: object) -> HttpResponse:
    """404 with an empty body: an unknown path under /v2 or /v3."""
    response = HttpResponse(status=404)
    del response.headers["Content-Type"]
    return response


empty_not_found.csrf_exempt = True  # type: ignore[attr-defined]  # a POST to an unknown path is 404 too, not 403
