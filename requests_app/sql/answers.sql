-- Facts read from the chain, whole pages at a time (design 5.2.14; reference/engine_spike.md 6).
--
-- Order inside one transaction: absorb (locks the reference rows), then record_receipts, complete_*, record_consensus.
-- Each is a statement of its own, because a guard in the statement that waited for a lock is judged on the snapshot from
-- before the wait (T1). Requests are found by gateway_ref.request_id, never by their own gw_reference_id (T2).

-- name: absorb
-- Store shares, count them, bind references to the requests whose attempts carried them. One counter row a reference,
-- upserted in key order: its lock orders everybody who learns something about that reference. The first threshold stays.
-- Of a payment (kind 4) only the attempt and its slot are touched: its ref names the intent already.
WITH request AS MATERIALIZED (
  SELECT * FROM unnest(%(request_refs)b::bytea[], %(request_kinds)b::smallint[], %(request_txs)b::bytea[],
    %(request_blocks)b::bigint[], %(request_block_hashes)b::bytea[]) AS t(ref, kind, tx_hash, block, block_hash)),
 own AS MATERIALIZED (
  SELECT q.ref, q.kind, q.tx_hash, q.block, q.block_hash, a.id AS attempt_id, a.signer_id, a.nonce, s.subject_id
    FROM request q JOIN tx_attempt a ON a.tx_hash = q.tx_hash
    JOIN nonce_slot s ON s.signer_id = a.signer_id AND s.nonce = a.nonce AND s.kind = q.kind),
 mined AS (
  UPDATE tx_attempt t SET state = 'mined', block_number = own.block, block_hash = own.block_hash, receipt_status = 1
    FROM own WHERE t.id = own.attempt_id
     AND CASE WHEN t.state = 'final' OR (t.state = 'mined' AND t.block_hash = own.block_hash) THEN false ELSE true END),
 beaten AS (
  UPDATE tx_attempt t SET state = 'replaced'
    FROM own WHERE t.signer_id = own.signer_id AND t.nonce = own.nonce AND t.id <> own.attempt_id
     AND CASE WHEN t.state IN ('prepared', 'unknown', 'accepted', 'refused') THEN true ELSE false END),
 slot AS (
  UPDATE nonce_slot n SET state = 'mined', winner_hash = own.tx_hash, closed_at = clock_timestamp()
    FROM own WHERE n.signer_id = own.signer_id AND n.nonce = own.nonce
     AND CASE WHEN n.state IN ('signed', 'live') THEN true
              WHEN n.state = 'dead' THEN NOT EXISTS (SELECT 1 FROM nonce_slot o WHERE o.kind = n.kind
                                                      AND o.subject_id = n.subject_id AND o.state <> 'dead')
              ELSE false END),
 share AS MATERIALIZED (
  SELECT * FROM unnest(%(share_refs)b::bytea[], %(share_indexes)b::int[], %(shares)b::bytea[], %(signatures)b::bytea[],
    %(extras)b::bytea[], %(share_txs)b::bytea[], %(share_positions)b::bigint[], %(thresholds)b::int[])
    AS t(ref, share_index, share, signature, extra, tx_hash, position, threshold)),
 stored AS (
  INSERT INTO user_decrypt_share (gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash, position)
  SELECT ref, share_index, share, signature, extra, tx_hash, position FROM share ORDER BY ref, share_index
  ON CONFLICT (gw_reference_id, share_index) DO NOTHING RETURNING gw_reference_id),
 touched AS (
  SELECT ref, sum(n)::int AS n, max(threshold) AS threshold, max(kind) AS kind, max(request_id) AS request_id
    FROM (SELECT gw_reference_id AS ref, 1 AS n, NULL::int AS threshold, 1::smallint AS kind, NULL::bigint AS request_id FROM stored
          UNION ALL SELECT ref, 0, threshold, 1::smallint, NULL FROM share
          UNION ALL SELECT ref, 0, NULL, kind, NULL
                      FROM unnest(%(other_refs)b::bytea[], %(other_kinds)b::smallint[]) AS t(ref, kind)
          UNION ALL SELECT ref, 0, NULL, kind, subject_id FROM own WHERE kind <> 4) AS everything
   GROUP BY ref),
 counter AS (
  INSERT INTO gateway_ref AS g (gw_reference_id, n, threshold, kind, request_id, first_at)
  SELECT ref, n, threshold, kind, request_id, clock_timestamp() FROM touched ORDER BY ref
  ON CONFLICT (gw_reference_id) DO UPDATE
     SET n = g.n + excluded.n, threshold = coalesce(g.threshold, excluded.threshold),
         kind = coalesce(g.kind, excluded.kind), request_id = coalesce(g.request_id, excluded.request_id)
  RETURNING gw_reference_id, n, threshold, kind, request_id)
SELECT c.gw_reference_id AS ref, c.kind, c.request_id, c.n, c.threshold, own.tx_hash, own.block
  FROM counter c LEFT JOIN own ON own.ref = c.gw_reference_id AND own.subject_id = c.request_id
 ORDER BY c.gw_reference_id;

-- name: record_receipts
-- tx_in_flight, needs_review -> receipt_received. Closes the open review of a row that the chain has decided.
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)b::bigint[], %(refs)b::bytea[], %(txs)b::bytea[], %(blocks)b::bigint[]) AS t(id, ref, tx_hash, block)),
 old AS MATERIALIZED (
  SELECT r.id, r.status, r.state_entered_at FROM {table} r JOIN asked ON asked.id = r.id ORDER BY r.id FOR UPDATE OF r),
 changed AS (
  UPDATE {table} r
     SET status = %(target)s, gw_reference_id = coalesce(asked.ref, r.gw_reference_id),
         gw_req_tx_hash = coalesce(asked.tx_hash, r.gw_req_tx_hash), receipt_block = coalesce(asked.block, r.receipt_block),
         state_entered_at = clock_timestamp(), updated_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s)
    FROM old JOIN asked ON asked.id = old.id
   WHERE r.id = old.id AND CASE WHEN old.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, old.status AS was, r.updated_at - old.state_entered_at AS spent, asked.tx_hash),
 logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, tx_hash)
  SELECT %(kind)s, id, %(verb)s, was, %(target)s, %(actor)s, tx_hash FROM changed ORDER BY id),
 closed AS (
  UPDATE review_case c SET status = 'closed', closed_at = clock_timestamp(), outcome = %(verb)s
    FROM changed WHERE c.kind = %(kind)s AND c.subject_id = changed.id AND changed.was = 'needs_review' AND c.status = 'open'
  RETURNING c.id),
 void AS (
  UPDATE review_decision d SET state = 'withdrawn', withdrawn_at = clock_timestamp(), withdrawn_reason = 'the case was closed: ' || %(verb)s::text
    FROM closed WHERE d.case_id = closed.id AND d.state = 'awaiting_second')
SELECT id, was, extract(epoch FROM spent)::float8 AS spent_seconds FROM changed;

-- name: complete_user
-- receipt_received -> completed for the references that hold enough shares. `>=`: thresholds may differ between shares.
-- Rows that are final already stay as they are: a late share is stored and counted and changes nothing else. Rows in review come
-- back with moved = false: the caller takes them up and asks again.
WITH due AS MATERIALIZED (
  SELECT g.gw_reference_id AS ref, g.request_id, g.threshold FROM gateway_ref g
   WHERE g.gw_reference_id = ANY(%(refs)b::bytea[]) AND g.request_id IS NOT NULL AND g.n >= g.threshold),
 old AS MATERIALIZED (
  SELECT r.id, r.status, r.state_entered_at, r.gw_reference_id, due.ref, due.threshold
    FROM user_decrypt_req r JOIN due ON due.request_id = r.id ORDER BY r.id FOR UPDATE OF r),
 changed AS (
  UPDATE user_decrypt_req r
     SET status = %(target)s, resolved_threshold = old.threshold, completed_at = clock_timestamp(), deadline_at = NULL,
         state_entered_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM old WHERE r.id = old.id AND old.ref = old.gw_reference_id
     AND CASE WHEN old.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, old.status AS was, r.updated_at - old.state_entered_at AS spent),
 logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor)
  SELECT %(kind)s, id, %(verb)s, was, %(target)s, %(actor)s FROM changed ORDER BY id)
SELECT id, was, extract(epoch FROM spent)::float8 AS spent_seconds, true AS moved FROM changed
UNION ALL SELECT id, status, 0, false FROM old WHERE status = 'needs_review' AND ref = gw_reference_id;

-- name: complete_public
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(refs)b::bytea[], %(results)b::text[], %(txs)b::bytea[]) AS t(ref, result, tx_hash)),
 old AS MATERIALIZED (
  SELECT r.id, r.status, r.state_entered_at, r.gw_reference_id, a.ref, a.result, a.tx_hash
    FROM a JOIN gateway_ref g ON g.gw_reference_id = a.ref AND g.kind = %(kind)s
    JOIN public_decrypt_req r ON r.id = g.request_id ORDER BY r.id FOR UPDATE OF r),
 changed AS (
  UPDATE public_decrypt_req r
     SET status = %(target)s, res = old.result::jsonb, gw_response_tx_hash = old.tx_hash, completed_at = clock_timestamp(),
         deadline_at = NULL, state_entered_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM old WHERE r.id = old.id AND old.ref = old.gw_reference_id
     AND CASE WHEN old.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, old.status AS was, r.updated_at - old.state_entered_at AS spent, old.tx_hash),
 logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, tx_hash)
  SELECT %(kind)s, id, %(verb)s, was, %(target)s, %(actor)s, tx_hash FROM changed ORDER BY id)
SELECT id, was, extract(epoch FROM spent)::float8 AS spent_seconds, true AS moved FROM changed
UNION ALL SELECT id, status, 0, false FROM old WHERE status = 'needs_review' AND ref = gw_reference_id;

-- name: complete_proof
-- A rejection is an answer: completed with accepted = false, no result, and the reason.
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(refs)b::bytea[], %(results)b::text[], %(txs)b::bytea[], %(details)b::text[]) AS t(ref, result, tx_hash, detail)),
 old AS MATERIALIZED (
  SELECT r.id, r.status, r.state_entered_at, r.gw_reference_id, a.ref, a.result, a.tx_hash, a.detail
    FROM a JOIN gateway_ref g ON g.gw_reference_id = a.ref AND g.kind = %(kind)s
    JOIN input_proof_req r ON r.id = g.request_id ORDER BY r.id FOR UPDATE OF r),
 changed AS (
  UPDATE input_proof_req r
     SET status = %(target)s, accepted = old.result IS NOT NULL, res = old.result::jsonb, fail_detail = old.detail,
         gw_response_tx_hash = old.tx_hash, completed_at = clock_timestamp(), deadline_at = NULL,
         state_entered_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM old WHERE r.id = old.id AND old.ref = old.gw_reference_id
     AND CASE WHEN old.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, old.status AS was, r.updated_at - old.state_entered_at AS spent, old.tx_hash, old.detail),
 logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, reason, tx_hash)
  SELECT %(kind)s, id, %(verb)s, was, %(target)s, %(actor)s, detail, tx_hash FROM changed ORDER BY id)
SELECT id, was, extract(epoch FROM spent)::float8 AS spent_seconds, true AS moved FROM changed
UNION ALL SELECT id, status, 0, false FROM old WHERE status = 'needs_review' AND ref = gw_reference_id;

-- name: record_consensus
-- Once, from NULL, also on a completed row; no time of the row moves (design 5.2.6).
WITH old AS MATERIALIZED (
  SELECT r.id, r.status, a.tx_hash
    FROM unnest(%(refs)b::bytea[], %(txs)b::bytea[]) AS a(ref, tx_hash)
    JOIN gateway_ref g ON g.gw_reference_id = a.ref AND g.kind = %(kind)s
    JOIN user_decrypt_req r ON r.id = g.request_id ORDER BY r.id FOR UPDATE OF r)
UPDATE user_decrypt_req r SET gw_consensus_tx_hash = old.tx_hash
  FROM old WHERE r.id = old.id AND r.gw_consensus_tx_hash IS NULL
   AND CASE WHEN old.status IN ('receipt_received', 'completed') THEN true ELSE false END;

-- name: unresolved_thresholds
-- References of ours with shares but no threshold, whose request still waits (index gateway_ref_unresolved), each with the
-- extra data of one share: one that names a context, or none (versions 0, 1 and 2), before one of a shape that nobody knows.
SELECT g.gw_reference_id AS ref, s.extra_data
  FROM gateway_ref g
  JOIN user_decrypt_req r ON r.id = g.request_id
   AND CASE WHEN r.status IN ('tx_in_flight', 'receipt_received', 'needs_review') THEN true ELSE false END
 CROSS JOIN LATERAL (
    SELECT x.extra_data FROM user_decrypt_share x WHERE x.gw_reference_id = g.gw_reference_id
     ORDER BY CASE WHEN length(x.extra_data) = 0 THEN 0 WHEN get_byte(x.extra_data, 0) = 0 THEN 0
                   WHEN get_byte(x.extra_data, 0) <= 2 AND length(x.extra_data) >= 33 THEN 0 ELSE 1 END, x.share_index LIMIT 1) s
 WHERE g.request_id IS NOT NULL AND g.threshold IS NULL AND g.n > 0 AND g.kind = 1
 ORDER BY g.first_at LIMIT %(limit)s;

-- name: set_thresholds
WITH a AS MATERIALIZED (
  SELECT * FROM unnest(%(refs)b::bytea[], %(thresholds)b::int[]) AS t(ref, threshold)),
 held AS MATERIALIZED (
  SELECT g.gw_reference_id FROM gateway_ref g JOIN a ON a.ref = g.gw_reference_id ORDER BY g.gw_reference_id FOR UPDATE OF g)
UPDATE gateway_ref g SET threshold = a.threshold
  FROM a JOIN held ON held.gw_reference_id = a.ref
 WHERE g.gw_reference_id = a.ref AND g.threshold IS NULL;
