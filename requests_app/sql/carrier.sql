-- A queue whose jobs travel by another carrier (design 5.3.4): queue_job stays the truth, and is the outbox.
-- `leased_by` = 'carrier' means: the carrier has the job's key, or is about to get it. Such a job is nobody's delivery yet; its
-- attempts count from the lease by key. When `visible_at` comes without a lease, its key is published again.

-- name: claim_due
-- Visible jobs, in turn by tenant, for publication. First hidden for a moment only: who dies before the keys are out leaves them to
-- the next one.
WITH {claim},
m AS (
  UPDATE queue_job AS j
     SET visible_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8), leased_by = 'carrier'
    FROM c WHERE j.id = c.id
  RETURNING j.id, j.attempt, j.tenant_id, j.priority, j.job_key)
SELECT priority, tenant_id, id, attempt, job_key FROM m ORDER BY priority, id;

-- name: keep_published
-- The carrier has these: it is asked again only if nobody leases them for long. A job that was leased, or is gone, is left alone.
UPDATE queue_job AS j SET visible_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
  FROM unnest(%(id)b::bigint[], %(attempt)b::int[]) AS a(id, attempt)
 WHERE j.id = a.id AND j.attempt = a.attempt AND j.leased_by = 'carrier';

-- name: waiting_keys
-- Those of the keys that somebody could lease now: a lock was in the way for a moment.
SELECT job_key FROM queue_job
 WHERE queue = %(queue)s AND job_key = ANY(%(keys)b::text[]) AND (visible_at <= clock_timestamp() OR leased_by = 'carrier');
