-- The confirm duty's candidates (reference queue_settle 4.7). Used by store/confirming.py. Index payment_intent_active.

-- name: shown
-- Confirming payments whose own transaction the log shows in a block that holds, oldest first: exact or not is judged on values.
SELECT i.id FROM payment_intent i
  JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.state = 'confirming'
   AND EXISTS (SELECT 1 FROM payment_observation o
                WHERE o.ref = i.ref AND o.source_id = %(source)s AND o.tx_hash = i.tx_hash AND o.position <= %(upto)s::bigint
                  AND NOT o.canceled AND lower(i.token) = '0x' || encode(o.token, 'hex') AND lower(i.payer) = '0x' || encode(o.authorizer, 'hex'))
   AND NOT i.id = ANY(%(without)s::bigint[])
 ORDER BY i.updated_at LIMIT %(limit)s::int;

-- name: hidden
-- Confirming payments that the log does not show after a while.
SELECT i.id FROM payment_intent i
  JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.state = 'confirming' AND i.updated_at < clock_timestamp() - make_interval(secs => %(age)s::float8)
   AND NOT EXISTS (SELECT 1 FROM payment_observation o
                    WHERE o.ref = i.ref AND o.source_id = %(source)s AND o.tx_hash = i.tx_hash AND NOT o.canceled
                      AND lower(i.token) = '0x' || encode(o.token, 'hex') AND lower(i.payer) = '0x' || encode(o.authorizer, 'hex'))
 ORDER BY i.updated_at LIMIT %(limit)s::int;

-- name: misused
-- Payments whose payer's authorization the log shows used in a block that holds, by another transaction than theirs if they have one. An
-- exact use is followed at once, so that what is left is another one: no transaction of ours can succeed any more.
SELECT i.id FROM payment_intent i
  JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.state IN ('authorized', 'confirming', 'settling')
   AND EXISTS (SELECT 1 FROM payment_observation o
                WHERE o.ref = i.ref AND o.source_id = %(source)s AND o.position <= %(upto)s::bigint
                  AND (i.state <> 'confirming' OR o.tx_hash <> i.tx_hash)
                  AND NOT o.canceled AND lower(i.token) = '0x' || encode(o.token, 'hex') AND lower(i.payer) = '0x' || encode(o.authorizer, 'hex'))
 ORDER BY i.updated_at LIMIT %(limit)s::int;

-- name: stuck
-- Payments that were signed, or sent on by a person, long ago, and of whose authorization the log shows nothing.
SELECT i.id FROM payment_intent i
  JOIN envelope_source s ON s.source_id = %(source)s AND i.chain = 'evm:' || s.chain_id
 WHERE i.state IN ('confirming', 'settling') AND i.created_at < clock_timestamp() - make_interval(secs => %(age)s::float8)
   AND (SELECT max(t.at) FROM intent_transition t WHERE t.intent_id = i.id AND t.from_state IN ('authorized', 'needs_review'))
         < clock_timestamp() - make_interval(secs => %(age)s::float8)
   AND NOT EXISTS (SELECT 1 FROM payment_observation o
                    WHERE o.ref = i.ref AND o.source_id = %(source)s AND NOT o.canceled
                      AND lower(i.token) = '0x' || encode(o.token, 'hex') AND lower(i.payer) = '0x' || encode(o.authorizer, 'hex'))
 ORDER BY i.updated_at LIMIT %(limit)s::int;

-- name: any_active
-- Whether there is anything to look after at all.
SELECT EXISTS (SELECT 1 FROM payment_intent i WHERE i.state IN ('authorized', 'confirming', 'needs_review', 'settling')) AS found;
