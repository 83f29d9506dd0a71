-- Payment intents and their history for a seeded database (manage.py relayer_seed). The refs are true commitments to the terms. The journal's
-- entries are made by the journal's own code.

-- name: seed_payments
-- Intents `lo` to `hi`, up to `finished` at their end, above it under way in the states of `cuts`.
WITH numbered AS (
  SELECT i, i > %(finished)s AS live, i %% 100 AS pick, 'pi_' || substr(md5('payment/' || i), 1, 24) AS public_id,
         '0x' || substr(encode(sha256(int8send(i %% 5000)), 'hex'), 1, 40) AS payer,
         '0x' || substr(encode(sha256(int8send(900000 + i %% 50)), 'hex'), 1, 40) AS merchant, (1000000 + i * 7919 %% 1000000)::numeric AS amount
    FROM generate_series(%(lo)s::bigint, %(hi)s::bigint) AS i
), placed AS (
  SELECT n.*, sha256('\x2b' || convert_to('stablecoin-settlement-engine/payment-ref/v1', 'UTF8') || '\x1b' || convert_to(public_id, 'UTF8')
           || substr(int2send(octet_length(%(chain)s)::smallint), 2) || convert_to(%(chain)s, 'UTF8') || '\x2a' || convert_to(%(token)s, 'UTF8')
           || '\x2a' || convert_to(payer, 'UTF8') || '\x2a' || convert_to(merchant, 'UTF8')
           || substr(int2send(octet_length(amount::text)::smallint), 2) || convert_to(amount::text, 'UTF8')) AS ref,
         CASE WHEN live THEN (%(states)s::text[])[width_bucket(i, %(cuts)s::bigint[]) + 1]
              WHEN pick < 6 THEN 'canceled' WHEN pick < 8 THEN 'failed' ELSE 'settled' END AS state,
         %(base)s::timestamptz - CASE WHEN NOT live THEN (%(finished)s - i + 1) * (%(span)s::float8 / %(finished)s)
                                      ELSE (i * 7919 %% 900)::float8 END * interval '1 second' AS entered
    FROM numbered n
), made AS (
  INSERT INTO payment_intent (id, public_id, ref, account_id, chain, token, payer, merchant, amount, "authorization", state, version, tx_hash,
                              state_reason, created_at, updated_at, expires_at)
  SELECT i, public_id, ref, (%(clients)s::bigint[])[1 + i %% %(client_count)s], %(chain)s, %(token)s, payer, merchant, amount,
         CASE WHEN state NOT IN ('created', 'canceled') THEN jsonb_build_object('signature', '0x' || repeat(encode(ref, 'hex'), 2) || '1b') END,
         state, array_position(ARRAY['created', 'authorized', 'settling', 'confirming', 'settled'], CASE state WHEN 'canceled' THEN 'authorized'
           WHEN 'failed' THEN 'confirming' ELSE state END),
         CASE WHEN state IN ('confirming', 'settled') THEN sha256(ref) END,
         CASE state WHEN 'canceled' THEN 'expired' WHEN 'failed' THEN 'proven not to move money any more' END,
         entered - interval '20 seconds', entered, entered + interval '30 days'
    FROM placed
  RETURNING id, public_id, ref, payer, merchant, amount, state, version, tx_hash, state_reason, created_at, updated_at
), history AS (
  INSERT INTO intent_transition (intent_id, version, from_state, to_state, actor, at, tx_hash, reason)
  SELECT m.id, step.version, CASE WHEN step.version > 1 THEN step.was END,
         CASE WHEN step.version = m.version THEN m.state ELSE step.target END, step.actor,
         CASE WHEN step.version = m.version THEN m.updated_at ELSE m.created_at + (step.version - 1) * interval '4 seconds' END,
         CASE WHEN step.version >= 4 THEN m.tx_hash END, CASE WHEN step.version = m.version THEN m.state_reason END
    FROM made m JOIN (VALUES (1, NULL, 'created', 'api'), (2, 'created', 'authorized', 'api'), (3, 'authorized', 'settling', 'relayer'),
                             (4, 'settling', 'confirming', 'relayer'), (5, 'confirming', 'settled', 'listener'))
                     AS step(version, was, target, actor) ON step.version <= m.version
), slotted AS MATERIALIZED (
  SELECT m.*, %(slots_before)s + row_number() OVER (ORDER BY id) - 1 AS place,
         CASE state WHEN 'settled' THEN 'final' WHEN 'failed' THEN 'dead' WHEN 'confirming' THEN 'mined' ELSE 'live' END AS slot_state
    FROM made m WHERE state NOT IN ('created', 'authorized', 'canceled')
), slots AS (
  INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_at, closed_at, opened_epoch, winner_hash)
  SELECT (%(signers)s::bigint[])[1 + place %% %(signer_count)s], place / %(signer_count)s, 4, id, slot_state, created_at,
         CASE WHEN slot_state <> 'live' THEN updated_at END, 7, CASE WHEN slot_state IN ('mined', 'final') THEN sha256(ref) END
    FROM slotted
), attempts AS (
  INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch, prepared_at,
                          first_sent_at, last_sent_at, send_count, block_number, block_hash, receipt_status)
  SELECT (%(signers)s::bigint[])[1 + place %% %(signer_count)s], place / %(signer_count)s, 0, sha256(ref),
         decode(repeat(encode(ref, 'hex'), 4), 'hex'), 1500000000, 1000000, 120000,
         CASE slot_state WHEN 'dead' THEN 'dropped' WHEN 'live' THEN 'accepted' ELSE slot_state END, 7, created_at, created_at, created_at, 1,
         CASE WHEN slot_state IN ('mined', 'final') THEN 1000000 + id / 5 END,
         CASE WHEN slot_state IN ('mined', 'final') THEN sha256(int8send(id / 5)) END, CASE WHEN slot_state IN ('mined', 'final') THEN 1 END
    FROM slotted
)
SELECT count(*)::bigint AS slots FROM slotted;

-- name: seeded
-- Payments of a range that hold or have moved money, for their journal entries.
SELECT public_id, ref, chain, token, payer, merchant, amount, state, tx_hash, created_at, updated_at FROM payment_intent
 WHERE id BETWEEN %(lo)s AND %(hi)s AND state NOT IN ('created', 'authorized', 'canceled') ORDER BY id;

-- name: seed_balances
-- What the entries add up to: a hold that was resolved is pending no more.
INSERT INTO ledger_balance (account, chain, token, pending, posted)
SELECT l.account, e.chain, e.token,
       coalesce(sum(l.amount) FILTER (WHERE e.kind = 'hold' AND NOT EXISTS (SELECT FROM ledger_entry r WHERE r.holds = e.entry_id)), 0),
       coalesce(sum(l.amount) FILTER (WHERE e.kind = 'post'), 0)
  FROM ledger_leg l JOIN ledger_entry e ON e.seq = l.entry_seq GROUP BY l.account, e.chain, e.token;
