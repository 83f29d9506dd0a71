-- What the database itself refuses (invariants I4 and I10), and storage settings of the hot tables.

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%: % may not be changed', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- Final rows never change; only a missing consensus hash may be filled in, without moving updated_at.
CREATE TRIGGER user_decrypt_req_final BEFORE UPDATE ON user_decrypt_req FOR EACH ROW
  WHEN (OLD.status IN ('completed', 'timed_out', 'failure') AND
        ((OLD.status, OLD.updated_at, OLD.completed_at, OLD.state_entered_at, OLD.fail_label, OLD.fail_detail, OLD.fail_selector, OLD.resolved_threshold, OLD.gw_reference_id)
           IS DISTINCT FROM
         (NEW.status, NEW.updated_at, NEW.completed_at, NEW.state_entered_at, NEW.fail_label, NEW.fail_detail, NEW.fail_selector, NEW.resolved_threshold, NEW.gw_reference_id)
         OR (OLD.gw_consensus_tx_hash IS NOT NULL AND OLD.gw_consensus_tx_hash IS DISTINCT FROM NEW.gw_consensus_tx_hash)))
  EXECUTE FUNCTION refuse_change('a final row');

CREATE TRIGGER public_decrypt_req_final BEFORE UPDATE ON public_decrypt_req FOR EACH ROW
  WHEN (OLD.status IN ('completed', 'timed_out', 'failure') AND OLD.* IS DISTINCT FROM NEW.*)
  EXECUTE FUNCTION refuse_change('a final row');

CREATE TRIGGER input_proof_req_final BEFORE UPDATE ON input_proof_req FOR EACH ROW
  WHEN (OLD.status IN ('completed', 'timed_out', 'failure') AND OLD.* IS DISTINCT FROM NEW.*)
  EXECUTE FUNCTION refuse_change('a final row');

CREATE TRIGGER req_transition_append_only BEFORE UPDATE ON req_transition FOR EACH ROW
  EXECUTE FUNCTION refuse_change('history');

CREATE TRIGGER command_consumed BEFORE UPDATE OR DELETE ON command FOR EACH ROW
  WHEN (OLD.state = 'consumed') EXECUTE FUNCTION refuse_change('a consumed command');

-- Signed bytes are evidence: what was stored before the broadcast stays as it was.
CREATE TRIGGER tx_attempt_bytes BEFORE UPDATE ON tx_attempt FOR EACH ROW
  WHEN ((OLD.signer_id, OLD.nonce, OLD.seq, OLD.tx_hash, OLD.raw_tx) IS DISTINCT FROM (NEW.signer_id, NEW.nonce, NEW.seq, NEW.tx_hash, NEW.raw_tx))
  EXECUTE FUNCTION refuse_change('signed bytes');

-- A signer's next nonce never falls (rule: the counter cannot run behind durable slots).
CREATE TRIGGER signer_nonce_monotone BEFORE UPDATE ON signer FOR EACH ROW
  WHEN (NEW.next_nonce < OLD.next_nonce) EXECUTE FUNCTION refuse_change('next_nonce downwards');

ALTER TABLE queue_job SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE exec_lease SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE worker_beat SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE signer SET (fillfactor = 50);
ALTER TABLE chain_cursor SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE consumer_cursor SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE user_decrypt_req SET (fillfactor = 80);
ALTER TABLE public_decrypt_req SET (fillfactor = 80);
ALTER TABLE input_proof_req SET (fillfactor = 80);
ALTER TABLE tx_attempt ALTER COLUMN raw_tx SET STORAGE EXTERNAL;
ALTER TABLE user_decrypt_share ALTER COLUMN share SET STORAGE EXTERNAL;
