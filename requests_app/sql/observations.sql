-- What the log shows of payments (design 2.2; reference queue_settle 4.7). Used by store/observations.py. Lock order: observations,
-- then intents, then the journal: the applier, the confirm duty and a reorganisation keep it.

-- name: observe
-- Once a position. Only payments of ours are kept: a ref that an intent has, or a transaction of one of our signers. An intent exists
-- before anybody can know its ref, so nothing is missed; everybody else's authorizations stay in the log alone.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(positions)b::bigint[], %(refs)b::bytea[], %(tokens)b::bytea[], %(authorizers)b::bytea[], %(payees)s::bytea[],
                       %(amounts)s::numeric[], %(canceled)b::bool[], %(txs)b::bytea[], %(block_hashes)b::bytea[])
    AS t(position, ref, token, authorizer, payee, amount, canceled, tx_hash, block_hash)),
 ours AS MATERIALIZED (
  SELECT a.position FROM a JOIN payment_intent i ON i.ref = a.ref
  UNION SELECT a.position FROM a JOIN tx_attempt t ON t.tx_hash = a.tx_hash)
INSERT INTO payment_observation (source_id, position, ref, token, authorizer, payee, amount, canceled, tx_hash, block_hash, observed_at)
SELECT %(source)s, a.position, a.ref, a.token, a.authorizer, a.payee, a.amount, a.canceled, a.tx_hash, a.block_hash, clock_timestamp()
  FROM a JOIN ours ON ours.position = a.position ORDER BY a.position
ON CONFLICT (source_id, position) DO NOTHING;

-- name: complete
-- Money that moved, for an authorization that was read before it (another page): the last one before it in the transaction.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(refs)b::bytea[], %(txs)b::bytea[], %(positions)b::bigint[], %(payees)b::bytea[], %(amounts)b::numeric[])
    AS t(ref, tx_hash, position, payee, amount))
UPDATE payment_observation o SET payee = a.payee, amount = a.amount
  FROM a
 WHERE o.ref = a.ref AND o.source_id = %(source)s AND o.tx_hash = a.tx_hash AND o.payee IS NULL AND NOT o.canceled
   AND o.position = (SELECT max(p.position) FROM payment_observation p
                      WHERE p.ref = a.ref AND p.source_id = %(source)s AND p.tx_hash = a.tx_hash AND p.position < a.position);

-- name: intents_of
-- The intents of this source's chain with these refs.
SELECT i.id FROM payment_intent i JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.ref = ANY(%(refs)b::bytea[]) ORDER BY i.id;

-- name: on_chain
SELECT i.id FROM payment_intent i JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.id = ANY(%(ids)b::bigint[]) ORDER BY i.id;

-- name: of_refs
SELECT position, ref, token, authorizer, payee, amount, canceled, tx_hash, block_hash
  FROM payment_observation WHERE ref = ANY(%(refs)b::bytea[]) AND source_id = %(source)s ORDER BY position;

-- name: lock_seen
-- Those of these observations that are still there. Their lock keeps a reorganisation from removing them meanwhile.
SELECT o.position FROM unnest(%(positions)b::bigint[], %(block_hashes)b::bytea[]) AS a(position, block_hash)
  JOIN payment_observation o ON o.source_id = %(source)s AND o.position = a.position AND o.block_hash = a.block_hash
 ORDER BY o.position FOR SHARE OF o;

-- name: withdraw_observations
-- Observations of blocks that gave way, and what is left standing of the intents that rested on them. Called before the intents are locked.
WITH gone AS (
  DELETE FROM payment_observation WHERE source_id = %(source)s AND position >= %(fork)s::bigint << 20
  RETURNING ref, tx_hash)
SELECT DISTINCT i.id, g.ref, g.tx_hash
  FROM gone g JOIN payment_intent i ON i.ref = g.ref AND i.tx_hash = g.tx_hash ORDER BY i.id;

-- name: lower_recon
-- What a reorganisation took back is reconciled again; findings there are of blocks that are no more.
WITH findings AS (DELETE FROM recon_finding WHERE source_id = %(source)s AND position >= %(fork)s::bigint << 20)
UPDATE recon_cursor SET block = least(block, %(fork)s::bigint - 1), moved_at = clock_timestamp() WHERE source_id = %(source)s;

-- name: resend
-- The attempts of payments that go back to settling are due at once; a receipt that vanished with its block is forgotten. Locked in
-- nonce order, as the sender locks them.
WITH held AS MATERIALIZED (
  SELECT t.id FROM nonce_slot n JOIN tx_attempt t ON t.signer_id = n.signer_id AND t.nonce = n.nonce
   WHERE n.kind = 4 AND n.subject_id = ANY(%(ids)b::bigint[])
     AND CASE WHEN n.state IN ('signed', 'live') AND t.state IN ('prepared', 'unknown', 'accepted') THEN true ELSE false END
   ORDER BY t.signer_id, t.nonce, t.seq FOR UPDATE OF t)
UPDATE tx_attempt t SET last_sent_at = NULL, block_number = NULL, block_hash = NULL, receipt_status = NULL FROM held WHERE t.id = held.id;
