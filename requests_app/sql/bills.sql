-- Usage that payments pay for (design 5.4.6): moved in the transaction that ends the payment. Index usage_billed_reference.

-- name: settle_bills
WITH moved AS (
  DELETE FROM usage_billed b WHERE b.reference = ANY(%(references)b::text[])
  RETURNING b.reference, b.payer, b.source_id, b.minute, b.spend, b.messages, b.last_position)
INSERT INTO usage_settled (reference, payer, source_id, minute, spend, messages, last_position, settled_at)
SELECT m.reference, m.payer, m.source_id, m.minute, m.spend, m.messages, m.last_position, clock_timestamp()
  FROM moved m ORDER BY m.reference, m.minute, m.source_id;

-- name: release_bills
-- Added to what came into the same minute meanwhile; two bills that are given up at once may share a minute.
WITH moved AS (
  DELETE FROM usage_billed b WHERE b.reference = ANY(%(references)b::text[])
  RETURNING b.payer, b.source_id, b.minute, b.spend, b.messages, b.last_position)
INSERT INTO usage_unsettled AS u (payer, source_id, minute, spend, messages, last_position)
SELECT m.payer, m.source_id, m.minute, sum(m.spend), sum(m.messages), max(m.last_position)
  FROM moved m GROUP BY m.payer, m.source_id, m.minute ORDER BY m.payer, m.source_id, m.minute
    ON CONFLICT (payer, source_id, minute) DO UPDATE
   SET spend = u.spend + excluded.spend, messages = u.messages + excluded.messages,
       last_position = greatest(u.last_position, excluded.last_position);

-- name: open_bills
SELECT b.payer, b.reference, coalesce(r.state, 'missing') AS state, sum(b.spend) AS spend, count(*) AS rows
  FROM usage_billed b LEFT JOIN payment_intent r ON r.public_id = b.reference
 WHERE %(payer)s::bigint IS NULL OR b.payer = %(payer)s::bigint
 GROUP BY b.payer, b.reference, r.state, r.id ORDER BY r.id;

-- name: accounts_of
SELECT a.id, a.name, a.status = 'active' AS active FROM client_account a WHERE a.id = ANY(%(ids)b::bigint[]);
