"""The envelope of /v2 and /v3 answers (fhevm_http 2, 6 and 10). Absent values are omitted, never null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpResponse

from requests_app import metrics
from requests_app.api.labels import (
    FEW_SHARES_TEXT,
    HTTP_STATUS,
    NO_RESULT_TEXT,
    UNREADABLE_RESULT_TEXT,
    Label,
)
from requests_app.api.refusals import Refused
from requests_app.api.view import json_response
from requests_app.selectors import JobView
from requests_app.states import Kind


def accepted(job_id: UUID, retry_after: int) -> HttpResponse:
    """202 of a POST, new or duplicate."""
    body = {"status": "queued", "requestId": str(uuid4()), "result": {"jobId": str(job_id)}}
    return json_response(202, body, retry_after)


def pending(retry_after: int) -> HttpResponse:
    """202 of a GET; the real state is not shown."""
    return json_response(202, {"status": "queued", "requestId": str(uuid4())}, retry_after)


def succeeded(result: dict[str, Any]) -> HttpResponse:
    """200 of a GET."""
    return json_response(200, {"status": "succeeded", "requestId": str(uuid4()), "result": result})


def failed(refused: Refused, *, with_request_id: bool = True) -> HttpResponse:
    """The error form of every route."""
    error: dict[str, Any] = {"label": refused.label.value, "message": refused.message}
    if refused.details:
        error["details"] = [{"field": detail.field, "issue": detail.issue} for detail in refused.details]
    body: dict[str, Any] = {"status": "failed"}
    if with_request_id:
        body["requestId"] = str(uuid4())
    body["error"] = error
    response = json_response(HTTP_STATUS[refused.label], body, refused.retry_after)
    if refused.label is Label.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="relayer"'
    return response


def result_of(view: JobView) -> dict[str, Any]:
    """The `result` of a completed job. Raises Refused(internal_server_error) when the row does not hold one."""
    if view.kind is Kind.USER_DECRYPT:
        if not view.shares:
            raise _broken(FEW_SHARES_TEXT)
        metrics.spare_shares.observe(max(0, len(view.shares) - (view.threshold or len(view.shares))))
        return {"result": view.shares}
    if view.kind is Kind.INPUT_PROOF:
        return _proof(view)
    return _clear_values(view)


def _proof(view: JobView) -> dict[str, Any]:
    result = view.res or {}
    handles, signatures = result.get("handles"), result.get("signatures")
    # A stored acceptance without handles or signatures proves nothing and is served as a rejection.
    if not view.accepted or not handles or not signatures:
        return {"accepted": False, "extraData": "0x00"}
    return {"accepted": True, "extraData": "0x00", "handles": handles, "signatures": signatures}


def _clear_values(view: JobView) -> dict[str, Any]:
    if view.res is None:
        raise _broken(NO_RESULT_TEXT)
    try:
        return {
            "decryptedValue": bare(view.res["decrypted_value"]),
            "signatures": _bare_all(view.res["signatures"]),
            "extraData": view.res["extra_data"],
        }
    except (KeyError, TypeError, AttributeError):
        raise _broken(UNREADABLE_RESULT_TEXT) from None


def bare(text: str) -> str:
    """Hex without its 0x."""
    return text.removeprefix("0x")


def _bare_all(texts: Sequence[str]) -> list[str]:
    return [bare(text) for text in texts]


def _broken(message: str) -> Refused:
    return Refused(Label.INTERNAL_SERVER_ERROR, message)
