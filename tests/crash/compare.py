"""What holds at the end of every scene, wherever its processes ended: nothing lost, nothing double, nothing without an owner."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from requests_app.api import intake
from requests_app.identity import content_hash
from requests_app.states import FINAL, Kind
from requests_app.store import invariants
from tests.crash.scene import REQUESTS
from workers.devnet.contracts import contract
from workers.devnet.traffic import Submission
from workers.devnet.verify import requests_for

if TYPE_CHECKING:
    from tests.crash.ground import Ground
    from tests.crash.scene import Scene

READERS = {
    "input_proof": intake.input_proof,
    "public_decrypt": intake.public_decrypt,
    "user_decrypt": intake.direct,
    "delegated": intake.delegated,
    "unified": intake.unified,
}
USED, MOVED = contract("DevnetUSD").event("AuthorizationUsed"), contract("DevnetUSD").event("Transfer")
OWNERLESS_PAYMENTS = """
SELECT i.id, i.state FROM payment_intent i
 WHERE i.state IN ('authorized', 'settling', 'confirming', 'needs_review')
   AND NOT EXISTS (SELECT 1 FROM queue_job j WHERE j.kind = 4 AND j.subject_id = i.id)
   AND NOT EXISTS (SELECT 1 FROM nonce_slot s WHERE s.kind = 4 AND s.subject_id = i.id AND s.state <> 'dead')
   AND NOT EXISTS (SELECT 1 FROM review_case c WHERE c.kind = 4 AND c.subject_id = i.id AND c.status = 'open')"""
OWNERLESS = """
SELECT r.id, r.status FROM {table} r
 WHERE r.status NOT IN ('completed', 'failure', 'timed_out')
   AND NOT EXISTS (SELECT 1 FROM queue_job j WHERE j.kind = {kind} AND j.subject_id = r.id)
   AND NOT EXISTS (SELECT 1 FROM nonce_slot s WHERE s.kind = {kind} AND s.subject_id = r.id AND s.state IN ('signed', 'live'))
   AND NOT EXISTS (SELECT 1 FROM review_case c WHERE c.kind = {kind} AND c.subject_id = r.id AND c.status = 'open')
   AND (r.deadline_at IS NULL OR r.status = 'needs_review')"""


def compare(ground: Ground, scene: Scene) -> None:
    """Raises AssertionError with what is wrong."""
    _requests(ground, scene)
    _owners(ground)
    _nonces(ground)
    _log(ground, scene)
    _decisions(ground)
    _payments(ground)


def row_of(ground: Ground, one: Submission) -> tuple[Kind, list[tuple[Any, ...]]]:
    """The rows with a submission's content: id, status, reference."""
    read = READERS[one.form](json.dumps(one.body).encode())
    digest = content_hash(read.kind, read.req_type, read.body)
    columns = "id, status, gw_reference_id"
    return read.kind, ground.rows(f"SELECT {columns} FROM {read.kind.table} WHERE int_job_id = %s", (digest,))


def _requests(ground: Ground, scene: Scene) -> None:
    """0 lost, 0 double: one row an accepted request, at most one request event a row, exactly one where it has a reference."""
    posted = [one for one in ground.made if ground.was_accepted(one)]
    assert set(map(id, scene.submissions)) <= set(map(id, posted)), "a request of the scene was never accepted"
    events = requests_for(ground.deployment, ground.rpc, posted, ground.start, ground.rpc.head())
    count = 0
    for one, opened in zip(posted, events, strict=True):
        kind, rows = row_of(ground, one)
        # A client that was not told posts again: its row is the same one, unless that has ended without an answer.
        assert rows, (kind, one.form)
        assert sum(row[1] not in ("failure", "timed_out") for row in rows) <= 1, (kind, rows)
        row_id, status, ref = max(rows, key=lambda row: (row[2] is not None, row[0]))
        count += len(rows)
        assert len(opened) <= 1, f"{kind.slug} {row_id} was asked for {len(opened)} times"
        refs = [bytes.fromhex(event.reference_id[2:]) for event in opened]
        assert refs == ([] if ref is None else [bytes(ref)]), (kind, row_id, status)
        assert status != "completed" or ref is not None
    stored = sum(ground.value(f"SELECT count(*) FROM {kind.table}") for kind in REQUESTS)
    assert stored == count, f"{stored} rows, {count} of them with the content of a request"


def _owners(ground: Ground) -> None:
    """Every live row has a job, a live nonce, a deadline or a review; no ended one has a job."""
    for kind in REQUESTS:
        ownerless = ground.rows(OWNERLESS.format(table=kind.table, kind=kind.value))
        assert ownerless == [], (kind, ownerless)
        final = ", ".join(f"'{status}'" for status in FINAL)
        jobs = ground.rows(
            f"SELECT r.id, r.status FROM queue_job j JOIN {kind.table} r ON r.id = j.subject_id"
            f" WHERE j.kind = {kind.value} AND r.status IN ({final})"
        )
        assert jobs == [], (kind, jobs)


def _nonces(ground: Ground) -> None:
    """Dense nonces, at most one live transaction a row, and everything mined for the signer is on record."""
    for signer, following in ground.rows("SELECT id, next_nonce FROM signer WHERE next_nonce IS NOT NULL"):
        nonces = [
            row[0] for row in ground.rows("SELECT nonce FROM nonce_slot WHERE signer_id = %s ORDER BY 1", (signer,))
        ]
        assert nonces == list(range(following - len(nonces), following))
    doubles = ground.rows(
        "SELECT kind, subject_id FROM nonce_slot WHERE state <> 'dead' GROUP BY 1, 2 HAVING count(*) > 1"
    )
    assert doubles == []


def _log(ground: Ground, scene: Scene) -> None:
    """Every event up to the seal is in the log, once, and nothing else (I6)."""
    row = ground.rows(
        "SELECT s.start_block, c.block FROM envelope_source s JOIN chain_cursor c USING (source_id) WHERE source_id = 1"
    )
    if not row:
        return
    ((first, sealed),) = row
    gateway = ground.deployment.gateway
    from workers.chain.events import TOPICS

    watched = [gateway["decryption"], gateway["input_verification"]]
    if Kind.PAYMENT in scene.kinds:
        watched += [token["address"] for token in gateway["payment_tokens"]]
    logs = ground.rpc.logs(watched, [["0x" + one.hex() for one in TOPICS]], first, sealed)
    places = {(int(one["blockNumber"], 16) << 20) + int(one["logIndex"], 16): one["topics"][0] for one in logs}
    wanted = Counter(
        place for place, topic in places.items() if topic != MOVED.topic or places.get(place - 1) == USED.topic
    )
    upto = "SELECT position FROM envelope_meta WHERE source_id = 1 AND position < (%s + 1)::bigint << 20"
    stored = Counter(row[0] for row in ground.rows(upto, (sealed,)))
    assert stored == wanted, (stored - wanted, wanted - stored)


def _decisions(ground: Ground) -> None:
    """A commanded decision has its command, and no command is left open (I10)."""
    assert ground.rows("SELECT command_id FROM command WHERE state <> 'consumed'") == []
    alone = "SELECT d.id FROM review_decision d LEFT JOIN command c USING (command_id) WHERE d.state = 'commanded' AND c.command_id IS NULL"
    assert ground.rows(alone) == []


def _payments(ground: Ground) -> None:
    """Each ref moves money at most once, exactly once when the payment is settled; the books and the histories hold."""
    used = Counter(
        bytes.fromhex(log["topics"][2][2:])
        for token in ground.deployment.gateway["payment_tokens"]
        for log in ground.rpc.logs([token["address"]], [USED.topic], ground.start, ground.rpc.head())
    )
    for ref, state in ground.rows("SELECT ref, state FROM payment_intent"):
        moved = used.pop(bytes(ref), 0)
        assert moved <= 1, f"0x{bytes(ref).hex()} moved money {moved} times"
        assert moved == 1 or state not in ("settled", "confirming"), state
        assert moved == 0 or state not in ("canceled", "created", "authorized", "failed"), state
    assert ground.rows(OWNERLESS_PAYMENTS) == []
    reach = invariants.spans(ground.conn)
    for one in invariants.INVARIANTS:
        assert invariants.check(ground.conn, one, 0, reach[one.over][1]) == [], one.meaning
