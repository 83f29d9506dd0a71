-- Two different events at one position of a log (reference/envelopes.md 6.3; queue_settle 4.9).

-- name: find_clashes
-- Positions of a batch whose stored digest is another one.
SELECT a.position, m.digest AS have, m.ref, m.tx_hash, m.block_hash
  FROM unnest(%(positions)b::bigint[], %(digests)b::bytea[]) AS a(position, digest)
  JOIN envelope_meta m ON m.source_id = %(source)s AND m.position = a.position
   AND m.position BETWEEN %(first)s AND %(last)s
 WHERE m.digest <> a.digest ORDER BY a.position;

-- name: record_conflicts
-- What is found again while the source is halted already (`again`) is recorded once.
INSERT INTO envelope_conflict (source_id, position, have, have_ref, have_tx_hash, got, got_ref, got_tx_hash, payload, at)
SELECT %(source)s, t.*, clock_timestamp()
  FROM unnest(%(position)b::bigint[], %(have)b::bytea[], %(have_ref)b::bytea[], %(have_tx_hash)b::bytea[],
              %(got)b::bytea[], %(got_ref)b::bytea[], %(got_tx_hash)b::bytea[], %(payload)b::bytea[])
    AS t(position, have, have_ref, have_tx_hash, got, got_ref, got_tx_hash, payload)
 WHERE NOT (%(again)s::bool AND EXISTS (
   SELECT 1 FROM envelope_conflict c WHERE c.source_id = %(source)s AND c.position = t.position AND c.have = t.have AND c.got = t.got));

-- name: halt_source
-- The halt and its case on the desk (101: a source), in one statement. With a lease only while it is ours: who was taken over
-- compares the chain with a seal of the past.
WITH fence AS MATERIALIZED (
  SELECT 1 FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
 door AS MATERIALIZED (SELECT %(resource)s::text IS NULL OR EXISTS (SELECT 1 FROM fence) AS held),
 halted AS (
  UPDATE envelope_source SET halted = %(text)s FROM door
   WHERE source_id = %(source)s AND envelope_source.halted IS NULL AND door.held RETURNING source_id),
 opened AS (
  INSERT INTO review_case (kind, subject_id, reason_code, evidence)
  SELECT 101, source_id, %(reason)s, %(evidence)s::jsonb FROM halted
  ON CONFLICT (kind, subject_id) WHERE status = 'open' DO NOTHING)
SELECT held, EXISTS (SELECT 1 FROM halted) AS halted FROM door;

-- name: lock_unreviewed
SELECT id, source_id, position, have, got, have_tx_hash, got_tx_hash
  FROM envelope_conflict WHERE reviewed_at IS NULL ORDER BY id LIMIT %(limit)s FOR UPDATE;

-- name: named_subjects
-- By the reference that the gateway gave, by a payment's ref, and by the hash of an attempt of ours. Only of chains: what clients
-- publish has topics of their own choice, which name nobody.
WITH c AS MATERIALIZED (
  SELECT e.id, e.have_ref, e.got_ref, e.have_tx_hash, e.got_tx_hash
    FROM envelope_conflict e JOIN envelope_source s ON s.source_id = e.source_id AND s.chain_id > 0
   WHERE e.id = ANY(%(ids)b::bigint[])),
 ref AS MATERIALIZED (
  SELECT id, have_ref AS ref FROM c WHERE have_ref IS NOT NULL UNION SELECT id, got_ref FROM c WHERE got_ref IS NOT NULL),
 tx AS MATERIALIZED (
  SELECT id, have_tx_hash AS hash FROM c WHERE have_tx_hash IS NOT NULL
   UNION SELECT id, got_tx_hash FROM c WHERE got_tx_hash IS NOT NULL)
SELECT ref.id AS conflict, g.kind, g.request_id AS subject_id
  FROM ref JOIN gateway_ref g ON g.gw_reference_id = ref.ref WHERE g.request_id IS NOT NULL
 UNION SELECT ref.id, 4::smallint, p.id FROM ref JOIN payment_intent p ON p.ref = ref.ref
 UNION SELECT tx.id, n.kind, n.subject_id
  FROM tx JOIN tx_attempt t ON t.tx_hash = tx.hash
  JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
 ORDER BY 1, 2, 3;

-- name: mark_reviewed
UPDATE envelope_conflict SET reviewed_at = clock_timestamp() WHERE id = ANY(%(ids)b::bigint[]) AND reviewed_at IS NULL;
