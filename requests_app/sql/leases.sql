-- Execution leases (design 5.1 no. 4 and 5). One row a resource, never deleted, except those of cases (forget_holds). The epoch grows by one
-- at every take-over.
-- Every condition on time uses the database's clock.

-- name: look_at_lease
SELECT epoch, instance, lease_until <= clock_timestamp() AS expired
  FROM exec_lease WHERE resource = %(resource)s;

-- name: approach_lease
-- The look of a candidate who would follow epoch `after` (NULL: whatever it is). Of a lease that has not ended it tries the liveness lock in
-- the same statement: `gone` says that it was obtained, and is this session's now. One reading of the clock decides both.
SELECT l.epoch, l.expired,
       CASE WHEN l.expired OR l.epoch <> coalesce(%(after)s::bigint, l.epoch) OR NOT %(hint)s::bool THEN false
            ELSE pg_try_advisory_lock(%(key)s::int, (l.epoch %% %(epochs)s::bigint)::int) END AS gone
  FROM (SELECT epoch, lease_until <= statement_timestamp() AS expired FROM exec_lease WHERE resource = %(resource)s) l;

-- name: open_lease
-- The row of a resource that nobody has held yet: epoch 0, expired.
INSERT INTO exec_lease (resource, instance, epoch, lease_until)
VALUES (%(resource)s, '', 0, '-infinity')
    ON CONFLICT (resource) DO NOTHING;

-- name: try_liveness
-- A session-level advisory lock on (resource hash, epoch). Obtained for the epoch of the row: its holder has no session any more.
SELECT pg_try_advisory_lock(%(key)s::int, %(epoch)s::int) AS obtained;

-- name: drop_liveness
SELECT pg_advisory_unlock(%(key)s::int, %(epoch)s::int) AS dropped;

-- name: claim_lease
-- Compare-and-set on the epoch: of all candidates that saw epoch e, one gets e + 1. `gone`: the caller has obtained the holder's
-- liveness lock. A wrong guess is harmless, the epoch fences the former holder.
UPDATE exec_lease
   SET instance = %(instance)s, epoch = epoch + 1, how = %(how)s,
       lease_until = clock_timestamp() + make_interval(secs => %(seconds)s::float8),
       acquired_at = clock_timestamp(), renewed_at = clock_timestamp()
 WHERE resource = %(resource)s AND epoch = %(epoch)s::bigint
   AND (lease_until <= clock_timestamp() OR %(gone)s::bool)
RETURNING epoch;

-- name: renew_leases
-- All leases of one instance at once; a row that does not come back is lost.
UPDATE exec_lease AS l
   SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s::float8), renewed_at = clock_timestamp()
  FROM unnest(%(resources)s::text[], %(epochs)s::bigint[]) AS a(resource, epoch)
 WHERE l.resource = a.resource AND l.epoch = a.epoch AND l.instance = %(instance)s
RETURNING l.resource, l.epoch;

-- name: release_lease
-- Back-dated, so that a candidate sees it as expired at once whatever the clocks of two statements do.
UPDATE exec_lease SET lease_until = clock_timestamp() - interval '1 second'
 WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s::bigint;

-- name: fence
-- FOR SHARE conflicts with the take-over's UPDATE (FOR KEY SHARE would not): while the writing transaction lives nobody takes over.
SELECT epoch FROM exec_lease
 WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s::bigint
   FOR SHARE;

-- name: idle_leases
-- Resources of a family whose lease ended more than `seconds` ago: the safety net of the shifts, once a minute.
SELECT resource, epoch FROM exec_lease
 WHERE starts_with(resource, %(prefix)s)
   AND lease_until < clock_timestamp() - make_interval(secs => %(seconds)s::float8)
 ORDER BY resource;

-- name: forget_holds
-- duties/retention: reviewers' holds on cases (`review:<case>`), a row for each case that anybody ever took. The epoch of the next hold begins
-- anew: nothing carries one but the page of the reviewer who is named in it, and a page that is open renews its hold.
WITH gone AS MATERIALIZED (
  SELECT resource FROM exec_lease
   WHERE resource LIKE 'review:%%' AND lease_until < statement_timestamp() - make_interval(secs => %(seconds)s::float8)
   ORDER BY resource LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM exec_lease l USING gone WHERE l.resource = gone.resource;
