-- Requests: submit (one statement), the client's view of a job, timelines.

-- name: counted_depths
-- A part of other statements: how many jobs of the kind wait, counted up to a limit.
SELECT (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE queue = 'ready' AND kind = %(kind)s LIMIT %(cap)s) q)::int AS ready,
       (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE queue = 'send' AND kind = %(kind)s LIMIT %(cap)s) q)::int AS send;

-- name: known_depths
-- The same part where they were counted a moment ago.
SELECT %(ready)s::int AS ready, %(send)s::int AS send;

-- name: counted_place
-- A part of find_job: how many jobs of the same queue and kind are not behind this one.
CASE WHEN r.status IN ('queued', 'processing')
     THEN (SELECT count(*) FROM (SELECT 1 FROM queue_job a JOIN queue_job mine ON mine.job_key = v.kind::text || '/' || r.id
                                  WHERE a.queue = mine.queue AND a.kind = v.kind AND a.id <= mine.id LIMIT %(cap)s) q)::int
END;

-- name: submit
-- One statement: the account is locked and checked, a live twin is found or the row, its payload, first transition, job and
-- client view are written, and the queue depths come back with it. No row for `id` and depths below the limit means that a
-- twin committed between snapshot and insert: the caller runs it again.
-- A twin that may still be withdrawn is joined under a lock (`held`): either its cancel sees the new client, or this statement
-- waits, finds the twin ended, and begins a row of its own.
WITH account AS MATERIALIZED (
  SELECT id FROM client_account WHERE id = %(client)s AND status = 'active' FOR SHARE
), held AS MATERIALIZED (
  SELECT id, status FROM {table}
   WHERE int_job_id = %(hash)b AND NOT (status IN ('failure', 'timed_out'))
     AND CASE WHEN status IN ('queued', 'processing') THEN true ELSE false END FOR KEY SHARE
), existing AS (
  SELECT id, status FROM held UNION ALL
  SELECT id, status FROM {table}
   WHERE int_job_id = %(hash)b AND NOT (status IN ('failure', 'timed_out'))
     AND CASE WHEN status IN ('queued', 'processing') THEN false ELSE true END
), depth AS (
  {depths}
), inserted AS (
  INSERT INTO {table} (ext_job_id, int_job_id, status, deadline_at {extra_column})
  SELECT %(ext)s, %(hash)b, %(status)s, clock_timestamp() + make_interval(secs => %(deadline)s) {extra_value}
    FROM depth, account
   WHERE depth.ready < %(limit)s AND depth.send < %(limit)s AND NOT EXISTS (SELECT FROM existing)
  ON CONFLICT (int_job_id) WHERE NOT (status IN ('failure', 'timed_out')) DO NOTHING
  RETURNING id, status
), payload AS (
  INSERT INTO request_payload (kind, request_id, body) SELECT %(kind)s, id, %(body)s::text::jsonb FROM inserted
), logged AS (
  INSERT INTO req_transition (kind, request_id, verb, to_status, actor) SELECT %(kind)s, id, 'submit', status, 'api' FROM inserted
), job AS (
  INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id)
  SELECT %(queue)s, %(kind)s::text || '/' || id, %(kind)s, id, %(client)s FROM inserted
), found AS (
  SELECT id, status, true AS fresh FROM inserted UNION ALL SELECT id, status, false FROM existing
), seen AS (
  INSERT INTO request_client AS v (client_id, kind, request_id, ext_job_id)
  SELECT account.id, %(kind)s, found.id, %(ext)s FROM found, account
  ON CONFLICT (client_id, kind, request_id) DO UPDATE SET canceled_at = NULL WHERE v.canceled_at IS NOT NULL
  RETURNING ext_job_id
)
SELECT found.id, found.status, found.fresh, depth.ready, depth.send, account.id IS NOT NULL AS account_active,
       coalesce((SELECT ext_job_id FROM seen),
                (SELECT ext_job_id FROM request_client v
                  WHERE v.client_id = %(client)s AND v.kind = %(kind)s AND v.request_id = found.id)) AS ext_job_id
  FROM depth LEFT JOIN account ON true LEFT JOIN found ON account.id IS NOT NULL;

-- name: submit_denied
-- The submit statement for a user decrypt whose signature is proven bad. A live twin takes the client in, as always (the
-- signature is no part of the content); otherwise the row is born final, so that its content is free for the honest request
-- from the first moment. Its history says both: submitted, denied at the door.
WITH account AS MATERIALIZED (
  SELECT id FROM client_account WHERE id = %(client)s AND status = 'active' FOR SHARE
), held AS MATERIALIZED (
  SELECT id, status FROM user_decrypt_req
   WHERE int_job_id = %(hash)b AND NOT (status IN ('failure', 'timed_out'))
     AND CASE WHEN status IN ('queued', 'processing') THEN true ELSE false END FOR KEY SHARE
), existing AS (
  SELECT id, status FROM held UNION ALL
  SELECT id, status FROM user_decrypt_req
   WHERE int_job_id = %(hash)b AND NOT (status IN ('failure', 'timed_out'))
     AND CASE WHEN status IN ('queued', 'processing') THEN false ELSE true END
), depth AS (
  {depths}
), inserted AS (
  INSERT INTO user_decrypt_req (ext_job_id, int_job_id, status, req_type, fail_label, fail_detail, completed_at)
  SELECT %(ext)s, %(hash)b, 'failure', %(req_type)s, %(label)s, %(detail)s, clock_timestamp()
    FROM depth, account
   WHERE depth.ready < %(limit)s AND depth.send < %(limit)s AND NOT EXISTS (SELECT FROM existing)
  RETURNING id, status
), payload AS (
  INSERT INTO request_payload (kind, request_id, body) SELECT %(kind)s, id, %(body)s::text::jsonb FROM inserted
), logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, reason)
  SELECT %(kind)s, id, step.verb, step.was, step.target, 'api', step.reason
    FROM inserted, (VALUES (1, 'submit', NULL, 'queued', NULL), (2, 'deny', 'queued', 'failure', %(detail)s::text))
                   AS step(ord, verb, was, target, reason) ORDER BY step.ord
), found AS (
  SELECT id, status, true AS fresh FROM inserted UNION ALL SELECT id, status, false FROM existing
), seen AS (
  INSERT INTO request_client AS v (client_id, kind, request_id, ext_job_id)
  SELECT account.id, %(kind)s, found.id, %(ext)s FROM found, account
  ON CONFLICT (client_id, kind, request_id) DO UPDATE SET canceled_at = NULL WHERE v.canceled_at IS NOT NULL
  RETURNING ext_job_id
)
SELECT found.id, found.status, found.fresh, depth.ready, depth.send, account.id IS NOT NULL AS account_active,
       coalesce((SELECT ext_job_id FROM seen),
                (SELECT ext_job_id FROM request_client v
                  WHERE v.client_id = %(client)s AND v.kind = %(kind)s AND v.request_id = found.id)) AS ext_job_id
  FROM depth LEFT JOIN account ON true LEFT JOIN found ON account.id IS NOT NULL;

-- name: find_view
-- The kind of a client's job, for routes that do not name it.
SELECT kind, request_id, canceled_at FROM request_client WHERE ext_job_id = %(ext)s AND client_id = %(client)s;

-- name: find_job
-- A client's job with everything an answer needs, in one index look-up a table. Depths and place are counted only while the
-- row waits, shares are read only when it is completed. (Depths by a lateral join made the server plan this anew each time.)
SELECT r.id, r.status, r.created_at, r.updated_at, r.fail_label, r.fail_detail, r.fail_selector, r.gw_reference_id, r.gw_req_tx_hash,
       {columns}, v.ext_job_id AS view_id, v.canceled_at,
       extract(epoch FROM clock_timestamp() - r.state_entered_at)::float8 AS in_state_seconds,
       CASE WHEN r.status = 'queued'
            THEN (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE queue = 'ready' AND kind = v.kind LIMIT %(cap)s) q)::int
       END AS readiness_queue_size,
       CASE WHEN r.status IN ('queued', 'processing')
            THEN (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE queue = 'send' AND kind = v.kind LIMIT %(cap)s) q)::int
       END AS tx_queue_size, {place} AS queue_position
       {shares}
  FROM request_client v JOIN {table} r ON r.id = v.request_id
 WHERE v.ext_job_id = %(ext)s AND v.client_id = %(client)s AND v.kind = %(kind)s;

-- name: find_statuses
-- Long-poll: where a set of (kind, id) stands now, one statement for all waiters of a process.
SELECT a.kind, a.id, coalesce(u.status, p.status, i.status) AS status
  FROM unnest(%(kinds)b::smallint[], %(ids)b::bigint[]) AS a(kind, id)
  LEFT JOIN user_decrypt_req u ON a.kind = 1 AND u.id = a.id
  LEFT JOIN public_decrypt_req p ON a.kind = 2 AND p.id = a.id
  LEFT JOIN input_proof_req i ON a.kind = 3 AND i.id = a.id;

-- name: timeline
SELECT verb, from_status, to_status, actor, reason, tx_hash, at
  FROM req_transition WHERE kind = %(kind)s AND request_id = %(id)s ORDER BY id;

-- name: withdraw_view
-- Cancel by a client ends its own view, under the lock of its account.
WITH account AS MATERIALIZED (
  SELECT id FROM client_account WHERE id = %(client)s AND status = 'active' FOR SHARE
), mine AS (
  UPDATE request_client v SET canceled_at = clock_timestamp() FROM account
   WHERE v.client_id = account.id AND v.kind = %(kind)s AND v.request_id = %(id)s AND v.canceled_at IS NULL
  RETURNING v.request_id
)
SELECT (SELECT count(*) FROM account)::int AS account_active, (SELECT count(*) FROM mine)::int AS withdrawn;

-- name: other_views
-- How many other clients still hold a view of a row. Asked by a statement that begins after the row is locked: its snapshot
-- has everybody who came or left before.
SELECT count(*)::int AS n FROM request_client v
 WHERE v.kind = %(kind)s AND v.request_id = %(id)s AND v.client_id <> %(client)s AND v.canceled_at IS NULL;

-- name: lock_request
-- The row of a decision, locked in the order account, row, job (design 3.7).
SELECT id, status FROM {table} WHERE id = %(id)s FOR UPDATE;

-- name: drop_job
DELETE FROM queue_job WHERE job_key = %(key)s;

-- name: published_key
SELECT body, updated_at FROM published_key WHERE id = 1;

-- name: find_api_key
SELECT k.id, k.account_id, a.name, a.status, a.operator FROM api_key k JOIN client_account a ON a.id = k.account_id
 WHERE k.digest = %(digest)b AND k.revoked_at IS NULL;

-- name: find_account
SELECT id, name, status FROM client_account WHERE name = %(name)s;
