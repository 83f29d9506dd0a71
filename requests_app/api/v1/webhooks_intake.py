"""From the bodies of webhooks to checked values. Every refusal names its field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from requests_app.api import rules
from requests_app.api.json_reader import TEXT, ListOf, Record, Shape, read_record, top_level_keys
from requests_app.api.v1.queries import refused
from requests_app.services_webhooks import check_url
from requests_app.states import EVENTS, USUAL_EVENTS, Kind, WebhookState
from requests_app.store.webhooks import Wanted
from requests_app.webhook_targets import TargetRefused, TargetUnknown

LONGEST_DESCRIPTION: Final = 200
MOST_NAMES: Final = 100
_SHAPES: Final[dict[str, Shape]] = {
    "url": TEXT,
    "events": ListOf(TEXT),
    "kinds": ListOf(TEXT),
    "description": TEXT,
    "state": TEXT,
}
_KINDS: Final = {kind.slug: kind for kind in Kind}
_STATES: Final = (WebhookState.ENABLED, WebhookState.PAUSED)
_PUBLIC_ID: Final = re.compile(r"wh_[0-9a-f]{24}").fullmatch
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]").search


class Changed(NamedTuple):
    """What a PATCH asks for; None is not asked for."""

    wanted: Wanted
    state: WebhookState | None


def new_webhook(raw: bytes) -> Wanted:
    """The body of a POST; without events all ends, without kinds all kinds. Looks the URL's host up. Raises Refused."""
    fields = _fields(raw, required=("url",), optional=("events", "kinds", "description"))
    wanted = _wanted(fields)
    return wanted._replace(
        events=USUAL_EVENTS if wanted.events is None else wanted.events,
        kinds=tuple(Kind) if wanted.kinds is None else wanted.kinds,
        description=wanted.description or "",
    )


def changes(raw: bytes) -> Changed:
    """The body of a PATCH. Looks a new URL's host up. Raises Refused."""
    fields = _fields(raw, required=(), optional=tuple(_SHAPES))
    state = fields.get("state")
    if state is not None and state not in [one.value for one in _STATES]:
        raise refused("state", "Must be enabled or paused")
    return Changed(_wanted(fields), None if state is None else WebhookState(state))


def public_id(text: str) -> str | None:
    """The id in a path, or None when it cannot be one."""
    return text if _PUBLIC_ID(text) else None


def _fields(raw: bytes, required: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    given = top_level_keys(raw)
    names = [*required, *(name for name in optional if name in given)]
    return read_record(raw, Record({name: _SHAPES[name] for name in names}, closed=True))


def _wanted(fields: dict[str, Any]) -> Wanted:
    url, events, kinds = fields.get("url"), fields.get("events"), fields.get("kinds")
    description = fields.get("description")
    found = rules.Findings()
    found.add("events", None if events is None else _names_complaint(events, EVENTS))
    found.add("kinds", None if kinds is None else _names_complaint(kinds, list(_KINDS)))
    found.add("description", None if description is None else _text_complaint(description))
    if url is not None:
        found.add("url", _url_complaint(url))
    found.settle()
    return Wanted(
        url,
        description,
        None if events is None else tuple(name for name in EVENTS if name in events),
        None if kinds is None else tuple(kind for slug, kind in _KINDS.items() if slug in kinds),
    )


def _url_complaint(url: str) -> str | None:
    try:
        check_url(url)
    except (TargetRefused, TargetUnknown) as error:
        return str(error)
    return None


def _names_complaint(names: Sequence[str], known: Sequence[str]) -> str | None:
    if not names:
        return "Must name at least one"
    return None if set(known).issuperset(names) and len(names) <= MOST_NAMES else f"Must be among {', '.join(known)}"


def _text_complaint(text: str) -> str | None:
    if len(text) > LONGEST_DESCRIPTION or _UNPRINTABLE(text):
        return f"Must be at most {LONGEST_DESCRIPTION} characters of plain text in one line"
    return None
