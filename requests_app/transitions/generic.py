"""Apply one verb of the state table to a set of rows, guarded and logged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings

from requests_app.errors import IllegalTransition
from requests_app.metrics import observe_status
from requests_app.models.commands import Target
from requests_app.models.reviews import ReasonCode
from requests_app.states import DEADLINE_SETTING, FINAL, TRANSITIONS, Actor, IntentState, Kind, Status, Verb, sources
from requests_app.store.session import fetch_all, run


@dataclass(frozen=True, slots=True)
class Change:
    """One row to change. `selector` is 4 bytes, `tx_hash` 32 bytes; what is None keeps its value."""

    id: int
    label: str | None = None
    detail: str | None = None
    selector: bytes | None = None
    tx_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that happened: the state left, and how long the row had been in it (seconds)."""

    id: int
    was: Status
    spent_seconds: float


def deadline_seconds(target: Status) -> float | None:
    """How long a row may stay in `target`, or None where no clock runs."""
    name = DEADLINE_SETTING.get(target)
    return None if name is None else float(getattr(settings, name))


def apply(
    conn: psycopg.Connection[Any],
    verb: Verb,
    kind: Kind,
    changes: Sequence[Change],
    actor: Actor,
    *,
    epoch: int | None = None,
) -> list[Changed]:
    """Apply `verb` to the rows that are in one of its source states; the others are left out of the answer.

    The caller holds the fence that the table names, in the same transaction. Raises IllegalTransition when the table
    does not give the verb to `actor`.
    """
    row = TRANSITIONS[verb]
    if actor not in row.actors:
        raise IllegalTransition(f"{actor} may not {verb}")
    if not changes:
        return []
    rows = fetch_all(
        conn,
        "transitions",
        "apply",
        {
            "ids": [change.id for change in changes],
            "labels": [change.label for change in changes],
            "details": [change.detail for change in changes],
            "selectors": [change.selector for change in changes],
            "hashes": [change.tx_hash for change in changes],
            "kind": kind.value,
            "verb": verb.value,
            "target": row.target.value,
            "sources": sources(verb),
            "final": row.target in FINAL,
            "deadline": deadline_seconds(row.target),
            "actor": actor.value,
            "epoch": epoch,
        },
        table=kind.table,
    )
    for found in rows:
        observe_status(kind, found.was, found.spent_seconds)
    return [Changed(found.id, Status(found.was), found.spent_seconds) for found in rows]


def park(
    conn: psycopg.Connection[Any],
    kind: Kind,
    evidence: Mapping[int, Mapping[str, Any]],
    reason: ReasonCode,
    actor: Actor,
    *,
    detail: str,
    epoch: int | None = None,
) -> list[Changed]:
    """Send rows to a person: `needs_review` and an open case with its evidence, in the caller's transaction.

    `evidence` maps row ids to what was found. Rows that moved on meanwhile get no case.
    """
    changes = [Change(row_id, detail=detail) for row_id in evidence]
    parked = apply(conn, Verb.PARK, kind, changes, actor, epoch=epoch)
    open_reviews(conn, kind, {row.id: evidence[row.id] for row in parked}, reason)
    return parked


def open_reviews(
    conn: psycopg.Connection[Any], kind: Kind, evidence: Mapping[int, Mapping[str, Any]], reason: ReasonCode
) -> int:
    """Open a case for each of these rows, in the caller's transaction: how many had none yet."""
    if not evidence:
        return 0
    texts = [json.dumps(dict(found), default=str) for found in evidence.values()]
    parameters = {"kind": kind.value, "ids": list(evidence), "evidence": texts, "reason": reason.value}
    return run(conn, "transitions", "open_review", parameters)


def close_reviews(conn: psycopg.Connection[Any], kind: Kind | Target, ids: Sequence[int], outcome: str) -> int:
    """Close the open cases of rows that left review, or of sources that go on, in the caller's transaction: how many there were."""
    parameters = {"kind": kind.value, "ids": list(ids), "outcome": outcome}
    return len(fetch_all(conn, "transitions", "close_review", parameters))


def close_explained(conn: psycopg.Connection[Any], ids: Sequence[int]) -> int:
    """Close the cases over an unexpected payment by which these payments, settled in this transaction, have settled: how many."""
    found = [row.id for row in fetch_all(conn, "transitions", "explained", {"ids": list(ids)})]
    return close_reviews(conn, Kind.PAYMENT, found, IntentState.SETTLED.value) if found else 0
