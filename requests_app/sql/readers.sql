-- Reading the envelope log for clients and operators: one bounded query with literals an originator and band (design 5.4.4).

-- name: originators
-- The set of originators is this table. `head`: the position up to which an originator may be read; NULL for a reserved id.
SELECT s.source_id, s.name, s.halted, s.band_blocks::bigint << 20 AS width,
       CASE WHEN c.source_id IS NOT NULL THEN 'chain' WHEN h.source_id IS NOT NULL THEN 'publisher' ELSE 'reserved' END AS role,
       CASE WHEN c.source_id IS NOT NULL THEN ((c.block + 1) << 20) - 1 ELSE h.last END AS head
  FROM envelope_source s
  LEFT JOIN chain_cursor c ON c.source_id = s.source_id
  LEFT JOIN publisher_head h ON h.source_id = s.source_id
 ORDER BY s.source_id;

-- name: reorgs_since
-- Of each chain its newest reorganisation, and the lowest block that gave way since the one that a cursor has seen (NULL: none, or the cursor
-- is not old enough to know). Those of one chain are numbered in the order of their commits: under the lock of its seal.
SELECT c.source_id, coalesce(n.id, 0) AS newest, l.fork
  FROM chain_cursor c
  LEFT JOIN unnest(%(sources)b::int[], %(seen)b::bigint[]) AS a(source_id, seen) ON a.source_id = c.source_id
  LEFT JOIN LATERAL (SELECT r.id FROM chain_reorg r WHERE r.source_id = c.source_id ORDER BY r.id DESC LIMIT 1) n ON true
  LEFT JOIN LATERAL (SELECT min(r.fork_block) AS fork FROM chain_reorg r WHERE r.source_id = c.source_id AND r.id > a.seen) l ON true
 ORDER BY c.source_id;

-- name: bands_after
-- The next bands of each originator that hold positions above its cursor.
SELECT a.source_id, b.lo, b.hi
  FROM unnest(%(sources)b::int[], %(afters)b::bigint[]) AS a(source_id, after)
 CROSS JOIN LATERAL (
   SELECT b.lo, b.hi FROM envelope_band b
    WHERE b.source_id = a.source_id AND b.hi > a.after + 1 AND b.state NOT IN ('retiring', 'dropped')
    ORDER BY b.lo LIMIT %(limit)s) b
 ORDER BY a.source_id, b.lo;

-- name: read_window
-- Literals, and bounds inside the band (>= first, not > first - 1), so that the planner sees one band of each table; the payload is fetched for the final page only.
WITH page AS MATERIALIZED (
  SELECT m.position, m.kind, m.ref, m.contract, m.block_hash, m.tx_hash, m.recorded_at, m.expires_at
    FROM envelope_meta m
   WHERE m.source_id = %(source)s AND m.position >= %(first)s AND m.position <= %(upto)s {topics}
     AND (m.expires_at IS NULL OR m.expires_at > clock_timestamp())
   ORDER BY m.position LIMIT %(limit)s)
SELECT p.*, b.payload
  FROM page p
  LEFT JOIN envelope_blob b ON b.source_id = %(source)s AND b.position = p.position AND b.position >= %(first)s AND b.position <= %(upto)s
 ORDER BY p.position;

-- name: parked_positions
-- Parked envelopes of a consumer that nobody has resolved; all, or those given.
SELECT d.position FROM dead_envelope d
 WHERE d.consumer = %(consumer)s AND d.source_id = %(source)s AND d.resolved_at IS NULL
   AND (cardinality(%(positions)b::bigint[]) = 0 OR d.position = ANY(%(positions)b::bigint[]))
 ORDER BY d.position;

-- name: resolve_parked
UPDATE dead_envelope d SET resolved_at = clock_timestamp()
 WHERE d.consumer = %(consumer)s AND d.source_id = %(source)s AND d.position = ANY(%(positions)b::bigint[]) AND d.resolved_at IS NULL;

-- name: current_key
SELECT k.version, k.secret FROM cursor_key k WHERE k.retired_at IS NULL ORDER BY k.version DESC LIMIT 1;

-- name: key_of
SELECT k.version, k.secret FROM cursor_key k WHERE k.version = %(version)s AND k.retired_at IS NULL;

-- name: add_key
-- Two processes may start at once: the first one makes the version, the other one reads it.
INSERT INTO cursor_key (version, secret, created_at)
SELECT coalesce(max(k.version), 0) + 1, %(secret)b::bytea, clock_timestamp() FROM cursor_key k
HAVING coalesce(max(k.version), 0) < %(most)s::int AND (%(force)s OR count(*) FILTER (WHERE k.retired_at IS NULL) = 0)
ON CONFLICT (version) DO NOTHING RETURNING version;

-- name: retire_key
UPDATE cursor_key SET retired_at = clock_timestamp() WHERE version = %(version)s AND retired_at IS NULL;
