-- Read-only summaries for health, metrics, the admin's first page and relayer_status. One statement each, no locks.
-- Ended rows are not counted here: they grow without bound (see figures.sql). Nothing here reads more than some thousand rows.

-- name: live_requests
-- Counted at once, by index <table>_status, up to `cap` rows a kind and state; where there are more, what the duty `figures` counted last
-- (a few seconds ago while the sweep works), but never less than was seen here.
WITH states AS (
  SELECT unnest(ARRAY['queued','processing','tx_in_flight','receipt_received','needs_review']) AS status
), seen AS (
  SELECT 1 AS kind, s.status, x.n, x.overdue, x.oldest_at
    FROM states s CROSS JOIN LATERAL (
      SELECT count(*) AS n, count(*) FILTER (WHERE deadline_at < clock_timestamp()) AS overdue, min(state_entered_at) AS oldest_at
        FROM (SELECT deadline_at, state_entered_at FROM user_decrypt_req WHERE status = s.status ORDER BY id LIMIT %(cap)s + 1) r) x
  UNION ALL
  SELECT 2 AS kind, s.status, x.n, x.overdue, x.oldest_at
    FROM states s CROSS JOIN LATERAL (
      SELECT count(*) AS n, count(*) FILTER (WHERE deadline_at < clock_timestamp()) AS overdue, min(state_entered_at) AS oldest_at
        FROM (SELECT deadline_at, state_entered_at FROM public_decrypt_req WHERE status = s.status ORDER BY id LIMIT %(cap)s + 1) r) x
  UNION ALL
  SELECT 3 AS kind, s.status, x.n, x.overdue, x.oldest_at
    FROM states s CROSS JOIN LATERAL (
      SELECT count(*) AS n, count(*) FILTER (WHERE deadline_at < clock_timestamp()) AS overdue, min(state_entered_at) AS oldest_at
        FROM (SELECT deadline_at, state_entered_at FROM input_proof_req WHERE status = s.status ORDER BY id LIMIT %(cap)s + 1) r) x
)
SELECT s.kind, s.status, CASE WHEN s.n > %(cap)s THEN greatest(s.n, f.n) ELSE s.n END AS rows,
       extract(epoch FROM clock_timestamp() - CASE WHEN s.n > %(cap)s THEN least(s.oldest_at, f.oldest_at) ELSE s.oldest_at END)::float8
         AS oldest_seconds,
       CASE WHEN s.n > %(cap)s THEN greatest(s.overdue, f.overdue) ELSE s.overdue END AS overdue
  FROM seen s LEFT JOIN live_figure f ON f.kind = s.kind AND f.status = s.status
 WHERE s.n > 0
 ORDER BY s.kind, s.status;

-- name: queue_depths
-- Counted at once up to `cap` jobs; when there are more, what the duty `figures` counted last.
WITH first_ones AS MATERIALIZED (
  SELECT queue, kind, leased_by, visible_at, attempt FROM queue_job ORDER BY id LIMIT %(cap)s + 1
), few AS (
  SELECT count(*) <= %(cap)s OR NOT EXISTS (SELECT FROM job_figure) AS enough FROM first_ones
), counted AS (
  SELECT queue, kind, count(*) AS n, count(*) FILTER (WHERE leased_by IS NOT NULL AND visible_at > clock_timestamp()) AS leased,
         count(*) FILTER (WHERE visible_at <= clock_timestamp()) AS visible,
         min(visible_at) FILTER (WHERE visible_at <= clock_timestamp()) AS oldest_visible_at, max(attempt)::int AS highest_attempt
    FROM first_ones, few WHERE few.enough GROUP BY queue, kind
  UNION ALL
  SELECT f.queue, f.kind, f.n, f.leased, f.visible, f.oldest_visible_at, f.highest_attempt FROM job_figure f, few WHERE NOT few.enough
)
SELECT queue, kind, n AS jobs, leased, visible, extract(epoch FROM clock_timestamp() - oldest_visible_at)::float8 AS oldest_visible_seconds,
       highest_attempt
  FROM counted
 ORDER BY queue, kind;

-- name: leases
-- A case that somebody once had leaves its lease behind: only live ones of that family are of interest, and they are few.
SELECT resource, instance, epoch, extract(epoch FROM lease_until - clock_timestamp())::float8 AS seconds_left,
       extract(epoch FROM clock_timestamp() - acquired_at)::float8 AS held_seconds, how
  FROM exec_lease
 WHERE NOT starts_with(resource, 'review:') OR lease_until > clock_timestamp()
 ORDER BY resource;

-- name: listeners
SELECT s.source_id, s.name, s.chain_id, s.start_block, c.block,
       extract(epoch FROM clock_timestamp() - c.updated_at)::float8 AS cursor_age_seconds,
       extract(epoch FROM clock_timestamp() - b.turn_at)::float8 AS turn_age_seconds,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8 AS lease_seconds_left,
       l.instance, s.halted, greatest(0, c.chain_head - c.block) AS lag_blocks,
       (SELECT count(*) FROM chain_reorg r WHERE r.source_id = s.source_id) AS reorgs
  FROM envelope_source s
  JOIN chain_cursor c ON c.source_id = s.source_id
  LEFT JOIN exec_lease l ON l.resource = 'listener:' || s.source_id
  LEFT JOIN worker_beat b ON b.resource = 'listener:' || s.source_id
 ORDER BY s.source_id;

-- name: beats
SELECT resource, instance, extract(epoch FROM clock_timestamp() - at)::float8 AS beat_age_seconds,
       extract(epoch FROM clock_timestamp() - turn_at)::float8 AS turn_age_seconds, pid, host
  FROM worker_beat
 ORDER BY resource;

-- name: signers
SELECT s.id, s.chain_id, s.address, s.status, s.next_nonce, s.chain_nonce_latest, s.max_inflight,
       s.balance_wei, s.fee_balance, s.fee_allowance,
       extract(epoch FROM clock_timestamp() - s.last_synced_at)::float8 AS synced_seconds_ago,
       (SELECT count(*) FROM nonce_slot n WHERE n.signer_id = s.id AND n.state IN ('signed','live')) AS open_slots,
       l.instance AS owner
  FROM signer s
  LEFT JOIN exec_lease l ON l.lease_until > clock_timestamp()
                        AND l.resource = 'signer:' || s.chain_id || ':0x' || encode(s.address, 'hex')
 ORDER BY s.id;

-- name: open_attempts
SELECT state, count(*) AS rows, extract(epoch FROM clock_timestamp() - min(prepared_at))::float8 AS oldest_seconds
  FROM tx_attempt
 WHERE state IN ('prepared','unknown','accepted')
 GROUP BY state
 ORDER BY state;

-- name: open_reviews
SELECT kind, reason_code, count(*) AS rows, extract(epoch FROM clock_timestamp() - min(opened_at))::float8 AS oldest_seconds
  FROM review_case
 WHERE status = 'open'
 GROUP BY kind, reason_code
 ORDER BY kind, reason_code;

-- name: waiting_commands
SELECT kind, state, count(*) AS rows, extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest_seconds
  FROM command
 WHERE state <> 'consumed'
 GROUP BY kind, state
 ORDER BY kind, state;

-- name: dead_envelopes
SELECT consumer, source_id, count(*) AS rows
  FROM dead_envelope
 WHERE resolved_at IS NULL
 GROUP BY consumer, source_id
 ORDER BY consumer, source_id;

-- name: database_answers
SELECT 1 AS one;

-- name: live_payments
-- As live_requests, by index payment_intent_active: the oldest in a state is the one that came into it first.
WITH states AS (
  SELECT unnest(ARRAY['created','authorized','settling','confirming','needs_review']) AS state
), seen AS (
  SELECT s.state, x.n, x.oldest_at
    FROM states s CROSS JOIN LATERAL (
      SELECT count(*) AS n, min(updated_at) AS oldest_at
        FROM (SELECT updated_at FROM payment_intent i
               WHERE i.state = s.state AND i.state IN ('authorized', 'confirming', 'created', 'needs_review', 'settling')
               ORDER BY updated_at LIMIT %(cap)s + 1) r) x
)
SELECT s.state, CASE WHEN s.n > %(cap)s THEN greatest(s.n, f.n) ELSE s.n END AS rows,
       extract(epoch FROM clock_timestamp() - s.oldest_at)::float8 AS oldest_seconds
  FROM seen s LEFT JOIN live_figure f ON f.kind = 4 AND f.status = s.state
 WHERE s.n > 0 ORDER BY s.state;

-- name: reconciled
-- How many sealed blocks wait for reconciliation, by source, and findings by kind.
SELECT s.name AS source, greatest(0, c.block - r.block) AS lag_blocks, f.kind, f.n AS findings
  FROM recon_cursor r JOIN envelope_source s ON s.source_id = r.source_id JOIN chain_cursor c ON c.source_id = r.source_id
  LEFT JOIN LATERAL (SELECT kind, count(*) AS n FROM recon_finding q WHERE q.source_id = r.source_id GROUP BY kind) f ON true
 ORDER BY s.name, f.kind;

-- name: parked_letters
-- Jobs that were given up and wait for a person (index dead_letter_one_parked).
SELECT count(*) AS rows, coalesce(extract(epoch FROM clock_timestamp() - min(parked_at)), 0)::float8 AS oldest_seconds
  FROM dead_letter WHERE status = 'parked';
