"""The first page: is it healthy, what waits, what is stuck, what needs me (design 4.5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from requests_app.admin import cells
from requests_app.admin.charts import Span, chart_sections, chosen_span
from requests_app.admin.explain import reason
from requests_app.admin.page import Figure, Figures, Notice, Section, Table
from requests_app.admin.troubles import counted, listener_troubles, troubles
from requests_app.overview import Overview, overview
from requests_app.states import ACTIVE, REQUEST_KINDS, IntentState, Kind, Status
from requests_app.store.overview import Listener

ORDER: Final = tuple(Status)
# Of a payment: what the relayer has to do next. A created one waits for its client, one in review for a person.
_MOVING: Final = (IntentState.AUTHORIZED, IntentState.SETTLING, IntentState.CONFIRMING)
_SEES: Final = "requests_app.view_reviewcase"  # every role may
_NO_ROLE: Final = Notice(
    "You have no role yet", "A superuser gives you one under People; until then there is nothing to see.", "info"
)
_TABLES: Final = {
    Kind.USER_DECRYPT: "admin:requests_app_userdecryptrequest_changelist",
    Kind.PUBLIC_DECRYPT: "admin:requests_app_publicdecryptrequest_changelist",
    Kind.INPUT_PROOF: "admin:requests_app_inputproofrequest_changelist",
}


def context(request: HttpRequest, base: dict[str, Any]) -> dict[str, Any]:
    """The theme's hook for the first page: its frame plus our sections."""
    url = f"{reverse('admin:relayer_overview')}?span={chosen_span(request).key}"
    return {**base, **overview_context(request), "title": "Overview", "overview_url": url}


def overview_context(request: HttpRequest) -> dict[str, Any]:
    """The sections alone; also what the page fetches to renew itself. Who has no role is told so, and nothing else."""
    if not request.user.has_perm(_SEES):
        return {"sections": [_NO_ROLE], "taken_at": datetime.now(UTC)}
    now = overview()
    return {"sections": sections(now, chosen_span(request)), "taken_at": now.taken_at}


def open_review_badge(request: HttpRequest) -> str:
    """Number beside the queue's name in the sidebar; nothing when the queue is empty."""
    count = overview().open_review_count()
    return str(count) if count else ""


def sections(now: Overview, span: Span) -> list[Section]:
    """The whole first page, most urgent first."""
    return [
        health(now),
        figures(now),
        reviews(now),
        *chart_sections(span),
        states(now),
        payments(now),
        queues(now),
        signers(now),
        listeners(now),
        workers(now),
    ]


def health(now: Overview) -> Section:
    """One sentence when all is well, the list of troubles when not."""
    found = troubles(now)
    if not found:
        return Notice(
            "Working", "Every listener reads, both clusters run, every signer may send, nothing is overdue.", "good"
        )
    return Notice("Needs attention", f"{len(found)} finding{'s' if len(found) != 1 else ''}:", "bad", found)


def figures(now: Overview) -> Section:
    """The few numbers that are read from across the room."""
    counts = now.counts()
    paid = now.payment_counts()
    waiting = sum(rows for states_of in counts.values() for status, rows in states_of.items() if status in ACTIVE)
    waiting += sum(paid[state] for state in _MOVING)
    done = sum(states_of[Status.COMPLETED] for states_of in counts.values()) + paid[IntentState.SETTLED]
    failed = sum(states_of[Status.FAILURE] + states_of[Status.TIMED_OUT] for states_of in counts.values())
    failed += paid[IntentState.FAILED]
    open_cases = now.open_review_count()
    ages = [row.oldest_seconds for row in now.live if row.status != Status.NEEDS_REVIEW.value]
    oldest = max(ages + [row.oldest_seconds for row in now.payments if row.state in _MOVING], default=None)
    jobs = sum(row.jobs for row in now.queues)
    return Figures(
        "At a glance",
        [
            Figure(
                "Needs a person",
                cells.number(open_cases),
                "review" if open_cases else "good",
                "open review cases",
                reverse("admin:requests_app_reviewcase_changelist"),
            ),
            Figure("On their way", cells.number(waiting), "info", f"oldest in its state: {cells.duration(oldest)}"),
            Figure(
                "Jobs in queue",
                cells.number(jobs),
                "neutral",
                f"{cells.number(sum(row.visible for row in now.queues))} of them claimable",
                reverse("admin:requests_app_queuejob_changelist"),
            ),
            Figure("Completed", cells.number(done), "good", "since the first one"),
            Figure("Failed or timed out", cells.number(failed), "warn" if failed else "neutral", "since the first one"),
        ],
    )


def states(now: Overview) -> Section:
    """Requests by kind and state, each with the age of the oldest that waits."""
    counts, oldest = now.counts(), now.oldest()
    rows = []
    for kind in REQUEST_KINDS:
        url = reverse(_TABLES[kind])
        cells_of_row: list[Any] = [cells.link(kind.slug.replace("-", " ").capitalize(), url)]
        cells_of_row += [
            _count_cell(counts[kind][status], oldest[kind].get(status), f"{url}?status__exact={status}")
            for status in ORDER
        ]
        rows.append(cells_of_row)
    headers = ["Kind", *(status.replace("_", " ").capitalize() for status in ORDER)]
    numeric = frozenset(range(1, len(ORDER) + 1))
    return Table("Requests by kind and state", headers, rows, numeric=numeric, note="below: the oldest in that state")


def _count_cell(count: int, oldest: float | None, url: str) -> Any:
    if not count:
        return cells.toned("0", "muted")
    number = cells.link(cells.number(count), url)
    if oldest is None:
        return number
    return format_html('{}<div class="rl-note">{}</div>', number, cells.duration(oldest))


def payments(now: Overview) -> Section:
    """Payments by state, and what the books say of them."""
    url = reverse("admin:requests_app_paymentintent_changelist")
    counts, oldest = now.payment_counts(), {row.state: row.oldest_seconds for row in now.payments}
    row: list[Any] = [cells.link("Payments", url)]
    row += [_count_cell(counts[state], oldest.get(state.value), f"{url}?state__exact={state}") for state in IntentState]
    findings = sum(one.findings or 0 for one in now.reconciled)
    books = [
        counted(now.books.open_holds, "open hold")
        + (f", oldest {cells.duration(now.books.oldest_hold_seconds)}" if now.books.open_holds else ""),
        counted(now.books.head, "journal entry", "journal entries"),
        counted(now.letters.rows, "dead letter"),
        f"{counted(findings, 'finding')} of the reconciliation",
    ]
    headers = ["Kind", *(state.value.replace("_", " ").capitalize() for state in IntentState)]
    numeric = frozenset(range(1, len(headers)))
    return Table("Payments by state", headers, [row], numeric=numeric, note=" · ".join(books))


def reviews(now: Overview) -> Section:
    """Open cases by reason."""
    url = reverse("admin:requests_app_reviewcase_changelist")
    rows = [
        (
            cells.link(
                reason(row.reason_code).headline, f"{url}?kind__exact={row.kind}&reason_code__exact={row.reason_code}"
            ),
            cells.kind_words(row.kind),
            cells.number(row.rows),
            cells.duration(row.oldest_seconds),
        )
        for row in now.reviews
    ]
    return Table("Needs review", ("Why", "Kind", "Cases", "Oldest"), rows, "No case is open.", frozenset({2, 3}))


def queues(now: Overview) -> Section:
    """Jobs by queue."""
    rows = [
        (
            row.queue,
            Kind(row.kind).slug.replace("-", " "),
            cells.number(row.jobs),
            cells.number(row.visible),
            cells.number(row.leased),
            cells.duration(row.oldest_visible_seconds),
            row.highest_attempt,
        )
        for row in now.queues
    ]
    headers = ("Queue", "Kind", "Jobs", "Claimable", "Leased", "Oldest claimable", "Highest attempt")
    return Table("Queues", headers, rows, "The queues are empty.", frozenset({2, 3, 4, 5, 6}))


def signers(now: Overview) -> Section:
    """Sending accounts: money, nonces, owner."""
    rows = [
        (
            cells.link(
                f"0x{row.address.hex()[:8]}…{row.address.hex()[-6:]}",
                reverse("admin:requests_app_signer_change", args=(row.id,)),
            ),
            cells.badge(row.status),
            cells.tokens(row.balance_wei),
            cells.tokens(row.fee_balance),
            cells.tokens(row.fee_allowance),
            cells.stacked((cells.number(row.next_nonce), f"{cells.number(row.nonce_distance)} ahead")),
            f"{row.open_slots} / {row.max_inflight}",
            cells.stacked(row.owner.split(":", 1)) if row.owner else cells.NOTHING,
        )
        for row in now.signers
    ]
    headers = (
        "Signer",
        "Status",
        "Native",
        "Fee token",
        "Allowance",
        "Next nonce",
        "Open slots",
        "Owner",
    )
    return Table("Signers", headers, rows, "No signer has been used yet.", frozenset({2, 3, 4, 5, 6}))


def listeners(now: Overview) -> Section:
    """Chain sources: how far, how fresh, who reads."""
    rows = [
        (
            cells.link(row.name, reverse("admin:requests_app_envelopesource_change", args=(row.source_id,))),
            row.chain_id,
            _listener_badge(row),
            cells.number(row.block),
            cells.number(row.lag_blocks),
            cells.number(row.reorgs),
            cells.duration(row.cursor_age_seconds),
            cells.duration(row.turn_age_seconds),
            row.instance or cells.NOTHING,
        )
        for row in now.listeners
    ]
    headers = (
        "Source",
        "Chain",
        "State",
        "Stored up to block",
        "Behind",
        "Reorgs",
        "Cursor moved",
        "Last turn",
        "Owner",
    )
    return Table("Listeners", headers, rows, "No source is known yet.", frozenset({1, 3, 4, 5, 6, 7}))


def _listener_badge(row: Listener) -> Any:
    if row.halted:
        return cells.badge("halted")
    return cells.toned("trouble", "bad") if listener_troubles(row) else cells.toned("reading", "good")


def workers(now: Overview) -> Section:
    """Leases, live ones first, with the heartbeat of their holder."""
    beat = {row.resource: row for row in now.beats}
    rows = [
        (
            cells.code(row.resource, 22),
            cells.toned(f"live {cells.duration(row.seconds_left)}", "good")
            if row.seconds_left > 0
            else cells.toned("expired", "muted"),
            row.instance,
            cells.number(row.epoch),
            cells.duration(row.held_seconds),
            cells.duration(beat[row.resource].beat_age_seconds) if row.resource in beat else cells.NOTHING,
        )
        for row in sorted(now.leases, key=lambda lease: (lease.seconds_left <= 0, lease.resource))
    ]
    headers = ("Resource", "Lease", "Holder", "Epoch", "Held for", "Last beat")
    return Table("Leases", headers, rows, "No lease was ever taken.", frozenset({3, 4, 5}))
