-- The confirm duty's candidates (reference queue_settle 4.7). Used by store/confirming.py. Both read a bounded number of rows, whatever waits.

-- name: final_page
-- Confirming payments by the place of their transaction in the log, in its order (primary key of payment_observation).
SELECT o.position, i.id
  FROM (SELECT position, ref, tx_hash FROM payment_observation
         WHERE source_id = %(source)s AND position > %(after)s::bigint AND position <= %(upto)s::bigint
         ORDER BY position LIMIT %(limit)s::int) o
  JOIN envelope_source s ON s.source_id = %(source)s
  LEFT JOIN payment_intent i ON i.ref = o.ref AND i.chain = 'evm:' || s.chain_id
   AND CASE WHEN i.state = 'confirming' AND i.tx_hash = o.tx_hash THEN true ELSE false END
 ORDER BY o.position;

-- name: active_page
-- Payments that wait for the chain or for a person, page by page, those that have waited longest in each state first (index
-- payment_intent_active).
SELECT i.id, i.state, i.updated_at FROM payment_intent i
 WHERE i.state IN ('authorized', 'confirming', 'needs_review', 'settling')
   AND (i.state, i.updated_at, i.id) > (%(state)s::text, %(at)s::timestamptz, %(id)s::bigint)
 ORDER BY i.state, i.updated_at, i.id LIMIT %(limit)s::int;

-- name: signed_before
-- Those of these payments that were signed, or sent on by a person, so long ago.
SELECT t.intent_id AS id FROM intent_transition t
 WHERE t.intent_id = ANY(%(ids)b::bigint[]) AND t.from_state IN ('authorized', 'needs_review')
 GROUP BY t.intent_id HAVING max(t.at) < clock_timestamp() - make_interval(secs => %(age)s::float8);

-- name: any_active
-- Whether there is anything to look after at all.
SELECT EXISTS (SELECT 1 FROM payment_intent i WHERE i.state IN ('authorized', 'confirming', 'needs_review', 'settling')) AS found;
