-- The work queue (design 2.3, 3.5; reference queue_settle 2). Every statement takes a whole batch.
-- A receipt is (id, attempt): the attempt grows at lease time, so a receipt of an earlier lease never matches again.

-- name: enqueue_jobs
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[], %(tenant)b::bigint[]) AS t(kind, subject_id, tenant_id))
INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority, visible_at, enqueued_at)
SELECT %(queue)s, kind || '/' || subject_id, kind, subject_id, tenant_id, %(priority)s::smallint, clock_timestamp(), clock_timestamp()
  FROM a ORDER BY kind, subject_id
    ON CONFLICT (job_key) DO NOTHING;

-- name: find_turns
-- Which (priority, tenant) pairs have jobs, by a loose scan of the index: one probe a pair, however many jobs it has. Only between
-- the pairs given of each queue and those at which each search ends: who is known already need not be looked at.
WITH RECURSIVE g AS MATERIALIZED (
  SELECT * FROM unnest(%(queue)b::text[], %(priority)b::smallint[], %(tenant)b::bigint[], %(end_priority)b::smallint[], %(end_tenant)b::bigint[])
           AS t(queue, priority, tenant_id, end_priority, end_tenant)),
t AS (
  SELECT * FROM g
  UNION ALL
  SELECT t.queue, n.priority, n.tenant_id, t.end_priority, t.end_tenant
    FROM t CROSS JOIN LATERAL (
      SELECT j.priority, j.tenant_id FROM queue_job j
       WHERE j.queue = t.queue AND (j.priority, j.tenant_id) > (t.priority, t.tenant_id)
         AND (j.priority, j.tenant_id) < (t.end_priority, t.end_tenant)
       ORDER BY j.priority, j.tenant_id LIMIT 1) n)
SELECT queue, priority, tenant_id FROM t WHERE (queue, priority, tenant_id) NOT IN (SELECT queue, priority, tenant_id FROM g)
 LIMIT %(most)s::bigint;

-- name: look_around
-- The look of a loop that also publishes and carries out commands: whether anything of these waits at all comes with it
-- (indexes staged_envelope_waiting, command_open).
({find_turns})
UNION ALL
(SELECT 'staged', 0::smallint, 0::bigint FROM staged_envelope WHERE parked_at IS NULL LIMIT 1)
UNION ALL
(SELECT 'commands', 0::smallint, 0::bigint FROM command
  WHERE state <> 'consumed' AND (state = 'pending' OR claim_until <= clock_timestamp()) LIMIT 1);

-- name: claim
-- The part that all leases share, not a statement of its own: so many of each tenant's oldest visible jobs, in turn, by rank.
-- MATERIALIZED is load-bearing: an inlined sub-query can be run once per outer row and claim more than the limit (B17). So is the
-- comparison of rows: for `id >= low` alone the planner takes the primary key while its statistics are those of an empty queue. And so
-- is `<=`: with `tenant_id =` the scan of the index would begin at the tenant's first entry, not at `low`.
w AS MATERIALIZED (
  SELECT * FROM unnest(%(priority)b::smallint[], %(tenant)b::bigint[], %(low)b::bigint[], %(take)b::bigint[], %(rank)b::smallint[])
           WITH ORDINALITY AS t(priority, tenant_id, low, take, rank, turn)),
c AS MATERIALIZED (
  SELECT q.id
    FROM w CROSS JOIN LATERAL (
      SELECT l.id, row_number() OVER () AS nth
        FROM (SELECT j.id FROM queue_job j
               WHERE j.queue = %(queue)s AND j.priority = w.priority
                 AND (j.tenant_id, j.id) >= (w.tenant_id, w.low) AND j.tenant_id <= w.tenant_id AND j.visible_at <= clock_timestamp()
               ORDER BY j.queue, j.priority, j.tenant_id, j.id LIMIT w.take FOR UPDATE SKIP LOCKED) l) q
   ORDER BY w.rank, q.nth, w.turn LIMIT %(limit)s::bigint);

-- name: claim_alone
-- In its place, when it is one tenant's turn: the same without a choice between tenants.
c AS MATERIALIZED (
  SELECT j.id FROM queue_job j
   WHERE j.queue = %(queue)s AND j.priority = %(priority)b::smallint
     AND (j.tenant_id, j.id) >= (%(tenant)b::bigint, %(low)b::bigint) AND j.tenant_id <= %(tenant)b::bigint AND j.visible_at <= clock_timestamp()
   ORDER BY j.queue, j.priority, j.tenant_id, j.id LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED);

-- name: claim_keys
-- In its place, for jobs whose keys came by another carrier (sql/carrier.sql): those that nobody has, whether due or with the carrier.
c AS MATERIALIZED (
  SELECT id FROM queue_job
   WHERE queue = %(queue)s AND job_key = ANY(%(keys)b::text[]) AND (visible_at <= clock_timestamp() OR leased_by = 'carrier')
   ORDER BY priority, id FOR UPDATE SKIP LOCKED);

-- name: leased
-- The part behind either: what was claimed is hidden, and its attempt counts.
l AS (
  UPDATE queue_job AS j
     SET attempt = j.attempt + 1, visible_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8),
         leased_by = %(owner)s
    FROM c WHERE j.id = c.id
  RETURNING j.id, j.attempt, j.kind, j.subject_id, j.tenant_id, j.priority, j.job_key);

-- name: lease_jobs
WITH {claim}, {leased}
SELECT priority, tenant_id, id, attempt, kind, subject_id FROM l ORDER BY priority, id;

-- name: lease_keys
WITH {claim_keys}, {leased}
SELECT priority, tenant_id, id, attempt, kind, subject_id, job_key FROM l ORDER BY priority, id;

-- name: lease_requests
-- The same lease, with the state of the rows behind the jobs read again in the same statement. A request is effective
-- while one of its clients, who has not withdrawn, is not disabled (design 5.5.1). Every LIMIT 1 is load-bearing: without it the
-- planner, who does not know how few are leased, may read whole tables to join or hash them.
WITH {claim}, {leased}
SELECT l.priority, l.tenant_id, l.id, l.attempt, l.kind, l.subject_id, r.status, r.ext_job_id, r.req_type, b.body,
       r.deadline_at <= clock_timestamp() AS overdue,
       coalesce((SELECT bool_or(v.canceled_at IS NULL AND (SELECT a.status = 'active' FROM client_account a WHERE a.id = v.client_id))
                   FROM request_client v WHERE v.kind = l.kind AND v.request_id = l.subject_id), true) AS effective,
       (SELECT 1 FROM nonce_slot n WHERE n.kind = l.kind AND n.subject_id = l.subject_id AND n.state <> 'dead' LIMIT 1)
         IS NOT NULL AS has_slot
  FROM l
  LEFT JOIN LATERAL (
    (SELECT u.status, u.ext_job_id, u.deadline_at, u.req_type FROM user_decrypt_req u WHERE l.kind = 1 AND u.id = l.subject_id LIMIT 1)
    UNION ALL
    (SELECT p.status, p.ext_job_id, p.deadline_at, NULL FROM public_decrypt_req p WHERE l.kind = 2 AND p.id = l.subject_id LIMIT 1)
    UNION ALL
    (SELECT i.status, i.ext_job_id, i.deadline_at, NULL FROM input_proof_req i WHERE l.kind = 3 AND i.id = l.subject_id LIMIT 1)) r ON true
  LEFT JOIN LATERAL (
    SELECT q.body FROM request_payload q WHERE q.kind = l.kind AND q.request_id = l.subject_id LIMIT 1) b ON true
 ORDER BY l.priority, l.id;

-- name: missed
-- The end that ack, nack and the like share: receipts that did nothing, and whether their job is there at all. Those that did need no row.
SELECT a.ord - 1 AS place, j.id IS NOT NULL AS present
  FROM a LEFT JOIN queue_job j ON j.id = a.id
 WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.ord = a.ord);

-- name: ack_jobs
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[]) WITH ORDINALITY AS t(id, attempt, ord)),
d AS (
  DELETE FROM queue_job AS j USING a WHERE j.id = a.id AND j.attempt = a.attempt RETURNING a.ord)
{missed};

-- name: nack_jobs
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[], %(delay)b::float8[])
           WITH ORDINALITY AS t(id, attempt, delay, ord)),
d AS (
  UPDATE queue_job AS j
     SET visible_at = clock_timestamp() + make_interval(secs => a.delay), leased_by = NULL
    FROM a WHERE j.id = a.id AND j.attempt = a.attempt
  RETURNING a.ord)
{missed};

-- name: defer_jobs
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[]) WITH ORDINALITY AS t(id, attempt, ord)),
w AS MATERIALIZED (
  SELECT to_timestamp(ceil((extract(epoch FROM clock_timestamp())::float8 + %(seconds)s::float8) / %(grid)s::float8)
                      * %(grid)s::float8) AS moment),
d AS (
  UPDATE queue_job AS j
     SET visible_at = w.moment, leased_by = NULL, priority = %(priority)s::smallint
    FROM a CROSS JOIN w WHERE j.id = a.id AND j.attempt = a.attempt
  RETURNING a.ord)
{missed};

-- name: extend_jobs
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[]) WITH ORDINALITY AS t(id, attempt, ord)),
d AS (
  UPDATE queue_job AS j
     SET visible_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
    FROM a WHERE j.id = a.id AND j.attempt = a.attempt
  RETURNING a.ord)
{missed};

-- name: move_jobs
-- Attempts begin anew in the other queue. The job takes a new id with them: otherwise the receipt (id, 1) of a worker that
-- was stopped in the old queue would match the first lease in the new one, and its late nack or ack would hit that lease.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[]) WITH ORDINALITY AS t(id, attempt, ord)),
d AS (
  UPDATE queue_job AS j
     SET id = DEFAULT, queue = %(queue)s, attempt = 0, visible_at = clock_timestamp(), leased_by = NULL,
         priority = least(j.priority, 100)
    FROM a WHERE j.id = a.id AND j.attempt = a.attempt
  RETURNING a.ord)
{missed};

-- name: release_orphans
-- Jobs leased by a process that holds no lease and gives no beat any more need not wait for their time to run out. A wrong
-- guess is harmless: the former holder's receipts go stale with the next lease, and every effect is fenced. Reads the whole
-- table, which is bounded by the door (design I7); every 2 s a signer's holder. What the carrier has is nobody's lease.
WITH c AS MATERIALIZED (
  SELECT j.id FROM queue_job j
   WHERE j.leased_by <> 'carrier' AND j.visible_at > clock_timestamp()
     AND NOT EXISTS (SELECT 1 FROM exec_lease l WHERE l.instance = j.leased_by AND l.lease_until > clock_timestamp())
     AND NOT EXISTS (SELECT 1 FROM worker_beat b
                      WHERE b.instance = j.leased_by AND b.at > clock_timestamp() - interval '10 seconds')
   FOR UPDATE OF j SKIP LOCKED)
UPDATE queue_job AS j SET visible_at = clock_timestamp(), leased_by = NULL FROM c WHERE j.id = c.id;
