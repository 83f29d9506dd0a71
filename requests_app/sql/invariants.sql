-- The invariants of payments and their journal (reference queue_settle 1.5), each a statement that returns what violates it: whom
-- (`subject`) and how (`detail`). One statement is one snapshot, so whatever moves in one transaction is never seen half. Windows are
-- (low, high] of entry numbers or intent ids, or places in the list of balances; at most `limit` rows come back.

-- name: bounds
-- Entries reach as far as legs do: those of a lost tail are looked at, too.
SELECT greatest((SELECT max(seq) FROM ledger_entry), (SELECT max(entry_seq) FROM ledger_leg), 0) AS entries,
       coalesce((SELECT min(id) FROM payment_intent) - 1, 0) AS before, coalesce((SELECT max(id) FROM payment_intent), 0) AS intents,
       (SELECT count(*) FROM ledger_balance) AS balances;

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8 AS seconds;

-- name: set_patience
SELECT set_config('statement_timeout', %(milliseconds)s, false);

-- name: reset_patience
RESET statement_timeout;

-- name: entries_balance
-- 1: legs sum to 0, none is 0, no account twice, as many as announced; a hold or post has two at least, a void none. No leg of nothing.
SELECT * FROM (
  SELECT e.entry_id AS subject, format('%%s: %%s legs of %%s, sum %%s', e.kind, l.legs, e.leg_count, l.total) AS detail
    FROM ledger_entry e CROSS JOIN LATERAL (
      SELECT count(*) AS legs, count(DISTINCT x.account) AS accounts, coalesce(sum(x.amount), 0) AS total,
             count(*) FILTER (WHERE x.amount = 0) AS empty
        FROM ledger_leg x WHERE x.entry_seq = e.seq) l
   WHERE e.seq > %(low)s::bigint AND e.seq <= %(high)s::bigint
     AND (l.legs <> e.leg_count OR l.total <> 0 OR l.empty > 0 OR l.accounts <> l.legs
          OR (e.kind = 'void' AND l.legs > 0) OR (e.kind <> 'void' AND l.legs < 2))
  UNION ALL
  SELECT 'leg of #' || x.entry_seq, 'it belongs to no entry' FROM ledger_leg x
   WHERE x.entry_seq > %(low)s::bigint AND x.entry_seq <= %(high)s::bigint
     AND NOT EXISTS (SELECT 1 FROM ledger_entry e WHERE e.seq = x.entry_seq)) v
 LIMIT %(limit)s::int;

-- name: assets_balance
-- 2: over all accounts of an asset both sides come to nothing.
SELECT b.chain || ' ' || b.token AS subject, format('pending sums to %%s, posted to %%s', sum(b.pending), sum(b.posted)) AS detail
  FROM ledger_balance b GROUP BY b.chain, b.token HAVING sum(b.pending) <> 0 OR sum(b.posted) <> 0 LIMIT %(limit)s::int;

-- name: holds_resolved_once
-- 3: a post or void resolves a hold of its own payment and asset, before it; a hold is resolved once; a payment has one hold at most.
SELECT * FROM (
  SELECT e.entry_id AS subject, format('%%s is no hold of this payment and asset before it', e.holds) AS detail
    FROM ledger_entry e LEFT JOIN ledger_entry h ON h.entry_id = e.holds
   WHERE e.seq > %(low)s::bigint AND e.seq <= %(high)s::bigint AND e.kind <> 'hold'
     AND (h.seq IS NULL OR h.kind <> 'hold' OR h.seq >= e.seq OR (h.ref, h.chain, h.token) IS DISTINCT FROM (e.ref, e.chain, e.token))
  UNION ALL
  SELECT e.entry_id, format('resolved %%s times', r.times)
    FROM ledger_entry e CROSS JOIN LATERAL (SELECT count(*) AS times FROM ledger_entry x WHERE x.holds = e.entry_id) r
   WHERE e.seq > %(low)s::bigint AND e.seq <= %(high)s::bigint AND r.times > 1
  UNION ALL
  SELECT e.entry_id, format('its payment has %%s holds and %%s posts and voids', r.holds, r.ends)
    FROM ledger_entry e CROSS JOIN LATERAL (
      SELECT count(*) FILTER (WHERE x.kind = 'hold') AS holds, count(*) FILTER (WHERE x.kind <> 'hold') AS ends
        FROM ledger_entry x WHERE x.ref = e.ref) r
   WHERE e.seq > %(low)s::bigint AND e.seq <= %(high)s::bigint AND (r.holds > 1 OR r.ends > r.holds)) v
 LIMIT %(limit)s::int;

-- name: balances_fold
-- 4: the cache is what the journal comes to. `low` and `high` are places in the list of balances.
WITH mine AS MATERIALIZED (
  SELECT account, chain, token, pending, posted FROM ledger_balance ORDER BY account, chain, token
  OFFSET %(low)s::bigint LIMIT %(high)s::bigint - %(low)s::bigint)
SELECT m.account || ' ' || m.token AS subject,
       format('cached %%s pending, %%s posted; the journal says %%s and %%s', m.pending, m.posted, f.pending, f.posted) AS detail
  FROM mine m CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.amount) FILTER (WHERE e.kind = 'hold' AND NOT EXISTS (SELECT 1 FROM ledger_entry r WHERE r.holds = e.entry_id)), 0) AS pending,
           coalesce(sum(l.amount) FILTER (WHERE e.kind = 'post'), 0) AS posted
      FROM ledger_leg l JOIN ledger_entry e ON e.seq = l.entry_seq
     WHERE l.account = m.account AND (e.chain, e.token) = (m.chain, m.token)) f
 WHERE (m.pending, m.posted) <> (f.pending, f.posted) LIMIT %(limit)s::int;

-- name: balances_missing
-- 4: every account that the journal moves has its row in the cache, unless all of it came to nothing.
WITH used AS MATERIALIZED (
  SELECT DISTINCT l.account, e.chain, e.token FROM ledger_entry e JOIN ledger_leg l ON l.entry_seq = e.seq
   WHERE e.seq > %(low)s::bigint AND e.seq <= %(high)s::bigint
     AND NOT EXISTS (SELECT 1 FROM ledger_balance b WHERE (b.account, b.chain, b.token) = (l.account, e.chain, e.token)))
SELECT u.account || ' ' || u.token AS subject, 'the journal moves it, the cache has no balance' AS detail
  FROM used u CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.amount) FILTER (WHERE e.kind = 'hold' AND NOT EXISTS (SELECT 1 FROM ledger_entry r WHERE r.holds = e.entry_id)), 0) AS pending,
           coalesce(sum(l.amount) FILTER (WHERE e.kind = 'post'), 0) AS posted
      FROM ledger_leg l JOIN ledger_entry e ON e.seq = l.entry_seq
     WHERE l.account = u.account AND (e.chain, e.token) = (u.chain, u.token)) f
 WHERE (f.pending, f.posted) <> (0, 0) LIMIT %(limit)s::int;

-- name: states_and_entries
-- 6: settled has one post, of its transaction; failed no open hold and no post; before settling there is nothing; in between there is
-- one open hold. Hold and post move the payment's amount from its payer to its merchant.
SELECT r.public_id AS subject, format('%%s with %%s holds, %%s posts, %%s voids', r.state, f.holds, f.posts, f.voids) AS detail
  FROM payment_intent r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.kind = 'hold') AS holds, count(*) FILTER (WHERE e.kind = 'post') AS posts,
           count(*) FILTER (WHERE e.kind = 'void') AS voids,
           coalesce(bool_and(e.tx_hash IS NOT DISTINCT FROM r.tx_hash) FILTER (WHERE e.kind = 'post'), true) AS same_hash,
           coalesce(bool_and((e.chain, e.token) = (r.chain, r.token)
             AND EXISTS (SELECT 1 FROM ledger_leg l WHERE l.entry_seq = e.seq AND l.account = 'payer:' || r.payer AND l.amount = -r.amount)
             AND EXISTS (SELECT 1 FROM ledger_leg l WHERE l.entry_seq = e.seq AND l.account = 'merchant:' || r.merchant AND l.amount = r.amount))
             FILTER (WHERE e.kind <> 'void'), true) AS same_terms
      FROM ledger_entry e WHERE e.ref = r.ref) f
 WHERE r.id > %(low)s::bigint AND r.id <= %(high)s::bigint
   AND NOT (f.same_terms AND CASE r.state
         WHEN 'settled' THEN f.holds = 1 AND f.posts = 1 AND f.voids = 0 AND f.same_hash
         WHEN 'failed' THEN f.posts = 0 AND f.holds = f.voids
         WHEN 'settling' THEN f.holds = 1 AND f.posts = 0 AND f.voids = 0
         WHEN 'confirming' THEN f.holds = 1 AND f.posts = 0 AND f.voids = 0
         WHEN 'needs_review' THEN f.holds = 1 AND f.posts = 0 AND f.voids = 0
         ELSE f.holds + f.posts + f.voids = 0 END)
 ORDER BY r.id LIMIT %(limit)s::int;

-- name: versions
-- 7: as many transitions as the version says, without a gap, each from where the one before led, in the table, to where the row is.
-- The first half probes the index for each row: a scan of the steps for each would be the square of the window.
WITH steps AS MATERIALIZED (
  SELECT t.intent_id, t.version, t.from_state, t.to_state, t.actor,
         lag(t.to_state) OVER (PARTITION BY t.intent_id ORDER BY t.version) AS before,
         row_number() OVER (PARTITION BY t.intent_id ORDER BY t.version) AS nth
    FROM intent_transition t WHERE t.intent_id > %(low)s::bigint AND t.intent_id <= %(high)s::bigint)
SELECT * FROM (
  SELECT r.public_id AS subject, format('version %%s, %%s transitions, the last to %%s, it is %%s', r.version, h.rows, h.last, r.state) AS detail
    FROM payment_intent r LEFT JOIN LATERAL (
      SELECT count(*) AS rows, (SELECT n.to_state FROM intent_transition n WHERE n.intent_id = r.id ORDER BY n.version DESC LIMIT 1) AS last
        FROM intent_transition t WHERE t.intent_id = r.id) h ON true
   WHERE r.id > %(low)s::bigint AND r.id <= %(high)s::bigint
     AND (h.rows <> r.version OR h.last IS DISTINCT FROM r.state)
  UNION ALL
  SELECT coalesce(r.public_id, 'intent ' || s.intent_id), format('transition %%s from %%s to %%s by %%s', s.version, s.from_state, s.to_state, s.actor)
    FROM steps s LEFT JOIN payment_intent r ON r.id = s.intent_id
   WHERE s.version <> s.nth OR s.from_state IS DISTINCT FROM s.before
      OR NOT CASE WHEN s.version = 1 THEN s.from_state IS NULL AND s.to_state = 'created'
                  ELSE EXISTS (SELECT 1 FROM unnest(%(sources)b::text[], %(targets)b::text[], %(actors)b::text[]) AS e(source, target, actor)
                                WHERE (e.source, e.target, e.actor) = (s.from_state, s.to_state, s.actor)) END) v
 LIMIT %(limit)s::int;

-- name: refs
-- 8: the stored ref is the one of the terms: SHA-256 over seven texts, each behind its length as a LEB128 number.
SELECT r.public_id AS subject, '0x' || encode(r.ref, 'hex') || ' is not the ref of its terms' AS detail
  FROM payment_intent r CROSS JOIN LATERAL (
    SELECT sha256(string_agg(
             CASE WHEN p.size < 128 THEN set_byte('\x00'::bytea, 0, p.size)
                  ELSE set_byte(set_byte('\x0000'::bytea, 0, p.size %% 128 + 128), 1, p.size / 128) END || p.raw, ''::bytea ORDER BY p.place)) AS ref
      FROM (SELECT t.place, convert_to(t.part, 'UTF8') AS raw, octet_length(convert_to(t.part, 'UTF8')) AS size
              FROM unnest(ARRAY[%(tag)s, r.public_id, r.chain, r.token, r.payer, r.merchant, r.amount::text]) WITH ORDINALITY AS t(part, place)) p) d
 WHERE r.id > %(low)s::bigint AND r.id <= %(high)s::bigint AND r.ref <> d.ref
 ORDER BY r.id LIMIT %(limit)s::int;

-- name: held_before_sent
-- 9: nothing was signed for a payment without a hold: as many holds as payments that were ever sent.
SELECT r.public_id AS subject, format('%%s with %%s nonces and no hold', r.state, n.slots) AS detail
  FROM payment_intent r CROSS JOIN LATERAL (
    SELECT count(*) AS slots FROM nonce_slot s WHERE s.kind = 4 AND s.subject_id = r.id) n
 WHERE r.id > %(low)s::bigint AND r.id <= %(high)s::bigint AND n.slots > 0
   AND NOT EXISTS (SELECT 1 FROM ledger_entry e WHERE e.ref = r.ref AND e.kind = 'hold')
 ORDER BY r.id LIMIT %(limit)s::int;

-- name: one_live_nonce
-- 10: at most one nonce of a payment is not proven dead.
SELECT coalesce(r.public_id, 'intent ' || n.subject_id) AS subject,
       'live nonces ' || string_agg(n.signer_id || '/' || n.nonce, ', ' ORDER BY n.signer_id, n.nonce) AS detail
  FROM nonce_slot n LEFT JOIN payment_intent r ON r.id = n.subject_id
 WHERE n.kind = 4 AND n.subject_id > %(low)s::bigint AND n.subject_id <= %(high)s::bigint AND n.state <> 'dead'
 GROUP BY n.subject_id, r.public_id HAVING count(*) > 1 LIMIT %(limit)s::int;

-- name: nonces_dense
-- 11: of each signer every nonce that the chain has not consumed has its slot, up to the one that is given out next. Those below are
-- gone with the requests that retention deleted.
SELECT format('signer %%s of chain %%s', s.id, s.chain_id) AS subject, x.detail
  FROM signer s CROSS JOIN LATERAL (
    SELECT min(n.nonce) AS least, max(n.nonce) AS most FROM nonce_slot n WHERE n.signer_id = s.id) b
  CROSS JOIN LATERAL (
    SELECT 'nonce ' || g.nonce || ' was never given out' AS detail
      FROM generate_series(greatest(s.chain_nonce_latest, b.least), least(b.most, s.next_nonce - 1)) AS g(nonce)
     WHERE NOT EXISTS (SELECT 1 FROM nonce_slot n WHERE n.signer_id = s.id AND n.nonce = g.nonce)
    UNION ALL
    SELECT format('nonce %%s was given out, %%s is next', b.most, s.next_nonce) WHERE b.most >= s.next_nonce OR s.next_nonce IS NULL AND b.most IS NOT NULL
    UNION ALL
    SELECT format('%%s is next, the last given out is %%s', s.next_nonce, b.most)
     WHERE b.most < s.next_nonce - 1 AND s.next_nonce > coalesce(s.chain_nonce_latest, 0)) x
 LIMIT %(limit)s::int;

-- name: bills_follow_payments
-- 12 (ours): usage is claimed only by a payment that can still be paid.
SELECT b.reference AS subject, format('claims usage of account %%s, and is %%s', min(b.payer), coalesce(r.state, 'missing')) AS detail
  FROM usage_billed b LEFT JOIN payment_intent r ON r.public_id = b.reference AND r.account_id = b.payer
 WHERE r.id IS NULL OR r.state IN ('settled', 'failed', 'canceled')
 GROUP BY b.reference, r.state LIMIT %(limit)s::int;
