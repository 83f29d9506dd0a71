-- Payments on the way to the chain (design 2.3; reference queue_settle 4). Guards on transient states are CASE expressions (trap T4).
-- Times are written as clock_timestamp(): the example and tests put a clock of their own before pg_catalog in the search_path.
-- Lock order: account, lease and signer, intent, job, journal.

-- name: read_cases
-- What a delivery needs to know beside the intent: whether its owner may act, and its nonce: the one that is not dead, else the last.
SELECT r.id, c.status = 'active' AS effective, n.signer_id, n.nonce, n.state,
       EXISTS (SELECT 1 FROM tx_attempt t WHERE t.signer_id = n.signer_id AND t.nonce = n.nonce) AS signed
  FROM payment_intent r JOIN client_account c ON c.id = r.account_id
  LEFT JOIN LATERAL (
    SELECT s.signer_id, s.nonce, s.state FROM nonce_slot s WHERE s.kind = 4 AND s.subject_id = r.id
     ORDER BY (s.state <> 'dead') DESC, s.opened_at DESC LIMIT 1) n ON true
 WHERE r.id = ANY(%(ids)b::bigint[]);

-- name: lock_owners
-- First lock of the sending transaction: an account that is disabled from now on waits until it has committed.
SELECT a.id FROM client_account a
 WHERE a.id IN (SELECT r.account_id FROM payment_intent r WHERE r.id = ANY(%(ids)b::bigint[]))
 ORDER BY a.id
   FOR SHARE OF a;

-- name: claim_payments
-- Fence, signer, and those of the intents that may be signed now, locked; each with its nonce. Nothing is written yet.
-- No row: stale epoch, signer not active, or nothing left to send.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
s AS MATERIALIZED (
  SELECT g.id, g.next_nonce FROM signer g CROSS JOIN f
   WHERE g.id = %(signer)s AND g.status = 'active' AND g.next_nonce IS NOT NULL FOR UPDATE OF g),
w AS MATERIALIZED (
  SELECT a.id, a.version, a.ord
    FROM unnest(%(ids)b::bigint[], %(versions)b::int[]) WITH ORDINALITY AS a(id, version, ord) CROSS JOIN s
   WHERE NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = 4 AND n.subject_id = a.id AND n.state <> 'dead')),
r AS MATERIALIZED (
  SELECT w.ord FROM w JOIN payment_intent i ON i.id = w.id JOIN client_account c ON c.id = i.account_id
   WHERE c.status = 'active' AND CASE WHEN i.state = %(source)s AND i.version = w.version THEN true ELSE false END
   ORDER BY i.id FOR UPDATE OF i)
SELECT r.ord - 1 AS place, s.next_nonce + row_number() OVER (ORDER BY r.ord) - 1 AS nonce
  FROM r CROSS JOIN s ORDER BY r.ord;

-- name: store_payments
-- Counter, slots and signed bytes of what claim_payments gave. No row: the counter moved under its lock.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)b::bigint[], %(nonces)b::bigint[], %(hashes)b::bytea[], %(raws)b::bytea[], %(gas)b::bigint[])
           AS t(id, nonce, hash, raw, gas)),
g AS (
  UPDATE signer SET next_nonce = next_nonce + (SELECT count(*) FROM a)
   WHERE id = %(signer)s AND next_nonce = (SELECT min(nonce) FROM a) RETURNING id),
sl AS (
  INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_at, opened_epoch)
  SELECT g.id, a.nonce, 4, a.id, 'signed', clock_timestamp(), %(epoch)s FROM a CROSS JOIN g),
t AS (
  INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch, prepared_at)
  SELECT g.id, a.nonce, 1, a.hash, a.raw, %(max_fee)s::numeric, %(max_priority)s::numeric, a.gas, 'prepared', %(epoch)s, clock_timestamp()
    FROM a CROSS JOIN g)
SELECT g.id FROM g;

-- name: attempts_of
-- Everything that was signed at the open nonces of these intents, newest first.
SELECT s.subject_id, t.signer_id, t.nonce, t.seq, t.tx_hash, t.raw_tx, t.state, t.kind AS purpose,
       count(*) OVER (PARTITION BY t.signer_id, t.nonce) > 1 AS siblings
  FROM nonce_slot s JOIN tx_attempt t ON t.signer_id = s.signer_id AND t.nonce = s.nonce
 WHERE s.kind = 4 AND s.subject_id = ANY(%(ids)b::bigint[]) AND s.state <> 'dead'
 ORDER BY s.subject_id, t.seq DESC;

-- name: seen_spent
-- What the log shows of authorizations. By token and authorizer too: anybody may use the same nonce for a permission of their own.
SELECT DISTINCT ON (o.ref) o.ref, o.tx_hash, o.position >> 20 AS block, o.canceled
  FROM unnest(%(refs)b::bytea[], %(tokens)b::bytea[], %(payers)b::bytea[]) AS a(ref, token, payer)
  JOIN payment_observation o ON o.ref = a.ref AND o.token = a.token AND o.authorizer = a.payer
 ORDER BY o.ref, o.canceled, o.position;

-- name: closing_payments
-- Open nonces from `from_nonce` on whose payer's authorization ends within `margin`: the call at them is not worth another offer.
-- Those that have a no-op already are left out.
SELECT s.nonce, s.subject_id, m.seq, m.max_fee, m.max_priority
  FROM nonce_slot s JOIN payment_intent r ON r.id = s.subject_id
 CROSS JOIN LATERAL (
   SELECT max(t.seq)::int AS seq, max(t.max_fee_per_gas) AS max_fee, max(t.max_priority_fee) AS max_priority,
          bool_or(t.kind IN ('cancel', 'fill')) AS filled
     FROM tx_attempt t WHERE t.signer_id = s.signer_id AND t.nonce = s.nonce) m
 WHERE s.signer_id = %(signer)s AND s.kind = 4 AND s.state IN ('signed', 'live') AND s.nonce >= %(from_nonce)s AND NOT m.filled
   AND (r.authorization->>'valid_before')::numeric <= extract(epoch FROM clock_timestamp()) + %(margin)s::float8
 ORDER BY s.nonce LIMIT %(limit)s::bigint;

-- name: bury_reverted
-- A nonce that a reverted call of ours has taken, final: no transaction of it can move money any more.
UPDATE nonce_slot n SET state = 'dead'
  FROM tx_attempt t
 WHERE n.kind = 4 AND n.subject_id = %(id)s AND n.state = 'final'
   AND t.signer_id = n.signer_id AND t.nonce = n.nonce AND t.tx_hash = n.winner_hash AND t.receipt_status = 0;

-- name: lost_payments
-- Payments that wait for the settle worker without a job (index payment_intent_active). One whose job was given up waits for a person.
SELECT r.id FROM payment_intent r
 WHERE r.state IN ('authorized', 'settling') AND r.updated_at <= clock_timestamp() - make_interval(secs => %(idle)s::float8)
   AND NOT EXISTS (SELECT 1 FROM queue_job j WHERE j.job_key = r.public_id || '/settle')
   AND NOT EXISTS (SELECT 1 FROM dead_letter d WHERE d.kind = 4 AND d.subject_id = r.id AND d.status = 'parked')
 ORDER BY r.updated_at LIMIT %(limit)s::bigint;

-- name: asked_ends
-- Payments in review whose nonce was spent on nothing because a person asked for that, not closed for ever yet.
SELECT r.id, s.nonce FROM nonce_slot s
  JOIN payment_intent r ON r.id = s.subject_id AND r.state = 'needs_review'
  JOIN tx_attempt w ON w.signer_id = s.signer_id AND w.nonce = s.nonce AND w.tx_hash = s.winner_hash AND w.kind IN ('cancel', 'fill')
 WHERE s.signer_id = %(signer)s AND s.nonce = ANY(%(nonces)b::bigint[]) AND s.kind = 4 AND s.state = 'mined'
   AND EXISTS (SELECT 1 FROM tx_attempt c
                WHERE c.signer_id = s.signer_id AND c.nonce = s.nonce AND c.kind = 'cancel' AND c.command_id IS NOT NULL)
 ORDER BY s.nonce;

-- name: own_hashes
-- Every transaction that was signed for these payments.
SELECT s.subject_id, t.tx_hash FROM nonce_slot s JOIN tx_attempt t ON t.signer_id = s.signer_id AND t.nonce = s.nonce
 WHERE s.kind = 4 AND s.subject_id = ANY(%(ids)b::bigint[]);
