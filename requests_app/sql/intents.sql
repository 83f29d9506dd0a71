-- Payment intents (reference queue_settle 1.1, 1.2). Times are written as clock_timestamp(), never by a column's default: the
-- example and tests put a clock of their own before pg_catalog in the search_path.

-- name: read_intents
SELECT {columns} FROM payment_intent r WHERE r.id = ANY(%(ids)b::bigint[]) ORDER BY r.id;

-- name: lock_intents
SELECT {columns} FROM payment_intent r WHERE r.id = ANY(%(ids)b::bigint[]) ORDER BY r.id FOR UPDATE;

-- name: find_intent
-- Another account's intent is as missing as none.
SELECT {columns} FROM payment_intent r
 WHERE r.public_id = %(public_id)s AND (%(account)s::bigint IS NULL OR r.account_id = %(account)s::bigint);

-- name: history
SELECT version, from_state, to_state, actor, at, tx_hash, reason, by_user FROM intent_transition WHERE intent_id = %(id)s ORDER BY version;

-- name: lock_owner
SELECT a.status = 'active' AS active FROM client_account a WHERE a.id = %(account)s FOR SHARE;

-- name: insert_intent
WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at),
r AS (
  INSERT INTO payment_intent (public_id, ref, account_id, chain, token, payer, merchant, amount, state, version, created_at, updated_at, expires_at)
  SELECT %(public_id)s, %(ref)b, %(account)s, %(chain)s, %(token)s, %(payer)s, %(merchant)s, %(amount)s::numeric, 'created', 1,
         moment.at, moment.at, coalesce(%(expires_at)s::timestamptz, moment.at + make_interval(secs => %(lifetime)s::float8))
    FROM moment
  RETURNING *),
logged AS (
  INSERT INTO intent_transition (intent_id, version, from_state, to_state, actor, at)
  SELECT r.id, 1, NULL, r.state, %(actor)s, r.created_at FROM r)
SELECT {columns} FROM r;

-- name: move_intents
-- CAS on (id, version, state). `old` locks in id order and shows what stands behind any lock wait. A hash belongs to a transaction
-- that is believed to be on chain, so settling has none; settled keeps the one on record, which the evidence must equal.
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)b::bigint[], %(versions)b::int[], %(sources)b::text[], %(hashes)b::bytea[], %(reasons)b::text[],
                       %(users)b::text[], %(authorizations)b::text[])
    AS t(id, version, source, tx_hash, reason, by_user, authorized)
), old AS MATERIALIZED (
  SELECT r.id, r.version, r.state, r.tx_hash, r.updated_at, r.expires_at
    FROM payment_intent r JOIN asked ON asked.id = r.id ORDER BY r.id FOR UPDATE OF r
), r AS (
  UPDATE payment_intent i
     SET state = %(target)s, version = old.version + 1, updated_at = clock_timestamp(), state_reason = asked.reason,
         tx_hash = CASE WHEN %(target)s = 'settling' THEN NULL ELSE coalesce(asked.tx_hash, i.tx_hash) END,
         "authorization" = coalesce(asked.authorized::jsonb, i.authorization)
    FROM old JOIN asked ON asked.id = old.id
   WHERE i.id = old.id
     AND CASE WHEN old.version = asked.version AND old.state = asked.source
               AND (%(target)s <> 'authorized' OR old.expires_at IS NULL OR old.expires_at > clock_timestamp())
               AND (%(target)s <> 'settled' OR old.state <> 'confirming' OR old.tx_hash = asked.tx_hash)
              THEN true ELSE false END
  RETURNING i.*, old.state AS was, i.updated_at - old.updated_at AS spent, asked.tx_hash AS brought, asked.by_user
), logged AS (
  INSERT INTO intent_transition (intent_id, version, from_state, to_state, actor, at, tx_hash, reason, by_user, epoch)
  SELECT r.id, r.version, r.was, r.state, %(actor)s, r.updated_at, r.brought, r.state_reason, r.by_user, %(epoch)s FROM r ORDER BY r.id
)
SELECT {columns}, r.was, extract(epoch FROM r.spent)::float8 AS spent_seconds FROM r ORDER BY r.id;

-- name: expirable
-- The sweep: by state and age (index payment_intent_active), never by id, which would read every payment that has ended. Locked where
-- nobody works: the order of the locks does not matter, because nothing is waited for.
SELECT {columns} FROM payment_intent r
 WHERE r.state IN ('created', 'authorized')
   AND CASE r.state
         WHEN 'created' THEN r.expires_at <= clock_timestamp()
         ELSE (r.authorization->>'valid_before')::numeric <= extract(epoch FROM clock_timestamp())
              AND NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.kind = 4 AND n.subject_id = r.id AND n.state <> 'dead')
       END
 ORDER BY r.state, r.updated_at LIMIT %(limit)s::int FOR UPDATE OF r SKIP LOCKED;

-- name: enqueue_settle
-- In the transaction of the change to authorized: the queue is the outbox.
INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority, attempt, visible_at, enqueued_at)
SELECT %(queue)s, r.public_id || '/settle', 4, r.id, r.account_id, %(priority)s::smallint, 0, clock_timestamp(), clock_timestamp()
  FROM payment_intent r WHERE r.id = ANY(%(ids)b::bigint[]) ORDER BY r.id
    ON CONFLICT (job_key) DO NOTHING
RETURNING subject_id;

-- name: drop_settle
DELETE FROM queue_job j USING payment_intent r
 WHERE r.id = ANY(%(ids)b::bigint[]) AND j.job_key = r.public_id || '/settle' RETURNING j.subject_id;

-- name: cases_open
SELECT subject_id, reason_code FROM review_case WHERE kind = 4 AND subject_id = ANY(%(ids)b::bigint[]) AND status = 'open';
