-- Publications: staged, put into the log at the next position, removed, all in one transaction (design 5.4.7).

-- name: open_publisher
-- One a deployment. A band of a publisher is 2^20 positions (band_blocks 1). An id that is a chain's stays one: no head is made.
WITH source AS (
  INSERT INTO envelope_source (source_id, name, chain_id, start_block, band_blocks, retain, reorg_depth)
  VALUES (%(source)s, %(name)s, 0, 0, 1, make_interval(days => %(retain_days)s::int), 0)
  ON CONFLICT DO NOTHING RETURNING source_id)
INSERT INTO publisher_head (source_id, last) SELECT source_id, 0 FROM source;

-- name: reserve_originators
INSERT INTO envelope_source (source_id, name, chain_id, start_block, band_blocks, retain, reorg_depth)
SELECT t.source_id, t.name, 0, 0, 1, make_interval(days => 14), 0
  FROM unnest(%(sources)b::int[], %(names)b::text[]) AS t(source_id, name) ON CONFLICT DO NOTHING;

-- name: stage
-- The account is checked in the writing statement. No row: it is disabled, or too much waits already.
INSERT INTO staged_envelope (ext_id, client_id, topic, payload, expires_at, staged_at, attempts)
SELECT %(ext_id)s, a.id, %(topic)b::bytea, %(payload)b::bytea, %(expires_at)s::timestamptz, clock_timestamp(), 0
  FROM client_account a
 WHERE a.id = %(client)s AND a.status = 'active'
   AND (SELECT count(*) FROM (SELECT 1 FROM staged_envelope s WHERE s.parked_at IS NULL LIMIT %(limit)s) w) < %(limit)s
   FOR SHARE OF a
RETURNING id;

-- name: account_active
SELECT a.id FROM client_account a WHERE a.id = %(client)s AND a.status = 'active';

-- name: waiting_ids
-- What is published leaves the table.
SELECT s.id FROM staged_envelope s WHERE s.id = ANY(%(ids)b::bigint[]) AND s.parked_at IS NULL;

-- name: publication
SELECT s.ext_id, NULL::int AS source_id, NULL::bigint AS position, s.parked_at IS NOT NULL AS parked, s.error
  FROM staged_envelope s WHERE s.ext_id = %(ext_id)s AND s.client_id = %(client)s
UNION ALL
SELECT p.ext_id, p.source_id, p.position, false, NULL
  FROM published_envelope p WHERE p.ext_id = %(ext_id)s AND p.client_id = %(client)s;

-- name: next_staged
SELECT s.id, s.ext_id, s.client_id, s.topic, s.payload, s.expires_at, s.attempts,
       s.expires_at <= clock_timestamp() AS expired, coalesce(a.status = 'active', false) AS active
  FROM staged_envelope s LEFT JOIN client_account a ON a.id = s.client_id
 WHERE s.parked_at IS NULL ORDER BY s.id LIMIT %(limit)s;

-- name: lock_head
-- Position order is commit order because every publisher assigns under this row's lock. No row: another one is at work.
SELECT h.last FROM publisher_head h WHERE h.source_id = %(source)s FOR UPDATE SKIP LOCKED;

-- name: lock_staged
SELECT s.id FROM staged_envelope s WHERE s.id = ANY(%(ids)b::bigint[]) AND s.parked_at IS NULL ORDER BY s.id FOR UPDATE;

-- name: append
-- store/appending.append: rows, payloads, usage and congestion in one statement of the caller's transaction.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(positions)b::bigint[], %(kinds)b::smallint[], %(refs)b::bytea[], %(contracts)b::bytea[], %(block_hashes)b::bytea[],
    %(tx_hashes)b::bytea[], %(digests)b::bytea[], %(payloads)b::bytea[], %(payers)b::bigint[], %(expiries)b::timestamptz[])
    AS t(position, kind, ref, contract, block_hash, tx_hash, digest, payload, payer, expires_at)),
 meta AS (
  INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at, expires_at)
  SELECT %(source)s, a.position, a.kind, a.ref, a.contract, a.block_hash, a.tx_hash, a.digest, a.payer, clock_timestamp(), a.expires_at
    FROM a ORDER BY a.position
  ON CONFLICT (source_id, position) DO NOTHING RETURNING position, kind, payer),
 blob AS (
  INSERT INTO envelope_blob (source_id, position, payload)
  SELECT %(source)s, a.position, a.payload FROM meta JOIN a ON a.position = meta.position)
SELECT count(*) AS inserted,
       count_envelopes(%(source)s::int, array_agg(m.position), array_agg(m.kind), array_agg(m.payer), %(priced_kinds)b::smallint[],
         %(kind_prices)b::bigint[], %(base_price)s::bigint, %(congestion_target)s::bigint, %(congestion_fee)s::bigint) AS spend
  FROM meta m;

-- name: finish
-- The staged rows become receipts and the head moves. A receipt that exists already refuses the whole transaction.
WITH gone AS (
  DELETE FROM staged_envelope s USING unnest(%(ids)b::bigint[], %(positions)b::bigint[]) AS t(id, position)
   WHERE s.id = t.id RETURNING s.ext_id, s.client_id, t.position),
 kept AS (
  INSERT INTO published_envelope (ext_id, client_id, source_id, position, published_at)
  SELECT g.ext_id, g.client_id, %(source)s, g.position, clock_timestamp() FROM gone g)
UPDATE publisher_head h SET last = %(last)s::bigint WHERE h.source_id = %(source)s AND h.last = %(expected)s::bigint;

-- name: park
UPDATE staged_envelope s
   SET parked_at = clock_timestamp(), attempts = s.attempts + 1, error_class = t.error_class, error = t.error
  FROM unnest(%(ids)b::bigint[], %(classes)b::text[], %(errors)b::text[]) AS t(id, error_class, error)
 WHERE s.id = t.id AND s.parked_at IS NULL;

-- name: unpark
UPDATE staged_envelope s SET parked_at = NULL
 WHERE s.parked_at IS NOT NULL AND (%(id)s::bigint IS NULL OR s.id = %(id)s::bigint);

-- name: parked_ids
SELECT s.id FROM staged_envelope s
 WHERE s.parked_at IS NOT NULL AND (%(id)s::bigint IS NULL OR s.id = %(id)s::bigint) ORDER BY s.id;

-- name: purge_published
-- Receipts of a band that is dropped leave with it.
DELETE FROM published_envelope p
 WHERE p.source_id = %(source)s AND p.position >= %(lo)s::bigint AND p.position < %(hi)s::bigint;
