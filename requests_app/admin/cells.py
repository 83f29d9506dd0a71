"""How single values look on a page. Everything is escaped here; what comes out is safe HTML or plain text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from requests_app.models.commands import Target, subject_name
from requests_app.states import Kind, Status

NOTHING: Final = "–"
TONES: Final[dict[str, str]] = {
    # requests
    Status.QUEUED.value: "neutral",
    Status.PROCESSING.value: "info",
    Status.TX_IN_FLIGHT.value: "info",
    Status.RECEIPT_RECEIVED.value: "info",
    Status.COMPLETED.value: "good",
    Status.TIMED_OUT.value: "warn",
    Status.FAILURE.value: "bad",
    Status.NEEDS_REVIEW.value: "review",
    # payments, their entries, letters
    "created": "neutral",
    "authorized": "info",
    "settling": "info",
    "confirming": "info",
    "settled": "good",
    "failed": "bad",
    "canceled": "neutral",
    "hold": "info",
    "post": "good",
    "void": "neutral",
    "parked": "review",
    "redriven": "good",
    # slots and attempts
    "signed": "info",
    "live": "info",
    "prepared": "info",
    "accepted": "info",
    "unknown": "warn",
    "mined": "good",
    "final": "good",
    "dead": "neutral",
    "replaced": "neutral",
    "dropped": "warn",
    "refused": "bad",
    # webhooks and their deliveries
    "enabled": "good",
    "removed": "neutral",
    "waiting": "info",
    "delivered": "good",
    # accounts, signers, commands, cases, sources
    "active": "good",
    "paused": "warn",
    "blocked": "bad",
    "disabled": "bad",
    "pending": "info",
    "claimed": "info",
    "consumed": "good",
    "open": "review",
    "closed": "neutral",
    "halted": "bad",
}
_LONG_TEXT: Final = 160
_LONG_COPY: Final = 20_000  # characters; every one of them stands in the page twice


def badge(value: str | None) -> SafeString | str:
    """A state as a coloured label; the words carry the meaning, the colour only repeats it."""
    if not value:
        return NOTHING
    return toned(value.replace("_", " "), TONES.get(value, "neutral"))


def toned(text: str, tone: str) -> SafeString:
    """A label in one of the tones neutral, info, good, warn, bad, review."""
    return format_html('<span class="rl-badge rl-{}">{}</span>', tone, text)


def as_hex(value: bytes | memoryview | None) -> str | None:
    """0x and the bytes in hex; None stays None."""
    return None if value is None else "0x" + bytes(value).hex()


def code(text: str | None, keep: int = 6) -> SafeString | str:
    """A hash, address or id: shortened in the middle, whole in the tooltip, with a button that copies it."""
    if not text:
        return NOTHING
    body = text if len(text) <= 2 * keep + 5 else f"{text[: keep + 2]}…{text[-keep:]}"
    return format_html(
        '<span class="rl-code" title="{0}"><code>{1}</code>'
        '<button type="button" class="rl-copy" data-copy="{0}" aria-label="Copy {1}"><span class="material-symbols-outlined" aria-hidden="true">content_copy</span></button></span>',
        text,
        body,
    )


def hex_code(value: bytes | memoryview | None) -> SafeString | str:
    """Bytes as a short hash with a copy button."""
    return code(as_hex(value))


def uint256(value: bytes | memoryview | None) -> SafeString | str:
    """A 32-byte id: hex like any hash, its decimal form beside it when people can read that."""
    if value is None:
        return NOTHING
    number = int.from_bytes(bytes(value), "big")
    if number < 10**12:
        return str(number)
    return code(as_hex(value))


def duration(seconds: float | None) -> str:
    """Seconds in the two largest units that matter: 0.4 s, 12 s, 3 min 20 s, 4 h 5 min, 2 d 3 h."""
    if seconds is None:
        return NOTHING
    seconds = max(0.0, float(seconds))
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def moment(value: datetime | None) -> SafeString | str:
    """A time in UTC; the browser adds the reader's own time to the tooltip."""
    if value is None:
        return NOTHING
    utc = value.astimezone(UTC)
    return format_html('<time class="rl-time" datetime="{}">{}</time>', utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def short_moment(value: datetime | None) -> SafeString | str:
    """A time for a table's column: the year only where it is not the present one. Where columns are narrow the zone is left to the tooltip."""
    if value is None:
        return NOTHING
    utc = value.astimezone(UTC)
    shown = f"{utc:%b %d %H:%M:%S}" if utc.year == datetime.now(UTC).year else f"{utc:%Y-%m-%d %H:%M:%S}"
    return format_html(
        '<time class="rl-time" datetime="{}" title="{}">{}<span class="rl-zone"> UTC</span></time>',
        utc.isoformat(),
        f"{utc:%Y-%m-%d %H:%M:%S} UTC",
        shown,
    )


def age(value: datetime | None) -> SafeString | str:
    """How long ago, with the exact time in the tooltip."""
    if value is None:
        return NOTHING
    utc = value.astimezone(UTC)
    return format_html(
        '<time class="rl-time" datetime="{}" title="{}">{}</time>',
        utc.isoformat(),
        f"{utc:%Y-%m-%d %H:%M:%S} UTC",
        duration((datetime.now(UTC) - utc).total_seconds()),
    )


def number(value: int | None) -> str:
    """A whole number with thin spaces between thousands."""
    return NOTHING if value is None else f"{value:,}".replace(",", "\u202f")


def tokens(value: Decimal | None) -> SafeString | str:
    """An amount of 18 decimals in whole units, the exact amount in the tooltip; half of uint256 and more is unlimited."""
    if value is None:
        return NOTHING
    if value >= 2**255:
        return format_html('<span title="{} base units">unlimited</span>', int(value))
    units = Decimal(value) / Decimal(10**18)
    shown = f"{units:.2e}" if units >= 10**12 else f"{units:,.4f}".replace(",", "\u202f")
    if units < Decimal("0.0001"):
        shown = "< 0.0001" if units > 0 else "0"
    return format_html('<span title="{} base units">{}</span>', int(value), shown)


def link(text: Any, url: str) -> SafeString:
    """A link inside the admin."""
    return format_html('<a class="rl-link" href="{}">{}</a>', url, text)


def wrapped(text: str | None) -> SafeString | str:
    """Prose in a table's cell: may break, unlike the other cells."""
    return format_html('<div class="rl-wrap">{}</div>', text) if text else NOTHING


def stacked(parts: Iterable[Any]) -> SafeString:
    """Values under one another in one cell; nothing for none."""
    lines = format_html_join("", '<div class="rl-line">{}</div>', ((part,) for part in parts))
    return format_html('<div class="rl-lines">{}</div>', lines) if lines else lines


def stacked_pairs(pairs: Iterable[tuple[str, Any]]) -> SafeString:
    """Named values in one line of a cell."""
    return format_html_join(" ", '<span class="rl-pair"><span class="rl-note">{}</span> {}</span>', pairs)


def gwei(value: Decimal | None) -> SafeString | str:
    """A fee per gas in gwei, the exact wei in the tooltip."""
    if value is None:
        return NOTHING
    shown = f"{Decimal(value) / Decimal(10**9):.4f}".rstrip("0").rstrip(".")
    text = f"{int(value)} wei" if shown == "0" else f"{shown} gwei"
    return format_html('<span title="{} wei">{}</span>', int(value), text)


def subject(kind: int, subject_id: int, text: str | None = None) -> SafeString | str:
    """A link to the page of a request or payment, or of what else a case or command is about."""
    if kind not in _MODELS:
        return f"{kind}/{subject_id}"
    return link(text or f"{kind_words(kind)} #{subject_id}", subject_url(kind, subject_id))


def kind_words(kind: int) -> str:
    """What a case is about: "user decrypt", "payment", "source"."""
    return subject_name(kind).replace("_", " ")


def subject_url(kind: int, subject_id: int) -> str:
    """The address of the page of a request, a payment, a signer, a source."""
    return reverse(f"admin:requests_app_{_MODELS[kind]}_change", args=(subject_id,))


_MODELS: Final[dict[int, str]] = {
    Kind.USER_DECRYPT: "userdecryptrequest",
    Kind.PUBLIC_DECRYPT: "publicdecryptrequest",
    Kind.INPUT_PROOF: "inputproofrequest",
    Kind.PAYMENT: "paymentintent",
    Target.SIGNER: "signer",
    Target.SOURCE: "envelopesource",
}


def size(count: int) -> str:
    """A number of bytes."""
    return f"{number(count)} bytes"


def long_code(text: str) -> SafeString | str:
    """Hex of many bytes: its ends and its size, with a button that copies the whole as long as that is no burden to the page."""
    told = size((len(text) - 2) // 2)
    if len(text) <= _LONG_COPY:
        return format_html("{} {}", code(text, 12), told)
    return format_html('<span class="rl-code"><code>{}…{}</code></span> {}', text[:14], text[-12:], told)


def _shortened(value: Any) -> Any:
    """The value with long texts cut, so that a ciphertext does not fill the page."""
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        told = size((len(value) - 2) // 2) if value.startswith("0x") else f"{number(len(value))} characters"
        return f"{value[:74]}…{value[-8:]} ({told})"
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value


def document(value: Any) -> SafeString | str:
    """Named values in words where there is nothing else, else JSON, indented; long texts shortened."""
    if value in (None, {}, []):
        return NOTHING
    if isinstance(value, str):
        return wrapped(_shortened(value))
    if isinstance(value, dict) and all(_told(one) for one in value.values()):
        return stacked(
            format_html('<span class="rl-note">{}</span> {}', str(name).replace("_", " "), _words(one))
            for name, one in value.items()
        )
    return format_html(
        '<pre class="rl-json" tabindex="0">{}</pre>',
        json.dumps(_shortened(value), indent=2, ensure_ascii=False, default=str),
    )


def _told(value: Any) -> bool:
    """Whether a value of a document is one value, or some."""
    return not isinstance(value, dict) and not (
        isinstance(value, list) and any(isinstance(one, dict | list) for one in value)
    )


def _words(value: Any) -> SafeString | str:
    """One value of a document, or some after one another."""
    if isinstance(value, list):
        return format_html_join("", '<span class="rl-pair">{}</span>', ((_words(one),) for one in value)) or NOTHING
    if isinstance(value, str) and value.startswith("0x") and len(value) > 20:
        return long_code(value) if len(value) > _LONG_TEXT else code(value)
    return plain(_shortened(value))


def plain(value: Any) -> SafeString | str:
    """Any database value in the form that suits its type."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes | memoryview):
        return (
            hex_code(value) if len(bytes(value)) <= 65 else f"{as_hex(bytes(value)[:24])}… ({size(len(bytes(value)))})"
        )
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, dict | list):
        return document(value)
    if isinstance(value, int):
        return number(value)
    return str(value)
