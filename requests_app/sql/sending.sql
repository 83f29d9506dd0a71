-- Requests that change state together with jobs, nonces and signed bytes (design 2.3; engine_spike 3). Used by
-- transitions/sending.py. Guards on transient statuses are CASE expressions: a plain comparison makes the planner believe in
-- zero rows and scan by status with the batch as inner loop, which is quadratic (trap T4; plan test in tests/send).
-- Lock order: account, lease and signer, row, job.

-- name: lock_accounts
-- First lock of the sending transaction: a client that is disabled from now on waits until it has committed.
SELECT a.id FROM client_account a
 WHERE a.id IN (SELECT v.client_id
                  FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[]) AS w(kind, id)
                  JOIN request_client v ON v.kind = w.kind AND v.request_id = w.id)
 ORDER BY a.id
   FOR SHARE OF a;

-- name: claim_sends
-- Fence, signer, and those of the wanted rows that may be sent now, locked; each with its nonce. Nothing is written yet.
-- NO KEY: nothing that only refers to these rows (a share, a view, a slot) waits for the signing.
-- No row: stale epoch, signer not active, or nothing left to send.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
s AS MATERIALIZED (
  SELECT g.id, g.next_nonce FROM signer g CROSS JOIN f
   WHERE g.id = %(signer)s AND g.status = 'active' AND g.next_nonce IS NOT NULL FOR NO KEY UPDATE OF g),
w AS MATERIALIZED (
  SELECT a.kind, a.id, a.ord
    FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[]) WITH ORDINALITY AS a(kind, id, ord) CROSS JOIN s
   WHERE NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = a.kind AND n.subject_id = a.id AND n.state <> 'dead')
     AND (NOT EXISTS (SELECT 1 FROM request_client v WHERE v.kind = a.kind AND v.request_id = a.id)
          OR EXISTS (SELECT 1 FROM request_client v JOIN client_account c ON c.id = v.client_id
                      WHERE v.kind = a.kind AND v.request_id = a.id
                        AND v.canceled_at IS NULL AND c.status = 'active'))),
u AS MATERIALIZED (
  SELECT w.ord, r.state_entered_at AS since FROM w JOIN user_decrypt_req r ON r.id = w.id
   WHERE w.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR NO KEY UPDATE OF r),
p AS MATERIALIZED (
  SELECT w.ord, r.state_entered_at AS since FROM w JOIN public_decrypt_req r ON r.id = w.id
   WHERE w.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR NO KEY UPDATE OF r),
i AS MATERIALIZED (
  SELECT w.ord, r.state_entered_at AS since FROM w JOIN input_proof_req r ON r.id = w.id
   WHERE w.kind = 3 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR NO KEY UPDATE OF r),
c AS (SELECT * FROM u UNION ALL SELECT * FROM p UNION ALL SELECT * FROM i)
SELECT w.ord - 1 AS place, s.next_nonce + row_number() OVER (ORDER BY w.ord) - 1 AS nonce,
       extract(epoch FROM clock_timestamp() - c.since)::float8 AS spent_seconds
  FROM c JOIN w ON w.ord = c.ord CROSS JOIN s
 ORDER BY w.ord;

-- name: store_sends
-- The rest of the transaction that claim_sends began: state change, counter, slot, signed bytes, transition. The caller
-- compares both counts with the batch and rolls back when they differ.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[], %(nonce)b::bigint[], %(hash)b::bytea[],
                       %(raw)b::bytea[], %(gas)b::bigint[]) AS t(kind, id, nonce, hash, raw, gas)),
u AS (
  UPDATE user_decrypt_req AS r
     SET status = %(target)s, gw_req_tx_hash = a.hash, updated_at = clock_timestamp(),
         state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM a WHERE a.kind = 1 AND r.id = a.id AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
  RETURNING a.nonce),
p AS (
  UPDATE public_decrypt_req AS r
     SET status = %(target)s, gw_req_tx_hash = a.hash, updated_at = clock_timestamp(),
         state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM a WHERE a.kind = 2 AND r.id = a.id AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
  RETURNING a.nonce),
i AS (
  UPDATE input_proof_req AS r
     SET status = %(target)s, gw_req_tx_hash = a.hash, updated_at = clock_timestamp(),
         state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM a WHERE a.kind = 3 AND r.id = a.id AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
  RETURNING a.nonce),
c AS (SELECT nonce FROM u UNION ALL SELECT nonce FROM p UNION ALL SELECT nonce FROM i),
g AS (
  UPDATE signer SET next_nonce = next_nonce + (SELECT count(*) FROM a)
   WHERE id = %(signer)s AND next_nonce = (SELECT min(nonce) FROM a) RETURNING id),
sl AS (
  INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch)
  SELECT %(signer)s, nonce, kind, id, 'signed', %(epoch)s FROM a),
tr AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, tx_hash)
  SELECT kind, id, %(verb)s, %(source)s, %(target)s, %(actor)s, %(epoch)s, hash FROM a),
t AS (
  INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch)
  SELECT %(signer)s, nonce, 1, hash, raw, %(max_fee)s::numeric, %(max_priority)s::numeric, gas, 'prepared', %(epoch)s
    FROM a)
SELECT (SELECT count(*) FROM c) AS requests, (SELECT count(*) FROM g) AS signers;

-- name: admit_requests
-- Rows first, then jobs, as the lock order says; the second lock is the fence: only a current receipt lets the row pass.
-- A job that was deferred in the ready queue goes on with the usual priority. With an `owner` the jobs are leased in the same step.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(job)b::bigint[], %(attempt)b::int[], %(kind)b::smallint[], %(subject)b::bigint[])
           AS t(job, attempt, kind, id)),
lu AS MATERIALIZED (
  SELECT r.id, r.state_entered_at AS since FROM a JOIN user_decrypt_req r ON r.id = a.id
   WHERE a.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
lp AS MATERIALIZED (
  SELECT r.id, r.state_entered_at AS since FROM a JOIN public_decrypt_req r ON r.id = a.id
   WHERE a.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
l AS MATERIALIZED (SELECT 1::smallint AS kind, id, since FROM lu UNION ALL SELECT 2::smallint, id, since FROM lp),
j AS (
  UPDATE queue_job AS q
     SET id = DEFAULT, queue = %(queue)s, attempt = CASE WHEN %(owner)s::text IS NULL THEN 0 ELSE 1 END,
         visible_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8), leased_by = %(owner)s::text,
         priority = least(q.priority, 100)
    FROM a JOIN l ON l.kind = a.kind AND l.id = a.id
   WHERE q.id = a.job AND q.attempt = a.attempt
  RETURNING a.kind, a.id, l.since, q.id AS job, q.attempt),
u AS (
  UPDATE user_decrypt_req AS r
     SET status = %(target)s, updated_at = clock_timestamp(), state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM j WHERE j.kind = 1 AND r.id = j.id RETURNING j.kind, r.id, r.updated_at - j.since AS spent, j.job, j.attempt),
p AS (
  UPDATE public_decrypt_req AS r
     SET status = %(target)s, updated_at = clock_timestamp(), state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM j WHERE j.kind = 2 AND r.id = j.id RETURNING j.kind, r.id, r.updated_at - j.since AS spent, j.job, j.attempt),
c AS (SELECT * FROM u UNION ALL SELECT * FROM p),
tr AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor)
  SELECT kind, id, %(verb)s, %(source)s, %(target)s, %(actor)s FROM c)
SELECT kind, id, extract(epoch FROM spent)::float8 AS spent_seconds, job, attempt FROM c ORDER BY job;

-- name: end_unsent
-- Deny, expire or refuse: rows that never had signed bytes end here and their jobs with them. Fenced by the receipt, and by
-- the signer lease where a resource is given. A row that got a slot meanwhile is not touched.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
a AS MATERIALIZED (
  SELECT * FROM unnest(%(job)b::bigint[], %(attempt)b::int[], %(kind)b::smallint[], %(subject)b::bigint[],
                       %(label)s::text[], %(detail)s::text[], %(selector)s::bytea[])
           AS t(job, attempt, kind, id, label, detail, selector)
   WHERE (%(resource)s::text IS NULL OR EXISTS (SELECT 1 FROM f))
     AND NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = t.kind AND n.subject_id = t.id AND n.state <> 'dead')),
lu AS MATERIALIZED (
  SELECT r.id, r.state_entered_at AS since FROM a JOIN user_decrypt_req r ON r.id = a.id
   WHERE a.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
lp AS MATERIALIZED (
  SELECT r.id, r.state_entered_at AS since FROM a JOIN public_decrypt_req r ON r.id = a.id
   WHERE a.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
li AS MATERIALIZED (
  SELECT r.id, r.state_entered_at AS since FROM a JOIN input_proof_req r ON r.id = a.id
   WHERE a.kind = 3 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
l AS MATERIALIZED (
  SELECT 1::smallint AS kind, id, since FROM lu UNION ALL SELECT 2::smallint, id, since FROM lp
  UNION ALL SELECT 3::smallint, id, since FROM li),
j AS (
  DELETE FROM queue_job AS q
   USING a JOIN l ON l.kind = a.kind AND l.id = a.id
   WHERE q.id = a.job AND q.attempt = a.attempt
  RETURNING a.kind, a.id, a.label, a.detail, a.selector, l.since),
u AS (
  UPDATE user_decrypt_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 1 AND r.id = j.id RETURNING j.kind, r.id, j.label, r.updated_at - j.since AS spent),
p AS (
  UPDATE public_decrypt_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 2 AND r.id = j.id RETURNING j.kind, r.id, j.label, r.updated_at - j.since AS spent),
i AS (
  UPDATE input_proof_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 3 AND r.id = j.id RETURNING j.kind, r.id, j.label, r.updated_at - j.since AS spent),
c AS (SELECT * FROM u UNION ALL SELECT * FROM p UNION ALL SELECT * FROM i),
tr AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, reason)
  SELECT kind, id, %(verb)s, %(source)s, %(target)s, %(actor)s, %(epoch)s, label FROM c)
SELECT kind, id, extract(epoch FROM spent)::float8 AS spent_seconds FROM c;
