-- Jobs that were given up (reference queue_settle 2.7). A letter leaves `parked` once, by a person.

-- name: park_jobs
-- Fenced by the receipts. The job's key is free again with its job; a second letter of the same key cannot be parked meanwhile.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(id)b::bigint[], %(attempt)b::int[], %(reason)b::text[], %(state)b::text[]) AS t(id, attempt, reason, state)),
d AS (
  DELETE FROM queue_job AS j USING a WHERE j.id = a.id AND j.attempt = a.attempt
  RETURNING j.id, j.queue, j.job_key, j.kind, j.subject_id, j.tenant_id, j.priority, j.attempt, a.reason, a.state),
p AS (
  INSERT INTO dead_letter (queue, job_key, kind, subject_id, tenant_id, priority, attempts, reason, subject_state, cycles, parked_at)
  SELECT d.queue, d.job_key, d.kind, d.subject_id, d.tenant_id, d.priority, d.attempt, d.reason, d.state,
         1 + (SELECT count(*) FROM dead_letter o WHERE o.kind = d.kind AND o.subject_id = d.subject_id AND o.job_key = d.job_key),
         clock_timestamp()
    FROM d ORDER BY d.id
  ON CONFLICT (job_key) WHERE status = 'parked' DO NOTHING)
SELECT id FROM d;

-- name: resolve_letter
-- From parked only: of two persons one gets it.
UPDATE dead_letter SET status = %(status)s, resolved_by = %(by)s, resolved_at = clock_timestamp()
 WHERE id = %(id)s AND status = 'parked'
RETURNING id, queue, job_key, kind, subject_id, tenant_id;

-- name: requeue
-- The job as it was, before all others; nothing when it has a job again already.
INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority, visible_at, enqueued_at)
VALUES (%(queue)s, %(job_key)s, %(kind)s, %(subject_id)s, %(tenant_id)s, %(priority)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (job_key) DO NOTHING;
