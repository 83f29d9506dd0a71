"""Forms that ask for a deed: what it will do in words, its inputs, a reason, one button. Drawn like any other section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from psycopg import Connection

from requests_app.reviewers import lock_reviewer

REASON_LIMIT: Final = 500


@dataclass(frozen=True, slots=True)
class Input:
    """One input. `kind`: text, number, textarea or select; `value` is what it shows, escaped by the template."""

    name: str
    label: str
    help: str = ""
    kind: str = "text"
    value: str = ""
    required: bool = True
    choices: Sequence[tuple[str, str]] = ()
    limit: int = 200


def reason_input(value: str = "") -> Input:
    """The reason that every deed needs."""
    return Input(
        "reason", "Reason", "kept in the history, for whoever comes after you", "textarea", value, limit=REASON_LIMIT
    )


@dataclass(frozen=True, slots=True)
class DeedForm:
    """A form. `hidden` values travel with it; `tone` good, info, warn or bad says how much it can hurt."""

    title: str
    text: str
    deed: str
    button: str
    inputs: Sequence[Input] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[str] = ()
    tone: str = "info"
    action: str = ""
    template: str = field(default="admin/relayer/deed_form.html", init=False)

    @property
    def key(self) -> str:
        """Distinguishes the ids of its inputs from those of other forms on the page."""
        return f"{self.deed}-{'-'.join(self.hidden.values())}".replace(" ", "-") if self.hidden else self.deed


@dataclass(frozen=True, slots=True)
class DeedForms:
    """Several forms, each folded up until it is wanted."""

    title: str
    note: str
    items: Sequence[DeedForm]
    refused: Sequence[tuple[str, str]] = ()
    """Deeds that cannot be done now, with why not."""
    opened: str = ""
    template: str = field(default="admin/relayer/deed_forms.html", init=False)


def posted_reason(request: HttpRequest) -> str:
    """The reason of a POST on one line of at most REASON_LIMIT characters; "" when none was given."""
    return " ".join(request.POST.get("reason", "").split())[:REASON_LIMIT].replace("\x00", "")


def lock_author(conn: Connection[Any], request: HttpRequest) -> str:
    """The name of whoever does a deed, whose account cannot be disabled before the transaction ends. Raises PermissionDenied.

    That the account was active when the request began is no check of the write (I11).
    """
    name = lock_reviewer(conn, int(request.user.pk or 0))
    if name is None:
        raise PermissionDenied
    return name
