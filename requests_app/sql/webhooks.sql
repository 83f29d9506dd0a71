-- Webhooks of clients and the outbox of their deliveries. The outbox itself is filled by the database (ddl/webhooks.sql).

-- name: lock_account
-- Two clients of one account that add a webhook at once are counted one after the other.
SELECT status FROM client_account WHERE id = %(account)s FOR NO KEY UPDATE;

-- name: insert_webhook
-- Nothing when the account has its number of them already.
INSERT INTO webhook (public_id, account_id, url, description, events, kinds, secret)
SELECT %(public_id)s, %(account)s, %(url)s, %(description)s, %(events)s::text[], %(kinds)s::smallint[], %(secret)s
 WHERE (SELECT count(*) FROM webhook WHERE account_id = %(account)s AND state <> 'removed') < %(limit)s
RETURNING {columns};

-- name: list_webhooks
SELECT {columns} FROM webhook WHERE account_id = %(account)s AND state <> 'removed' ORDER BY id;

-- name: find_webhook
SELECT {columns} FROM webhook WHERE public_id = %(public_id)s AND account_id = %(account)s AND state <> 'removed';

-- name: change_webhook
-- What is NULL stays. From a state of `sources`, which the new one may follow.
UPDATE webhook
   SET url = coalesce(%(url)s, url), description = coalesce(%(description)s, description),
       events = coalesce(%(events)s::text[], events), kinds = coalesce(%(kinds)s::smallint[], kinds),
       state = coalesce(%(target)s, state), updated_at = clock_timestamp()
 WHERE public_id = %(public_id)s AND account_id = %(account)s AND state = ANY(%(sources)s::text[])
RETURNING {columns};

-- name: rotate_secret
-- The secret of before signs too for a while: a receiver may change over in between.
UPDATE webhook
   SET former_secret = secret, former_until = clock_timestamp() + make_interval(secs => %(overlap)s::float8), secret = %(secret)s,
       updated_at = clock_timestamp()
 WHERE public_id = %(public_id)s AND account_id = %(account)s AND state <> 'removed'
RETURNING {columns};

-- name: remove_webhook
UPDATE webhook
   SET state = %(target)s, secret = NULL, former_secret = NULL, former_until = NULL, updated_at = clock_timestamp()
 WHERE public_id = %(public_id)s AND account_id = %(account)s AND state = ANY(%(sources)s::text[])
RETURNING id;

-- name: insert_test
-- A delivery that tells of nothing; one at a time, or a client could have us post as often as it likes.
INSERT INTO webhook_delivery (webhook_id, event, occurred_at)
SELECT w.id, %(event)s, clock_timestamp() FROM webhook w
 WHERE w.id = %(webhook)s AND w.state = 'enabled'
   AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'waiting' AND d.event = %(event)s)
RETURNING public_id;

-- name: page_deliveries
SELECT id, public_id, event, kind, subject, occurred_at, state, attempts, next_attempt_at, last_attempt_at, last_status, last_error, delivered_at
  FROM webhook_delivery WHERE webhook_id = %(webhook)s AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s;

-- name: claim
-- What is due, of every webhook that may be told: so many of each, counting what the asker has in hand (`busy`, `held`), the first of each
-- before the second of any. A receiver with a hundred thousand waiting takes nobody's place, and one that is paused, removed or of a
-- disabled account is not even looked at. Chosen first and locked afterwards: only what is taken is written to. The attempt is the fence.
WITH busy AS MATERIALIZED (SELECT * FROM unnest(%(busy)s::bigint[], %(held)s::int[]) AS t(id, n)),
room AS MATERIALIZED (
  SELECT w.id, %(each)s::int - coalesce(b.n, 0) AS n
    FROM webhook w JOIN client_account a ON a.id = w.account_id AND a.status = 'active' LEFT JOIN busy b ON b.id = w.id
   WHERE w.state <> 'removed' AND w.state = 'enabled' AND coalesce(b.n, 0) < %(each)s::int),
picked AS MATERIALIZED (
  SELECT d.id FROM room CROSS JOIN LATERAL (
    SELECT o.id, o.next_attempt_at, row_number() OVER (ORDER BY o.next_attempt_at) AS turn FROM (
      SELECT x.id, x.next_attempt_at FROM webhook_delivery x
       WHERE x.webhook_id = room.id AND x.state = 'waiting' AND x.next_attempt_at <= statement_timestamp()
       ORDER BY x.next_attempt_at LIMIT room.n) o) d
   ORDER BY d.turn, d.next_attempt_at LIMIT %(limit)s),
locked AS MATERIALIZED (
  SELECT d.id FROM webhook_delivery d JOIN picked ON picked.id = d.id
   WHERE d.state = 'waiting' AND d.next_attempt_at <= statement_timestamp() ORDER BY d.id FOR UPDATE OF d SKIP LOCKED)
UPDATE webhook_delivery d
   SET attempts = d.attempts + 1, leased_by = %(by)s, last_attempt_at = clock_timestamp(),
       next_attempt_at = clock_timestamp() + make_interval(secs => %(lease)s::float8)
  FROM locked, webhook w WHERE d.id = locked.id AND w.id = d.webhook_id AND w.secret IS NOT NULL
RETURNING d.id, d.attempts AS attempt, d.webhook_id, d.public_id, d.event, d.kind, d.subject, d.occurred_at, w.url, w.secret,
          CASE WHEN w.former_until > clock_timestamp() THEN w.former_secret END AS former_secret,
          floor(extract(epoch FROM clock_timestamp()))::bigint AS sent_at;

-- name: record_deliveries
-- What became of a batch. A delivery that was made is made, whoever has taken it up since; anything else counts only for the attempt that
-- is the latest. One moment for all: two readings of the clock may differ by a microsecond.
WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at),
asked AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(targets)s::text[], %(statuses)s::smallint[], %(errors)s::text[],
                       %(delays)s::float8[]) AS t(id, attempt, target, status, error, delay)),
old AS MATERIALIZED (
  SELECT d.id FROM webhook_delivery d JOIN asked ON asked.id = d.id ORDER BY d.id FOR UPDATE OF d)
UPDATE webhook_delivery d
   SET state = asked.target, last_status = asked.status, last_error = asked.error, leased_by = NULL,
       next_attempt_at = CASE WHEN asked.target = %(source)s THEN moment.at + make_interval(secs => asked.delay) ELSE d.next_attempt_at END,
       delivered_at = CASE WHEN asked.target = 'delivered' THEN moment.at END,
       ended_at = CASE WHEN asked.target <> %(source)s THEN moment.at END
  FROM old JOIN asked ON asked.id = old.id CROSS JOIN moment
 WHERE d.id = old.id AND d.state = %(source)s AND (asked.target = 'delivered' OR d.attempts = asked.attempt)
RETURNING d.id, d.state;

-- name: drop_deliveries
-- duties/webhooks: what waits for webhooks that were removed.
WITH gone AS MATERIALIZED (
  SELECT d.id FROM webhook w CROSS JOIN LATERAL (
    SELECT x.id FROM webhook_delivery x WHERE x.webhook_id = w.id AND x.state = 'waiting' LIMIT %(limit)s) d
   WHERE w.state = 'removed' LIMIT %(limit)s),
old AS MATERIALIZED (SELECT d.id FROM webhook_delivery d JOIN gone ON gone.id = d.id ORDER BY d.id FOR UPDATE OF d SKIP LOCKED)
UPDATE webhook_delivery d SET state = %(target)s, last_error = %(reason)s, leased_by = NULL, ended_at = clock_timestamp()
  FROM old WHERE d.id = old.id AND d.state = %(source)s;

-- name: expire_deliveries
-- duties/webhooks: what has waited for too long, for whatever reason. Without seeing whether somebody has it in hand: who has, records it.
WITH late AS MATERIALIZED (
  SELECT d.id FROM webhook_delivery d
   WHERE d.state = 'waiting' AND d.created_at < statement_timestamp() - make_interval(secs => %(seconds)s::float8)
   ORDER BY d.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE webhook_delivery d
   SET state = %(target)s, last_error = coalesce(d.last_error || '; ', '') || %(reason)s, leased_by = NULL, ended_at = clock_timestamp()
  FROM late WHERE d.id = late.id AND d.state = %(source)s;

-- name: redrive_delivery
-- Of two persons one gets it. Its time begins anew, or it would be too old at once.
UPDATE webhook_delivery
   SET state = %(target)s, attempts = 0, next_attempt_at = clock_timestamp(), created_at = clock_timestamp(), ended_at = NULL
 WHERE id = %(id)s AND state = %(source)s
   AND EXISTS (SELECT 1 FROM webhook w WHERE w.id = webhook_delivery.webhook_id AND w.state <> 'removed')
RETURNING id;

-- name: purge_deliveries
-- duties/retention: what has ended long ago.
WITH gone AS MATERIALIZED (
  SELECT id FROM webhook_delivery
   WHERE state <> 'waiting' AND ended_at < statement_timestamp() - make_interval(secs => %(seconds)s::float8)
   ORDER BY ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM webhook_delivery d USING gone WHERE d.id = gone.id;

-- name: purge_webhooks
-- Removed ones leave once nothing is left that was told them.
WITH gone AS MATERIALIZED (
  SELECT w.id FROM webhook w
   WHERE w.state = 'removed' AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.webhook_id = w.id)
   ORDER BY w.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM webhook w USING gone WHERE w.id = gone.id;

-- name: webhook_figures
-- The metrics: by state of the last day, counted up to a bound; how long the longest due has been waiting for a worker.
SELECT (SELECT count(*) FROM webhook WHERE state = 'enabled')::int AS enabled,
       (SELECT count(*) FROM (SELECT 1 FROM webhook_delivery WHERE state = 'waiting' LIMIT %(cap)s) d)::int AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM webhook_delivery WHERE state <> 'waiting' AND state = 'failed'
                               AND ended_at > statement_timestamp() - interval '1 day' LIMIT %(cap)s) d)::int AS failed,
       coalesce((SELECT extract(epoch FROM statement_timestamp() - min(d.next_attempt_at))::float8
                   FROM webhook w JOIN client_account a ON a.id = w.account_id AND a.status = 'active'
                  CROSS JOIN LATERAL (SELECT x.next_attempt_at FROM webhook_delivery x
                                       WHERE x.webhook_id = w.id AND x.state = 'waiting' AND x.next_attempt_at <= statement_timestamp()
                                       ORDER BY x.next_attempt_at LIMIT 1) d
                  WHERE w.state = 'enabled'), 0) AS oldest_due_seconds;
