-- The generic state change. `old` locks the rows in key order and shows their newest version, so the guard is never judged
-- on a snapshot from before a lock wait. Zero rows back for an id means: somebody else changed it first.

-- name: apply
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)b::bigint[], %(labels)b::text[], %(details)b::text[], %(selectors)b::bytea[], %(hashes)b::bytea[])
    AS t(id, label, detail, selector, tx_hash)
), old AS MATERIALIZED (
  SELECT r.id, r.status, r.state_entered_at FROM {table} r JOIN asked ON asked.id = r.id ORDER BY r.id FOR UPDATE OF r
), changed AS (
  UPDATE {table} r
     SET status = %(target)s, state_entered_at = clock_timestamp(), updated_at = clock_timestamp(),
         deadline_at = clock_timestamp() + make_interval(secs => %(deadline)s),
         completed_at = CASE WHEN %(final)s THEN clock_timestamp() END,
         fail_label = coalesce(asked.label, r.fail_label), fail_detail = coalesce(asked.detail, r.fail_detail),
         fail_selector = coalesce(asked.selector, r.fail_selector),
         gw_req_tx_hash = coalesce(asked.tx_hash, r.gw_req_tx_hash)
    FROM old JOIN asked ON asked.id = old.id
   WHERE r.id = old.id AND CASE WHEN old.status = ANY(%(sources)b::text[]) THEN true ELSE false END
  RETURNING r.id, old.status AS was, r.updated_at - old.state_entered_at AS spent, asked.detail, asked.tx_hash
), logged AS (
  INSERT INTO req_transition (kind, request_id, verb, from_status, to_status, actor, epoch, reason, tx_hash)
  SELECT %(kind)s, id, %(verb)s, was, %(target)s, %(actor)s, %(epoch)s, detail, tx_hash FROM changed ORDER BY id
)
SELECT id, was, extract(epoch FROM spent)::float8 AS spent_seconds FROM changed;

-- name: open_review
-- A second open case of a subject is not made: the first keeps its evidence.
INSERT INTO review_case (kind, subject_id, reason_code, evidence)
SELECT %(kind)s, id, %(reason)s, evidence::jsonb FROM unnest(%(ids)b::bigint[], %(evidence)b::text[]) AS t(id, evidence)
ON CONFLICT (kind, subject_id) WHERE status = 'open' DO NOTHING;

-- name: explained
-- Payments that settled by the very transaction over which their case was opened: paid by somebody before the client had authorized
-- it here, and authorized after all. The books and the chain agree by now.
SELECT c.subject_id AS id FROM review_case c JOIN payment_intent i ON i.id = c.subject_id AND i.state = 'settled'
 WHERE c.kind = 4 AND c.subject_id = ANY(%(ids)b::bigint[]) AND c.status = 'open' AND c.reason_code = 'unexpected_payment'
   AND c.evidence ->> 'state' = 'created' AND c.evidence ->> 'tx_hash' = '0x' || encode(i.tx_hash, 'hex');

-- name: close_review
-- A proposal that still waits for its second person is void with the case.
WITH closed AS (
  UPDATE review_case SET status = 'closed', closed_at = clock_timestamp(), outcome = %(outcome)s
   WHERE kind = %(kind)s AND subject_id = ANY(%(ids)b::bigint[]) AND status = 'open' RETURNING id),
 void AS (
  UPDATE review_decision d SET state = 'withdrawn', withdrawn_at = clock_timestamp(), withdrawn_reason = 'the case was closed: ' || %(outcome)s::text
    FROM closed WHERE d.case_id = closed.id AND d.state = 'awaiting_second')
SELECT id FROM closed;
