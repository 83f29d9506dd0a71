"""The OpenAPI document, made once a process by drf-spectacular from the routes of this package.

The committed copy is docs/openapi.json; a test compares it, `manage.py relayer_openapi --write` renews it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings

from requests_app.api.openapi.answers import ANSWERS
from requests_app.api.openapi.log import LOG
from requests_app.api.openapi.payments import PAYMENTS
from requests_app.api.openapi.requests import REQUESTS
from requests_app.api.openapi.webhooks import WEBHOOKS

SETTINGS: Final[dict[str, Any]] = {
    "TITLE": "Gateway relayer",
    "VERSION": "1.0.0",
    "DESCRIPTION": (
        "Submit a gateway request once, then poll (or long-poll on v1) until it is final. "
        "/v2 and /v3 speak the fhEVM relayer contract; /v1 shows rows as they are."
    ),
    "OAS_VERSION": "3.0.3",
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": ["requests_app.api.openapi.document.finish"],
    "SORT_OPERATIONS": True,
    "SCHEMA_PATH_PREFIX": "",
}

_SECURITY: Final[dict[str, Any]] = {
    "ApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "Bearer": {"type": "http", "scheme": "bearer"},
    "ApiKeyCookie": {"type": "apiKey", "in": "cookie", "name": "x-api-key"},
}
_making = Lock()


def finish(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's last step: add the hand-written components; a described body is a required body."""
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted({**REQUESTS, **ANSWERS, **LOG, **PAYMENTS, **WEBHOOKS}.items()))
    components["securitySchemes"] = _SECURITY
    for operations in result["paths"].values():
        for operation in operations.values():
            if "requestBody" in operation:
                operation["requestBody"]["required"] = True
    return result


@lru_cache(maxsize=1)
def _made() -> bytes:
    from requests_app.api.urls import api_patterns

    generator: Any = SchemaGenerator
    with patched_settings(SETTINGS):
        schema = generator(patterns=api_patterns).get_schema(request=None, public=True)
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()


def document() -> bytes:
    """The document as JSON text, ending with a newline."""
    with _making:  # the generator's settings are global while it runs
        return _made()


@require_safe
def openapi_json(_request: HttpRequest) -> HttpResponse:
    """GET /openapi.json."""
    return HttpResponse(document(), content_type="application/json")
