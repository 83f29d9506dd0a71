-- Per-step figures of ended requests (design 5.6.4): written by the duty `figures`, read by the first page. Steps: a minute, a quarter of an
-- hour, two hours, and 0 for "ever". A row is counted once: the mark moves in the transaction that counts it.

-- name: open_mark
-- Before a kind is counted for the first time.
INSERT INTO figures_up_to (kind, up_to) VALUES (%(kind)s, '-infinity') ON CONFLICT (kind) DO NOTHING;

-- name: count_ended
-- The next rows that ended before `now - settle`, oldest first (index <table>_retention), at most about `limit` of them: every
-- row that ended at the very last moment is taken, so that the mark splits no moment. A row becomes visible later than it ends by the length
-- of its transaction at most, which the time-outs of sessions keep below `settle`. Mark and end are single values and no joined rows, and the
-- clock is the statement's, so that all three are bounds of the index: as a join, each run read every row that was counted before.
-- Without a mark, or under a lease that is somebody else's, nothing is counted: `marks` is 0.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE
), mark AS MATERIALIZED (
  SELECT up_to FROM figures_up_to WHERE kind = %(kind)s AND (%(resource)s::text IS NULL OR EXISTS (SELECT 1 FROM f)) FOR UPDATE
), last AS MATERIALIZED (
  SELECT max(moment) AS moment FROM (
    SELECT r.completed_at AS moment FROM {table} r
     WHERE r.completed_at IS NOT NULL AND r.completed_at > (SELECT up_to FROM mark)
       AND r.completed_at < statement_timestamp() - make_interval(secs => %(settle)s::float8)
     ORDER BY r.completed_at LIMIT %(limit)s) AS next_ones
), ended AS MATERIALIZED (
  SELECT r.completed_at, r.status, coalesce(r.fail_label, '') AS label,
         greatest(-20, least(100, floor(ln(greatest(extract(epoch FROM r.completed_at - r.created_at)::float8, 0.001)) / ln(1.25::float8))))::smallint AS bucket
    FROM {table} r
   WHERE r.completed_at IS NOT NULL AND r.completed_at > (SELECT up_to FROM mark) AND r.completed_at <= (SELECT moment FROM last)
), grains AS (
  SELECT g AS grain FROM unnest(%(grains)b::int[]) AS g
), stepped AS (
  SELECT g.grain,
         CASE WHEN g.grain = 0 THEN 'epoch'::timestamptz
              ELSE to_timestamp(floor(extract(epoch FROM e.completed_at)::float8 / g.grain) * g.grain) END AS at,
         e.status, e.label, e.bucket, count(*) AS n
    FROM ended e CROSS JOIN grains g
   WHERE g.grain = 0 OR e.completed_at > clock_timestamp() - make_interval(secs => (g.grain * %(steps)s)::float8)
   GROUP BY 1, 2, 3, 4, 5
), written AS (
  INSERT INTO finished_figure AS f (grain, at, kind, status, label, bucket, n)
  SELECT grain, at, %(kind)s, status, label, bucket, n FROM stepped
      ON CONFLICT (grain, at, kind, status, label, bucket) DO UPDATE SET n = f.n + excluded.n
), moved AS (
  UPDATE figures_up_to u SET up_to = last.moment FROM last WHERE u.kind = %(kind)s AND last.moment IS NOT NULL
)
SELECT (SELECT count(*) FROM ended) AS rows, (SELECT count(*) FROM mark) AS marks;

-- name: forget_steps
DELETE FROM finished_figure
 WHERE (grain = 60 AND at < clock_timestamp() - make_interval(secs => 60.0 * %(steps)s))
    OR (grain = 900 AND at < clock_timestamp() - make_interval(secs => 900.0 * %(steps)s))
    OR (grain = 7200 AND at < clock_timestamp() - make_interval(secs => 7200.0 * %(steps)s));

-- name: ended_ever
SELECT kind, status, sum(n)::bigint AS rows FROM finished_figure WHERE grain = 0 GROUP BY kind, status ORDER BY kind, status;

-- name: ended_since
-- A chart's points: every step of one grain, by what became of the rows and how long they took.
SELECT at, status, label, bucket, sum(n)::bigint AS n
  FROM finished_figure
 WHERE grain = %(grain)s AND at >= clock_timestamp() - make_interval(secs => %(seconds)s::float8) AND kind = ANY(%(kinds)b::smallint[])
 GROUP BY at, status, label, bucket
 ORDER BY at;

-- name: count_live
-- What waits, counted whole every few seconds by one process of the deployment: the first page counts by itself only while that is little.
WITH counted AS MATERIALIZED (
  SELECT kind, status, count(*) AS n, count(*) FILTER (WHERE deadline_at < clock_timestamp()) AS overdue, min(state_entered_at) AS oldest_at
    FROM (SELECT 1 AS kind, status, state_entered_at, deadline_at FROM user_decrypt_req
           WHERE status IN ('queued','processing','tx_in_flight','receipt_received','needs_review')
          UNION ALL
          SELECT 2, status, state_entered_at, deadline_at FROM public_decrypt_req
           WHERE status IN ('queued','processing','tx_in_flight','receipt_received','needs_review')
          UNION ALL
          SELECT 3, status, state_entered_at, deadline_at FROM input_proof_req
           WHERE status IN ('queued','processing','tx_in_flight','receipt_received','needs_review')
          UNION ALL
          SELECT 4, state, updated_at, NULL FROM payment_intent
           WHERE state IN ('authorized', 'confirming', 'created', 'needs_review', 'settling')) AS live
   GROUP BY kind, status
), gone AS (
  DELETE FROM live_figure f WHERE NOT EXISTS (SELECT FROM counted c WHERE c.kind = f.kind AND c.status = f.status)
)
INSERT INTO live_figure (kind, status, n, overdue, oldest_at)
SELECT kind, status, n, overdue, oldest_at FROM counted ORDER BY kind, status
    ON CONFLICT (kind, status) DO UPDATE SET n = excluded.n, overdue = excluded.overdue, oldest_at = excluded.oldest_at;

-- name: count_jobs
WITH counted AS MATERIALIZED (
  SELECT queue, kind, count(*) AS n, count(*) FILTER (WHERE leased_by IS NOT NULL AND visible_at > clock_timestamp()) AS leased,
         count(*) FILTER (WHERE visible_at <= clock_timestamp()) AS visible,
         min(visible_at) FILTER (WHERE visible_at <= clock_timestamp()) AS oldest_visible_at, max(attempt)::int AS highest_attempt
    FROM queue_job GROUP BY queue, kind
), gone AS (
  DELETE FROM job_figure f WHERE NOT EXISTS (SELECT FROM counted c WHERE c.queue = f.queue AND c.kind = f.kind)
)
INSERT INTO job_figure (queue, kind, n, leased, visible, oldest_visible_at, highest_attempt)
SELECT queue, kind, n, leased, visible, oldest_visible_at, highest_attempt FROM counted ORDER BY queue, kind
    ON CONFLICT (queue, kind) DO UPDATE SET n = excluded.n, leased = excluded.leased, visible = excluded.visible,
       oldest_visible_at = excluded.oldest_visible_at, highest_attempt = excluded.highest_attempt;
