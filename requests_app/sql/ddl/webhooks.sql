-- The outbox of webhooks. Every change of a state writes a row of history in its own statement; these triggers follow it, once a
-- statement, so that no end of a request or payment, wherever it is made, can commit without its deliveries or be told of without having
-- happened. Without any webhook they cost one look at an empty index. They lock nothing of webhooks, and nothing here can be refused:
-- the same change told of twice is one delivery.

CREATE FUNCTION tell_of_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM webhook WHERE state <> 'removed') THEN
    RETURN NULL;
  END IF;
  -- A client that withdrew its view of a shared row has its end already; the end of all views is one to tell of.
  INSERT INTO webhook_delivery (webhook_id, event, kind, subject_id, subject, occurred_at)
  SELECT w.id, 'request.' || f.to_status, f.kind, f.request_id, v.ext_job_id::text,
         coalesce(CASE f.kind WHEN 1 THEN (SELECT r.updated_at FROM user_decrypt_req r WHERE r.id = f.request_id)
                              WHEN 2 THEN (SELECT r.updated_at FROM public_decrypt_req r WHERE r.id = f.request_id)
                              WHEN 3 THEN (SELECT r.updated_at FROM input_proof_req r WHERE r.id = f.request_id) END, f.at)
    FROM fresh f
    JOIN request_client v ON v.kind = f.kind AND v.request_id = f.request_id AND (v.canceled_at IS NULL OR f.verb = 'cancel')
    JOIN webhook w ON w.account_id = v.client_id AND w.state <> 'removed'
   WHERE f.to_status IN ('completed', 'timed_out', 'failure', 'needs_review')
     AND 'request.' || f.to_status = ANY(w.events) AND f.kind = ANY(w.kinds)
   ORDER BY f.id, w.id
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

-- A client that joins a row while another transaction ends it: that one cannot see the new view, so this one waits for it and tells of the
-- end itself. Whoever asks for what has ended already is told so, too. Rows are locked in key order, after the account, as everywhere.
CREATE FUNCTION tell_of_joins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fresh f JOIN webhook w ON w.account_id = f.client_id AND w.state <> 'removed') THEN
    RETURN NULL;
  END IF;
  PERFORM FROM user_decrypt_req r JOIN fresh f ON f.kind = 1 AND f.request_id = r.id ORDER BY r.id FOR SHARE OF r;
  PERFORM FROM public_decrypt_req r JOIN fresh f ON f.kind = 2 AND f.request_id = r.id ORDER BY r.id FOR SHARE OF r;
  PERFORM FROM input_proof_req r JOIN fresh f ON f.kind = 3 AND f.request_id = r.id ORDER BY r.id FOR SHARE OF r;
  INSERT INTO webhook_delivery (webhook_id, event, kind, subject_id, subject, occurred_at)
  SELECT w.id, 'request.' || r.status, f.kind, f.request_id, f.ext_job_id::text, r.updated_at
    FROM fresh f
    JOIN LATERAL (
      SELECT u.status, u.updated_at FROM user_decrypt_req u WHERE f.kind = 1 AND u.id = f.request_id UNION ALL
      SELECT p.status, p.updated_at FROM public_decrypt_req p WHERE f.kind = 2 AND p.id = f.request_id UNION ALL
      SELECT i.status, i.updated_at FROM input_proof_req i WHERE f.kind = 3 AND i.id = f.request_id) r ON true
    JOIN webhook w ON w.account_id = f.client_id AND w.state <> 'removed'
   WHERE f.canceled_at IS NULL AND r.status IN ('completed', 'timed_out', 'failure', 'needs_review')
     AND 'request.' || r.status = ANY(w.events) AND f.kind = ANY(w.kinds)
   ORDER BY f.request_id, w.id
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

CREATE FUNCTION tell_of_payments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM webhook WHERE state <> 'removed') THEN
    RETURN NULL;
  END IF;
  INSERT INTO webhook_delivery (webhook_id, event, kind, subject_id, subject, occurred_at)
  SELECT w.id, 'payment.' || f.to_state, 4, f.intent_id, p.public_id, f.at
    FROM fresh f
    JOIN payment_intent p ON p.id = f.intent_id
    JOIN webhook w ON w.account_id = p.account_id AND w.state <> 'removed'
   WHERE f.to_state IN ('settled', 'failed', 'canceled', 'needs_review')
     AND 'payment.' || f.to_state = ANY(w.events) AND 4 = ANY(w.kinds)
   ORDER BY f.intent_id, f.version, w.id
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

CREATE TRIGGER req_transition_told AFTER INSERT ON req_transition REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
  EXECUTE FUNCTION tell_of_requests();
CREATE TRIGGER request_client_told AFTER INSERT ON request_client REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
  EXECUTE FUNCTION tell_of_joins();
CREATE TRIGGER request_client_told_again AFTER UPDATE ON request_client REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
  EXECUTE FUNCTION tell_of_joins();
CREATE TRIGGER intent_transition_told AFTER INSERT ON intent_transition REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
  EXECUTE FUNCTION tell_of_payments();

COMMENT ON TABLE webhook_delivery IS 'Outbox: what webhooks are told, written by the transaction that it tells of';
ALTER TABLE webhook_delivery SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
