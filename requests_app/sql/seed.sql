-- Test data of any size (manage.py relayer_seed; design 5.6.4). Everything follows from the row number, so that two runs with one base
-- time write the same rows. Never part of the product's work: the command refuses a database that has rows or workers.

-- name: seed_requests
-- Rows `lo` to `hi` of one kind with everything that hangs on them, in one statement. Up to `finished` they have ended, spread evenly over
-- `span` seconds before `base`; above it they are live, their state by how far above (`cuts` are the first numbers of the next state).
-- Like in a database whose older parts were thinned out, slots, attempts and references begin at `slots_from`, history at `history_from`,
-- payloads and shares at `bodies_from`; live rows have everything. Nonces go round the kind's signers without a gap, from `slots_before`.
WITH numbered AS (
  SELECT i, i > %(finished)s AS live, i %% 100 AS pick, sha256(convert_to('{kind}/' || i, 'UTF8')) AS hash, md5('job/{kind}/' || i) AS job
    FROM generate_series(%(lo)s::bigint, %(hi)s::bigint) AS i
), placed AS (
  SELECT i, live, pick, hash, job,
         CASE WHEN live THEN (%(states)s::text[])[width_bucket(i, %(cuts)s::bigint[]) + 1]
              WHEN pick = 0 THEN 'timed_out' WHEN pick < 3 THEN 'failure' ELSE 'completed' END AS status,
         (NOT live AND pick = 1 AND {denies}) OR (live AND pick >= 85) AS unsent,
         %(base)s::timestamptz - CASE WHEN NOT live THEN (%(finished)s - i + 1) * (%(span)s::float8 / %(finished)s)
                                      ELSE (i * 7919 %% 900)::float8 END * interval '1 second' AS entered,
         CASE WHEN pick = 0 AND NOT live THEN 1860.0 ELSE 2 + (i * 7919 %% 1000) / 100.0 END AS took
    FROM numbered
), row_of AS (
  SELECT p.*, p.status IN ('queued', 'processing') OR (p.unsent AND p.status IN ('failure', 'needs_review')) AS no_hash,
         p.status IN ('completed', 'timed_out', 'receipt_received') AS has_reference,
         p.status IN ('completed', 'timed_out', 'failure') AS final
    FROM placed p
), made AS (
  INSERT INTO {table} (id, ext_job_id, int_job_id, status, gw_reference_id, gw_req_tx_hash, receipt_block, fail_label, fail_detail,
                       created_at, updated_at, state_entered_at, deadline_at, completed_at {columns})
  SELECT i, overlay(overlay(job PLACING '4' FROM 13) PLACING 'a' FROM 17)::uuid,
         hash, status,
         CASE WHEN has_reference THEN decode('0{kind}' || repeat('00', 23), 'hex') || int8send(i) END,
         CASE WHEN NOT no_hash THEN sha256(hash) END,
         CASE WHEN has_reference THEN 1000000 + i / 5 END,
         CASE status WHEN 'timed_out' THEN 'response_timed_out'
                     WHEN 'failure' THEN CASE WHEN unsent THEN 'not_allowed_on_host_acl' ELSE 'transaction_reverted' END END,
         CASE status WHEN 'timed_out' THEN 'No answer within 1800 s; the chain has none.'
                     WHEN 'failure' THEN CASE WHEN unsent THEN 'The host chain denied handle 1 of 2.' ELSE 'The contract reverted.' END END,
         entered - took * interval '1 second', entered, entered,
         CASE WHEN final OR status = 'needs_review' THEN NULL
              WHEN i %% 500 = 0 THEN %(base)s::timestamptz - interval '1 minute'
              ELSE %(base)s::timestamptz + interval '30 days' + (i %% 1800) * interval '1 second' END,
         CASE WHEN final THEN entered END {values}
    FROM row_of
  RETURNING id, ext_job_id, status, created_at, state_entered_at, gw_req_tx_hash, gw_reference_id, receipt_block
), viewed AS (
  INSERT INTO request_client (client_id, kind, request_id, ext_job_id, created_at)
  SELECT (%(clients)s::bigint[])[1 + CASE WHEN id %% 10 < 4 THEN 0 ELSE id * 7919 %% %(client_count)s END], {kind}, id, ext_job_id, created_at FROM made
  UNION ALL
  SELECT (%(clients)s::bigint[])[2 + CASE WHEN id %% 10 < 4 THEN 0 ELSE id * 7919 %% (%(client_count)s - 1) END], {kind}, id,
         md5('second/{kind}/' || id)::uuid, created_at FROM made WHERE id %% 100 = 50
), slotted AS MATERIALIZED (
  SELECT m.*, %(slots_before)s + row_number() OVER (ORDER BY id) - 1 AS place,
         CASE status WHEN 'tx_in_flight' THEN 'live' WHEN 'needs_review' THEN CASE WHEN id %% 10 < 7 THEN 'live' ELSE 'dead' END
                     WHEN 'receipt_received' THEN 'mined' ELSE 'final' END AS slot_state
    FROM made m WHERE gw_req_tx_hash IS NOT NULL AND id >= %(slots_from)s
), slots AS (
  INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_at, closed_at, opened_epoch, winner_hash)
  SELECT (%(signers)s::bigint[])[1 + place %% %(signer_count)s], place / %(signer_count)s, {kind}, id, slot_state, created_at,
         CASE WHEN slot_state <> 'live' THEN state_entered_at END, 7, CASE WHEN slot_state IN ('mined', 'final') THEN gw_req_tx_hash END
    FROM slotted
), attempts AS (
  INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, kind, max_fee_per_gas, max_priority_fee, gas_limit, state,
                          error_class, error_text, epoch, prepared_at, first_sent_at, last_sent_at, send_count, block_number, block_hash,
                          receipt_status)
  SELECT (%(signers)s::bigint[])[1 + place %% %(signer_count)s], place / %(signer_count)s, a.seq,
         CASE WHEN a.newest THEN gw_req_tx_hash ELSE sha256(gw_req_tx_hash) END,
         decode(repeat(encode(gw_req_tx_hash, 'hex'), 4), 'hex'), CASE WHEN a.seq = 0 THEN 'pay' ELSE 'replace' END,
         1500000000 + a.seq * 300000000, 1000000, 812345,
         CASE WHEN NOT a.newest THEN 'replaced'
              ELSE CASE slot_state WHEN 'live' THEN CASE status WHEN 'needs_review' THEN 'unknown' ELSE 'accepted' END
                                   WHEN 'dead' THEN 'dropped' ELSE slot_state END END,
         CASE WHEN status = 'needs_review' THEN 'timeout' END, CASE WHEN status = 'needs_review' THEN 'no answer from the node' END,
         7, created_at, created_at, created_at, 1 + a.seq, receipt_block,
         CASE WHEN slot_state IN ('mined', 'final') THEN sha256(int8send(id / 5)) END,
         CASE WHEN slot_state IN ('mined', 'final') THEN CASE status WHEN 'failure' THEN 0 ELSE 1 END END
    FROM slotted CROSS JOIN LATERAL (VALUES (0::smallint, status <> 'needs_review'), (1::smallint, true)) AS a(seq, newest)
   WHERE a.seq = 0 OR status = 'needs_review'
), refs AS (
  INSERT INTO gateway_ref (gw_reference_id, n, threshold, kind, request_id, first_at)
  SELECT gw_reference_id, CASE WHEN {kind} <> 1 THEN 0 WHEN status = 'completed' THEN 13 ELSE id %% 9 END,
         CASE WHEN {kind} = 1 THEN 9 END, {kind}, id, created_at
    FROM made WHERE gw_reference_id IS NOT NULL AND id >= %(slots_from)s
), history AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, reason, tx_hash, at)
  SELECT {kind}, m.id, step.verb, step.was, CASE step.ord WHEN 1 THEN '{initial}' ELSE step.target END, step.actor,
         CASE step.ord WHEN 3 THEN 7 END, CASE step.ord WHEN 9 THEN 'no receipt before the deadline' END,
         CASE WHEN step.ord IN (3, 4) THEN m.gw_req_tx_hash END,
         CASE WHEN step.target = m.status THEN m.state_entered_at ELSE m.created_at + (step.ord - 1) * 0.2 * (m.state_entered_at - m.created_at) END
    FROM made m JOIN (VALUES
           (1, 'submit', NULL, 'queued', 'api', '{queued,processing,tx_in_flight,receipt_received,completed,timed_out,failure,needs_review}'::text[]),
           (2, 'admit', 'queued', 'processing', 'worker', '{processing,tx_in_flight,receipt_received,completed,timed_out,failure,needs_review}'),
           (3, 'prepare_send', 'processing', 'tx_in_flight', 'worker', '{tx_in_flight,receipt_received,completed,timed_out,failure,needs_review}'),
           (4, 'record_receipt', 'tx_in_flight', 'receipt_received', 'chain', '{receipt_received,completed,timed_out}'),
           (5, 'complete', 'receipt_received', 'completed', 'chain', '{completed}'),
           (6, 'expire_response', 'receipt_received', 'timed_out', 'sweep', '{timed_out}'),
           (7, 'deny', 'queued', 'failure', 'worker', '{failure}'),
           (8, 'revert', 'tx_in_flight', 'failure', 'chain', '{failure}'),
           (9, 'park', 'tx_in_flight', 'needs_review', 'sweep', '{needs_review}'))
         AS step(ord, verb, was, target, actor, reached_by) ON m.status = ANY(step.reached_by)
   WHERE m.id >= %(history_from)s AND (step.ord <> 2 OR '{initial}' = 'queued')
     AND CASE WHEN m.gw_req_tx_hash IS NULL THEN step.ord NOT IN (3, 8) AND NOT (m.status = 'failure' AND step.ord = 2)
              ELSE step.ord <> 7 END
   ORDER BY m.id, step.ord
), bodies AS (
  INSERT INTO request_payload (kind, request_id, body)
  SELECT {kind}, id, {body} FROM made WHERE id >= %(bodies_from)s
), shares AS (
  INSERT INTO user_decrypt_share (gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash, position, created_at)
  SELECT gw_reference_id, n, decode(repeat(encode(sha256(int8send(id * 16 + n)), 'hex'), 13), 'hex'),
         decode(repeat(encode(sha256(int8send(id)), 'hex'), 2), 'hex') || '\x1b', '\x00', sha256(int8send(-id * 16 - n)),
         (receipt_block + 1) << 20 | n, state_entered_at
    FROM made CROSS JOIN LATERAL generate_series(0, CASE status WHEN 'completed' THEN 12 ELSE id %% 9 - 1 END) AS n
   WHERE {kind} = 1 AND gw_reference_id IS NOT NULL AND id >= %(bodies_from)s
), jobs AS (
  INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, attempt, visible_at, leased_by, enqueued_at)
  SELECT CASE status WHEN 'queued' THEN 'ready' ELSE 'send' END, '{kind}/' || id, {kind}, id, (%(clients)s::bigint[])[1 + id %% %(client_count)s],
         id %% 5, created_at, NULL, created_at
    FROM made WHERE status IN ('queued', 'processing') ORDER BY id
), cases AS (
  INSERT INTO review_case (kind, subject_id, reason_code, evidence, status, opened_at, closed_at, outcome)
  SELECT {kind}, id, (%(reasons)s::text[])[1 + id %% %(reason_count)s],
         jsonb_build_object('asked_endpoints', 2, 'latest_nonce', 1201, 'block', receipt_block, 'verdicts', jsonb_build_array('null', 'timeout'),
                            'transaction', '0x' || encode(coalesce(gw_req_tx_hash, '\x00'), 'hex')),
         CASE status WHEN 'needs_review' THEN 'open' ELSE 'closed' END, state_entered_at - (id %% 300) * interval '1 minute',
         CASE WHEN status <> 'needs_review' THEN state_entered_at END, CASE WHEN status <> 'needs_review' THEN 'completed' END
    FROM made WHERE status = 'needs_review' OR (status = 'completed' AND id %% 500 = 7) ORDER BY id
)
SELECT (SELECT count(*) FROM slotted)::bigint AS slots;

-- name: seed_decisions
-- Every closed case was decided and its command consumed; one open case in fifty waits for a second person.
WITH decided AS (
  SELECT c.id, c.status, c.closed_at, c.opened_at, c.kind, c.subject_id FROM review_case c WHERE c.status = 'closed' OR c.id %% 50 = 0
), written AS (
  INSERT INTO review_decision (case_id, seq, action, parameters, reason, state, decided_by, decided_at, command_id)
  SELECT id, 1, CASE status WHEN 'open' THEN 'resend' ELSE 'resume' END, '{}', 'seeded',
         CASE status WHEN 'open' THEN 'awaiting_second' ELSE 'done' END, 'seed', coalesce(closed_at, opened_at),
         CASE status WHEN 'open' THEN NULL ELSE 'hitl:' || id || ':1' END
    FROM decided
)
INSERT INTO command (command_id, kind, target_kind, target_id, resource, payload, payload_hash, requested_by, created_at, state, attempts,
                     consumed_at, consumer, consumed_epoch, outcome, result)
SELECT 'hitl:' || id || ':1', 'hitl', kind, subject_id, 'singleton:commands', '{"action": "resume"}', sha256(int8send(id)), 'seed', closed_at,
       'consumed', 1, closed_at, 'seed', 7, 'applied', '{}'
  FROM decided WHERE status = 'closed';

-- name: seed_holds
-- One open case in twenty was taken by somebody, half of them long ago.
INSERT INTO exec_lease (resource, instance, epoch, lease_until)
SELECT 'review:' || id, 'desk:seed', 1, %(base)s::timestamptz + CASE WHEN id %% 40 = 0 THEN interval '1 hour' ELSE interval '-1 hour' END
  FROM review_case WHERE status = 'open' AND id %% 20 = 0
    ON CONFLICT DO NOTHING;

-- name: seed_accounts
INSERT INTO client_account (name, created_at)
SELECT 'seed-' || lpad(n::text, 3, '0'), %(base)s::timestamptz - interval '90 days' FROM generate_series(1, %(count)s::int) AS n
    ON CONFLICT (name) DO NOTHING;

-- name: seeded_accounts
SELECT id FROM client_account WHERE starts_with(name, 'seed-') ORDER BY name LIMIT %(count)s;

-- name: seed_signers
INSERT INTO signer (chain_id, address, next_nonce, chain_nonce_latest, balance_wei, fee_balance, fee_allowance, last_synced_at)
SELECT %(chain)s, substr(sha256(convert_to('signer/' || n, 'UTF8')), 1, 20), 0, 0, 9871234500000000000, 1e30, 1e30, %(base)s::timestamptz
  FROM generate_series(1, %(count)s::int) AS n RETURNING id;

-- name: seed_nonces
-- The signers' counters stand behind what was signed with them.
UPDATE signer s SET next_nonce = n.next, chain_nonce_latest = n.latest
  FROM (SELECT signer_id, max(nonce) + 1 AS next, coalesce(max(nonce) FILTER (WHERE state IN ('mined', 'final')), -1) + 1 AS latest
          FROM nonce_slot GROUP BY signer_id) AS n
 WHERE s.id = n.signer_id;

-- name: seed_source
INSERT INTO envelope_source (source_id, name, chain_id, start_block, retain)
VALUES (1, 'gateway', %(chain)s, 0, interval '30 days') ON CONFLICT DO NOTHING;

-- name: seed_cursor
INSERT INTO chain_cursor (source_id, block, chain_head) VALUES (1, %(block)s, %(block)s + 2) ON CONFLICT DO NOTHING;

-- name: working
-- Workers that hold something: nobody seeds a database in use.
SELECT count(*)::int AS n FROM exec_lease WHERE lease_until > clock_timestamp() AND NOT starts_with(resource, 'review:');

-- name: has_rows
SELECT EXISTS (SELECT FROM {table}) AS found;

-- name: empty_tables
TRUNCATE {tables};

-- name: forget_holds
DELETE FROM exec_lease WHERE starts_with(resource, 'review:');

-- name: indexes_of
-- Indexes and their constraints in the order in which they must be made anew: `drop` and `make` are statements.
SELECT c.relname AS name,
       CASE WHEN k.oid IS NULL THEN format('DROP INDEX %%I', c.relname) ELSE format('ALTER TABLE %%I DROP CONSTRAINT %%I', t.relname, k.conname) END AS drop,
       CASE WHEN k.oid IS NULL THEN pg_get_indexdef(c.oid)
            ELSE format('ALTER TABLE %%I ADD CONSTRAINT %%I %%s', t.relname, k.conname, pg_get_constraintdef(k.oid)) END AS make
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
  LEFT JOIN pg_constraint k ON k.conindid = c.oid AND k.conrelid = t.oid AND k.contype IN ('p', 'u')
 WHERE t.relname = %(table)s AND t.relnamespace = 'public'::regnamespace
 ORDER BY i.indisprimary DESC, c.relname;

-- name: set_sequence
SELECT setval(pg_get_serial_sequence(%(table)s, 'id'), greatest(1, (SELECT coalesce(max(id), 0) FROM {table}))) AS at;

-- name: sizes
-- Rows as the statistics say, bytes with indexes and long values.
SELECT c.relname AS name, greatest(c.reltuples, 0)::bigint AS rows, pg_table_size(c.oid) AS table_bytes, pg_indexes_size(c.oid) AS index_bytes
  FROM pg_class c WHERE c.relname = ANY(%(tables)s) AND c.relnamespace = 'public'::regnamespace
 ORDER BY pg_total_relation_size(c.oid) DESC;
