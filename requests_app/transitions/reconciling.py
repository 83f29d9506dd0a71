"""A window of final blocks against the books, in one transaction: findings, their cases, the cursor (reference queue_settle 4.7).

It may give a settling payment the hash that the log shows. It never says that a payment is settled or has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.models.payments import FindingKind
from requests_app.models.reviews import ReasonCode
from requests_app.states import Kind
from requests_app.store import leases
from requests_app.store import recon as store
from requests_app.store.queue import Subject
from requests_app.store.recon import Finding
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from requests_app.transitions import generic, observing

_REASONS: Final[Mapping[FindingKind, ReasonCode]] = {
    FindingKind.UNKNOWN_REF: ReasonCode.UNEXPECTED_PAYMENT,
    FindingKind.UNEXPECTED: ReasonCode.UNEXPECTED_PAYMENT,
    FindingKind.PAID_TWICE: ReasonCode.PAID_TWICE,
    FindingKind.UNREFERENCED: ReasonCode.RECEIPT_VANISHED,
}


class Reconciled(NamedTuple):
    """What a window gave: findings that are new, cases that were opened for them, payments that were given their hash."""

    findings: list[Finding]
    cases: int
    filled: int


def reconcile(conn: Connection[Any], source_id: int, fence: Fence, lo: int, hi: int) -> Reconciled | None:
    """Reconcile blocks lo..hi, which must be final, sealed and applied; None when somebody else did it already.

    A window that is reconciled again finds nothing new. Raises StaleEpoch with nothing written.
    """
    with transaction(conn) as opened:
        if not leases.fence(conn, fence.resource, fence.instance, fence.epoch):
            raise StaleEpoch(fence.resource)
        since = store.move_cursor(conn, source_id, lo, hi)
        if since is None:
            opened.force_rollback = True
            return None
        filled = observing.follow(conn, source_id, store.settling_refs(conn, source_id, lo, hi))
        findings = store.find_in_window(conn, source_id, lo, hi) + store.find_unreferenced(conn, source_id, since)
        cases = _open_cases(conn, findings)
        crash_point("before_reconcile_commit")
    crash_point("after_reconcile_commit")
    return Reconciled(findings, cases, len(filled))


def reason_of(finding: Finding) -> ReasonCode:
    """Why a person should look."""
    if finding.kind is not FindingKind.MISMATCH:
        return _REASONS[finding.kind]
    asked = finding.detail.get("asked", {})
    same_party = str(asked.get("merchant", "")).lower() == finding.detail.get("payee", "").lower()
    no_money = "payee" not in finding.detail
    return ReasonCode.AMOUNT_MISMATCH if same_party or no_money else ReasonCode.WRONG_PARTY


def _open_cases(conn: Connection[Any], findings: Sequence[Finding]) -> int:
    """A case each, unless one is open; what no payment has is a matter of the subject whose transaction carried it."""
    carried = store.carriers(conn, [one.tx_hash for one in findings if one.intent_id is None])
    opened = 0
    for reason in sorted({reason_of(one) for one in findings}):
        for kind in Kind:
            evidence = {
                subject.id: {"finding": one.kind.value, **one.detail}
                for one in findings
                if reason_of(one) is reason and (subject := _subject(one, carried)) is not None and subject.kind is kind
            }
            opened += generic.open_reviews(conn, kind, evidence, reason)
    return opened


def _subject(finding: Finding, carried: Mapping[bytes, Subject]) -> Subject | None:
    if finding.intent_id is not None:
        return Subject(Kind.PAYMENT, finding.intent_id)
    return carried.get(finding.tx_hash)
