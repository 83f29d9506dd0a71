-- What the duties of the sweep cluster read and write (design 5.2.2, 5.5; invariant I3).

-- name: overdue
-- duties/deadlines: rows past their deadline, oldest first (indexes <table>_deadline), with what is known of their sending. So many
-- of each state: rows that must stay because the chain does not answer never stand in the way of those of another state.
-- statement_timestamp(), because a volatile clock is no bound of an index scan.
WITH step AS (SELECT unnest(ARRAY['processing', 'queued', 'receipt_received', 'tx_in_flight']) AS status)
SELECT o.kind, o.id, o.status, o.gw_reference_id AS ref, o.receipt_block,
       extract(epoch FROM clock_timestamp() - o.deadline_at)::float8 AS late_seconds,
       extract(epoch FROM clock_timestamp() - o.state_entered_at)::float8 AS spent_seconds,
       EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = o.kind AND n.subject_id = o.id) AS has_attempt
  FROM (
  (SELECT 1::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status, r.gw_reference_id, r.receipt_block, r.deadline_at, r.state_entered_at FROM user_decrypt_req r
     WHERE r.deadline_at < statement_timestamp() AND r.status IN ('needs_review', 'processing', 'queued', 'receipt_received', 'tx_in_flight') AND r.status = step.status
     ORDER BY r.deadline_at LIMIT %(limit)s) q)
  UNION ALL
  (SELECT 2::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status, r.gw_reference_id, r.receipt_block, r.deadline_at, r.state_entered_at FROM public_decrypt_req r
     WHERE r.deadline_at < statement_timestamp() AND r.status IN ('needs_review', 'processing', 'queued', 'receipt_received', 'tx_in_flight') AND r.status = step.status
     ORDER BY r.deadline_at LIMIT %(limit)s) q)
  UNION ALL
  (SELECT 3::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status, r.gw_reference_id, r.receipt_block, r.deadline_at, r.state_entered_at FROM input_proof_req r
     WHERE r.deadline_at < statement_timestamp() AND r.status IN ('needs_review', 'processing', 'queued', 'receipt_received', 'tx_in_flight') AND r.status = step.status
     ORDER BY r.deadline_at LIMIT %(limit)s) q)) o
 ORDER BY o.deadline_at;

-- name: still_overdue
-- Locks the rows before a decision: one that moved on while the chain was asked is not decided about.
SELECT r.id FROM {table} r
 WHERE r.id = ANY(%(ids)b::bigint[]) AND r.status = %(status)s AND r.deadline_at < clock_timestamp() ORDER BY r.id FOR UPDATE;

-- name: attempts_of
-- The evidence of a row in flight: every transaction signed at its nonces. `carries`: whether it holds the row's call; one that
-- spends the nonce on nothing says nothing of the row when it is mined.
SELECT n.kind, n.subject_id, t.tx_hash, t.nonce, t.state, t.send_count, s.address, t.kind IN ('pay', 'replace') AS carries
  FROM unnest(%(kinds)b::smallint[], %(ids)b::bigint[]) AS a(kind, id)
  JOIN nonce_slot n ON n.kind = a.kind AND n.subject_id = a.id
  JOIN tx_attempt t ON t.signer_id = n.signer_id AND t.nonce = n.nonce
  JOIN signer s ON s.id = n.signer_id
 ORDER BY n.kind, n.subject_id, t.nonce, t.seq;

-- name: extend_deadlines
-- The state stays, so its times stay; only the clock of the duty is wound up again.
WITH old AS MATERIALIZED (
  SELECT r.id, r.status FROM {table} r WHERE r.id = ANY(%(ids)b::bigint[]) ORDER BY r.id FOR UPDATE)
UPDATE {table} r SET deadline_at = clock_timestamp() + make_interval(secs => %(seconds)s)
  FROM old WHERE r.id = old.id AND CASE WHEN old.status = %(status)s THEN true ELSE false END;

-- name: drop_jobs
DELETE FROM queue_job WHERE job_key = ANY(%(keys)b::text[]);

-- name: enqueue_lost
-- duties/jobs: rows that wait for work without a job and without a nonce (a job may be lost only by hand or by a defect). One state at a
-- time, by the index on (state, id), each row asked for its job and its nonce by key: as joins, or with both states in the order of ids, the
-- planner is free to read whole tables, and at ten million rows it does.
WITH step AS (SELECT unnest(ARRAY['processing', 'queued']) AS status), lost AS MATERIALIZED (
  (SELECT 1::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status FROM user_decrypt_req r
     WHERE r.status = step.status AND r.state_entered_at < statement_timestamp() - make_interval(secs => %(idle)s)
       AND (SELECT j.id FROM queue_job j WHERE j.job_key = '1/' || r.id) IS NULL
       AND (SELECT n.nonce FROM nonce_slot n WHERE n.kind = 1 AND n.subject_id = r.id AND n.state <> 'dead') IS NULL
     ORDER BY r.id LIMIT %(limit)s) q)
  UNION ALL
  (SELECT 2::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status FROM public_decrypt_req r
     WHERE r.status = step.status AND r.state_entered_at < statement_timestamp() - make_interval(secs => %(idle)s)
       AND (SELECT j.id FROM queue_job j WHERE j.job_key = '2/' || r.id) IS NULL
       AND (SELECT n.nonce FROM nonce_slot n WHERE n.kind = 2 AND n.subject_id = r.id AND n.state <> 'dead') IS NULL
     ORDER BY r.id LIMIT %(limit)s) q)
  UNION ALL
  (SELECT 3::smallint AS kind, q.* FROM step CROSS JOIN LATERAL (
    SELECT r.id, r.status FROM input_proof_req r
     WHERE r.status = step.status AND r.state_entered_at < statement_timestamp() - make_interval(secs => %(idle)s)
       AND (SELECT j.id FROM queue_job j WHERE j.job_key = '3/' || r.id) IS NULL
       AND (SELECT n.nonce FROM nonce_slot n WHERE n.kind = 3 AND n.subject_id = r.id AND n.state <> 'dead') IS NULL
     ORDER BY r.id LIMIT %(limit)s) q))
INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority)
SELECT CASE WHEN l.status = 'queued' THEN 'ready' ELSE 'send' END, l.kind || '/' || l.id, l.kind, l.id,
       coalesce((SELECT min(v.client_id) FROM request_client v WHERE v.kind = l.kind AND v.request_id = l.id), 0), %(priority)s
  FROM lost l ON CONFLICT (job_key) DO NOTHING;

-- name: purge_requests
-- duties/retention: final rows past their retention with everything that hangs on them, a batch in one statement. Rows that are
-- not final are never read (index <table>_retention), whatever their age. A volatile clock would be no bound of that index, and each
-- run would read every row that stays.
WITH gone AS MATERIALIZED (
  SELECT r.id, r.gw_reference_id FROM {table} r
   WHERE r.completed_at < statement_timestamp() - make_interval(secs => %(seconds)s) AND r.completed_at IS NOT NULL
     AND r.status IN ('completed', 'timed_out', 'failure')
   ORDER BY r.completed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
 owned AS (
  -- after a reorganisation the reference may be another row's
  SELECT g.gw_reference_id FROM gone JOIN gateway_ref g ON g.gw_reference_id = gone.gw_reference_id
   WHERE g.request_id = gone.id AND g.kind = %(kind)s),
 shares AS (DELETE FROM user_decrypt_share s USING owned WHERE s.gw_reference_id = owned.gw_reference_id),
 refs AS (DELETE FROM gateway_ref g USING owned WHERE g.gw_reference_id = owned.gw_reference_id),
 kept AS (DELETE FROM kept_share k USING gone WHERE %(kind)s = 1 AND k.request_id = gone.id),
 payloads AS (DELETE FROM request_payload p USING gone WHERE p.kind = %(kind)s AND p.request_id = gone.id),
 views AS (DELETE FROM request_client v USING gone WHERE v.kind = %(kind)s AND v.request_id = gone.id),
 history AS (DELETE FROM req_transition t USING gone WHERE t.kind = %(kind)s AND t.request_id = gone.id),
 reviews AS (DELETE FROM review_case c USING gone WHERE c.kind = %(kind)s AND c.subject_id = gone.id),
 -- only what the chain cannot take back; a nonce that may still be open is the sender's, whatever became of its request
 slots AS (
  DELETE FROM nonce_slot n USING gone
   WHERE n.kind = %(kind)s AND n.subject_id = gone.id AND n.state IN ('final', 'dead') RETURNING n.signer_id, n.nonce),
 attempts AS (DELETE FROM tx_attempt t USING slots WHERE t.signer_id = slots.signer_id AND t.nonce = slots.nonce)
DELETE FROM {table} r USING gone WHERE r.id = gone.id;

-- name: purge_foreign
-- References that nobody here asked for, with their shares. Should one turn out to be ours, its answers are read from the log again.
WITH gone AS MATERIALIZED (
  SELECT gw_reference_id FROM gateway_ref
   WHERE request_id IS NULL AND first_at < statement_timestamp() - make_interval(secs => %(seconds)s)
   ORDER BY first_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
 shares AS (DELETE FROM user_decrypt_share s USING gone WHERE s.gw_reference_id = gone.gw_reference_id)
DELETE FROM gateway_ref g USING gone WHERE g.gw_reference_id = gone.gw_reference_id;

-- name: publish_key
INSERT INTO published_key (id, key_id, crs_id, context_id, body, updated_at)
VALUES (1, %(key_id)s, %(crs_id)s, %(context_id)s, %(body)s::jsonb, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET key_id = excluded.key_id, crs_id = excluded.crs_id, context_id = excluded.context_id,
  body = excluded.body, updated_at = excluded.updated_at
 WHERE (published_key.key_id, published_key.crs_id, published_key.context_id, published_key.body)
       IS DISTINCT FROM (excluded.key_id, excluded.crs_id, excluded.context_id, excluded.body);
