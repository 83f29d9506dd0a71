-- What the API asks about payments beyond single intents.

-- name: settle_depth
-- Counted up to the limit only: a longer queue changes no answer.
SELECT count(*)::int AS n FROM (SELECT 1 FROM queue_job WHERE queue = 'settle' LIMIT %(limit)s::bigint) q;

-- name: active_payments
-- Long-poll: which of these have not ended, one statement for all waiters of a process.
SELECT id FROM payment_intent WHERE id = ANY(%(ids)b::bigint[]) AND state <> ALL(%(final)b::text[]);

-- name: newest
-- Where a page of a list looks, a part of it: at `scan` intents of the account at most, whatever its filters find.
SELECT id, ref, state, payer, merchant, created_at FROM payment_intent
 WHERE account_id = %(account)s AND id < %(before)s ORDER BY id DESC LIMIT %(scan)s::bigint;

-- name: of_ref
-- In its place, when one ref is asked for: there is one intent at most, however old.
SELECT id, ref, state, payer, merchant, created_at FROM payment_intent
 WHERE account_id = %(account)s AND id < %(before)s AND ref = %(ref)b;

-- name: page_payments
-- Newest first, by keyset.
SELECT r.id
  FROM ({looked_at}) r
 WHERE (cardinality(%(states)b::text[]) = 0 OR r.state = ANY(%(states)b::text[]))
   AND (cardinality(%(payers)b::text[]) = 0 OR r.payer = ANY(%(payers)b::text[]))
   AND (cardinality(%(merchants)b::text[]) = 0 OR r.merchant = ANY(%(merchants)b::text[]))
   AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s::timestamptz)
   AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s::timestamptz)
 ORDER BY r.id DESC LIMIT %(limit)s::bigint;

-- name: scan_end
-- The last intent that such a page looks at; none when it looks at all that are left.
SELECT id FROM payment_intent WHERE account_id = %(account)s AND id < %(before)s
 ORDER BY id DESC OFFSET %(scan)s::bigint - 1 LIMIT 1;
