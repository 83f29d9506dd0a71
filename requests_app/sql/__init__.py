"""Named SQL statements, one file a topic, each loaded once.

A statement starts with `-- name: <python function>`; comments above it say which function and plan it serves.
`{table}`-like parts are filled with SQL from code, never with input.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def topic(name: str) -> dict[str, str]:
    """All statements of `sql/<name>.sql`. Raises FileNotFoundError, or ValueError for a name given twice."""
    text = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    pieces = _NAME.split(text)[1:]
    statements: dict[str, str] = {}
    for statement_name, body in zip(pieces[::2], pieces[1::2], strict=True):
        if statement_name in statements:
            raise ValueError(f"{name}.sql names {statement_name} twice")
        statements[statement_name] = body.strip().rstrip(";")
    return statements


@cache
def statement(topic_name: str, name: str, **parts: str) -> str:
    """The text of one statement, its `{part}`s filled in. Raises KeyError for an unknown name."""
    text = topic(topic_name)[name]
    for key, value in parts.items():
        text = text.replace("{" + key + "}", value)
    return text


def ddl(name: str) -> str:
    """The text of a schema file under `sql/ddl/`, for migrations."""
    return (_FOLDER / "ddl" / f"{name}.sql").read_text(encoding="utf-8")
