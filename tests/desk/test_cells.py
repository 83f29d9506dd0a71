"""How single values look: words instead of JSON, units beside numbers, zones beside times. No page is needed for it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.utils.html import strip_tags

from requests_app.admin import cells
from requests_app.admin.page import Table
from requests_app.admin.subject import asked
from tests.desk.surroundings import HOSTILE


def words(shown: object) -> str:
    """What a reader sees, without the icons."""
    return strip_tags(re.sub(r"<button.*?</button>", "", str(shown)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"latest_nonce": 1201, "asked_endpoints": 1}, "latest nonce 1\u202f201asked endpoints 1"),
        ({"settled_by": "0x" + "ab" * 32}, "settled by 0xababab…ababab"),
        ({"final": True, "why": None}, "final yeswhy –"),
        ({"handles": ["0x" + "01" * 32, "0x" + "02" * 32]}, "handles 0x010101…0101010x020202…020202"),
        ({"empty": []}, "empty –"),
        ("plain text", "plain text"),
        ({}, "–"),
    ],
)
def test_a_document_reads_as_words(value: Any, text: str) -> None:
    assert words(cells.document(value)) == text
    assert "rl-json" not in str(cells.document(value))


def test_a_document_within_a_document_stays_one() -> None:
    shown = str(cells.document({"outer": {"inner": HOSTILE}}))
    assert "rl-json" in shown
    assert "<script>" not in shown
    assert "<script>" not in str(cells.document({HOSTILE: HOSTILE, "list": [HOSTILE]}))


def test_long_hex_tells_its_size_and_is_copied_whole_unless_it_is_huge() -> None:
    key, ciphertext = "0x" + "ab" * 800, "0x" + "cd" * 40_000
    assert "800 bytes" in words(cells.long_code(key))
    assert f'data-copy="{key}"' in str(cells.long_code(key))
    assert "40\u202f000 bytes" in words(cells.long_code(ciphertext))
    assert "data-copy" not in str(cells.long_code(ciphertext))
    assert len(str(cells.long_code(ciphertext))) < 300


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        ("user_decrypt", "type", "user decrypt"),
        ("1790000000", "start_timestamp", "2026-09-21 14:13:20 UTC"),
        ("9" * 78, "start_timestamp", "9" * 78),
        (10, "duration_days", "10"),
        ("0x00", "extra_data", "0x00"),
        ("0x" + "ab" * 20, "user", "0x" + "ab" * 20),
        (HOSTILE, HOSTILE, None),
    ],
)
def test_a_field_of_a_request_reads_as_what_it_is(value: Any, name: str, text: str | None) -> None:
    shown = asked(value, name)
    assert "<script>" not in str(shown)
    if text is not None:
        assert words(shown) == text


def test_a_time_names_its_zone_and_the_year_when_it_is_another() -> None:
    now = datetime.now(UTC)
    assert words(cells.short_moment(now)) == f"{now:%b %d %H:%M:%S} UTC"
    assert words(cells.short_moment(datetime(2019, 3, 4, 5, 6, 7, tzinfo=UTC))) == "2019-03-04 05:06:07 UTC"


@pytest.mark.parametrize(
    ("wei", "text"), [(0, "0"), (1, "< 0.0001"), (10**14, "0.0001"), (25 * 10**17, "2.5000"), (2**256 - 1, "unlimited")]
)
def test_a_small_balance_is_not_none(wei: int, text: str) -> None:
    assert words(cells.tokens(Decimal(wei))) in (text, text.replace("<", "&lt;"))


def test_a_copy_button_is_named_by_what_is_shown() -> None:
    assert 'aria-label="Copy 0xababab…ababab"' in str(cells.code("0x" + "ab" * 32))


def test_each_cell_of_a_table_knows_its_heading() -> None:
    table = Table("T", ("Nonce", "State"), [(1, "live"), (2, "final")])
    assert table.labelled() == [[("Nonce", 1), ("State", "live")], [("Nonce", 2), ("State", "final")]]
    with pytest.raises(ValueError, match="zip"):
        Table("T", ("Nonce",), [(1, 2)]).labelled()
