-- Signers, nonces and attempts (design 2.3; reference queue_settle 4, engine_spike 3). Every statement takes a batch.
-- Guards on transient statuses are CASE expressions: a plain comparison makes the planner believe in zero rows and scan by
-- status with the batch as inner loop, which is quadratic (trap T4; plan test in tests/send). Lock order: account, lease
-- and signer, row, job.

-- name: ensure_signers
INSERT INTO signer (chain_id, address)
SELECT %(chain_id)s::bigint, address FROM unnest(%(address)b::bytea[]) AS t(address)
    ON CONFLICT (chain_id, address) DO NOTHING;

-- name: sync_signer
-- next_nonce is set from the chain once, at the very first look, and never falls. A chain count past it means that the
-- key was used by somebody else: the signer is blocked, and the counter is raised so that nothing of theirs is contested.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
s AS MATERIALIZED (
  SELECT g.* FROM signer g CROSS JOIN f
   WHERE g.chain_id = %(chain_id)s AND g.address = %(address)s FOR UPDATE OF g)
UPDATE signer AS g
   SET next_nonce = greatest(coalesce(s.next_nonce, %(pending)s::bigint), %(latest)s::bigint),
       chain_nonce_latest = greatest(coalesce(s.chain_nonce_latest, 0), %(latest)s::bigint),
       status = CASE WHEN s.next_nonce < %(latest)s::bigint THEN 'blocked' ELSE s.status END,
       status_reason = CASE WHEN s.next_nonce < %(latest)s::bigint THEN 'foreign_nonce' ELSE s.status_reason END,
       balance_wei = %(balance)s::numeric, last_synced_at = clock_timestamp()
  FROM s WHERE g.id = s.id
RETURNING g.id, g.status, g.status_reason, g.next_nonce, g.max_inflight, g.chain_nonce_latest,
          coalesce(s.next_nonce < %(latest)s::bigint, false) AS foreign_use;

-- name: set_signer_status
-- Only between the named states: an operator's pause is not lifted by a worker that saw gas arrive.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
UPDATE signer AS g SET status = %(status)s, status_reason = %(reason)s
  FROM f
 WHERE g.id = %(signer)s AND g.status = %(from_status)s
   AND (%(from_reason)s::text IS NULL OR g.status_reason = %(from_reason)s::text);

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
-- No row: stale epoch, signer not active, or nothing left to send.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
s AS MATERIALIZED (
  SELECT g.id, g.next_nonce FROM signer g CROSS JOIN f
   WHERE g.id = %(signer)s AND g.status = 'active' AND g.next_nonce IS NOT NULL FOR UPDATE OF g),
w AS MATERIALIZED (
  SELECT a.kind, a.id, a.ord
    FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[]) WITH ORDINALITY AS a(kind, id, ord) CROSS JOIN s
   WHERE NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = a.kind AND n.subject_id = a.id AND n.state <> 'dead')
     AND (NOT EXISTS (SELECT 1 FROM request_client v WHERE v.kind = a.kind AND v.request_id = a.id)
          OR EXISTS (SELECT 1 FROM request_client v JOIN client_account c ON c.id = v.client_id
                      WHERE v.kind = a.kind AND v.request_id = a.id
                        AND v.canceled_at IS NULL AND c.status = 'active'))),
u AS MATERIALIZED (
  SELECT w.ord FROM w JOIN user_decrypt_req r ON r.id = w.id
   WHERE w.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR UPDATE OF r),
p AS MATERIALIZED (
  SELECT w.ord FROM w JOIN public_decrypt_req r ON r.id = w.id
   WHERE w.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR UPDATE OF r),
i AS MATERIALIZED (
  SELECT w.ord FROM w JOIN input_proof_req r ON r.id = w.id
   WHERE w.kind = 3 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END FOR UPDATE OF r),
c AS (SELECT ord FROM u UNION ALL SELECT ord FROM p UNION ALL SELECT ord FROM i)
SELECT w.ord - 1 AS place, s.next_nonce + row_number() OVER (ORDER BY w.ord) - 1 AS nonce
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

-- name: record_sends
-- What the node said to each broadcast, and what becomes of the jobs: one statement, autocommit. An attempt that was once
-- accepted stays so: a later time-out says nothing about bytes that a node has already taken.
WITH r AS MATERIALIZED (
  SELECT * FROM unnest(%(nonce)b::bigint[], %(seq)b::smallint[], %(state)b::text[], %(live)b::bool[],
                       %(error_class)s::text[], %(error_text)s::text[])
           AS t(nonce, seq, state, live, error_class, error_text)),
t AS (
  UPDATE tx_attempt AS t
     SET state = CASE WHEN t.state = 'accepted' AND r.state <> 'refused' THEN t.state ELSE r.state END,
         error_class = r.error_class, error_text = r.error_text,
         first_sent_at = coalesce(t.first_sent_at, clock_timestamp()), last_sent_at = clock_timestamp(),
         send_count = t.send_count + 1
    FROM r
   WHERE t.signer_id = %(signer)s AND t.nonce = r.nonce AND t.seq = r.seq
     AND CASE WHEN t.state IN ('prepared', 'unknown', 'accepted') THEN true ELSE false END
  RETURNING t.nonce),
sl AS (
  UPDATE nonce_slot AS s SET state = 'live'
    FROM r
   WHERE r.live AND s.signer_id = %(signer)s AND s.nonce = r.nonce
     AND CASE WHEN s.state = 'signed' THEN true ELSE false END),
j AS (
  DELETE FROM queue_job AS j
   USING unnest(%(job)s::bigint[], %(attempt)s::int[]) AS a(job, attempt)
   WHERE j.id = a.job AND j.attempt = a.attempt RETURNING j.id)
SELECT (SELECT count(*) FROM t) AS attempts, (SELECT count(*) FROM j) AS jobs;

-- name: attempts_to_broadcast
-- The newest open attempt of each nonce the chain has not consumed, in nonce order, when its turn has come: never sent or
-- answered unclearly after a growing pause (1 s to 16 s), accepted without a trace after 10 s. everything: at take-over.
SELECT nonce, seq, tx_hash, raw_tx, state, siblings
  FROM (SELECT DISTINCT ON (t.nonce) t.nonce, t.seq, t.tx_hash, t.raw_tx, t.state,
               coalesce(t.last_sent_at, t.prepared_at)
                 + CASE WHEN t.state = 'accepted' THEN make_interval(secs => %(accepted_after)s::float8)
                        ELSE make_interval(secs => least(16, %(unsure_after)s::float8 * power(2, greatest(t.send_count - 1, 0))))
                   END AS due_at,
               EXISTS (SELECT 1 FROM tx_attempt o
                        WHERE o.signer_id = t.signer_id AND o.nonce = t.nonce AND o.seq <> t.seq) AS siblings
          FROM tx_attempt t
         WHERE t.signer_id = %(signer)s AND t.state IN ('prepared', 'unknown', 'accepted')
           AND t.nonce >= %(from_nonce)s
         ORDER BY t.nonce, t.seq DESC) AS newest
 WHERE %(everything)s OR due_at <= clock_timestamp()
 ORDER BY nonce
 LIMIT %(limit)s::bigint;

-- name: admit_requests
-- Rows first, then jobs, as the lock order says; the second lock is the fence: only a current receipt lets the row pass.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(job)b::bigint[], %(attempt)b::int[], %(kind)b::smallint[], %(subject)b::bigint[])
           AS t(job, attempt, kind, id)),
lu AS MATERIALIZED (
  SELECT r.id FROM a JOIN user_decrypt_req r ON r.id = a.id
   WHERE a.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
lp AS MATERIALIZED (
  SELECT r.id FROM a JOIN public_decrypt_req r ON r.id = a.id
   WHERE a.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
l AS MATERIALIZED (SELECT 1::smallint AS kind, id FROM lu UNION ALL SELECT 2::smallint, id FROM lp),
j AS (
  UPDATE queue_job AS q
     SET id = DEFAULT, queue = %(queue)s, attempt = 0, visible_at = clock_timestamp(), leased_by = NULL
    FROM a JOIN l ON l.kind = a.kind AND l.id = a.id
   WHERE q.id = a.job AND q.attempt = a.attempt
  RETURNING a.kind, a.id),
u AS (
  UPDATE user_decrypt_req AS r
     SET status = %(target)s, updated_at = clock_timestamp(), state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM j WHERE j.kind = 1 AND r.id = j.id RETURNING j.kind, r.id),
p AS (
  UPDATE public_decrypt_req AS r
     SET status = %(target)s, updated_at = clock_timestamp(), state_entered_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s::float8)
    FROM j WHERE j.kind = 2 AND r.id = j.id RETURNING j.kind, r.id),
c AS (SELECT kind, id FROM u UNION ALL SELECT kind, id FROM p),
tr AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor)
  SELECT kind, id, %(verb)s, %(source)s, %(target)s, %(actor)s FROM c)
SELECT kind, id FROM c;

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
  SELECT r.id FROM a JOIN user_decrypt_req r ON r.id = a.id
   WHERE a.kind = 1 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
lp AS MATERIALIZED (
  SELECT r.id FROM a JOIN public_decrypt_req r ON r.id = a.id
   WHERE a.kind = 2 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
li AS MATERIALIZED (
  SELECT r.id FROM a JOIN input_proof_req r ON r.id = a.id
   WHERE a.kind = 3 AND CASE WHEN r.status = ANY(%(sources)s::text[]) THEN true ELSE false END
   ORDER BY r.id FOR UPDATE OF r),
l AS MATERIALIZED (
  SELECT 1::smallint AS kind, id FROM lu UNION ALL SELECT 2::smallint, id FROM lp UNION ALL SELECT 3::smallint, id FROM li),
j AS (
  DELETE FROM queue_job AS q
   USING a JOIN l ON l.kind = a.kind AND l.id = a.id
   WHERE q.id = a.job AND q.attempt = a.attempt
  RETURNING a.kind, a.id, a.label, a.detail, a.selector),
u AS (
  UPDATE user_decrypt_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 1 AND r.id = j.id RETURNING j.kind, r.id, j.label),
p AS (
  UPDATE public_decrypt_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 2 AND r.id = j.id RETURNING j.kind, r.id, j.label),
i AS (
  UPDATE input_proof_req AS r
     SET status = %(target)s, fail_label = j.label, fail_detail = j.detail, fail_selector = j.selector, deadline_at = NULL,
         updated_at = clock_timestamp(), state_entered_at = clock_timestamp(), completed_at = clock_timestamp()
    FROM j WHERE j.kind = 3 AND r.id = j.id RETURNING j.kind, r.id, j.label),
c AS (SELECT * FROM u UNION ALL SELECT * FROM p UNION ALL SELECT * FROM i),
tr AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, reason)
  SELECT kind, id, %(verb)s, %(source)s, %(target)s, %(actor)s, %(epoch)s, label FROM c)
SELECT kind, id FROM c;
