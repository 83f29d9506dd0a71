-- Idempotency keys of clients (reference queue_settle 1.3; draft-ietf-httpapi-idempotency-key-header).
-- A record is claimed before its request is looked at, and completed in the transaction of what the request does. A given-up
-- claim ends its record instead of deleting it: the attempts go on counting, so a late claimant can never complete a later one.

-- name: claim
-- One atomic statement. A key is taken when nobody has it, when its record is over, and when the claim of the same request is
-- older than its lease. Neither `taken` nor a standing record: a twin came between snapshot and insert, or the record was over
-- in the snapshot and somebody took it: the caller runs the statement again.
WITH account AS MATERIALIZED (
  SELECT id FROM client_account WHERE id = %(scope)s AND status = 'active' FOR SHARE
), taken AS (
  INSERT INTO idempotency_record AS r (scope, key, fingerprint, attempt, claimed_at, lease_until, expires_at)
  SELECT id, %(key)s, %(fingerprint)b, 1, clock_timestamp(), clock_timestamp() + make_interval(secs => %(lease)s::float8),
         clock_timestamp() + make_interval(secs => %(kept)s::float8)
    FROM account
  ON CONFLICT (scope, key) DO UPDATE
     SET fingerprint = EXCLUDED.fingerprint, attempt = r.attempt + 1, claimed_at = EXCLUDED.claimed_at,
         lease_until = EXCLUDED.lease_until, expires_at = EXCLUDED.expires_at,
         response_status = NULL, response_headers = NULL, response_body = NULL
   WHERE r.expires_at <= clock_timestamp()
      OR (r.response_status IS NULL AND r.lease_until <= clock_timestamp() AND r.fingerprint = EXCLUDED.fingerprint)
  RETURNING r.attempt
), standing AS (
  SELECT fingerprint, response_status, response_headers, response_body FROM idempotency_record
   WHERE scope = %(scope)s AND key = %(key)s AND expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM taken)
)
SELECT EXISTS (SELECT FROM account) AS account_active, taken.attempt,
       standing.fingerprint, standing.response_status, standing.response_headers, standing.response_body
  FROM (VALUES (1)) AS one(n) LEFT JOIN taken ON true LEFT JOIN standing ON true;

-- name: complete
UPDATE idempotency_record
   SET response_status = %(status)s::smallint, response_headers = %(headers)s::text::jsonb, response_body = %(body)b
 WHERE scope = %(scope)s AND key = %(key)s AND attempt = %(attempt)s AND response_status IS NULL;

-- name: release
UPDATE idempotency_record SET expires_at = clock_timestamp(), lease_until = clock_timestamp()
 WHERE scope = %(scope)s AND key = %(key)s AND attempt = %(attempt)s AND response_status IS NULL;

-- name: purge_keys
-- An hour after their end nobody who claimed them can still be at work.
-- MATERIALIZED: as a sub-query of the join it could be run once per outer row, and would take more than the limit (B17).
WITH over AS MATERIALIZED (
  SELECT scope, key FROM idempotency_record WHERE expires_at < clock_timestamp() - interval '1 hour'
   ORDER BY expires_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED)
DELETE FROM idempotency_record AS r USING over WHERE r.scope = over.scope AND r.key = over.key;
