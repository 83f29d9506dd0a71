-- The command box (design 5.1.6; reference queue_settle 3.4). A command is written in the transaction of the decision, consumed
-- by the holder of its resource, never changed afterwards (trigger) and never deleted. It is found by state, never by "id > last".

-- name: enqueue
INSERT INTO command (command_id, kind, target_kind, target_id, resource, expected_status, epoch, payload, payload_hash, requested_by)
VALUES (%(command_id)s, %(kind)s, %(target_kind)s, %(target_id)s, %(resource)s, %(expected_status)s, %(epoch)s, %(payload)s::jsonb,
        %(payload_hash)b, %(requested_by)s)
    ON CONFLICT (command_id) DO NOTHING RETURNING command_id;

-- name: payload_hash
SELECT payload_hash FROM command WHERE command_id = %(command_id)s;

-- name: waits
-- Whether a resource has open commands, asked twice a second: one statement, where `due` needs a transaction (index command_open).
SELECT 1 FROM command c
 WHERE c.resource = %(resource)s AND c.state <> 'consumed' AND (c.state = 'pending' OR c.claim_until <= clock_timestamp()) LIMIT 1;

-- name: due
-- Open commands of a resource whose lease is ours, oldest first, locked. Without the lease row: none.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
SELECT c.command_id, c.kind, c.target_kind, c.target_id, c.resource, c.expected_status, c.epoch, c.payload, c.requested_by,
       c.state, c.attempts
  FROM command c CROSS JOIN f
 WHERE c.resource = %(resource)s AND c.state <> 'consumed'
   AND (c.state = 'pending' OR c.claim_until <= clock_timestamp())
 ORDER BY c.created_at, c.command_id LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED;

-- name: claim
UPDATE command SET state = 'claimed', claimed_by = %(instance)s, attempts = attempts + 1,
       claim_until = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
 WHERE command_id = ANY(%(ids)s::text[]) AND state <> 'consumed';

-- name: consume
-- The end of a command, once; the reviewer's decision with it.
WITH c AS (
  UPDATE command SET state = 'consumed', consumed_at = clock_timestamp(), consumer = %(instance)s, consumed_epoch = %(epoch)s,
         outcome = %(outcome)s, result = %(result)s::jsonb
   WHERE command_id = %(command_id)s AND state <> 'consumed' RETURNING command_id)
, d AS (
  UPDATE review_decision r SET state = 'done' FROM c WHERE r.command_id = c.command_id)
SELECT command_id FROM c;

-- name: unheld_signer
-- A signer with an open command that nobody has held for long (index command_open).
SELECT c.resource FROM command c
 WHERE c.state <> 'consumed' AND starts_with(c.resource, 'signer:') AND NOT (c.resource = ANY(%(own)s::text[]))
   AND c.created_at < clock_timestamp() - make_interval(secs => %(patience)s::float8)
   AND NOT EXISTS (SELECT 1 FROM exec_lease l WHERE l.resource = c.resource
                      AND l.lease_until > clock_timestamp() - make_interval(secs => %(patience)s::float8))
 ORDER BY c.created_at LIMIT 1;

-- name: reject_all
-- Every open command of a resource whose lease is ours, and the reviewers' decisions with them.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
c AS (
  UPDATE command SET state = 'consumed', consumed_at = clock_timestamp(), consumer = %(instance)s, consumed_epoch = %(epoch)s,
         outcome = %(outcome)s, result = %(result)s::jsonb
    FROM f WHERE resource = %(resource)s AND state <> 'consumed' RETURNING command_id),
d AS (
  UPDATE review_decision r SET state = 'done' FROM c WHERE r.command_id = c.command_id)
SELECT command_id FROM c ORDER BY command_id;

-- name: slot_of
-- The nonce of a subject: the one that is not dead, else the last one; with its newest call and the highest fees offered.
SELECT n.signer_id, n.nonce, n.state, g.chain_id, g.address,
       m.attempts, m.seq, m.max_fee, m.max_priority, m.sent,
       n.state = 'final' AND EXISTS (SELECT 1 FROM tx_attempt t WHERE t.signer_id = n.signer_id AND t.nonce = n.nonce
                                        AND t.tx_hash = n.winner_hash AND t.receipt_status = 0) AS reverted,
       (SELECT t.raw_tx FROM tx_attempt t WHERE t.signer_id = n.signer_id AND t.nonce = n.nonce AND t.kind IN ('pay', 'replace')
         ORDER BY t.seq DESC LIMIT 1) AS raw
  FROM nonce_slot n JOIN signer g ON g.id = n.signer_id
 CROSS JOIN LATERAL (
   SELECT count(*)::int AS attempts, max(t.seq)::int AS seq, max(t.max_fee_per_gas) AS max_fee, max(t.max_priority_fee) AS max_priority,
          coalesce(bool_or(t.send_count > 0), false) AS sent
     FROM tx_attempt t WHERE t.signer_id = n.signer_id AND t.nonce = n.nonce) m
 WHERE n.kind = %(kind)s AND n.subject_id = %(id)s
 ORDER BY (n.state <> 'dead') DESC, n.opened_at DESC LIMIT 1;

-- name: attempt_of_command
SELECT t.nonce, t.seq, t.tx_hash, t.raw_tx, t.state, t.kind FROM tx_attempt t WHERE t.command_id = %(command_id)s;

-- name: reopen_attempts
-- What was given up is due again; refused bytes stay refused.
UPDATE tx_attempt SET last_sent_at = NULL, send_count = least(send_count, 1)
 WHERE signer_id = %(signer)s AND nonce = %(nonce)s AND state IN ('prepared', 'unknown', 'accepted');

-- name: set_signer
UPDATE signer SET status = %(status)s, status_reason = %(reason)s WHERE id = %(id)s AND status = ANY(%(was)s::text[]);

-- name: find_signer_of
SELECT id, chain_id, address, status, status_reason FROM signer WHERE id = %(id)s FOR UPDATE;

-- name: find_source
SELECT source_id, halted, chain_id FROM envelope_source WHERE source_id = %(id)s FOR UPDATE;

-- name: find_payment
SELECT id, state FROM payment_intent WHERE id = %(id)s FOR UPDATE;

-- name: without_limit
-- For the rest of the transaction: how much a person's order takes back is not known before.
SELECT set_config('statement_timeout', '0', true) AS before;

-- name: lift_halt
UPDATE envelope_source SET halted = NULL WHERE source_id = %(id)s AND halted IS NOT NULL;

-- name: tenant_of
SELECT coalesce(min(client_id), 0) AS tenant FROM request_client WHERE kind = %(kind)s AND request_id = %(id)s;

-- name: bind_reference
-- A reference that nobody owns, for the row that a reviewer names. No row: it belongs to another request.
INSERT INTO gateway_ref AS g (gw_reference_id, kind, request_id, first_at)
VALUES (%(ref)b, %(kind)s, %(id)s, clock_timestamp())
    ON CONFLICT (gw_reference_id) DO UPDATE SET kind = excluded.kind, request_id = excluded.request_id
 WHERE g.request_id IS NULL OR (g.request_id = excluded.request_id AND g.kind = excluded.kind)
RETURNING gw_reference_id;

-- name: note_attached
UPDATE {table} SET gw_reference_id = %(ref)b, receipt_block = %(block)s WHERE id = %(id)s AND status = 'receipt_received';

-- name: owner_of_hash
-- Whose attempt a transaction is, and which row names it already.
SELECT n.kind, n.subject_id FROM tx_attempt t JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
 WHERE t.tx_hash = %(tx_hash)b;

-- name: lock_reviewer
-- A reviewer who is disabled can complete no write, even one already under way (I11).
SELECT username, is_active FROM auth_user WHERE id = %(id)s FOR SHARE;

-- name: subject_of_case
SELECT kind, subject_id FROM review_case WHERE id = %(id)s;

-- name: lock_case
SELECT id, kind, subject_id, status, version, reason_code FROM review_case WHERE id = %(id)s FOR UPDATE;

-- name: open_decision
INSERT INTO review_decision (case_id, seq, action, parameters, reason, state, decided_by, command_id)
SELECT %(case)s, coalesce(max(d.seq), 0) + 1, %(action)s, %(parameters)s::jsonb, %(reason)s, %(state)s, %(by)s,
       CASE WHEN %(commanded)s THEN 'review:' || %(case)s || ':' || (coalesce(max(d.seq), 0) + 1) END
  FROM review_decision d WHERE d.case_id = %(case)s
RETURNING id, seq, command_id;

-- name: raise_version
UPDATE review_case SET version = version + 1 WHERE id = %(id)s;

-- name: pending_decision
SELECT id, decided_by FROM review_decision
 WHERE case_id = %(id)s AND state IN ('awaiting_second', 'commanded');

-- name: case_of_decision
SELECT case_id FROM review_decision WHERE id = %(id)s;

-- name: lock_decision
SELECT id, case_id, seq, action, parameters, reason, state, decided_by FROM review_decision WHERE id = %(id)s FOR UPDATE;

-- name: second_decision
UPDATE review_decision SET state = %(state)s, second_by = %(by)s, second_at = clock_timestamp(), command_id = %(command_id)s
 WHERE id = %(id)s AND state = 'awaiting_second';

-- name: withdraw_decision
UPDATE review_decision
   SET state = 'withdrawn', withdrawn_by = %(by)s, withdrawn_at = clock_timestamp(), withdrawn_reason = %(reason)s,
       second_by = %(second)s, second_at = CASE WHEN %(second)s::text IS NOT NULL THEN clock_timestamp() END
 WHERE id = %(id)s AND state = 'awaiting_second';
