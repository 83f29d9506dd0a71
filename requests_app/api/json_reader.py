"""A strict single-pass JSON reader that knows the shape it reads.

Why not ``json.loads``: the contract (fhevm_http 4) names the *first* structural error in document order (a wrong type
before a syntax error further on wins), refuses duplicate keys, NaN, lone surrogates, invalid UTF-8 and deep nesting,
and tells a missing key of a nested object from one of its parent. The long parts, strings, are read by CPython's C
scanner. Grammar: RFC 8259.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # not in typeshed; C version
from typing import Any, Final, NoReturn, TypeAlias

from requests_app.api.refusals import invalid_structure, malformed_json, missing_field, unknown_field

STRING_WANTED: Final = "Value must be a string"
OTHER_WANTED: Final = "Invalid data type"
MAX_DEPTH: Final = 128  # serde_json's recursion limit

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Text:
    """A JSON string."""


@dataclass(frozen=True, slots=True)
class NumberOrText:
    """A JSON string or number; a number becomes its decimal text. Anything else is malformed."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A JSON array of one shape."""

    item: Shape


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object with required keys in declaration order. `closed` refuses keys it does not know."""

    keys: Mapping[str, Shape]
    closed: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.keys))


Shape: TypeAlias = Text | NumberOrText | ListOf | Record
Value: TypeAlias = "str | list[Value] | dict[str, Value]"

TEXT: Final = Text()
NUMBER_OR_TEXT: Final = NumberOrText()


def read_record(raw: bytes, shape: Record) -> dict[str, Any]:
    """Parse `raw` into the record's keys. Unknown keys are dropped.

    Raises Refused (malformed_json, missing_fields or validation_failed) for the first structural error.
    """
    reader = _Reader(raw)
    value = reader.top_level(shape)
    reader.end()
    return value


def top_level_keys(raw: bytes) -> frozenset[str]:
    """The keys of the object in `raw`; empty when it is another JSON value. Raises Refused(malformed_json)."""
    reader = _Reader(raw)
    value = reader.anything(0)
    reader.end()
    return value if value is not None else frozenset()


class _Reader:
    """The text and the place in it."""

    __slots__ = ("_at", "_text")

    def __init__(self, raw: bytes) -> None:
        # Invalid UTF-8 becomes lone surrogates, which are refused where they stand: an error before them still wins.
        self._text = raw.decode("utf-8", "surrogateescape")
        self._at = 0

    def top_level(self, shape: Record) -> dict[str, Value]:
        """The whole document as `shape`. A top-level array is malformed, other types are a type error."""
        if self._peek() == "[":
            raise malformed_json()
        return self._record(shape)

    def end(self) -> None:
        """Only white space may follow."""
        if self._peek():
            raise malformed_json()

    def anything(self, depth: int) -> frozenset[str] | None:
        """Skip one value after checking its grammar; the keys when it is an object, else None."""
        first = self._peek()
        if first == '"':
            self._string()
        elif first == "{":
            return self._skip_object(depth + 1)
        elif first == "[":
            self._skip_array(depth + 1)
        else:
            self._skip_scalar(first)
        return None

    # -- shaped values ------------------------------------------------------------------------------------------------

    def _value(self, shape: Shape) -> Value:
        if isinstance(shape, Text):
            if self._peek() == '"':
                return self._string()
            self._wrong_type(STRING_WANTED)
        if isinstance(shape, Record):
            return self._record(shape)
        if isinstance(shape, ListOf):
            return self._list(shape.item)
        return self._number_or_text()

    def _record(self, shape: Record) -> dict[str, Value]:
        if self._peek() != "{":
            self._wrong_type(OTHER_WANTED)
        self._at += 1
        known: dict[str, Value] = {}
        unknown: set[str] = set()
        keys = shape.keys
        more = self._peek() != "}"
        if not more:
            self._at += 1
        while more:
            name = self._key()
            if name in known or name in unknown:
                raise malformed_json()
            wanted = keys.get(name)
            if wanted is not None:
                self._colon()
                known[name] = self._value(wanted)
            elif shape.closed:
                raise unknown_field(name)
            else:
                unknown.add(name)
                self._colon()
                self.anything(0)
            more = self._more("}")
        if len(known) < shape.size:
            raise missing_field(next(name for name in keys if name not in known))
        return known

    def _list(self, item: Shape) -> list[Value]:
        if self._peek() != "[":
            self._wrong_type(OTHER_WANTED)
        self._at += 1
        values: list[Value] = []
        if self._peek() == "]":
            self._at += 1
            return values
        while True:
            values.append(self._value(item))
            if not self._more("]"):
                return values

    def _number_or_text(self) -> str:
        first = self._peek()
        if first == '"':
            return self._string()
        if first == "-" or first.isdigit():
            return self._number()
        raise malformed_json()

    def _wrong_type(self, issue: str) -> NoReturn:
        """The value in this place has another type; its own grammar, as far as its first token, is checked first."""
        first = self._peek()
        if first == '"':
            self._string()
        elif first not in ("{", "["):
            self._skip_scalar(first)
        raise invalid_structure(issue)

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        """The first character after white space, where the place now is; empty at the end."""
        text, at = self._text, self._at
        first = text[at : at + 1]
        if first in (" ", "\n", "\t", "\r"):
            match = _SPACE.match(text, at)
            self._at = at = match.end() if match else at
            first = text[at : at + 1]
        return first

    def _key(self) -> str:
        if self._peek() != '"':
            raise malformed_json()
        return self._string()

    def _colon(self) -> None:
        if self._peek() != ":":
            raise malformed_json()
        self._at += 1

    def _more(self, closing: str) -> bool:
        """Step over a comma (True) or the closing bracket (False)."""
        first = self._peek()
        if first == ",":
            self._at += 1
            return True
        if first == closing:
            self._at += 1
            return False
        raise malformed_json()

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, True)
        except JSONDecodeError:
            raise malformed_json() from None
        if not value.isascii() and _SURROGATE.search(value):
            raise malformed_json()
        return str(value)

    def _number(self) -> str:
        match = _NUMBER.match(self._text, self._at)
        if match is None or float(match[0]) in (_INFINITY, -_INFINITY):
            raise malformed_json()
        self._at = match.end()
        return match[0]

    # -- values nobody asked for --------------------------------------------------------------------------------------

    def _skip_scalar(self, first: str) -> None:
        if first == "-" or first.isdigit():
            self._number()
            return
        for word in ("null", "true", "false"):
            if first == word[0] and self._text.startswith(word, self._at):
                self._at += len(word)
                return
        raise malformed_json()

    def _skip_array(self, depth: int) -> None:
        self._check_depth(depth)
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self.anything(depth)
            if not self._more("]"):
                return

    def _skip_object(self, depth: int) -> frozenset[str]:
        self._check_depth(depth)
        self._at += 1
        names: set[str] = set()
        more = self._peek() != "}"
        if not more:
            self._at += 1
        while more:
            name = self._key()
            if name in names:
                raise malformed_json()
            names.add(name)
            self._colon()
            self.anything(depth)
            more = self._more("}")
        return frozenset(names)

    @staticmethod
    def _check_depth(depth: int) -> None:
        if depth > MAX_DEPTH:
            raise malformed_json()
