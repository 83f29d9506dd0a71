-- The envelope log: sources, seals, bands, consumers (design 3.6; reference/envelopes.md 6.3).

-- name: add_source
-- store/envelopes.add_source: once at the start of a listener; an existing source keeps what it has.
WITH source AS (
  INSERT INTO envelope_source (source_id, name, chain_id, start_block, band_blocks, retain, reorg_depth)
  VALUES (%(source)s, %(name)s, %(chain_id)s, %(start_block)s, %(band_blocks)s, make_interval(days => %(retain_days)s::int), %(reorg_depth)s)
  ON CONFLICT (source_id) DO NOTHING RETURNING source_id, start_block),
 seal AS (
  INSERT INTO chain_cursor (source_id, block, updated_at) SELECT source_id, start_block - 1, clock_timestamp() FROM source)
INSERT INTO consumer_cursor (consumer, source_id, position, required, updated_at)
SELECT 'requests', source_id, (start_block << 20) - 1, true, clock_timestamp() FROM source;

-- name: read_source
SELECT s.source_id, s.name, s.chain_id, s.start_block, s.band_blocks, s.reorg_depth, s.halted, c.block, c.head_hash,
       c.window_blocks, c.chain_head
  FROM envelope_source s JOIN chain_cursor c ON c.source_id = s.source_id WHERE s.source_id = %(source)s;

-- name: claim_identity
-- store/chain_identity.claim_identity: the first start stores the hash, later ones read it.
WITH first AS (
  INSERT INTO chain_identity (chain_id, genesis_hash, stored_at) VALUES (%(chain_id)s, %(genesis)b, clock_timestamp())
  ON CONFLICT (chain_id) DO NOTHING RETURNING genesis_hash)
SELECT genesis_hash FROM first UNION ALL SELECT genesis_hash FROM chain_identity WHERE chain_id = %(chain_id)s LIMIT 1;

-- name: band_width
SELECT s.band_blocks::bigint << 20 AS width FROM envelope_source s WHERE s.source_id = %(source)s;

-- name: ensure_band
SELECT ensure_envelope_band(%(source)s::int, %(position)s::bigint) AS made;

-- name: fresh
-- The rows of a range that nobody has stored before, which is the rule: asking each of them for a conflict costs a quarter of it.
meta AS (
  INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at)
  SELECT %(source)s, a.position, a.kind, a.ref, a.contract, a.block_hash, a.tx_hash, a.digest, p.client_id, clock_timestamp()
    FROM door CROSS JOIN a LEFT JOIN payer p ON p.position = a.position ORDER BY a.position
  RETURNING position, kind, payer, tx_hash),
 blob AS (
  INSERT INTO envelope_blob (source_id, position, payload)
  SELECT %(source)s, b.position, b.payload FROM door CROSS JOIN unnest(%(positions)b::bigint[], %(payloads)b::bytea[]) AS b(position, payload))

-- name: again
-- In its place, when some were there. A payload is stored with its row or not at all, so only the row is asked for a conflict, here and
-- in the other inserts.
meta AS (
  INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at)
  SELECT %(source)s, a.position, a.kind, a.ref, a.contract, a.block_hash, a.tx_hash, a.digest, p.client_id, clock_timestamp()
    FROM door CROSS JOIN a LEFT JOIN payer p ON p.position = a.position ORDER BY a.position
  ON CONFLICT (source_id, position) DO NOTHING RETURNING position, kind, payer, tx_hash),
 blob AS (
  INSERT INTO envelope_blob (source_id, position, payload)
  SELECT %(source)s, b.position, b.payload
    FROM meta JOIN unnest(%(positions)b::bigint[], %(payloads)b::bytea[]) AS b(position, payload) ON b.position = meta.position)

-- name: record_range
-- store/envelopes.record_range: lease fence, seal lock, events and seal in one statement, hence one transaction and one
-- round trip. The seal moves only when every event of the batch was inserted here; otherwise the caller compares digests
-- and calls seal_replayed. Rows above the seal are read by nobody, so what a refused batch leaves there is harmless.
-- Payloads come from arrays of their own: what is wanted twice is kept in memory, and they are most of it.
WITH fence AS MATERIALIZED (
  SELECT 1 FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
 seal AS MATERIALIZED (
  SELECT c.block, s.halted, EXISTS (SELECT 1 FROM fence) AS held
    FROM chain_cursor c JOIN envelope_source s ON s.source_id = c.source_id
   WHERE c.source_id = %(source)s FOR UPDATE OF c),
 door AS MATERIALIZED (SELECT 1 FROM seal WHERE held AND halted IS NULL AND block >= %(lo)s::bigint - 1),
 a AS MATERIALIZED (
  SELECT * FROM unnest(%(positions)b::bigint[], %(kinds)b::smallint[], %(refs)b::bytea[], %(contracts)b::bytea[],
    %(block_hashes)b::bytea[], %(tx_hashes)b::bytea[], %(digests)b::bytea[])
    AS t(position, kind, ref, contract, block_hash, tx_hash, digest)),
 payer AS (
  SELECT DISTINCT ON (a.position) a.position, v.client_id
    FROM a JOIN tx_attempt t ON t.tx_hash = a.tx_hash
    JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
    JOIN request_client v ON v.kind = n.kind AND v.request_id = n.subject_id
   WHERE a.kind = ANY(%(request_kinds)b::smallint[])
   ORDER BY a.position, v.created_at, v.client_id),
 {rows},
 moved AS (
  UPDATE chain_cursor c
     SET block = greatest(c.block, %(hi)s::bigint), updated_at = clock_timestamp(),
         chain_head = coalesce(%(chain_head)s::bigint, c.chain_head),
         head_hash = CASE WHEN %(hi)s::bigint >= c.block THEN %(head_hash)b::bytea ELSE c.head_hash END
    FROM door WHERE c.source_id = %(source)s AND (SELECT count(*) FROM meta) = (SELECT count(*) FROM a)
  RETURNING c.block),
 hashes AS (
  INSERT INTO chain_block (source_id, block, hash)
  SELECT %(source)s, h.block, h.hash FROM moved CROSS JOIN unnest(%(kept_blocks)b::bigint[], %(kept_hashes)b::bytea[]) AS h(block, hash)
  ON CONFLICT (source_id, block) DO UPDATE SET hash = excluded.hash WHERE chain_block.hash <> excluded.hash),
 pruned AS (
  DELETE FROM chain_block b USING moved WHERE b.source_id = %(source)s AND b.block < moved.block - %(depth)s::bigint)
SELECT s.block AS sealed, s.held, s.halted, (SELECT count(*) FROM meta) AS inserted, (SELECT block FROM moved) AS moved,
       (SELECT count_envelopes(%(source)s::int, array_agg(m.position), array_agg(m.kind), array_agg(m.payer), %(priced_kinds)b::smallint[],
          %(kind_prices)b::bigint[], %(base_price)s::bigint, %(congestion_target)s::bigint, %(congestion_fee)s::bigint)
          FROM meta m WHERE {countable}) AS spend
  FROM seal s;

-- name: seal_replayed
WITH fence AS MATERIALIZED (
  SELECT 1 FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
 moved AS (
  UPDATE chain_cursor c
     SET block = greatest(c.block, %(hi)s::bigint), updated_at = clock_timestamp(),
         chain_head = coalesce(%(chain_head)s::bigint, c.chain_head),
         head_hash = CASE WHEN %(hi)s::bigint >= c.block THEN %(head_hash)b::bytea ELSE c.head_hash END
    FROM envelope_source s
   WHERE c.source_id = %(source)s AND s.source_id = c.source_id AND s.halted IS NULL
     AND c.block >= %(lo)s::bigint - 1 AND EXISTS (SELECT 1 FROM fence)
  RETURNING c.block),
 hashes AS (
  INSERT INTO chain_block (source_id, block, hash)
  SELECT %(source)s, h.block, h.hash FROM moved CROSS JOIN unnest(%(kept_blocks)b::bigint[], %(kept_hashes)b::bytea[]) AS h(block, hash)
  ON CONFLICT (source_id, block) DO UPDATE SET hash = excluded.hash WHERE chain_block.hash <> excluded.hash),
 pruned AS (
  DELETE FROM chain_block b USING moved WHERE b.source_id = %(source)s AND b.block < moved.block - %(depth)s::bigint)
SELECT block FROM moved;

-- name: insert_below_seal
-- store/envelopes.insert_below_seal: events that a node had withheld when their block was sealed. The seal stays; its
-- lock keeps a reorganisation from lowering it meanwhile. Blocks known by another hash have given way: nothing of them is stored.
WITH seal AS MATERIALIZED (SELECT block FROM chain_cursor WHERE source_id = %(source)s FOR SHARE),
a AS MATERIALIZED (
  SELECT * FROM unnest(%(positions)b::bigint[], %(kinds)b::smallint[], %(refs)b::bytea[], %(contracts)b::bytea[],
    %(block_hashes)b::bytea[], %(tx_hashes)b::bytea[], %(digests)b::bytea[], %(payloads)b::bytea[])
    AS t(position, kind, ref, contract, block_hash, tx_hash, digest, payload)
   WHERE NOT EXISTS (SELECT 1 FROM chain_block b
                      WHERE b.source_id = %(source)s AND b.block = t.position >> 20 AND b.hash <> t.block_hash)),
 payer AS (
  SELECT DISTINCT ON (a.position) a.position, v.client_id
    FROM a JOIN tx_attempt t ON t.tx_hash = a.tx_hash
    JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
    JOIN request_client v ON v.kind = n.kind AND v.request_id = n.subject_id
   WHERE a.kind = ANY(%(request_kinds)b::smallint[])
   ORDER BY a.position, v.created_at, v.client_id),
 meta AS (
  INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payer, recorded_at)
  SELECT %(source)s, a.position, a.kind, a.ref, a.contract, a.block_hash, a.tx_hash, a.digest, p.client_id, clock_timestamp()
    FROM a JOIN seal c ON a.position >> 20 <= c.block
    LEFT JOIN payer p ON p.position = a.position ORDER BY a.position
  ON CONFLICT (source_id, position) DO NOTHING RETURNING position, kind, payer, tx_hash),
 blob AS (
  INSERT INTO envelope_blob (source_id, position, payload)
  SELECT %(source)s, a.position, a.payload FROM meta JOIN a ON a.position = meta.position)
SELECT (SELECT count(*) FROM meta) AS inserted,
       (SELECT count_envelopes(%(source)s::int, array_agg(m.position), array_agg(m.kind), array_agg(m.payer), %(priced_kinds)b::smallint[],
          %(kind_prices)b::bigint[], %(base_price)s::bigint, %(congestion_target)s::bigint, %(congestion_fee)s::bigint)
          FROM meta m WHERE {countable}) AS spend;

-- name: countable
-- A condition on `meta m` for the two statements above. What comes back after a reorganisation was counted in its first block: the
-- same transaction, or, for what a payer was charged, another transaction that carries the same request. Nobody has orphans most of
-- the time: then the second question is not asked.
NOT EXISTS (SELECT 1 FROM envelope_orphan o WHERE o.tx_hash = m.tx_hash AND o.kind = m.kind AND o.source_id = %(source)s)
  AND CASE WHEN m.payer IS NULL OR NOT EXISTS (SELECT 1 FROM envelope_orphan) THEN true
      ELSE NOT EXISTS (
        SELECT 1 FROM tx_attempt t
          JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
          JOIN nonce_slot s ON s.kind = n.kind AND s.subject_id = n.subject_id
          JOIN tx_attempt e ON e.signer_id = s.signer_id AND e.nonce = s.nonce
          JOIN envelope_orphan o ON o.tx_hash = e.tx_hash AND o.kind = m.kind AND o.source_id = %(source)s AND o.payer IS NOT NULL
         WHERE t.tx_hash = m.tx_hash) END;

-- name: read_consumer
SELECT k.position, c.block AS sealed, s.halted
  FROM consumer_cursor k JOIN chain_cursor c ON c.source_id = k.source_id JOIN envelope_source s ON s.source_id = k.source_id
 WHERE k.consumer = %(consumer)s AND k.source_id = %(source)s;

-- name: move_consumer
-- First statement of an applier's transaction: it locks the cursor and claims the page. 0 rows: somebody else applied it.
UPDATE consumer_cursor SET position = %(position)s::bigint, updated_at = clock_timestamp()
 WHERE consumer = %(consumer)s AND source_id = %(source)s AND position = %(expected)s::bigint;

-- name: hold_consumer
-- Keeps a reorganisation (which locks every cursor) away until the transaction ends. A statement of its own, so that the next
-- one sees the log as it is after the wait.
SELECT position FROM consumer_cursor WHERE consumer = %(consumer)s AND source_id = %(source)s FOR UPDATE;

-- name: logged_positions
SELECT m.position FROM unnest(%(positions)b::bigint[], %(block_hashes)b::bytea[]) AS a(position, block_hash)
  JOIN envelope_meta m ON m.source_id = %(source)s AND m.position = a.position AND m.block_hash = a.block_hash;

-- name: read_page
-- Bounds stand on both tables, so that each prunes its own bands.
SELECT m.position, m.kind, m.ref, m.contract, m.block_hash, m.tx_hash, b.payload
  FROM envelope_meta m LEFT JOIN envelope_blob b ON b.source_id = m.source_id AND b.position = m.position
   AND b.source_id = %(source)s AND b.position > %(after)s::bigint AND b.position <= %(upto)s::bigint
 WHERE m.source_id = %(source)s AND m.position > %(after)s::bigint AND m.position <= %(upto)s::bigint
 ORDER BY m.position LIMIT %(limit)s;

-- name: read_by_refs
-- Late match: events of these references between two positions (index envelope_meta_ref_ix).
SELECT m.position, m.kind, m.ref, m.contract, m.block_hash, m.tx_hash, b.payload
  FROM envelope_meta m LEFT JOIN envelope_blob b ON b.source_id = m.source_id AND b.position = m.position
   AND b.source_id = %(source)s AND b.position >= %(floor)s::bigint AND b.position <= %(upto)s::bigint
 WHERE m.ref = ANY(%(refs)b::bytea[]) AND m.source_id = %(source)s
   AND m.position >= %(floor)s::bigint AND m.position <= %(upto)s::bigint
 ORDER BY m.position;

-- name: park_envelopes
INSERT INTO dead_envelope AS d (consumer, source_id, position, error_class, error, attempts, retryable, first_at)
SELECT %(consumer)s, %(source)s, position, error_class, error, 1, retryable, clock_timestamp()
  FROM unnest(%(positions)b::bigint[], %(classes)b::text[], %(errors)b::text[], %(retryable)b::bool[])
    AS t(position, error_class, error, retryable) ORDER BY position
ON CONFLICT (consumer, source_id, position)
DO UPDATE SET attempts = d.attempts + 1, error_class = excluded.error_class, error = excluded.error, resolved_at = NULL;
