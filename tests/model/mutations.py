"""The design made worse on purpose: proof that the model check can fail."""

from __future__ import annotations

import re
from typing import Any

import pytest

from requests_app import sql
from tests.model.world import World

_FENCE = re.compile(
    r"SELECT epoch FROM exec_lease\s+WHERE resource = %\(resource\)s AND instance = %\(instance\)s"
    r" AND epoch = %\(epoch\)s(?:::bigint)?\s+FOR SHARE"
)
_ABANDON = """
WITH lost AS (
  SELECT n.signer_id, n.nonce, n.subject_id FROM nonce_slot n JOIN tx_attempt t USING (signer_id, nonce)
   WHERE n.kind = 2 AND n.state IN ('signed', 'live') AND t.tx_hash = ANY(%(hashes)s)),
s AS (UPDATE nonce_slot n SET state = 'dead', closed_at = now() FROM lost l WHERE (n.signer_id, n.nonce) = (l.signer_id, l.nonce)),
t AS (UPDATE tx_attempt a SET state = 'dropped' FROM lost l WHERE (a.signer_id, a.nonce) = (l.signer_id, l.nonce)),
r AS (UPDATE public_decrypt_req r SET status = 'processing' FROM lost l WHERE r.id = l.subject_id)
INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id)
SELECT 'send', '2/' || subject_id, 2, subject_id, 1 FROM lost ON CONFLICT (job_key) DO NOTHING
"""


def without_fence(patch: pytest.MonkeyPatch) -> None:
    """Every statement believes that its writer still holds the lease."""
    original = sql.statement

    def unfenced(topic: str, name: str, **parts: str) -> str:
        return _FENCE.sub(
            "SELECT %(epoch)s::bigint AS epoch, %(resource)s::text, %(instance)s::text", original(topic, name, **parts)
        )

    assert _FENCE.search(original("sending", "claim_sends"))
    patch.setattr(sql, "statement", unfenced)


def null_means_dead(world: World) -> None:
    """A receipt that the node does not have: the transaction is given up, the request gets a fresh nonce."""
    hashes = [
        bytes(row[0])
        for row in _open_attempts(world)
        if world.chain.eth_getTransactionReceipt("0x" + bytes(row[0]).hex()) is None
    ]
    world.conn.execute(_ABANDON, {"hashes": hashes})


def fresh_nonce_after_timeout(world: World) -> None:
    """Not seen mined for a while after its broadcast: sent again at a fresh nonce."""
    world.conn.execute(_ABANDON, {"hashes": [bytes(row[0]) for row in _open_attempts(world) if row[1] > 10]})


def _open_attempts(world: World) -> list[Any]:
    ids = [subject.id for subject in world.subjects]
    return world.conn.execute(
        "SELECT t.tx_hash, extract(epoch FROM clock_timestamp() - t.first_sent_at)::float8 FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce)"
        " WHERE n.kind = 2 AND n.subject_id = ANY(%s) AND t.state IN ('unknown', 'accepted') AND t.send_count > 0",
        (ids,),
    ).fetchall()
