"""The strict reader: the first structural error of fhevm_http 4, whatever the bytes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requests_app.api.json_reader import NUMBER_OR_TEXT, TEXT, ListOf, Record, read_record, top_level_keys
from requests_app.api.refusals import Refused

SHAPE = Record({"a": TEXT, "n": NUMBER_OR_TEXT, "list": ListOf(TEXT), "in": Record({"x": TEXT, "y": TEXT})})
CLOSED = Record({"a": TEXT, "b": TEXT}, closed=True)
GOOD = '{"a":"1","n":5,"list":["p","q"],"in":{"x":"","y":"z"}}'


def refusal(text: str | bytes, shape: Record = SHAPE) -> tuple[str, str | None, str | None]:
    with pytest.raises(Refused) as caught:
        read_record(text.encode() if isinstance(text, str) else text, shape)
    details = caught.value.details
    return caught.value.label.value, *((details[0].field, details[0].issue) if details else (None, None))


MALFORMED = ("malformed_json", None, None)


def test_reads_known_keys_and_drops_others() -> None:
    text = ' {"zz": [1, {"deep": null}], ' + GOOD[1:-1] + ', "yy": -1.5e3}\n'
    assert read_record(text.encode(), SHAPE) == {
        "a": "1",
        "n": "5",
        "list": ["p", "q"],
        "in": {"x": "", "y": "z"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "not json",
        GOOD[:-1],
        GOOD + "x",
        GOOD + GOOD,
        GOOD.replace(',"n"', '"n"'),
        GOOD.replace('"a":', '"a"'),
        GOOD.replace('["p","q"]', '["p","q",]'),
        GOOD.replace("}}", "},}"),
        GOOD.replace('"1"', '"\x01"'),
        GOOD.replace('"1"', '"\\ud800"'),
        GOOD.replace('"1"', '"\\x41"'),
        GOOD.replace('"a":"1"', '"a":"1","a":"1"'),
        GOOD.replace('"a":"1"', '"u":"1","u":"1","a":"1"'),
        GOOD.replace('"a":"1"', '"u":{"k":1,"k":2},"a":"1"'),
        GOOD.replace("5", "NaN"),
        GOOD.replace("5", "Infinity"),
        GOOD.replace("5", "05"),
        GOOD.replace("5", "5."),
        GOOD.replace("5", "1e999"),
        GOOD.replace("5", "null"),
        GOOD.replace("5", "true"),
        GOOD.replace("5", "[]"),
        GOOD.replace("5", "{}"),
        GOOD.replace('"1"', "tru"),
        GOOD.replace('"1"', "nul"),
        GOOD.replace('"1"', "-"),
        "[]",
        "\ufeff" + GOOD,
        "[" * 5000 + "]" * 5000,
        '{"u":' + "[" * 5000,
        '{"u":' + "[" * 129 + "]" * 129 + "," + GOOD[1:],
        '{"u":' + '{"k":' * 129 + "1" + "}" * 129 + "," + GOOD[1:],
    ],
)
def test_malformed(text: str) -> None:
    assert refusal(text) == MALFORMED


@pytest.mark.parametrize(
    "raw",
    [b'{"a":"\xff"}', b'{"\xc3":1}', b"\xff", GOOD.encode() + b"\x80", GOOD.encode("utf-16"), b'{"a":"\xed\xa0\x80"}'],
)
def test_bytes_that_are_not_utf8_are_malformed(raw: bytes) -> None:
    assert refusal(raw) == MALFORMED


def test_nesting_up_to_the_limit_is_fine() -> None:
    text = '{"u":' + "[" * 128 + "]" * 128 + "," + GOOD[1:]
    assert read_record(text.encode(), SHAPE)["a"] == "1"


@pytest.mark.parametrize("value", ["null", "1", "true", "[]", "{}", "-0.5"])
def test_a_string_is_wanted(value: str) -> None:
    assert refusal(GOOD.replace('"1"', value)) == ("validation_failed", "request", "Value must be a string")


@pytest.mark.parametrize("value", ["null", "1", '"s"', "{}"])
def test_an_array_is_wanted(value: str) -> None:
    assert refusal(GOOD.replace('["p","q"]', value)) == ("validation_failed", "request", "Invalid data type")


@pytest.mark.parametrize("value", ["null", "1", '"s"', "[]"])
def test_an_object_is_wanted(value: str) -> None:
    assert refusal(GOOD.replace('{"x":"","y":"z"}', value)) == ("validation_failed", "request", "Invalid data type")


@pytest.mark.parametrize("text", ['"s"', "1", "null", "true"])
def test_top_level_must_be_an_object(text: str) -> None:
    assert refusal(text) == ("validation_failed", "request", "Invalid data type")


def test_a_type_error_wins_over_a_syntax_error_behind_it() -> None:
    assert refusal('{"a":1,"n":oops') == ("validation_failed", "request", "Value must be a string")


def test_a_syntax_error_wins_over_a_type_error_behind_it() -> None:
    assert refusal('{"n":05,"a":1}') == MALFORMED


def test_bad_utf8_behind_a_type_error_does_not_hide_it() -> None:
    assert refusal(b'{"a":1,"n":"\xff"}') == ("validation_failed", "request", "Value must be a string")


def test_the_first_missing_key_in_declaration_order_is_named() -> None:
    assert refusal("{}") == ("missing_fields", "a", "Required but missing")
    assert refusal('{"in":{"x":"","y":""},"a":""}') == ("missing_fields", "n", "Required but missing")


def test_a_missing_nested_key_is_named_without_its_path_and_first() -> None:
    assert refusal('{"in":{"y":""}}') == ("missing_fields", "x", "Required but missing")


def test_an_unknown_key_of_a_closed_record_wins_over_missing_ones() -> None:
    assert refusal('{"zz":1}', CLOSED) == ("validation_failed", "zz", "Unknown field")
    assert refusal('{"' + "z" * 5000 + '":1}', CLOSED)[1] == "z" * 100


def test_a_repeated_key_is_found_before_its_value() -> None:
    assert refusal('{"a":"","a":5', CLOSED) == MALFORMED


@pytest.mark.parametrize(("text", "value"), [("8009", "8009"), ("8009.0", "8009.0"), ("-1", "-1"), ("1e3", "1e3")])
def test_numbers_keep_their_text(text: str, value: str) -> None:
    assert read_record(GOOD.replace("5", text).encode(), SHAPE)["n"] == value


def test_a_number_of_many_digits_is_text_too() -> None:
    digits = "9" * 300
    assert read_record(GOOD.replace("5", digits).encode(), SHAPE)["n"] == digits
    assert refusal(GOOD.replace("5", "9" * 1500)) == MALFORMED  # not finite as a double


def test_escapes_and_pairs_are_decoded() -> None:
    text = GOOD.replace('"1"', r'"\u00e9\n\ud83d\ude00\/"')
    assert read_record(text.encode(), SHAPE)["a"] == "é\n😀/"


def test_top_level_keys() -> None:
    assert top_level_keys(b'{"a":1,"b":{"c":[]}}') == {"a", "b"}
    assert top_level_keys(b"[1]") == frozenset()
    with pytest.raises(Refused):
        top_level_keys(b'{"a":1,"a":2}')


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=6), st.booleans())
def test_accepts_what_json_writes(document: dict[str, Any], ascii_only: bool) -> None:
    has_surrogate = "\\ud" in json.dumps(document) and not _encodable(document)
    raw = json.dumps(document, ensure_ascii=ascii_only or has_surrogate).encode()
    if has_surrogate:
        with pytest.raises(Refused):
            top_level_keys(raw)
    else:
        assert top_level_keys(raw) == frozenset(document)


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:0123456789eE+-. \ntrufalsn\\', max_size=40))
def test_agrees_with_the_standard_parser_on_random_text(text: str) -> None:
    """Whatever json.loads refuses is refused; what it takes, apart from what the contract forbids, is taken."""
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        with pytest.raises(Refused):
            top_level_keys(text.encode())
    else:
        assert top_level_keys(text.encode()) == (frozenset(value) if isinstance(value, dict) else frozenset())


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _finite(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(text)
    return float(text)
