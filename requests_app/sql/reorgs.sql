-- Undoing blocks that gave way to others (design 5.4.3; reference/envelopes.md 6.3 supersede; queue_settle 4.7). Used by
-- store/reorgs.py, all in one transaction. Lock order: lease, seal, consumer cursors (which excludes every applier), attempts,
-- slots, rows.

-- name: known_hashes
-- Hashes of sealed blocks from `floor` on: those that the listener kept, and those that events named.
SELECT block, hash FROM chain_block WHERE source_id = %(source)s AND block BETWEEN %(floor)s AND %(sealed)s
UNION
SELECT DISTINCT position >> 20, block_hash FROM envelope_meta
 WHERE source_id = %(source)s AND position >= %(floor)s::bigint << 20 AND position < (%(sealed)s::bigint + 1) << 20;

-- name: event_block
SELECT position >> 20 AS block, block_hash FROM envelope_meta
 WHERE source_id = %(source)s AND position < (%(upto)s::bigint + 1) << 20 ORDER BY position DESC LIMIT 1;

-- name: kept_from
-- Nothing can be stored any more below the end of a band that is on its way out.
SELECT coalesce(max(hi) >> 20, 0) AS block FROM envelope_band WHERE source_id = %(source)s AND state <> 'open';

-- name: remember_window
UPDATE chain_cursor SET window_blocks = %(window)s::int WHERE source_id = %(source)s;

-- name: lock_source
WITH fence AS MATERIALIZED (
  SELECT 1 FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
SELECT c.block, c.head_hash, s.halted, s.chain_id, s.reorg_depth, s.start_block, EXISTS (SELECT 1 FROM fence) AS held
  FROM chain_cursor c JOIN envelope_source s ON s.source_id = c.source_id
 WHERE c.source_id = %(source)s FOR UPDATE OF c;

-- name: lock_consumers
SELECT consumer FROM consumer_cursor WHERE source_id = %(source)s ORDER BY consumer FOR UPDATE;

-- name: open_reorg
INSERT INTO chain_reorg (source_id, fork_block, sealed, old_hash, new_hash)
VALUES (%(source)s, %(fork)s, %(sealed)s, %(old_hash)b, %(new_hash)b) RETURNING id;

-- name: orphan_envelopes
-- Everything from the fork on, also what a refused batch left above the seal.
WITH blob AS (
  DELETE FROM envelope_blob WHERE source_id = %(source)s AND position >= %(fork)s::bigint << 20 RETURNING position, payload),
 meta AS (
  DELETE FROM envelope_meta WHERE source_id = %(source)s AND position >= %(fork)s::bigint << 20
  RETURNING source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at)
INSERT INTO envelope_orphan (reorg_id, source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at, payload)
SELECT %(reorg)s, m.source_id, m.position, m.kind, m.ref, m.contract, m.block_hash, m.tx_hash, m.digest, m.payer, m.recorded_at, b.payload
  FROM meta m LEFT JOIN blob b ON b.position = m.position ORDER BY m.position;

-- name: withdraw_attempts
-- Mined slots from the fork on are open again, with every attempt that may be mined in the other blocks. Final ones stay.
WITH slot AS MATERIALIZED (
  SELECT n.signer_id, n.nonce, n.winner_hash
    FROM signer g CROSS JOIN LATERAL (
      SELECT s.signer_id, s.nonce, s.winner_hash FROM nonce_slot s
       WHERE s.signer_id = g.id
         AND s.nonce > coalesce((SELECT f.nonce FROM nonce_slot f WHERE f.signer_id = g.id AND f.state = 'final'
                                  ORDER BY f.nonce DESC LIMIT 1), -1)
         AND CASE WHEN s.state = 'mined' THEN true ELSE false END) n
   WHERE g.chain_id = %(chain)s),
 held AS MATERIALIZED (
  SELECT t.id, t.signer_id, t.nonce FROM slot JOIN tx_attempt t ON t.tx_hash = slot.winner_hash
   WHERE t.block_number >= %(fork)s AND CASE WHEN t.state = 'mined' THEN true ELSE false END
   ORDER BY t.signer_id, t.nonce FOR UPDATE OF t),
 open AS (
  UPDATE tx_attempt t
     SET state = 'accepted', block_number = NULL, block_hash = NULL, receipt_status = NULL, last_sent_at = NULL
    FROM held WHERE t.id = held.id),
 rivals AS (
  UPDATE tx_attempt t SET state = 'unknown', last_sent_at = NULL
    FROM held WHERE t.signer_id = held.signer_id AND t.nonce = held.nonce AND t.id <> held.id
     AND CASE WHEN t.state = 'replaced' THEN true ELSE false END)
UPDATE nonce_slot n SET state = 'live', winner_hash = NULL, closed_at = NULL
  FROM held WHERE n.signer_id = held.signer_id AND n.nonce = held.nonce;

-- name: touched_requests
-- Rows that orphaned events speak of: by the attempt that carried the request, by the reference that a person's naming bound to it
-- (no attempt of ours is of that transaction), or by the reference of the answer.
SELECT DISTINCT n.kind, n.subject_id AS request_id, o.ref, o.kind AS event_kind, true AS request, o.tx_hash
  FROM envelope_orphan o JOIN tx_attempt t ON t.tx_hash = o.tx_hash
  JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
 WHERE o.reorg_id = %(reorg)s AND o.kind = ANY(%(request_kinds)b::smallint[])
UNION
SELECT g.kind, g.request_id, o.ref, o.kind, true, o.tx_hash
  FROM envelope_orphan o JOIN gateway_ref g ON g.gw_reference_id = o.ref AND g.request_id IS NOT NULL
 WHERE o.reorg_id = %(reorg)s AND o.kind = ANY(%(request_kinds)b::smallint[])
   AND NOT EXISTS (SELECT 1 FROM envelope_meta m WHERE m.ref = o.ref AND m.source_id = o.source_id AND m.kind = o.kind)
UNION
SELECT DISTINCT ON (g.kind, g.request_id, o.kind) g.kind, g.request_id, o.ref, o.kind, false, o.tx_hash
  FROM envelope_orphan o JOIN gateway_ref g ON g.gw_reference_id = o.ref AND g.request_id IS NOT NULL
 WHERE o.reorg_id = %(reorg)s AND NOT o.kind = ANY(%(request_kinds)b::smallint[]);

-- name: lock_rows
SELECT id, status FROM {table} WHERE id = ANY(%(ids)b::bigint[]) ORDER BY id FOR UPDATE;

-- name: withdraw_rows
-- receipt_received -> tx_in_flight.
WITH changed AS (
  UPDATE {table} r
     SET status = %(target)s, gw_reference_id = NULL, receipt_block = NULL{consensus},
         state_entered_at = clock_timestamp(), updated_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s)
   WHERE r.id = ANY(%(ids)b::bigint[]) AND CASE WHEN r.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, r.gw_req_tx_hash)
INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, reason, tx_hash)
SELECT %(kind)s, id, %(verb)s, %(source)s, %(target)s, %(actor)s, %(epoch)s, %(reason)s, gw_req_tx_hash FROM changed ORDER BY id;

-- name: forget_references
-- Rows in review keep their state; what they were told of the chain is no longer true.
UPDATE {table} SET gw_reference_id = NULL, receipt_block = NULL, updated_at = clock_timestamp()
 WHERE id = ANY(%(ids)b::bigint[]) AND CASE WHEN status = 'needs_review' THEN true ELSE false END;

-- name: forget_consensus
UPDATE user_decrypt_req r SET gw_consensus_tx_hash = NULL
  FROM envelope_orphan o
 WHERE o.reorg_id = %(reorg)s AND r.id = ANY(%(ids)b::bigint[]) AND r.gw_consensus_tx_hash = o.tx_hash
   AND CASE WHEN r.status IN ('receipt_received', 'needs_review') THEN true ELSE false END;

-- name: keep_shares
-- A completed row is answered with these for ever, whoever gets its reference in the other blocks.
INSERT INTO kept_share (request_id, share_index, share, kms_signature, extra_data, position)
SELECT a.id, s.share_index, s.share, s.kms_signature, s.extra_data, s.position
  FROM unnest(%(ids)b::bigint[]) AS a(id) JOIN user_decrypt_req r ON r.id = a.id
  JOIN user_decrypt_share s ON s.gw_reference_id = r.gw_reference_id
ON CONFLICT (request_id, share_index) DO NOTHING;

-- name: drop_references
-- References whose request event gave way belong to nobody; their answers are in the same blocks.
WITH share AS (DELETE FROM user_decrypt_share WHERE gw_reference_id = ANY(%(refs)b::bytea[]))
DELETE FROM gateway_ref WHERE gw_reference_id = ANY(%(refs)b::bytea[]);

-- name: drop_shares
-- Shares of orphaned blocks leave with their count, but for rows that they have completed.
WITH gone AS (
  DELETE FROM user_decrypt_share s USING envelope_orphan o
   WHERE o.reorg_id = %(reorg)s AND s.gw_reference_id = o.ref AND s.position = o.position
     AND NOT s.gw_reference_id = ANY(%(kept)b::bytea[])
  RETURNING s.gw_reference_id AS ref)
UPDATE gateway_ref g SET n = g.n - c.n
  FROM (SELECT ref, count(*)::int AS n FROM gone GROUP BY ref) c WHERE g.gw_reference_id = c.ref;

-- name: drop_unclaimed
-- What was only known from orphaned blocks is not known: a threshold learnt there must not outlive them.
DELETE FROM gateway_ref g USING envelope_orphan o
 WHERE o.reorg_id = %(reorg)s AND g.gw_reference_id = o.ref AND g.request_id IS NULL AND g.n = 0;

-- name: note_evidence
INSERT INTO reorg_evidence (reorg_id, source_id, kind, request_id, event_kind, ref, tx_hash, fork_block, after_block)
SELECT %(reorg)s, %(source)s, kind, request_id, event_kind, ref, tx_hash, %(fork)s, %(after)s
  FROM unnest(%(kinds)b::smallint[], %(ids)b::bigint[], %(event_kinds)b::smallint[], %(refs)b::bytea[], %(txs)b::bytea[])
    AS t(kind, request_id, event_kind, ref, tx_hash);

-- name: lower_seal
WITH cursors AS (
  UPDATE consumer_cursor SET position = least(position, (%(fork)s::bigint << 20) - 1), updated_at = clock_timestamp()
   WHERE source_id = %(source)s),
 hashes AS (DELETE FROM chain_block WHERE source_id = %(source)s AND block >= %(fork)s),
 parked AS (DELETE FROM dead_envelope WHERE source_id = %(source)s AND position >= %(fork)s::bigint << 20),
 reorg AS (UPDATE chain_reorg SET envelopes = %(envelopes)s, withdrawn = %(withdrawn)s WHERE id = %(reorg)s)
UPDATE chain_cursor SET block = %(fork)s::bigint - 1, head_hash = %(parent_hash)b::bytea, updated_at = clock_timestamp()
 WHERE source_id = %(source)s;

-- name: evidence_due
-- duties/reorgs: final rows whose event gave way, once the chain is `reorg_depth` past the old seal; back meanwhile or not.
SELECT e.id, e.kind, e.request_id, e.tx_hash, e.event_kind, e.reorg_id,
       EXISTS (SELECT 1 FROM envelope_meta m
                WHERE m.source_id = e.source_id AND m.position >= e.fork_block << 20
                  AND (m.tx_hash = e.tx_hash OR (m.ref = e.ref AND m.kind = e.event_kind))) AS back
  FROM reorg_evidence e JOIN chain_cursor c ON c.source_id = e.source_id AND c.block >= e.after_block
 WHERE e.verdict IS NULL ORDER BY e.after_block LIMIT %(limit)s;

-- name: settle_evidence
UPDATE reorg_evidence e SET verdict = t.verdict, settled_at = clock_timestamp()
  FROM unnest(%(ids)b::bigint[], %(verdicts)b::text[]) AS t(id, verdict) WHERE e.id = t.id AND e.verdict IS NULL;
