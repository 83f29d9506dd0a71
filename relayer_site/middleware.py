"""The edge of every HTTP exchange: request id, security headers, counters, one log line, a body that nobody read.

One middleware and not four: each layer costs its own call and try block on the hottest path of the product (design P4).
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from relayer_site import metrics
from relayer_site.logging import current_request_id
from requests_app.api.body import drain

REQUEST_ID_META = "relayer.request_id"
"""Key in ``request.META`` under which the request's id is found by views that print it."""

API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# Alpine, which the admin theme is made of, compiles its attributes: without 'unsafe-eval' a stuck overlay covers
# even the login button (style_and_ecosystem B.3). Inline scripts stay forbidden; nothing is loaded from elsewhere.
ADMIN_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
)

_QUIET_PATHS = frozenset({"/liveness", "/healthz", "/metrics"})
_CALLER_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
_log = logging.getLogger("relayer.http")

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def policy_for(path: str) -> str:
    """Return the Content-Security-Policy of a path: strict, relaxed only for the admin and the API browser."""
    if path.startswith("/admin"):
        return ADMIN_POLICY
    if path.startswith("/docs"):
        return DOCS_POLICY
    return API_POLICY


class EdgeMiddleware:
    """Wraps every view. Put it first in ``MIDDLEWARE`` so that its numbers include all the others."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        request_id = _request_id(request)
        request.META[REQUEST_ID_META] = request_id
        token = current_request_id.set(request_id)
        try:
            response = self._get_response(request)
            drain(request)
            elapsed = time.perf_counter() - started
            _set_headers(response, request.path, request_id)
            metrics.observe_exchange(request, response.status_code, elapsed)
            _log_exchange(request, response, elapsed)
            return response
        finally:
            current_request_id.reset(token)


def _request_id(request: HttpRequest) -> str:
    """The caller's x-request-id when it is harmless in logs and headers, else a fresh UUID."""
    given = request.META.get("HTTP_X_REQUEST_ID", "")
    return given if _CALLER_ID.fullmatch(given) else str(uuid.uuid4())


def _set_headers(response: HttpResponseBase, path: str, request_id: str) -> None:
    headers = response.headers
    headers["x-request-id"] = request_id
    headers.setdefault("Content-Security-Policy", policy_for(path))
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("X-Frame-Options", "DENY")
    headers.setdefault("Referrer-Policy", "same-origin" if path.startswith("/admin") else "no-referrer")
    headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
    if not path.startswith("/static/"):
        headers.setdefault("Cache-Control", "no-store")


def _log_exchange(request: HttpRequest, response: HttpResponseBase, elapsed: float) -> None:
    """One line an exchange; probes and scrapes are left out unless they fail."""
    status = response.status_code
    if status < 500 and (request.path in _QUIET_PATHS or request.path.startswith("/static/")):
        return
    level = logging.WARNING if status >= 500 else logging.INFO
    if not _log.isEnabledFor(level):
        return
    size = len(response.content) if isinstance(response, HttpResponse) else None
    _log.log(
        level,
        "%s %s %d",
        request.method,
        request.path[:200],
        status,
        extra={
            "action": "http_exchange",
            "method": request.method,
            "path": request.path[:200],
            "status": status,
            "milliseconds": round(elapsed * 1000, 2),
            "bytes_out": size,
        },
    )
