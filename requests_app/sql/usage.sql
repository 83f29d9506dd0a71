-- Usage of the envelope log: what is counted, settled and shown (design 5.4.6). Counting itself is the SQL function count_envelopes.

-- name: lock_payer
-- First statement of a bill: accounts come first in the lock order, and two bills of one payer take turns.
SELECT a.id FROM client_account a WHERE a.id = %(payer)s FOR NO KEY UPDATE;

-- name: covered_by
-- What a reference covers already: `settled` by a payment, or claimed by a bill.
SELECT 'settled' AS place, count(*) AS rows, coalesce(sum(s.spend), 0) AS spend, coalesce(sum(s.messages), 0)::bigint AS messages
  FROM usage_settled s WHERE s.reference = %(reference)s AND s.payer = %(payer)s
UNION ALL
SELECT 'billed', count(*), coalesce(sum(b.spend), 0), coalesce(sum(b.messages), 0)::bigint
  FROM usage_billed b WHERE b.reference = %(reference)s AND b.payer = %(payer)s;

-- name: bill_usage
-- Only whole minutes: the running one still grows. What commits late into a billed minute makes a new row, for the next bill.
WITH moved AS (
  DELETE FROM usage_unsettled u
   WHERE u.payer = %(payer)s AND u.minute <= %(upto)s::bigint AND u.minute < floor(extract(epoch FROM clock_timestamp()) / 60)::bigint
  RETURNING u.payer, u.source_id, u.minute, u.spend, u.messages, u.last_position),
 kept AS (
  INSERT INTO usage_billed (reference, payer, source_id, minute, spend, messages, last_position, billed_at)
  SELECT %(reference)s, m.payer, m.source_id, m.minute, m.spend, m.messages, m.last_position, clock_timestamp()
    FROM moved m ORDER BY m.source_id, m.minute)
SELECT count(*) AS rows, coalesce(sum(m.spend), 0) AS spend, coalesce(sum(m.messages), 0)::bigint AS messages FROM moved m;

-- name: billable
-- Payers with usage of whole minutes that no bill has claimed. `upto`: the last of these minutes. All of them: those that cannot be billed
-- would otherwise keep the others out.
SELECT u.payer, max(u.minute) AS upto, sum(u.spend) AS spend, sum(u.messages)::bigint AS messages
  FROM usage_unsettled u WHERE u.minute < floor(extract(epoch FROM clock_timestamp()) / 60)::bigint
 GROUP BY u.payer HAVING sum(u.spend) >= %(least)s::numeric ORDER BY u.payer;

-- name: unsettled_page
-- GET /v1/usage: keyset over (minute, originator) of one payer (primary keys), billed usage with it: no payment covers that yet.
SELECT a.source_id, a.minute, sum(a.spend) AS spend, sum(a.messages)::bigint AS messages, max(a.last_position) AS last_position,
       NULL::text AS reference, NULL::timestamptz AS settled_at, 0::bigint AS id
  FROM (SELECT u.source_id, u.minute, u.spend, u.messages, u.last_position FROM usage_unsettled u
         WHERE u.payer = %(payer)s AND (u.minute, u.source_id) > (%(minute)s::bigint, %(source)s::int)
        UNION ALL
        SELECT b.source_id, b.minute, b.spend, b.messages, b.last_position FROM usage_billed b
         WHERE b.payer = %(payer)s AND (b.minute, b.source_id) > (%(minute)s::bigint, %(source)s::int)) a
 GROUP BY a.minute, a.source_id ORDER BY a.minute, a.source_id LIMIT %(limit)s;

-- name: settled_page
-- GET /v1/usage?state=settled: in the order of settlement (index usage_settled_payer).
SELECT s.source_id, s.minute, s.spend, s.messages, s.last_position, s.reference, s.settled_at, s.id
  FROM usage_settled s WHERE s.payer = %(payer)s AND s.id > %(after)s::bigint ORDER BY s.id LIMIT %(limit)s;

-- name: totals
SELECT ((SELECT coalesce(sum(u.spend), 0) FROM usage_unsettled u WHERE u.payer = %(payer)s)
        + (SELECT coalesce(sum(b.spend), 0) FROM usage_billed b WHERE b.payer = %(payer)s)) AS unsettled,
       (SELECT coalesce(sum(s.spend), 0) FROM usage_settled s WHERE s.payer = %(payer)s) AS settled;

-- name: purge_congestion
-- Only the last five minutes make a price; an hour is kept for people.
DELETE FROM originator_congestion c WHERE c.minute < floor(extract(epoch FROM clock_timestamp()) / 60)::bigint - 60;
