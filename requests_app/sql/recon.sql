-- Reconciliation of payments over windows that are final (reference queue_settle 4.7). Used by store/recon.py.

-- name: open_cursor
INSERT INTO recon_cursor (source_id, block, moved_at)
SELECT s.source_id, s.start_block - 1, clock_timestamp() FROM envelope_source s WHERE s.source_id = %(source)s
ON CONFLICT (source_id) DO NOTHING;

-- name: read_cursor
SELECT block FROM recon_cursor WHERE source_id = %(source)s;

-- name: move_cursor
-- First statement of a window's transaction: it locks the cursor and claims the window. No row: somebody else reconciled it.
-- Answers when the cursor moved last.
UPDATE recon_cursor c SET block = %(hi)s::bigint, moved_at = clock_timestamp()
  FROM (SELECT source_id, block, moved_at FROM recon_cursor WHERE source_id = %(source)s FOR UPDATE) old
 WHERE c.source_id = old.source_id AND old.block = %(lo)s::bigint - 1
RETURNING old.moved_at;

-- name: not_logged
-- Events that the chain shows in a sealed window and the log lacks, or has another one in the place of.
SELECT a.position FROM unnest(%(positions)b::bigint[], %(digests)b::bytea[]) AS a(position, digest)
 WHERE NOT EXISTS (SELECT 1 FROM envelope_meta m WHERE m.source_id = %(source)s AND m.position = a.position AND m.digest = a.digest
                      AND m.position BETWEEN %(first)s::bigint AND %(last)s::bigint);

-- name: settling_refs
-- Payments without a hash whose execution lies in the window: they may be given one.
SELECT DISTINCT o.ref FROM payment_observation o JOIN payment_intent i ON i.ref = o.ref AND i.state = 'settling'
 WHERE o.source_id = %(source)s AND o.position BETWEEN %(first)s::bigint AND %(last)s::bigint AND NOT o.canceled;

-- name: find_in_window
-- What the window shows that the books do not expect, once a position.
-- A stranger's use of a ref as a nonce of their own is nothing to its payment.
WITH seen AS MATERIALIZED (
  SELECT o.position, o.ref, o.token, o.payee, o.amount, o.tx_hash, i.id AS intent_id, i.state, i.tx_hash AS recorded, i.merchant,
         i.amount AS asked, i.token AS asked_token, coalesce(lower(i.payer) = '0x' || encode(o.authorizer, 'hex'), false) AS own,
         coalesce({exact}, false) AS exact
    FROM payment_observation o
    JOIN envelope_source s ON s.source_id = o.source_id
    LEFT JOIN payment_intent i ON i.ref = o.ref AND i.chain = 'evm:' || s.chain_id
   WHERE o.source_id = %(source)s AND o.position BETWEEN %(first)s::bigint AND %(last)s::bigint AND NOT o.canceled),
 judged AS (
  SELECT s.*,
         CASE WHEN s.intent_id IS NULL THEN 'unknown_ref'
              WHEN NOT s.own THEN NULL
              WHEN NOT s.exact THEN 'mismatch'
              WHEN s.state IN ('failed', 'canceled', 'created') THEN 'unexpected'
              WHEN EXISTS (SELECT 1 FROM payment_observation o JOIN payment_intent i ON i.id = s.intent_id
                            WHERE o.ref = s.ref AND o.source_id = %(source)s AND o.position <> s.position AND {exact}
                              AND CASE WHEN o.tx_hash = s.tx_hash THEN o.position < s.position
                                       WHEN s.recorded IS NULL THEN o.position < s.position
                                       WHEN s.recorded = s.tx_hash THEN false
                                       ELSE s.recorded = o.tx_hash OR o.position < s.position END) THEN 'paid_twice'
              WHEN s.state = 'settled' AND s.recorded <> s.tx_hash THEN 'paid_twice' END AS kind
    FROM seen s)
INSERT INTO recon_finding (source_id, kind, ref, position, intent_id, tx_hash, detail, found_at)
SELECT %(source)s, j.kind, j.ref, j.position, j.intent_id, j.tx_hash,
       jsonb_strip_nulls(jsonb_build_object(
         'block', j.position >> 20, 'tx_hash', '0x' || encode(j.tx_hash, 'hex'), 'ref', '0x' || encode(j.ref, 'hex'),
         'token', '0x' || encode(j.token, 'hex'), 'payee', '0x' || encode(j.payee, 'hex'), 'amount', j.amount::text,
         'state', j.state, 'recorded', '0x' || encode(j.recorded, 'hex'),
         'asked', CASE WHEN j.intent_id IS NOT NULL
                       THEN jsonb_build_object('merchant', j.merchant, 'amount', j.asked::text, 'token', j.asked_token) END)),
       clock_timestamp()
  FROM judged j WHERE j.kind IS NOT NULL ORDER BY j.position
ON CONFLICT (source_id, kind, position) DO NOTHING
RETURNING kind, ref, position, intent_id, tx_hash, detail;

-- name: find_unreferenced
-- Payments that were settled since the cursor moved last (and a minute before: what commits late is not passed over) with a transaction that the log does not show. They have
-- no position in the log: minus their id stands for it. Index payment_intent_ended.
INSERT INTO recon_finding (source_id, kind, ref, position, intent_id, tx_hash, detail, found_at)
SELECT %(source)s, 'unreferenced', i.ref, -i.id, i.id, i.tx_hash,
       jsonb_build_object('tx_hash', '0x' || encode(i.tx_hash, 'hex'), 'ref', '0x' || encode(i.ref, 'hex'), 'state', i.state,
                          'settled_at', i.updated_at),
       clock_timestamp()
  FROM payment_intent i JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.state IN ('canceled', 'failed', 'settled') AND i.state = 'settled'
   AND i.updated_at > %(since)s::timestamptz - interval '1 minute'
   AND NOT EXISTS (SELECT 1 FROM payment_observation o
                    WHERE o.ref = i.ref AND o.source_id = s.source_id AND o.tx_hash = i.tx_hash AND {exact})
 ORDER BY i.id
ON CONFLICT (source_id, kind, position) DO NOTHING
RETURNING kind, ref, position, intent_id, tx_hash, detail;

-- name: carriers
-- Whose transaction carried it: the subject of the nonce.
SELECT t.tx_hash, n.kind, n.subject_id FROM tx_attempt t JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
 WHERE t.tx_hash = ANY(%(hashes)b::bytea[]);
