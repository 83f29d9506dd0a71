-- What the database itself refuses about payments (invariants I4 and I8).

-- The terms never change: the ref commits to them. Final intents never change at all.
CREATE TRIGGER payment_intent_terms BEFORE UPDATE ON payment_intent FOR EACH ROW
  WHEN ((OLD.id, OLD.public_id, OLD.ref, OLD.account_id, OLD.chain, OLD.token, OLD.payer, OLD.merchant, OLD.amount, OLD.created_at, OLD.expires_at)
          IS DISTINCT FROM
        (NEW.id, NEW.public_id, NEW.ref, NEW.account_id, NEW.chain, NEW.token, NEW.payer, NEW.merchant, NEW.amount, NEW.created_at, NEW.expires_at))
  EXECUTE FUNCTION refuse_change('terms');
CREATE TRIGGER payment_intent_final BEFORE UPDATE ON payment_intent FOR EACH ROW
  WHEN (OLD.state IN ('settled', 'failed', 'canceled') AND OLD.* IS DISTINCT FROM NEW.*)
  EXECUTE FUNCTION refuse_change('a final row');
CREATE TRIGGER intent_transition_append_only BEFORE UPDATE ON intent_transition FOR EACH ROW
  EXECUTE FUNCTION refuse_change('history');

CREATE TRIGGER ledger_entry_append_only BEFORE UPDATE OR DELETE ON ledger_entry FOR EACH ROW
  EXECUTE FUNCTION refuse_change('the journal');
CREATE TRIGGER ledger_leg_append_only BEFORE UPDATE OR DELETE ON ledger_leg FOR EACH ROW
  EXECUTE FUNCTION refuse_change('the journal');

-- An entry has the legs it announces, and they sum to zero. Judged when the transaction ends, for entries that it made; legs for
-- an entry that stands already are judged at once, so none can be added later.
CREATE FUNCTION ledger_entry_balances() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE legs bigint; total numeric;
BEGIN
  SELECT count(*), coalesce(sum(amount), 0) INTO legs, total FROM ledger_leg WHERE entry_seq = NEW.seq;
  IF legs <> NEW.leg_count OR total <> 0 THEN
    RAISE EXCEPTION 'ledger entry %: % legs of % sum to %', NEW.entry_id, legs, NEW.leg_count, total
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_balances';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ledger_entry_balances AFTER INSERT ON ledger_entry DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION ledger_entry_balances();
CREATE FUNCTION ledger_legs_complete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM ledger_entry e
              WHERE e.seq IN (SELECT entry_seq FROM fresh)
                AND e.leg_count <> (SELECT count(*) FROM ledger_leg l WHERE l.entry_seq = e.seq)) THEN
    RAISE EXCEPTION 'legs do not complete their ledger entry'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_balances';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER ledger_legs_complete AFTER INSERT ON ledger_leg REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
  EXECUTE FUNCTION ledger_legs_complete();

ALTER TABLE payment_intent SET (fillfactor = 80);
ALTER TABLE ledger_balance SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
