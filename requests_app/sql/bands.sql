-- Bands of the envelope log beside their making: misses, sizes, retirement (design 5.4.2; reference/envelopes.md 6.3).

-- name: note_missing
INSERT INTO envelope_miss AS m (source_id, misses, last_at) VALUES (%(source)s, 1, clock_timestamp())
ON CONFLICT (source_id) DO UPDATE SET misses = m.misses + 1, last_at = excluded.last_at;

-- name: refresh
SELECT refresh_envelope_partitions(%(source)s::int);

-- name: young
SELECT DISTINCT b.source_id FROM envelope_band b
 WHERE b.state = 'open' AND b.at > clock_timestamp() - make_interval(secs => %(seconds)s::float8) ORDER BY b.source_id;

-- name: live_bands
-- Every band that is not gone, those whose retirement has begun first, with what the gates of retention need (reference 6.3).
SELECT b.source_id, b.band_no, b.lo, b.hi, b.state,
       CASE WHEN c.source_id IS NOT NULL THEN (c.block + 1 - s.reorg_depth) << 20 ELSE coalesce(h.last, -1) + 1 END AS settled_below,
       (SELECT min(k.position) FROM consumer_cursor k WHERE k.source_id = b.source_id AND k.required) AS consumed,
       EXISTS (SELECT 1 FROM dead_envelope d WHERE d.source_id = b.source_id AND d.position >= b.lo AND d.position < b.hi
                AND d.retryable AND d.resolved_at IS NULL) AS parked
  FROM envelope_band b
  JOIN envelope_source s ON s.source_id = b.source_id
  LEFT JOIN chain_cursor c ON c.source_id = b.source_id
  LEFT JOIN publisher_head h ON h.source_id = b.source_id
 WHERE b.state <> 'dropped'
 ORDER BY b.state NOT IN ('retiring', 'blobs_retiring'), b.source_id, b.band_no;

-- name: still_needed
-- Rows that hold their band: not expired yet, or without an expiry and younger than the originator keeps (or than given).
-- Literals: one leaf is read.
SELECT EXISTS (
  SELECT 1 FROM envelope_meta m
   WHERE m.source_id = %(source)s AND m.position >= %(lo)s AND m.position < %(hi)s
     AND (m.expires_at > clock_timestamp() OR (m.expires_at IS NULL AND m.recorded_at > clock_timestamp() - coalesce(
          make_interval(days => %(days)s::int), (SELECT s.retain FROM envelope_source s WHERE s.source_id = %(source)s))))) AS needed;

-- name: mark_band
UPDATE envelope_band SET state = %(after)s, at = clock_timestamp()
 WHERE source_id = %(source)s AND band_no = %(band)s AND state = %(before)s;

-- name: partition_state
-- By the catalogue, so that a retirement goes on wherever a crash left it. `pending`: the one leaf of the parent whose detach is half done.
SELECT CASE WHEN to_regclass(quote_ident(%(child)s)) IS NULL THEN 'absent'
            WHEN i.inhrelid IS NULL THEN 'detached'
            WHEN i.inhdetachpending THEN 'pending' ELSE 'attached' END AS state,
       (SELECT c.relname::text FROM pg_inherits p JOIN pg_class c ON c.oid = p.inhrelid
         WHERE p.inhparent = to_regclass(quote_ident(%(parent)s)) AND p.inhdetachpending) AS pending
  FROM (SELECT 1) one
  LEFT JOIN pg_inherits i ON i.inhrelid = to_regclass(quote_ident(%(child)s)) AND i.inhparent = to_regclass(quote_ident(%(parent)s));

-- name: detach
ALTER TABLE {parent} DETACH PARTITION {child} CONCURRENTLY;

-- name: finalize
ALTER TABLE {parent} DETACH PARTITION {child} FINALIZE;

-- name: drop
DROP TABLE {child};

-- name: band_sizes
-- The admin's partitions: bytes of rows and payloads, the newest first.
SELECT b.band_no, b.lo, b.hi, b.state, b.at,
       coalesce(pg_total_relation_size(to_regclass(format('envelope_meta_s%%s_b%%s', b.source_id, b.band_no))), 0) AS meta_bytes,
       coalesce(pg_total_relation_size(to_regclass(format('envelope_blob_s%%s_b%%s', b.source_id, b.band_no))), 0) AS blob_bytes
  FROM envelope_band b WHERE b.source_id = %(source)s ORDER BY b.band_no DESC LIMIT %(limit)s;

-- name: figures
-- Metrics: per originator.
SELECT s.source_id, s.name,
       (SELECT count(*) FROM envelope_band b WHERE b.source_id = s.source_id AND b.state <> 'dropped') AS bands,
       coalesce(m.misses, 0) AS misses,
       CASE WHEN c.source_id IS NOT NULL THEN ((c.block + 1) << 20) - 1 ELSE h.last END
         - (SELECT min(k.position) FROM consumer_cursor k WHERE k.source_id = s.source_id) AS lag
  FROM envelope_source s
  LEFT JOIN envelope_miss m ON m.source_id = s.source_id
  LEFT JOIN chain_cursor c ON c.source_id = s.source_id
  LEFT JOIN publisher_head h ON h.source_id = s.source_id
 ORDER BY s.source_id;

-- name: staged_figures
SELECT count(*) FILTER (WHERE s.parked_at IS NULL) AS waiting, count(*) FILTER (WHERE s.parked_at IS NOT NULL) AS parked,
       coalesce(extract(epoch FROM clock_timestamp() - min(s.staged_at) FILTER (WHERE s.parked_at IS NULL)), 0)::float8 AS oldest_seconds
  FROM staged_envelope s;
