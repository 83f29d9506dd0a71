"""What is measured in a seeded database: the desk's pages, the API's calls, the workers' statements.

Sample ids are read from the database itself. Groups carry the limits of the acceptance: pages 300 ms, searches 100 ms.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import psycopg

from requests_app.states import REQUEST_KINDS, Kind

APP: Final = "/admin/requests_app"
QUEUE: Final = f"{APP}/reviewcase/"
LISTS: Final = {
    Kind.USER_DECRYPT: f"{APP}/userdecryptrequest/",
    Kind.PUBLIC_DECRYPT: f"{APP}/publicdecryptrequest/",
    Kind.INPUT_PROOF: f"{APP}/inputproofrequest/",
}
SLUGS: Final = {kind: kind.slug for kind in REQUEST_KINDS}
LIMITS: Final = {"first page": 300.0, "queue": 300.0, "case": 300.0, "search": 100.0, "lists": 300.0, "request": 300.0}


@dataclass(frozen=True)
class Page:
    """One address of a group."""

    group: str
    name: str
    url: str


class Samples:
    """Ids of rows in all states, drawn once."""

    def __init__(self, conn: psycopg.Connection[Any], seed: int = 11) -> None:
        self._conn = conn
        self._random = random.Random(seed)

    def one(self, query: str, *values: Any) -> Any:
        """The first column of the first row; a LookupError when there is none."""
        row = self._conn.execute(query, values).fetchone()  # type: ignore[arg-type]
        if row is None:
            raise LookupError(query)
        return row[0]

    def finished(self, kind: Kind, newest: float = 1.0) -> int:
        """The number of a completed row, out of the newest share of the finished ones."""
        last = self.one(f"SELECT max(id) FROM {kind.table} WHERE status = 'completed'")
        first = int(last * (1 - newest)) + 1
        wanted = self._random.randint(first, last)
        return int(
            self.one(
                f"SELECT id FROM {kind.table} WHERE id >= %s AND id <= %s AND status = 'completed' ORDER BY id LIMIT 1",
                min(wanted, last - 5),
                last,
            )
        )

    def hexed(self, query: str, *values: Any) -> str:
        """A bytea as 0x hex."""
        return "0x" + bytes(self.one(query, *values)).hex()

    def case(self, status: str) -> int:
        """A case in that state, with an attempt behind it where it can be."""
        return int(self.one("SELECT id FROM review_case WHERE status = %s ORDER BY id OFFSET 3 LIMIT 1", status))


def pages(conn: psycopg.Connection[Any]) -> list[Page]:
    """Every page that is asserted and measured."""
    found = Samples(conn)
    return [
        Page("first page", "first page", "/admin/"),
        *(Page("first page", f"its renewal, {span}", f"{QUEUE}overview/?span={span}") for span in ("1h", "7d")),
        *_queue(found),
        *(Page("case", f"{status} case", f"{QUEUE}{found.case(status)}/change/") for status in ("open", "closed")),
        *_searches(found),
        *_lists(found),
        *_requests(found),
    ]


def _queue(found: Samples) -> Iterator[Page]:
    accounts = [found.one("SELECT id FROM client_account WHERE name = %s", f"seed-{n:03}") for n in (1, 7)]
    opened = (
        "SELECT opened_at::text || '~' || id FROM review_case WHERE status = %s ORDER BY opened_at OFFSET %s LIMIT 1"
    )
    views = ["", "case=closed", "case=all", "assignee=me", "assignee=nobody", "assignee=somebody", "second=waits"]
    views += [f"age={span}" for span in ("10m", "1h", "24h", "7d")] + [
        f"kind__exact={kind.value}" for kind in REQUEST_KINDS
    ]
    views += ["reason_code__exact=fee_ceiling", "case=closed&reason_code__exact=fee_ceiling"]
    views += [f"client={account}" for account in accounts] + [f"case=closed&client={accounts[1]}"]
    for status in ("open", "closed"):
        count = found.one("SELECT count(*) FROM review_case WHERE status = %s", status)
        place = quote(found.one(opened, status, count * 3 // 4))
        views.append(f"case={status}&after={place}".replace("case=open&", ""))
    for view in views:
        yield Page(
            "queue",
            view.split("&after")[0] + (", a page far down" if "after" in view else "") or "all open",
            f"{QUEUE}?{view}",
        )


def _searches(found: Samples) -> Iterator[Page]:
    parked = "FROM review_case c JOIN user_decrypt_req r ON r.id = c.subject_id WHERE c.kind = 1 AND c.status = 'open' AND r.gw_req_tx_hash IS NOT NULL LIMIT 1"
    terms = {
        "job id": str(found.one(f"SELECT r.ext_job_id {parked}")),
        "transaction": found.hexed(f"SELECT r.gw_req_tx_hash {parked}"),
        "row number": str(found.one(f"SELECT r.id {parked}")),
        "signer": found.hexed("SELECT address FROM signer ORDER BY id LIMIT 1"),
        "unknown hash": "0x" + "ab" * 32,
    }
    for name, term in terms.items():
        yield Page("search", f"queue by {name}", f"{QUEUE}?q={term}")
    for kind, url in LISTS.items():
        number = found.finished(kind, 0.25)
        of_row = f"FROM {kind.table} WHERE id = %s"
        reference = found.hexed(f"SELECT gw_reference_id {of_row}", number)
        for name, term in {
            "job id": str(found.one(f"SELECT ext_job_id {of_row}", number)),
            "transaction": found.hexed(f"SELECT gw_req_tx_hash {of_row}", number),
            "reference": reference,
            "decimal reference": str(int(reference, 16)),
            "row number": str(number),
            "unknown job id": "00000000-0000-4000-8000-000000000000",
        }.items():
            yield Page("search", f"{kind.slug} by {name}", f"{url}?q={term}")
    yield Page(
        "search",
        "attempt by transaction",
        f"{APP}/txattempt/?q={found.hexed('SELECT tx_hash FROM tx_attempt ORDER BY id DESC LIMIT 1')}",
    )
    reference = found.hexed("SELECT gw_reference_id FROM user_decrypt_share ORDER BY id DESC LIMIT 1")
    yield Page("search", "shares by reference", f"{APP}/userdecryptshare/?q={reference}")


def _lists(found: Samples) -> Iterator[Page]:
    for kind, url in LISTS.items():
        middle = found.one(f"SELECT max(id) / 2 FROM {kind.table}")
        views = ["", f"after={middle}"] + [
            f"status__exact={status}" for status in ("processing", "needs_review", "completed", "failure", "timed_out")
        ]
        views += [
            f"status__exact=completed&after={middle}",
            "created=10m",
            "created=7d",
            "status__exact=failure&created=24h",
        ]
        for view in views:
            yield Page("lists", f"{kind.slug} {view}", f"{url}?{view}")
    yield Page(
        "lists",
        "user-decrypt of a form nobody uses",
        f"{LISTS[Kind.USER_DECRYPT]}?req_type__exact=unified&status__exact=needs_review",
    )
    others = [
        "requesttransition/",
        "requesttransition/?kind__exact=3",
        "userdecryptshare/",
        "txattempt/",
        "txattempt/?state__exact=unknown",
    ]
    others += [
        "txattempt/?state__exact=refused",
        "queuejob/",
        "queuejob/?queue=send&kind__exact=3",
        "execlease/",
        "command/",
        "command/?state__exact=pending",
    ]
    others += ["reviewdecision/", "signer/", f"account/{found.one('SELECT min(id) FROM client_account')}/change/"]
    others += [
        f"signer/{found.one('SELECT min(id) FROM signer')}/change/",
        f"signer/{found.one('SELECT min(id) FROM signer')}/slots/",
    ]
    for other in others:
        yield Page("lists", other, f"{APP}/{other}")


def _requests(found: Samples) -> Iterator[Page]:
    for kind, url in LISTS.items():
        yield Page("request", f"finished {kind.slug}", f"{url}{found.finished(kind, 0.005)}/change/")
        yield Page("request", f"waiting {kind.slug}", f"{url}{found.one(f'SELECT max(id) FROM {kind.table}')}/change/")


@dataclass(frozen=True)
class Call:
    """One kind of API call: `targets` are drawn in turn. A POST has a body that `body_of` makes."""

    name: str
    method: str
    targets: list[str]
    expected: int


def calls(conn: psycopg.Connection[Any], account: str, each: int = 40) -> list[Call]:
    """GET of jobs of a client, finished ones from anywhere in the table; POST of new ones. Versions 1 and 2."""
    found = Samples(conn)
    client = found.one("SELECT id FROM client_account WHERE name = %s", account)
    made: list[Call] = []
    for version in ("v1", "v2"):
        made += [
            Call(f"{version} GET completed {kind.slug}", "GET", _jobs(found, client, kind, version, each), 200)
            for kind in REQUEST_KINDS
        ]
        waiting = found.one(
            "SELECT v.ext_job_id FROM request_client v JOIN public_decrypt_req r ON r.id = v.request_id"
            " WHERE v.client_id = %s AND v.kind = 2 AND r.status = 'queued' ORDER BY r.id DESC LIMIT 1",
            client,
        )
        made.append(Call(f"{version} GET queued public-decrypt", "GET", [f"/{version}/public-decrypt/{waiting}"], 202))
        made.append(Call(f"{version} POST input-proof", "POST", [f"/{version}/input-proof"], 202))
        made.append(Call(f"{version} POST public-decrypt", "POST", [f"/{version}/public-decrypt"], 202))
    return made


def _jobs(found: Samples, client: int, kind: Kind, version: str, count: int) -> list[str]:
    """Completed jobs of the client, drawn over all its rows; user decrypts from those whose shares are kept."""
    picked = []
    for _ in range(count):
        number = found.finished(kind, 0.005 if kind is Kind.USER_DECRYPT else 1.0)
        job = found.one(
            "SELECT v.ext_job_id FROM request_client v WHERE v.client_id = %s AND v.kind = %s AND v.request_id >= %s"
            f" AND EXISTS (SELECT FROM {kind.table} r WHERE r.id = v.request_id AND r.status = 'completed'"
            + (" AND r.req_type = 'user_decrypt' AND EXISTS (SELECT FROM user_decrypt_share s WHERE s.gw_reference_id = r.gw_reference_id))" if kind is Kind.USER_DECRYPT else ")")
            + " ORDER BY v.request_id LIMIT 1",
            client, kind.value, max(1, number - 40),
        )  # fmt: skip
        picked.append(f"/{version}/{kind.slug}/{job}")
    return picked


def body_of(target: str) -> dict[str, Any]:
    """A new request for a POST."""
    if "input-proof" in target:
        return {
            "contractAddress": "0x" + "11" * 20,
            "userAddress": "0x" + "22" * 20,
            "ciphertextWithInputVerification": secrets.token_hex(512),
            "contractChainId": "8009",
            "extraData": "0x00",
        }
    return {"ciphertextHandles": ["0x" + secrets.token_hex(22) + "0000000000001f490400"], "extraData": "0x00"}


Work = Callable[[psycopg.Connection[Any]], Any]


def statements() -> dict[str, Work]:
    """What workers run over and over, as functions of a connection; the caller rolls back."""
    from requests_app.store import confirming, figures, leases, queue, recon, settling, sweep

    instance, lately = "bench", datetime.now(UTC) - timedelta(seconds=5)
    return {
        "claim 100 to check": lambda conn: queue.lease_requests(conn, queue.READY, 100, instance, 30.0),
        "claim 100 to send": lambda conn: queue.lease_requests(conn, queue.SEND, 100, instance, 30.0),
        "deadlines": lambda conn: sweep.overdue(conn, 500),
        "lost jobs": lambda conn: sweep.enqueue_lost(conn, 60.0, 1000, queue.RESCUE),
        "retention, nothing due": lambda conn: [
            sweep.purge_requests(conn, kind, 30 * 86_400.0, 500) for kind in REQUEST_KINDS
        ],
        "retention, 500 user decrypts": lambda conn: sweep.purge_requests(conn, Kind.USER_DECRYPT, 5.5 * 86_400.0, 500),
        "foreign references": lambda conn: sweep.purge_foreign(conn, 3600.0, 500),
        "figures of ended rows": lambda conn: [figures.count_ended(conn, kind, 15.0, 20_000) for kind in REQUEST_KINDS],
        "payments that wait": lambda conn: confirming.active_page(conn, confirming.START, 500),
        "payments that became final": lambda conn: confirming.final_page(conn, 1, -1, 1 << 62, 500),
        "payments without a job": lambda conn: settling.lost_payments(conn, 60.0, 1000),
        "reconciliation": lambda conn: [
            recon.find_in_window(conn, 1, 1, 1000),
            recon.find_unreferenced(conn, 1, lately),
        ],
        "holds": lambda conn: leases.forget_holds(conn, 86_400.0, 500),
    }


def counted_figures(conn: psycopg.Connection[Any]) -> None:
    """What the sweep keeps while it works, counted once: no sweep runs beside the measurement."""
    from requests_app.store import figures

    figures.count_live(conn)
    figures.count_jobs(conn)


def main() -> None:
    """Everything that the driver needs from inside the product, as JSON: a reviewer's session, a key, pages, calls."""
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    from requests_app import clients
    from requests_app.store.session import connect, web_connection

    user, _made = User.objects.get_or_create(username="scale", defaults={"is_staff": True, "is_superuser": True})
    session = SessionStore()
    session[SESSION_KEY], session[BACKEND_SESSION_KEY] = str(user.pk), settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    key = clients.issue_key(web_connection(), "seed-001").text
    with connect("maintenance") as conn:
        counted_figures(conn)
        document = {
            "cookie": f"{settings.SESSION_COOKIE_NAME}={session.session_key}",
            "key": key,
            "pages": [asdict(page) for page in pages(conn)],
            "calls": [asdict(call) for call in calls(conn, "seed-001")],
        }
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main()
