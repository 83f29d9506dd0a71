"""A request that is answered with an error. Each face prints a Refused in its own form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requests_app.api.labels import (
    MALFORMED_JSON_TEXT,
    REQUIRED_TEXT,
    SIGNATURE_FIELD,
    SIGNATURE_ISSUE,
    SIGNATURE_MESSAGE,
    Label,
)

# A field name that the client made up is shown, but never at a length that makes the answer a copy of the request.
SHOWN_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Detail:
    """One complaint about one field; `field` is camelCase, nested names joined by dots."""

    field: str
    issue: str


class Refused(Exception):
    """The request cannot be served; carries the label, the message and where there are any the details.

    `retry_after` is in whole seconds and set only where the client should come again; `members` are further facts for the
    native face.
    """

    def __init__(
        self,
        label: Label,
        message: str,
        details: Sequence[Detail] = (),
        retry_after: int | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.label = label
        self.message = message
        self.details = tuple(details)
        self.retry_after = retry_after
        self.members = dict(members or {})


def malformed_json() -> Refused:
    """The body is not JSON as RFC 8259 and fhevm_http 4 want it."""
    return Refused(Label.MALFORMED_JSON, MALFORMED_JSON_TEXT)


def missing_field(field: str) -> Refused:
    """A required key is absent; only the first one is named, without its path."""
    message = f"Missing 1 required field in the request: {field}"
    return Refused(Label.MISSING_FIELDS, message, [Detail(field, REQUIRED_TEXT)])


def validation_failed(details: Sequence[Detail]) -> Refused:
    """One or more values are not acceptable. `details` must not be empty."""
    names = ", ".join(detail.field for detail in details)
    noun = "field" if len(details) == 1 else "fields"
    return Refused(
        Label.VALIDATION_FAILED, f"Validation failed for {len(details)} {noun} in the request: {names}", details
    )


def invalid_structure(issue: str) -> Refused:
    """A value has another JSON type than its place wants; the parser does not name the key."""
    return validation_failed([Detail("request", issue)])


def unknown_field(name: str) -> Refused:
    """A key that the v3 envelope or its payload does not know."""
    return validation_failed([Detail(name[:SHOWN_NAME_LENGTH], "Unknown field")])


def invalid_signature() -> Refused:
    """The user's signature is proven wrong."""
    return Refused(Label.VALIDATION_FAILED, SIGNATURE_MESSAGE, [Detail(SIGNATURE_FIELD, SIGNATURE_ISSUE)])
