"""Query parameters of the v1 lists: numbers, hex topics, originators, clocks. Every refusal names its parameter."""

from __future__ import annotations

import re
from typing import Final

from django.http import HttpRequest

from requests_app.api.refusals import Detail, Refused, validation_failed
from requests_app.store.bands import LARGEST_POSITION, LARGEST_SOURCE
from requests_app.store.publish import LONGEST_TOPIC

TOPICS_AT_MOST: Final = 100
ORIGINATORS_AT_MOST: Final = 100
_NUMBER: Final = re.compile(r"[0-9]{1,19}").fullmatch
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})+").fullmatch


def refused(field: str, issue: str) -> Refused:
    """400 that blames one parameter."""
    return validation_failed([Detail(field, issue)])


def known_only(request: HttpRequest, *names: str) -> None:
    """Refuse parameters that the list does not know: a misspelled filter must not answer everything."""
    for name in request.GET:
        if name not in names:
            raise refused(name[:100], "Unknown parameter")


def number(text: str, field: str, least: int, most: int) -> int:
    """A decimal number within bounds. Raises Refused."""
    if not _NUMBER(text) or not least <= int(text) <= most:
        raise refused(field, f"Must be a whole number from {least} to {most}")
    return int(text)


def limit_of(request: HttpRequest, most: int, default: int = 100) -> int:
    """`limit`, 1 to `most`."""
    text = request.GET.get("limit")
    return default if text is None else number(text, "limit", 1, most)


def topic_of(text: str, field: str = "topic") -> bytes:
    """A topic: 1 to 128 bytes as 0x hex."""
    if not _HEX(text) or len(text) > 2 + 2 * LONGEST_TOPIC:
        raise refused(field, f"Must be 1 to {LONGEST_TOPIC} bytes as 0x hex")
    return bytes.fromhex(text[2:])


def topics_of(request: HttpRequest) -> list[bytes]:
    """Every `topic`, each once, in order."""
    texts = request.GET.getlist("topic")
    if len(texts) > TOPICS_AT_MOST:
        raise refused("topic", f"At most {TOPICS_AT_MOST}")
    return sorted({topic_of(text) for text in texts})


def originators_of(request: HttpRequest) -> list[int]:
    """Every `originator`, each once, in order."""
    texts = request.GET.getlist("originator")
    if len(texts) > ORIGINATORS_AT_MOST:
        raise refused("originator", f"At most {ORIGINATORS_AT_MOST}")
    return sorted({number(text, "originator", 1, LARGEST_SOURCE) for text in texts})


def clock_of(request: HttpRequest) -> dict[int, int]:
    """`after`: pairs originator:position, separated by commas; a position is the last one already read."""
    text = request.GET.get("after", "")
    pairs = text.split(",") if text else []
    if len(pairs) > ORIGINATORS_AT_MOST:
        raise refused("after", f"At most {ORIGINATORS_AT_MOST} originators")
    clock: dict[int, int] = {}
    for pair in pairs:
        source, colon, position = pair.partition(":")
        if not colon:
            raise refused("after", "Must be originator:position, separated by commas")
        clock[number(source, "after", 1, LARGEST_SOURCE)] = number(position, "after", 0, LARGEST_POSITION)
    return clock
