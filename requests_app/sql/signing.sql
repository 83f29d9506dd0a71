-- Signers and the fence under which their holder decides (design 2.3; reference queue_settle 4.8).

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
       nonce_moved_at = CASE WHEN %(latest)s::bigint <= s.chain_nonce_latest THEN coalesce(s.nonce_moved_at, clock_timestamp())
                             ELSE clock_timestamp() END,
       status = CASE WHEN s.next_nonce < %(latest)s::bigint THEN 'blocked' ELSE s.status END,
       status_reason = CASE WHEN s.next_nonce < %(latest)s::bigint THEN 'foreign_nonce' ELSE s.status_reason END,
       balance_wei = %(balance)s::numeric, last_synced_at = clock_timestamp(),
       fee_balance = coalesce(%(fee_balance)s::numeric, s.fee_balance),
       fee_allowance = coalesce(%(fee_allowance)s::numeric, s.fee_allowance)
  FROM s WHERE g.id = s.id
RETURNING g.id, g.status, g.status_reason, g.next_nonce, g.max_inflight, g.chain_nonce_latest,
          coalesce(s.next_nonce < %(latest)s::bigint, false) AS foreign_use,
          extract(epoch FROM clock_timestamp() - g.nonce_moved_at)::float8 AS still,
          (SELECT coalesce(max(r.id), 0) FROM chain_reorg r JOIN envelope_source e ON e.source_id = r.source_id
            WHERE e.chain_id = g.chain_id) AS reorg;

-- name: set_signer_status
-- Only between the named states: an operator's pause is not lifted by a worker that saw gas arrive.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
UPDATE signer AS g SET status = %(status)s, status_reason = %(reason)s
  FROM f
 WHERE g.id = %(signer)s AND g.status = %(from_status)s
   AND (%(from_reason)s::text IS NULL OR g.status_reason = %(from_reason)s::text);

-- name: hold_fence
-- The lease row, share-locked until the transaction ends: a take-over waits for us or has won before us.
SELECT epoch FROM exec_lease
 WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE;
