-- The journal (reference queue_settle 1.4). One writer at a time: the lock is the last of a transaction and short.

-- name: lock_journal
SELECT pg_advisory_xact_lock(%(key)s::bigint);

-- name: head
SELECT seq, hash FROM ledger_entry ORDER BY seq DESC LIMIT 1;

-- name: entries_by_id
-- What a batch meets: its own ids, the holds that it resolves, whatever has resolved those already, and the holds of the payments that it
-- holds (unique indexes each).
WITH found AS (
  SELECT e.seq FROM ledger_entry e WHERE e.entry_id = ANY(%(ids)b::text[])
  UNION
  SELECT e.seq FROM ledger_entry e WHERE e.holds = ANY(%(ids)b::text[])
  UNION
  SELECT e.seq FROM ledger_entry e WHERE e.ref = ANY(%(refs)b::bytea[]) AND e.kind = 'hold')
SELECT {columns}
  FROM found JOIN ledger_entry e ON e.seq = found.seq ORDER BY e.seq;

-- name: entries_after
SELECT {columns}
  FROM ledger_entry e WHERE e.seq > %(seq)s::bigint ORDER BY e.seq LIMIT %(limit)s::int;

-- name: insert_entries
INSERT INTO ledger_entry (seq, entry_id, ref, kind, holds, chain, token, by_actor, at, tx_hash, memo, leg_count, prev_hash, hash)
SELECT * FROM unnest(%(seq)b::bigint[], %(id)b::text[], %(ref)b::bytea[], %(kind)b::text[], %(holds)b::text[], %(chain)b::text[],
                     %(token)b::text[], %(by)b::text[], %(at)b::timestamptz[], %(tx)b::bytea[], %(memo)b::text[],
                     %(legs)b::smallint[], %(prev)b::bytea[], %(hash)b::bytea[]) AS t(seq)
 ORDER BY seq;

-- name: insert_legs
INSERT INTO ledger_leg (entry_seq, ord, account, amount)
SELECT * FROM unnest(%(seq)b::bigint[], %(ord)b::smallint[], %(account)b::text[], %(amount)s::numeric[]) AS t(seq, ord) ORDER BY seq, ord;

-- name: move_balances
-- One row an account and asset, in their order; under the journal's lock nobody else moves them.
INSERT INTO ledger_balance AS b (account, chain, token, pending, posted)
SELECT * FROM unnest(%(account)b::text[], %(chain)b::text[], %(token)b::text[], %(pending)s::numeric[], %(posted)s::numeric[])
           AS t(account, chain, token) ORDER BY account, chain, token
    ON CONFLICT (account, chain, token)
    DO UPDATE SET pending = b.pending + excluded.pending, posted = b.posted + excluded.posted;

-- name: balances
SELECT account, chain, token, pending, posted FROM ledger_balance
 WHERE %(account)s::text IS NULL OR account = %(account)s::text ORDER BY account, chain, token;

-- name: figures
-- Open holds are those of payments under way (index payment_intent_active), so nobody counts the journal.
SELECT coalesce((SELECT max(seq) FROM ledger_entry), 0) AS head, count(e.seq) AS open_holds,
       coalesce(extract(epoch FROM clock_timestamp() - min(e.at)), 0)::float8 AS oldest_hold_seconds
  FROM payment_intent r JOIN ledger_entry e ON e.entry_id = r.public_id || '/hold'
 WHERE r.state IN ('settling', 'confirming', 'needs_review');
