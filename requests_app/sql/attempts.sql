-- Nonce slots and signed attempts (design 2.3; reference queue_settle 4). Guards on transient statuses are CASE expressions
-- (trap T4). Facts from the node are not fenced: their guards make them idempotent.

-- name: record_sends
-- What the node said to each broadcast, and what becomes of the jobs: one statement, autocommit. An attempt that was once
-- accepted stays so, and one that may have been sent is never unsent again: a later answer says nothing about bytes that a
-- node has already taken. Rows are locked in nonce
-- order, because the listener may record the same attempts as mined at this moment.
WITH r AS MATERIALIZED (
  SELECT * FROM unnest(%(nonce)b::bigint[], %(seq)b::smallint[], %(state)b::text[], %(live)b::bool[],
                       %(error_class)s::text[], %(error_text)s::text[])
           AS t(nonce, seq, state, live, error_class, error_text)),
held AS MATERIALIZED (
  SELECT t.id, t.state AS was, r.* FROM tx_attempt t JOIN r ON r.nonce = t.nonce AND r.seq = t.seq
   WHERE t.signer_id = %(signer)s ORDER BY t.nonce, t.seq FOR UPDATE OF t),
t AS (
  UPDATE tx_attempt AS t
     SET state = CASE WHEN h.was = 'accepted' OR (h.was = 'unknown' AND h.state = 'prepared') THEN h.was ELSE h.state END,
         error_class = h.error_class, error_text = h.error_text,
         first_sent_at = coalesce(t.first_sent_at, clock_timestamp()), last_sent_at = clock_timestamp(),
         send_count = t.send_count + 1
    FROM held h
   WHERE t.id = h.id AND CASE WHEN h.was IN ('prepared', 'unknown', 'accepted') THEN true ELSE false END
  RETURNING t.nonce),
sl AS (
  UPDATE nonce_slot AS s SET state = 'live'
    FROM r
   WHERE r.live AND s.signer_id = %(signer)s AND s.nonce = r.nonce
     AND CASE WHEN s.state = 'signed' THEN true ELSE false END),
j AS (
  DELETE FROM queue_job AS j
   USING unnest(%(job)s::bigint[], %(attempt)s::int[]) AS a(job, attempt)
   WHERE j.id = a.job AND j.attempt = a.attempt RETURNING j.id)
SELECT (SELECT count(*) FROM t) AS attempts, (SELECT count(*) FROM j) AS jobs;

-- name: attempts_to_broadcast
-- The newest open attempt of each nonce the chain has not consumed, in nonce order, when its turn has come: never sent or
-- answered unclearly after a growing pause (1 s to 16 s), accepted without a trace after 10 s. everything: at take-over.
SELECT nonce, seq, tx_hash, raw_tx, state, siblings, kind, subject_id, purpose
  FROM (SELECT DISTINCT ON (t.nonce) t.nonce, t.seq, t.tx_hash, t.raw_tx, t.state, t.kind AS purpose, s.kind, s.subject_id,
               coalesce(t.last_sent_at, t.prepared_at)
                 + CASE WHEN t.state = 'accepted' THEN make_interval(secs => %(accepted_after)s::float8)
                        ELSE make_interval(secs => least(16, %(unsure_after)s::float8 * power(2, greatest(t.send_count - 1, 0))))
                   END AS due_at,
               EXISTS (SELECT 1 FROM tx_attempt o
                        WHERE o.signer_id = t.signer_id AND o.nonce = t.nonce AND o.seq <> t.seq) AS siblings
          FROM tx_attempt t JOIN nonce_slot s ON s.signer_id = t.signer_id AND s.nonce = t.nonce
         WHERE t.signer_id = %(signer)s AND t.state IN ('prepared', 'unknown', 'accepted')
           AND t.nonce >= %(from_nonce)s
         ORDER BY t.nonce, t.seq DESC) AS newest
 WHERE %(everything)s OR due_at <= clock_timestamp()
 ORDER BY nonce
 LIMIT %(limit)s::bigint;

-- name: open_attempts
-- Attempts of which the listener has read nothing yet, oldest nonce first (index tx_attempt_open).
SELECT t.nonce, t.seq, t.tx_hash, t.state, t.gas_limit, t.receipt_status, s.kind, s.subject_id, t.kind AS purpose,
       extract(epoch FROM clock_timestamp() - coalesce(t.first_sent_at, t.prepared_at))::float8 AS age_seconds
  FROM tx_attempt t JOIN nonce_slot s ON s.signer_id = t.signer_id AND s.nonce = t.nonce
 WHERE t.signer_id = %(signer)s AND t.state IN ('prepared', 'unknown', 'accepted')
 ORDER BY t.nonce, t.seq
 LIMIT %(limit)s::bigint;

-- name: record_lookups
-- Receipts as found. settled: the slot is decided by this attempt. Without it only the block is noted, or taken back when
-- a receipt vanished with its block, and the attempt stays open.
WITH r AS MATERIALIZED (
  SELECT * FROM unnest(%(nonce)b::bigint[], %(seq)b::smallint[], %(status)s::smallint[], %(block)s::bigint[],
                       %(block_hash)s::bytea[], %(settled)b::bool[])
           AS t(nonce, seq, status, block, block_hash, settled)),
held AS MATERIALIZED (
  SELECT t.id, t.state AS was, t.tx_hash, r.* FROM tx_attempt t JOIN r ON r.nonce = t.nonce AND r.seq = t.seq
   WHERE t.signer_id = %(signer)s ORDER BY t.nonce, t.seq FOR UPDATE OF t),
t AS (
  UPDATE tx_attempt AS t
     SET block_number = h.block, block_hash = h.block_hash, receipt_status = h.status,
         state = CASE WHEN h.settled THEN 'mined' ELSE t.state END
    FROM held h
   WHERE t.id = h.id AND CASE WHEN h.was IN ('prepared', 'unknown', 'accepted') THEN true ELSE false END
     AND (h.settled OR (t.block_hash, t.receipt_status) IS DISTINCT FROM (h.block_hash, h.status))
  RETURNING t.id, t.nonce, h.settled, t.tx_hash),
o AS (
  UPDATE tx_attempt AS o SET state = 'replaced'
    FROM t WHERE t.settled AND o.signer_id = %(signer)s AND o.nonce = t.nonce AND o.id <> t.id
     AND CASE WHEN o.state IN ('prepared', 'unknown', 'accepted', 'refused') THEN true ELSE false END),
sl AS (
  UPDATE nonce_slot AS s SET state = 'mined', winner_hash = t.tx_hash, closed_at = clock_timestamp()
    FROM t WHERE t.settled AND s.signer_id = %(signer)s AND s.nonce = t.nonce
     AND CASE WHEN s.state IN ('signed', 'live') THEN true ELSE false END)
SELECT count(*) AS attempts FROM t;

-- name: request_bodies
-- What was asked, for the few whose revert is read again.
SELECT b.kind, b.request_id, b.body, u.req_type
  FROM unnest(%(kind)b::smallint[], %(subject)b::bigint[]) AS a(kind, id)
  JOIN request_payload b ON b.kind = a.kind AND b.request_id = a.id
  LEFT JOIN user_decrypt_req u ON a.kind = 1 AND u.id = a.id;

-- name: finalize_slots
-- Mined slots that the chain can no longer take back. A nonce that was spent on nothing is dead: its subject has no transaction. Who asked
-- for that is answered, whichever of several no-ops was mined: the ladder's, or the one that the command made.
WITH s AS (
  UPDATE nonce_slot AS s SET state = CASE WHEN w.kind IN ('cancel', 'fill') THEN 'dead' ELSE 'final' END
    FROM unnest(%(nonces)b::bigint[]) AS a(nonce) JOIN tx_attempt w ON w.signer_id = %(signer)s AND w.nonce = a.nonce
   WHERE s.signer_id = %(signer)s AND s.nonce = a.nonce AND w.tx_hash = s.winner_hash
     AND CASE WHEN s.state = 'mined' THEN true ELSE false END
  RETURNING s.nonce, s.winner_hash, s.state, s.kind, s.subject_id),
t AS (
  UPDATE tx_attempt AS t SET state = 'final'
    FROM s WHERE t.signer_id = %(signer)s AND t.nonce = s.nonce AND t.tx_hash = s.winner_hash
     AND CASE WHEN t.state = 'mined' THEN true ELSE false END
  RETURNING t.nonce, t.command_id)
SELECT s.nonce, s.state, s.kind, s.subject_id,
       coalesce(t.command_id, (SELECT c.command_id FROM tx_attempt c
                                WHERE c.signer_id = %(signer)s AND c.nonce = s.nonce AND c.kind = 'cancel' AND c.command_id IS NOT NULL
                                ORDER BY c.seq DESC LIMIT 1)) AS command_id
  FROM s LEFT JOIN t ON t.nonce = s.nonce ORDER BY s.nonce;

-- name: attempts_to_replace
-- The newest open attempt of a nonce where more gas money may help: refused as underpriced, or the lowest unmined one and
-- long out; an older one that was is answered by the newer. With it the highest fees ever offered at that nonce, because the next offer
-- must beat all of them.
SELECT t.nonce, t.raw_tx, t.error_class, t.max_fee_per_gas, t.max_priority_fee, s.kind, s.subject_id, t.purpose,
       t.seq AS offer_seq, t.waiting_from_block,
       m.seq AS highest_seq, m.max_fee AS highest_max_fee, m.priority AS highest_priority
  FROM (SELECT DISTINCT ON (o.nonce) o.signer_id, o.nonce, o.raw_tx, o.error_class, o.max_fee_per_gas, o.max_priority_fee,
               o.kind AS purpose, o.first_sent_at, o.seq, o.waiting_from_block
          FROM tx_attempt o
         WHERE o.signer_id = %(signer)s AND o.state IN ('prepared', 'unknown', 'accepted') AND o.nonce >= %(from_nonce)s
         ORDER BY o.nonce, o.seq DESC) t
  JOIN nonce_slot s ON s.signer_id = t.signer_id AND s.nonce = t.nonce
 CROSS JOIN LATERAL (
   SELECT max(o.seq) AS seq, max(o.max_fee_per_gas) AS max_fee, max(o.max_priority_fee) AS priority
     FROM tx_attempt o WHERE o.signer_id = t.signer_id AND o.nonce = t.nonce) m
 WHERE t.error_class = 'underpriced'
    OR (t.nonce = %(from_nonce)s
        AND t.first_sent_at < clock_timestamp() - make_interval(secs => %(stuck_after)s::float8))
 ORDER BY t.nonce
 LIMIT %(limit)s::bigint;

-- name: note_waiting
-- When the lowest nonce is first found to be out for long, under the signer's lease: blocks are counted from here.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
UPDATE tx_attempt SET waiting_from_block = %(head)s::bigint
  FROM f
 WHERE signer_id = %(signer)s AND nonce = %(nonce)s AND seq = %(seq)s AND waiting_from_block IS NULL;

-- name: store_replacements
-- Further attempts at nonces whose slot is still open, under the signer's lease: bytes before wire (R2), same slot (R1).
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
a AS MATERIALIZED (
  SELECT * FROM unnest(%(nonce)b::bigint[], %(seq)b::smallint[], %(hash)b::bytea[], %(raw)b::bytea[],
                       %(max_fee)s::numeric[], %(max_priority)s::numeric[], %(gas)b::bigint[], %(purpose)s::text[],
                       %(command)s::text[])
           AS t(nonce, seq, hash, raw, max_fee, max_priority, gas, purpose, command)),
s AS MATERIALIZED (
  SELECT n.nonce FROM a JOIN nonce_slot n ON n.nonce = a.nonce CROSS JOIN f
   WHERE n.signer_id = %(signer)s AND CASE WHEN n.state IN ('signed', 'live') THEN true ELSE false END
   ORDER BY n.nonce FOR UPDATE OF n)
INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch, kind, command_id)
SELECT %(signer)s, a.nonce, a.seq, a.hash, a.raw, a.max_fee, a.max_priority, a.gas, 'prepared', %(epoch)s, a.purpose, a.command
  FROM a JOIN s ON s.nonce = a.nonce
    ON CONFLICT DO NOTHING
RETURNING nonce;

-- name: attempts_to_fill
-- Open nonces whose every attempt the node refuses for good: nothing after them can be mined until something takes the nonce.
SELECT DISTINCT ON (t.nonce) t.nonce, t.seq, t.max_fee_per_gas AS max_fee, t.max_priority_fee AS max_priority, s.kind, s.subject_id,
       (SELECT count(*) FROM tx_attempt f WHERE f.signer_id = t.signer_id AND f.nonce = t.nonce AND f.kind = 'fill') AS fills
  FROM nonce_slot s JOIN tx_attempt t ON t.signer_id = s.signer_id AND t.nonce = s.nonce
 WHERE s.signer_id = %(signer)s AND s.state IN ('signed', 'live')
   AND NOT EXISTS (SELECT 1 FROM tx_attempt o WHERE o.signer_id = s.signer_id AND o.nonce = s.nonce
                      AND o.state IN ('prepared', 'unknown', 'accepted'))
 ORDER BY t.nonce, t.seq DESC
 LIMIT %(limit)s::bigint;

-- name: uncased_slots
SELECT n.nonce, n.kind, n.subject_id FROM nonce_slot n
 WHERE n.signer_id = %(signer)s AND n.nonce >= %(from_nonce)s AND n.state IN ('signed', 'live')
   AND NOT EXISTS (SELECT 1 FROM review_case c WHERE c.kind = n.kind AND c.subject_id = n.subject_id AND c.status = 'open')
 ORDER BY n.nonce LIMIT %(limit)s::bigint;

-- name: mined_from
-- Slots whose winner was seen mined so long ago although the chain's count has not passed them.
SELECT n.nonce, n.winner_hash FROM nonce_slot n
 WHERE n.signer_id = %(signer)s AND n.nonce >= %(count)s::bigint AND CASE WHEN n.state = 'mined' THEN true ELSE false END
   AND n.closed_at < clock_timestamp() - make_interval(secs => %(patience)s::float8)
 ORDER BY n.nonce LIMIT %(limit)s::bigint;

-- name: unreachable_nonce
-- A mined slot at the count is a node that lags behind the log, which passes, or a block that gave way: it is opened again.
SELECT l.nonce
  FROM (SELECT n.nonce FROM nonce_slot n WHERE n.signer_id = %(signer)s AND n.state IN ('signed', 'live')
         ORDER BY n.nonce LIMIT 1) l
 WHERE l.nonce > %(count)s
   AND NOT EXISTS (SELECT 1 FROM nonce_slot o WHERE o.signer_id = %(signer)s AND o.nonce = %(count)s AND o.state = 'mined')
   AND EXISTS (SELECT 1 FROM tx_attempt t WHERE t.signer_id = %(signer)s AND t.nonce = l.nonce
                  AND t.first_sent_at < clock_timestamp() - make_interval(secs => %(patience)s::float8));

-- name: slots_to_finalize
-- Mined slots below the finalized account nonce, with where their winner was seen. They become final in any order: one whose receipt or
-- block was not told in time follows those above it. `stragglers`: so far below the highest final one, that all of history is not read.
WITH m AS MATERIALIZED (
  SELECT n.signer_id, n.nonce, n.winner_hash FROM nonce_slot n
   WHERE n.signer_id = %(signer)s AND n.nonce < %(finalized)s
     AND n.nonce > coalesce((SELECT f.nonce FROM nonce_slot f WHERE f.signer_id = %(signer)s AND f.state = 'final'
                              ORDER BY f.nonce DESC LIMIT 1), -1) - %(stragglers)s::bigint
     AND CASE WHEN n.state = 'mined' THEN true ELSE false END
   ORDER BY n.nonce LIMIT %(limit)s::bigint)
SELECT m.nonce, t.seq, t.block_number, t.block_hash
  FROM m JOIN tx_attempt t ON t.signer_id = m.signer_id AND t.nonce = m.nonce AND t.tx_hash = m.winner_hash
 ORDER BY m.nonce;

-- name: reopen_slots
-- The block that a winner was seen in is not the chain's: look again, from the start, for every attempt: another may be mined instead.
WITH t AS (
  UPDATE tx_attempt t SET state = 'accepted', block_number = NULL, block_hash = NULL, receipt_status = NULL
    FROM unnest(%(nonces)b::bigint[]) AS a(nonce)
   WHERE t.signer_id = %(signer)s AND t.nonce = a.nonce AND CASE WHEN t.state = 'mined' THEN true ELSE false END
  RETURNING t.nonce),
rivals AS (
  UPDATE tx_attempt o SET state = 'unknown', last_sent_at = NULL
    FROM t WHERE o.signer_id = %(signer)s AND o.nonce = t.nonce AND CASE WHEN o.state = 'replaced' THEN true ELSE false END)
UPDATE nonce_slot n SET state = 'live', winner_hash = NULL, closed_at = NULL
  FROM t WHERE n.signer_id = %(signer)s AND n.nonce = t.nonce AND CASE WHEN n.state = 'mined' THEN true ELSE false END;

-- name: bury_slots
-- Proven dead (rule R5): the finalized chain has consumed the nonce and knows none of our attempts. A decision: fenced.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE),
s AS (
  UPDATE nonce_slot n SET state = 'dead', closed_at = clock_timestamp()
    FROM f CROSS JOIN unnest(%(nonces)b::bigint[]) AS a(nonce)
   WHERE n.signer_id = %(signer)s AND n.nonce = a.nonce AND CASE WHEN n.state IN ('signed', 'live') THEN true ELSE false END
  RETURNING n.nonce),
t AS (
  UPDATE tx_attempt t SET state = 'dropped'
    FROM s WHERE t.signer_id = %(signer)s AND t.nonce = s.nonce
     AND CASE WHEN t.state IN ('prepared', 'unknown', 'accepted', 'refused') THEN true ELSE false END)
SELECT nonce FROM s;

-- name: signed_at
-- Every attempt of these open slots, also those that nobody asks for any more because a node refused them, or another was seen mined.
SELECT t.nonce, t.seq, t.tx_hash FROM tx_attempt t JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce
 WHERE t.signer_id = %(signer)s AND t.nonce = ANY(%(nonces)b::bigint[])
   AND CASE WHEN n.state IN ('signed', 'live') THEN true ELSE false END
 ORDER BY t.nonce, t.seq;

-- name: take_up_again
-- A node knows their receipts after all: they are looked for as all others are. Fact: not fenced.
UPDATE tx_attempt t SET state = 'unknown'
  FROM unnest(%(nonces)b::bigint[], %(seqs)b::smallint[]) AS a(nonce, seq)
 WHERE t.signer_id = %(signer)s AND t.nonce = a.nonce AND t.seq = a.seq
   AND CASE WHEN t.state IN ('refused', 'replaced') THEN true ELSE false END;

-- name: missing_slots
-- Notes about open slots; their ages count from the moment of the note.
SELECT nonce, missing, extract(epoch FROM clock_timestamp())::float8 - (missing ->> 'at')::float8 AS elapsed
  FROM nonce_slot
 WHERE signer_id = %(signer)s AND nonce = ANY(%(nonces)b::bigint[]) AND CASE WHEN state IN ('signed', 'live') THEN true ELSE false END
   AND (missing ->> 'at')::float8 > extract(epoch FROM clock_timestamp())::float8 - %(forget)s::float8;

-- name: note_missing
-- Fenced: a former holder's memory must not replace the present one's.
WITH f AS MATERIALIZED (
  SELECT epoch FROM exec_lease
   WHERE resource = %(resource)s AND instance = %(instance)s AND epoch = %(epoch)s FOR SHARE)
UPDATE nonce_slot n
   SET missing = a.document || jsonb_build_object('at', extract(epoch FROM clock_timestamp())::float8)
  FROM f CROSS JOIN unnest(%(nonces)b::bigint[], %(documents)s::jsonb[]) AS a(nonce, document)
 WHERE n.signer_id = %(signer)s AND n.nonce = a.nonce AND CASE WHEN n.state IN ('signed', 'live') THEN true ELSE false END;
