-- What the database itself refuses about the journal (invariant I8). Replaces the two functions of payments.sql.

-- Judged when the transaction ends, for entries that it made: an entry follows the one before it, has the legs it announces, which sum
-- to zero, and resolves a hold of the same payment and asset.
CREATE OR REPLACE FUNCTION ledger_entry_balances() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE legs bigint; total numeric; before bytea;
BEGIN
  SELECT count(*), coalesce(sum(amount), 0) INTO legs, total FROM ledger_leg WHERE entry_seq = NEW.seq;
  IF legs <> NEW.leg_count OR total <> 0 THEN
    RAISE EXCEPTION 'ledger entry %: % legs of % sum to %', NEW.entry_id, legs, NEW.leg_count, total
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_balances';
  END IF;
  SELECT hash INTO before FROM ledger_entry WHERE seq = NEW.seq - 1;
  IF NEW.seq = 1 THEN
    before := decode(repeat('00', 32), 'hex');
  END IF;
  IF before IS DISTINCT FROM NEW.prev_hash OR octet_length(NEW.hash) <> 32 THEN
    RAISE EXCEPTION 'ledger entry %: number % does not follow the entry before it', NEW.entry_id, NEW.seq
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_follows';
  END IF;
  IF NEW.holds IS NOT NULL AND NOT EXISTS (
       SELECT 1 FROM ledger_entry h
        WHERE h.entry_id = NEW.holds AND h.kind = 'hold' AND h.seq < NEW.seq
          AND (h.ref, h.chain, h.token) = (NEW.ref, NEW.chain, NEW.token)) THEN
    RAISE EXCEPTION 'ledger entry %: % is no hold of this payment', NEW.entry_id, NEW.holds
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_holds_own';
  END IF;
  RETURN NULL;
END $$;

-- Legs come in one statement, after their entries: none can be added later, and none belongs to nothing.
CREATE OR REPLACE FUNCTION ledger_legs_complete() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted bigint[] := ARRAY(SELECT DISTINCT entry_seq FROM fresh); whole bigint;
BEGIN
  SELECT count(*) INTO whole FROM ledger_entry e
   WHERE e.seq = ANY(wanted) AND e.leg_count = (SELECT count(*) FROM ledger_leg l WHERE l.entry_seq = e.seq);
  IF whole <> cardinality(wanted) THEN
    RAISE EXCEPTION 'legs do not complete a ledger entry'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entry_balances';
  END IF;
  RETURN NULL;
END $$;
