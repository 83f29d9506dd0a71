"""The closed set of error labels, their HTTP statuses on /v2 and /v3, and their fixed texts (fhevm_http 3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Label(StrEnum):
    """What a client program branches on. The SDK checks the pair of label and HTTP status."""

    MALFORMED_JSON = "malformed_json"
    MISSING_FIELDS = "missing_fields"
    VALIDATION_FAILED = "validation_failed"
    REQUEST_ERROR = "request_error"
    HOST_CHAIN_ID_NOT_SUPPORTED = "host_chain_id_not_supported"
    NOT_ALLOWED_ON_HOST_ACL = "not_allowed_on_host_acl"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    INTERNAL_SERVER_ERROR = "internal_server_error"
    HOST_ACL_FAILED = "host_acl_failed"
    READINESS_CHECK_TIMED_OUT = "readiness_check_timed_out"
    RESPONSE_TIMED_OUT = "response_timed_out"
    PROTOCOL_PAUSED = "protocol_paused"
    INSUFFICIENT_BALANCE = "insufficient_balance"
    INSUFFICIENT_ALLOWANCE = "insufficient_allowance"
    GATEWAY_NOT_REACHABLE = "gateway_not_reachable"
    NOT_CANCELABLE = "not_cancelable"  # v1 only, as all that follow
    NOT_AUTHORIZABLE = "not_authorizable"
    AUTHORIZATION_EXPIRED = "authorization_expired"
    ACCOUNT_DISABLED = "account_disabled"
    IDEMPOTENCY_KEY_IN_FLIGHT = "idempotency_key_in_flight"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    WEBHOOK_LIMIT_REACHED = "webhook_limit_reached"
    WEBHOOK_NOT_TESTABLE = "webhook_not_testable"
    DATABASE_UNAVAILABLE = "database_unavailable"  # the wire contract of v2 and v3 has a 500 for it


HTTP_STATUS: Final[dict[Label, int]] = {
    Label.MALFORMED_JSON: 400,
    Label.MISSING_FIELDS: 400,
    Label.VALIDATION_FAILED: 400,
    Label.REQUEST_ERROR: 400,
    Label.HOST_CHAIN_ID_NOT_SUPPORTED: 400,
    Label.NOT_ALLOWED_ON_HOST_ACL: 400,
    Label.UNAUTHORIZED: 401,
    Label.NOT_FOUND: 404,
    Label.RATE_LIMITED: 429,
    Label.INTERNAL_SERVER_ERROR: 500,
    Label.HOST_ACL_FAILED: 500,
    Label.READINESS_CHECK_TIMED_OUT: 503,
    Label.RESPONSE_TIMED_OUT: 503,
    Label.PROTOCOL_PAUSED: 503,
    Label.INSUFFICIENT_BALANCE: 503,
    Label.INSUFFICIENT_ALLOWANCE: 503,
    Label.GATEWAY_NOT_REACHABLE: 503,
    Label.NOT_CANCELABLE: 409,
    Label.NOT_AUTHORIZABLE: 409,
    Label.AUTHORIZATION_EXPIRED: 400,
    Label.ACCOUNT_DISABLED: 403,
    Label.IDEMPOTENCY_KEY_IN_FLIGHT: 409,
    Label.IDEMPOTENCY_KEY_REUSED: 422,
    Label.WEBHOOK_LIMIT_REACHED: 409,
    Label.WEBHOOK_NOT_TESTABLE: 409,
    Label.DATABASE_UNAVAILABLE: 503,
}

MALFORMED_JSON_TEXT: Final = "Invalid JSON format"
REQUEST_ERROR_TEXT: Final = "Failed to read request body"
REQUIRED_TEXT: Final = "Required but missing"
RATE_LIMITED_TEXT: Final = (
    "Server is experiencing high processing load: relayer is currently processing too many requests"
)
INTERNAL_TEXT: Final = "Internal server error"
NOT_FOUND_TEXT: Final = "Request not found"
DATABASE_TEXT: Final = "Database error"
DATABASE_AWAY_TEXT: Final = "The database does not answer at the moment"
UNAUTHORIZED_TEXT: Final = "API key missing or not valid"
NO_RESULT_TEXT: Final = "Internal error: completed request missing response data"
FEW_SHARES_TEXT: Final = "Internal error: completed request has insufficient shares"
UNREADABLE_RESULT_TEXT: Final = "Failed to deserialize response data"
RESPONSE_TIMEOUT_TEXT: Final = "Gateway chain did not respond within the expected timeframe"
READINESS_TIMEOUT_TEXT: Final = "Ciphertext not ready for decryption on the gateway chain"
NO_TIMEOUT_REASON_TEXT: Final = "Request timed out (reason not available)"
NO_FAILURE_REASON_TEXT: Final = "Unknown error"
SIGNATURE_MESSAGE: Final = "Validation failed for 1 field(s)"
SIGNATURE_FIELD: Final = "signature"
SIGNATURE_ISSUE: Final = "Signature is invalid"
NOT_CANCELABLE_TEXT: Final = "The request can no longer be canceled: a transaction may already carry it"
KEYS_NOT_READY_TEXT: Final = "FHE key information is not initialised yet"
PAYMENT_NOT_CANCELABLE_TEXT: Final = "The payment can no longer be canceled"
OTHER_AUTHORIZATION_TEXT: Final = "The payment carries another authorization already"
NOT_AUTHORIZABLE_TEXT: Final = "The payment can no longer be authorized"
AUTHORIZATION_EXPIRED_TEXT: Final = "The time for this authorization is over"
ACCOUNT_DISABLED_TEXT: Final = "The account of this API key is disabled"
IN_FLIGHT_TEXT: Final = "A request with this Idempotency-Key is being worked on"
OTHER_REQUEST_TEXT: Final = "This Idempotency-Key belongs to another request"
WEBHOOK_NOT_FOUND_TEXT: Final = "Webhook not found"
WEBHOOK_LIMIT_TEXT: Final = "The account has as many webhooks as it may have"
WEBHOOK_NOT_TESTABLE_TEXT: Final = "The webhook is paused, or its last test is still on its way"
