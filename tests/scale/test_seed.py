"""The seeded database is one that the product could have made: states, books, nonces, histories fit together."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from requests_app.identity import payment_ref
from requests_app.overview import forget, overview
from requests_app.states import FINAL, REQUEST_KINDS, Kind, Status
from requests_app.store import invariants
from requests_app.store.invariants import INVARIANTS
from requests_app.store.overview import LIVE_CAP
from requests_app.store.seeding.layout import TABLES, Layout

pytestmark = pytest.mark.django_db
LAYOUT = Layout(finished=20_000, live=8_000, reviews=400)


def column(conn: psycopg.Connection[Any], query: str) -> list[Any]:
    return [row[0] for row in conn.execute(query)]  # type: ignore[call-overload]


def test_as_many_rows_as_asked_for_in_every_state(seeded: psycopg.Connection[Any]) -> None:
    live = finished = 0
    for kind in REQUEST_KINDS:
        for status, count in seeded.execute(f"SELECT status, count(*) FROM {kind.table} GROUP BY status").fetchall():
            finished, live = (finished + count, live) if Status(status) in FINAL else (finished, live + count)
    assert (finished, live) == (LAYOUT.finished, LAYOUT.live)
    assert column(seeded, "SELECT count(*) FROM review_case WHERE status = 'open'") == [LAYOUT.reviews]


def test_the_first_page_knows_them_all_without_counting(seeded: psycopg.Connection[Any]) -> None:
    """More than LIVE_CAP of a state come from the duty's figures, ended ones from the steps: both exact here, where nothing moves."""
    forget()
    counts = overview().counts()
    for kind in REQUEST_KINDS:
        rows = dict(seeded.execute(f"SELECT status, count(*) FROM {kind.table} GROUP BY status").fetchall())
        assert {status.value: n for status, n in counts[kind].items() if n} == rows
        assert max(rows[status.value] for status in Status if status not in FINAL and status.value in rows) > LIVE_CAP
    jobs = sum(row.jobs for row in overview().queues)
    assert [jobs] == column(seeded, "SELECT count(*) FROM queue_job")


def test_indexes_and_triggers_are_back(seeded: psycopg.Connection[Any]) -> None:
    for kind in REQUEST_KINDS:
        names = column(seeded, f"SELECT indexname FROM pg_indexes WHERE tablename = '{kind.table}'")
        assert {
            f"{kind.table}_{end}" for end in ("pkey", "one_live", "status", "deadline", "retention", "reference", "tx")
        } <= set(names)
        with pytest.raises(psycopg.errors.IntegrityError), seeded.transaction():
            seeded.execute(f"UPDATE {kind.table} SET fail_label = 'x' WHERE id = 1")


def test_every_row_has_what_its_state_implies(seeded: psycopg.Connection[Any]) -> None:
    """One look-up a rule; each lists offenders."""
    rules = {
        "a waiting row without job": "SELECT id FROM user_decrypt_req r WHERE status IN ('queued', 'processing')"
        " AND NOT EXISTS (SELECT FROM queue_job j WHERE j.job_key = '1/' || r.id)",
        "a job of a row that does not wait": "SELECT j.id FROM queue_job j JOIN user_decrypt_req r ON j.kind = 1 AND r.id = j.subject_id"
        " WHERE r.status NOT IN ('queued', 'processing')",
        "a row without client": "SELECT id FROM public_decrypt_req r WHERE NOT EXISTS"
        " (SELECT FROM request_client v WHERE v.kind = 2 AND v.request_id = r.id)",
        "a live row without payload": "SELECT id FROM input_proof_req r WHERE completed_at IS NULL AND NOT EXISTS"
        " (SELECT FROM request_payload p WHERE p.kind = 3 AND p.request_id = r.id)",
        "a history that ends elsewhere": "SELECT r.id FROM user_decrypt_req r JOIN LATERAL (SELECT to_status FROM req_transition t"
        " WHERE t.kind = 1 AND t.request_id = r.id ORDER BY t.id DESC LIMIT 1) t ON true WHERE t.to_status <> r.status",
        "a slot whose attempt is not there": "SELECT subject_id FROM nonce_slot n WHERE NOT EXISTS"
        " (SELECT FROM tx_attempt t WHERE t.signer_id = n.signer_id AND t.nonce = n.nonce)",
        "a nonce that is missing": "SELECT signer_id FROM nonce_slot GROUP BY signer_id HAVING max(nonce) + 1 <> count(*)",
        "an open nonce before one that is final": "SELECT n.signer_id FROM nonce_slot n WHERE state = 'live' AND EXISTS"
        " (SELECT FROM nonce_slot f WHERE f.signer_id = n.signer_id AND f.state = 'final' AND f.nonce > n.nonce)",
        "a counter that is not its shares": "SELECT g.request_id FROM gateway_ref g JOIN user_decrypt_req r ON r.id = g.request_id"
        " WHERE g.kind = 1 AND r.completed_at IS NULL AND g.n <> (SELECT count(*) FROM user_decrypt_share s WHERE s.gw_reference_id = g.gw_reference_id)",
        "a review without case": "SELECT id FROM user_decrypt_req r WHERE status = 'needs_review' AND NOT EXISTS"
        " (SELECT FROM review_case c WHERE c.kind = 1 AND c.subject_id = r.id AND c.status = 'open' AND c.evidence <> '{}')",
        "an unbalanced entry": "SELECT entry_seq FROM ledger_leg GROUP BY entry_seq HAVING sum(amount) <> 0",
        "an account whose balance is not its legs": "SELECT b.account FROM ledger_balance b WHERE b.posted <>"
        " (SELECT coalesce(sum(l.amount), 0) FROM ledger_leg l JOIN ledger_entry e ON e.seq = l.entry_seq WHERE l.account = b.account AND e.kind = 'post')",
    }
    for rule, query in rules.items():
        assert column(seeded, f"{query} LIMIT 3") == [], rule


def test_a_payment_s_ref_is_the_commitment_to_its_terms(seeded: psycopg.Connection[Any]) -> None:
    rows = seeded.execute(
        "SELECT public_id, chain, token, payer, merchant, amount, ref FROM payment_intent ORDER BY id LIMIT 50"
    ).fetchall()
    assert len(rows) == 50
    for *terms, amount, ref in rows:
        assert payment_ref(*terms, int(amount)) == bytes(ref)


def test_the_seeded_books_are_in_order(seeded: psycopg.Connection[Any]) -> None:
    """What an auditor would ask of a seeded database: the journal's chain, and its invariants."""
    out = StringIO()
    call_command("relayer_ledger", "verify", "--json", stdout=out)
    assert json.loads(out.getvalue())["ok"]
    ends = invariants.spans(seeded)
    for one in INVARIANTS:
        assert invariants.check(seeded, one, *ends[one.over]) == [], one.name


def test_a_filled_database_is_refused_and_a_dry_run_says_so(seeded: psycopg.Connection[Any]) -> None:
    with pytest.raises(CommandError, match="user_decrypt_req has rows"):
        call_command("relayer_seed", "--scale", "1k")
    out = StringIO()
    call_command("relayer_seed", "--scale", "10M", "--live", "100k", "--dry-run", "--json", stdout=out)
    said = json.loads(out.getvalue())
    assert (said["finished"], said["live"], said["reviews"], said["would_run"]) == (10_000_000, 100_000, 2_000, False)
    assert sum(said["rows"][kind.table] for kind in REQUEST_KINDS) == 10_100_000


def test_a_database_in_use_is_never_emptied(seeded: psycopg.Connection[Any]) -> None:
    seeded.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('shift:settle:0', 'w', 1, 'infinity')"
    )
    try:
        with pytest.raises(CommandError, match="something works on this database"):
            call_command("relayer_seed", "--scale", "1k", "--force-free")
    finally:
        seeded.execute("DELETE FROM exec_lease WHERE resource = 'shift:settle:0'")
    assert column(seeded, "SELECT count(*) FROM user_decrypt_req") == [10_000 + 4_000]


@pytest.mark.parametrize(
    "options", [("--scale", "ten"), ("--scale", "10"), ("--scale", "1k", "--live", "10", "--reviews", "11")]
)
def test_sizes_that_mean_nothing_are_refused(options: tuple[str, ...], db: None) -> None:
    with pytest.raises(CommandError):
        call_command("relayer_seed", *options)


# Not about single requests or payments, or counted anew by a duty.
KEPT = frozenset(
    {
        *("client_account", "api_key", "webhook", "cursor_key", "published_key", "desk_login_count"),
        *(
            "runtime_setting",
            "runtime_change",
            "exec_lease",
            "worker_beat",
            "live_figure",
            "job_figure",
            "recon_cursor",
        ),
        *("chain_identity", "chain_cursor", "chain_block", "chain_reorg", "consumer_cursor", "dead_envelope"),
        *("envelope_source", "envelope_band", "envelope_meta", "envelope_blob", "envelope_conflict", "envelope_orphan"),
        *("envelope_miss", "originator_congestion", "usage_unsettled"),
        *("staged_envelope", "published_envelope", "publisher_head"),
    }
)


def test_every_table_is_emptied_or_kept_on_purpose() -> None:
    """A letter or a bill of a payment that is gone would be one of the new payment with its number."""
    tables = {model._meta.db_table for model in apps.get_app_config("requests_app").get_models()}
    assert set(TABLES) == tables - KEPT
    assert tables >= KEPT


def test_the_parts_sum_up_to_the_whole() -> None:
    layout = Layout(finished=1_234_567, live=98_765, reviews=4_321)
    plans = layout.kinds()
    assert sum(plan.finished for plan in plans) == layout.finished
    assert sum(sum(plan.live.values()) for plan in plans) == layout.live
    assert sum(plan.live[Status.NEEDS_REVIEW] for plan in plans) == layout.reviews
    proofs = next(plan for plan in plans if plan.kind is Kind.INPUT_PROOF)
    assert Status.QUEUED not in proofs.live
