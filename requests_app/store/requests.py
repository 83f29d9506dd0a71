"""Submit a request and find it again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.numeric import Int4

from requests_app import sql
from requests_app.depths import Depths
from requests_app.states import Kind
from requests_app.store.session import Row, fetch_all, fetch_one, fetch_only, run

# Counts of a GET stop here: a longer queue changes no answer (Retry-After is clamped long before).
DEPTH_CAP = 20_000

_EXTRA_COLUMN = {Kind.USER_DECRYPT: ", req_type", Kind.PUBLIC_DECRYPT: "", Kind.INPUT_PROOF: ", int_request_id"}

# Named one by one and not `r.*`: the web prepares its statements, and a column that a migration adds must not change their result.
_OWN_COLUMNS = {
    Kind.USER_DECRYPT: "r.resolved_threshold, r.gw_consensus_tx_hash",
    Kind.PUBLIC_DECRYPT: "r.res, r.gw_response_tx_hash",
    Kind.INPUT_PROOF: "r.accepted, r.res, r.gw_response_tx_hash",
}

_SHARES = """,
       CASE WHEN r.status = 'completed' THEN
         (SELECT jsonb_agg(jsonb_build_object('payload', encode(s.share, 'hex'), 'signature', encode(s.kms_signature, 'hex'),
                                              'extraData', '0x' || encode(s.extra_data, 'hex')) ORDER BY s.share_index)
            FROM (SELECT x.share_index, x.share, x.kms_signature, x.extra_data FROM (
                    SELECT share_index, share, kms_signature, extra_data, position FROM kept_share WHERE request_id = r.id
                    UNION ALL
                    SELECT share_index, share, kms_signature, extra_data, position FROM user_decrypt_share
                     WHERE gw_reference_id = r.gw_reference_id AND NOT EXISTS (SELECT 1 FROM kept_share WHERE request_id = r.id)) x
                   ORDER BY x.position LIMIT CASE WHEN %(spare)s THEN NULL ELSE r.resolved_threshold END) s)
       END AS shares"""


def submit(
    conn: psycopg.Connection[Any],
    *,
    kind: Kind,
    client_id: int,
    ext_job_id: UUID,
    int_job_id: bytes,
    status: str,
    queue: str,
    body: str,
    extra: str | UUID | None,
    deadline_seconds: float,
    limit: int,
    depths: Depths | None,
) -> Row:
    """Run the submit statement once. `body` is JSON text; `limit` is the depth at which the door closes.

    `depths`: what is known of the queues; counted when None.
    """
    column = _EXTRA_COLUMN[kind]
    return fetch_only(
        conn,
        "requests",
        "submit",
        {
            "client": client_id,
            "kind": kind.value,
            "ext": ext_job_id,
            "hash": int_job_id,
            "status": status,
            "queue": queue,
            "body": body,
            "extra": extra,
            "deadline": deadline_seconds,
            "limit": limit,
            **_depth_values(depths, limit),
        },
        table=kind.table,
        depths=_depths_part(depths),
        extra_column=column,
        extra_value=", %(extra)s" if column else "",
    )


def submit_denied(
    conn: psycopg.Connection[Any],
    *,
    client_id: int,
    ext_job_id: UUID,
    int_job_id: bytes,
    body: str,
    req_type: str,
    label: str,
    detail: str,
    limit: int,
    depths: Depths | None,
) -> Row:
    """Run the submit statement for a user decrypt that is proven bad: a new row of it begins and ends as a failure."""
    return fetch_only(
        conn,
        "requests",
        "submit_denied",
        {
            "client": client_id,
            "kind": Kind.USER_DECRYPT.value,
            "ext": ext_job_id,
            "hash": int_job_id,
            "body": body,
            "req_type": req_type,
            "label": label,
            "detail": detail,
            "limit": limit,
            **_depth_values(depths, limit),
        },
        depths=_depths_part(depths),
    )


def _depths_part(depths: Depths | None) -> str:
    """Two texts and not one with a switch: the server's plan for many executions would be chosen for the dearer case."""
    return sql.statement("requests", "counted_depths" if depths is None else "known_depths")


def _depth_values(depths: Depths | None, cap: int) -> dict[str, int]:
    # Always of one type: psycopg sends small numbers in small types, and the server would plan the statement for each of them.
    return {"cap": cap} if depths is None else {"ready": Int4(depths.ready), "send": Int4(depths.send)}


def find_view(conn: psycopg.Connection[Any], client_id: int, ext_job_id: UUID) -> Row | None:
    """Kind and row id of a client's job, or None."""
    return fetch_one(conn, "requests", "find_view", {"client": client_id, "ext": ext_job_id})


def find_job(
    conn: psycopg.Connection[Any],
    client_id: int,
    kind: Kind,
    ext_job_id: UUID,
    *,
    spare_shares: bool,
    placed: bool,
) -> Row | None:
    """A client's job with its columns, depths while it waits, shares when a user decrypt is completed; or None.

    The shares are the earliest up to the threshold, or all that are stored with `spare_shares`. `placed`: with its place in
    the queue.
    """
    wants_shares = kind is Kind.USER_DECRYPT
    values = {"client": client_id, "ext": ext_job_id, "kind": kind.value, "cap": DEPTH_CAP}
    return fetch_one(
        conn,
        "requests",
        "find_job",
        {**values, "spare": spare_shares} if wants_shares else values,
        table=kind.table,
        columns=_OWN_COLUMNS[kind],
        shares=_SHARES if wants_shares else "",
        place=sql.statement("requests", "counted_place") if placed else "NULL::int",
    )


def find_statuses(conn: psycopg.Connection[Any], kinds: list[int], ids: list[int]) -> list[Row]:
    """Where each (kind, id) stands; status None for a row that is gone."""
    return fetch_all(conn, "requests", "find_statuses", {"kinds": kinds, "ids": ids})


def timeline(conn: psycopg.Connection[Any], kind: Kind, request_id: int) -> list[Row]:
    """The transitions of a row, oldest first."""
    return fetch_all(conn, "requests", "timeline", {"kind": kind.value, "id": request_id})


def withdraw_view(conn: psycopg.Connection[Any], client_id: int, kind: Kind, request_id: int) -> Row:
    """End a client's view of a row, in the caller's transaction: account_active, withdrawn."""
    return fetch_only(conn, "requests", "withdraw_view", {"client": client_id, "kind": kind.value, "id": request_id})


def other_views(conn: psycopg.Connection[Any], client_id: int, kind: Kind, request_id: int) -> int:
    """How many other clients hold a view of a row; call it with the row locked."""
    found = fetch_only(conn, "requests", "other_views", {"client": client_id, "kind": kind.value, "id": request_id})
    return int(found.n)


def lock_request(conn: psycopg.Connection[Any], kind: Kind, request_id: int) -> Row | None:
    """Lock a row FOR UPDATE in the caller's transaction: its id and status."""
    return fetch_one(conn, "requests", "lock_request", {"id": request_id}, table=kind.table)


def drop_job(conn: psycopg.Connection[Any], kind: Kind, request_id: int) -> int:
    """Remove the job of a row that needs no more work."""
    return run(conn, "requests", "drop_job", {"key": job_key(kind, request_id)})


def job_key(kind: Kind, request_id: int) -> str:
    """The key under which at most one job of a row exists."""
    return f"{kind.value}/{request_id}"


def published_key(conn: psycopg.Connection[Any]) -> Row | None:
    """What /v2/keyurl answers now, or None before the first successful poll."""
    return fetch_one(conn, "requests", "published_key")


def find_api_key(conn: psycopg.Connection[Any], digest: bytes) -> Row | None:
    """The unrevoked key with this SHA-256, with its account."""
    return fetch_one(conn, "requests", "find_api_key", {"digest": digest})


def find_account(conn: psycopg.Connection[Any], name: str) -> Row | None:
    """An account by name."""
    return fetch_one(conn, "requests", "find_account", {"name": name})
