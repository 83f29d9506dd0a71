"""Which error a request that ended badly answers: read from its typed columns, never from text (fhevm_http 10.3)."""

from __future__ import annotations

from typing import Final

from requests_app.api import complaints
from requests_app.api.labels import (
    NO_FAILURE_REASON_TEXT,
    NO_TIMEOUT_REASON_TEXT,
    READINESS_TIMEOUT_TEXT,
    RESPONSE_TIMEOUT_TEXT,
    Label,
)
from requests_app.api.refusals import Detail, Refused, invalid_signature, validation_failed
from requests_app.selectors import JobView
from requests_app.states import Status

CANCELED_TEXT: Final = "canceled by client"

BY_SELECTOR: Final[dict[bytes, Label]] = {
    bytes.fromhex("d93c0665"): Label.PROTOCOL_PAUSED,  # EnforcedPause()
    bytes.fromhex("e450d38c"): Label.INSUFFICIENT_BALANCE,  # ERC20InsufficientBalance(address,uint256,uint256)
    bytes.fromhex("fb8f41b2"): Label.INSUFFICIENT_ALLOWANCE,  # ERC20InsufficientAllowance(address,uint256,uint256)
    **dict.fromkeys(complaints.BY_SELECTOR, Label.VALIDATION_FAILED),
}

# The labels a finished request may carry on GET; another stored label is served as internal_server_error, because the
# SDK refuses labels that do not belong to the status.
_SERVED: Final = frozenset(
    {
        Label.VALIDATION_FAILED,
        Label.NOT_ALLOWED_ON_HOST_ACL,
        Label.HOST_ACL_FAILED,
        Label.READINESS_CHECK_TIMED_OUT,
        Label.RESPONSE_TIMED_OUT,
        Label.PROTOCOL_PAUSED,
        Label.INSUFFICIENT_BALANCE,
        Label.INSUFFICIENT_ALLOWANCE,
    }
)


def refusal(view: JobView) -> Refused:
    """The error of a failed or timed-out job, or of one whose client withdrew it."""
    if view.canceled_at is not None:
        return Refused(Label.INTERNAL_SERVER_ERROR, CANCELED_TEXT)
    if view.status is Status.TIMED_OUT:
        if view.fail_label == Label.READINESS_CHECK_TIMED_OUT:
            return Refused(Label.READINESS_CHECK_TIMED_OUT, view.fail_detail or READINESS_TIMEOUT_TEXT)
        fallback = RESPONSE_TIMEOUT_TEXT if view.fail_label else NO_TIMEOUT_REASON_TEXT
        return Refused(Label.RESPONSE_TIMED_OUT, view.fail_detail or fallback)
    label = _failure_label(view)
    if label is Label.VALIDATION_FAILED:
        return _complaint(view)
    return Refused(label, view.fail_detail or NO_FAILURE_REASON_TEXT)


def _complaint(view: JobView) -> Refused:
    """What the contract, or the check before the send, found wrong with the request itself."""
    if view.fail_selector is None:
        return invalid_signature()  # the only check without a contract's error is the signature's
    detail = complaints.BY_SELECTOR.get(bytes(view.fail_selector[:4]))
    if detail == complaints.SIGNATURE:
        return invalid_signature()
    return validation_failed([detail or Detail("request", view.fail_detail or NO_FAILURE_REASON_TEXT)])


def _failure_label(view: JobView) -> Label:
    if view.fail_label in _SERVED:
        return Label(view.fail_label)
    if view.fail_selector is not None:
        return BY_SELECTOR.get(bytes(view.fail_selector[:4]), Label.INTERNAL_SERVER_ERROR)
    return Label.INTERNAL_SERVER_ERROR
