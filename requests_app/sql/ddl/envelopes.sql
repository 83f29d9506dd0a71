-- Partitioned gateway envelope log (design 3-architecture 3.6, 5-settled 5.4; reference/envelopes.md 6.2).
--
-- Two tables share one band layout: LIST by originator (= chain source), then RANGE by position
-- (block << 20 | log_index). There is no foreign key to or from the log and no DEFAULT partition:
-- the first makes band creation dead-lock, the second hides a missing band and blocks DETACH CONCURRENTLY.

CREATE TABLE envelope_meta (
  source_id   int         NOT NULL,
  position    bigint      NOT NULL,
  kind        smallint    NOT NULL,
  ref         bytea,
  contract    bytea       NOT NULL,
  block_hash  bytea       NOT NULL,
  tx_hash     bytea       NOT NULL,
  digest      bytea       NOT NULL,
  payer       bigint,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz,
  CONSTRAINT envelope_meta_position_check CHECK (position >= 0),
  CONSTRAINT envelope_meta_expires_check CHECK (expires_at > 'epoch'),
  PRIMARY KEY (source_id, position)
) PARTITION BY LIST (source_id);

CREATE INDEX envelope_meta_ref_ix ON envelope_meta (ref, source_id, position) WHERE ref IS NOT NULL;

COMMENT ON TABLE envelope_meta IS 'One row per chain event read, recorded before it is applied; position = block << 20 | log_index';
COMMENT ON INDEX envelope_meta_ref_ix IS 'envelopes.sql read_by_refs: answers that were read before their request was bound';
COMMENT ON COLUMN envelope_meta.digest IS 'sha256(block_hash || tx_hash || payload); a duplicate with another digest is a conflict';
COMMENT ON COLUMN envelope_meta.payer IS 'client_account.id that pays for a request event; NULL for answers';
COMMENT ON COLUMN envelope_meta.expires_at IS 'NULL = governed by envelope_source.retain';

CREATE TABLE envelope_blob (
  source_id int    NOT NULL,
  position  bigint NOT NULL,
  payload   bytea  NOT NULL,
  CONSTRAINT envelope_blob_position_check CHECK (position >= 0),
  PRIMARY KEY (source_id, position)
) PARTITION BY LIST (source_id);

-- Ciphertext and signatures do not compress; EXTERNAL saves the attempt (envelopes.md 6.4).
ALTER TABLE envelope_blob ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE envelope_blob IS 'Canonical raw log of an envelope; may be retired earlier than its meta row';

CREATE VIEW gateway_envelope AS
  SELECT m.source_id, m.position, m.kind, m.ref, m.contract, m.block_hash, m.tx_hash, m.digest, m.payer,
         m.recorded_at, m.expires_at, b.payload
    FROM envelope_meta m
    LEFT JOIN envelope_blob b ON b.source_id = m.source_id AND b.position = m.position;

COMMENT ON VIEW gateway_envelope IS 'Meta with payload; payload is NULL once its band of blobs is retired';

-- Attaches `child` to `parent` with `bound`, after creating it with a CHECK equal to the bound so that ATTACH scans nothing.
-- Existence is read from pg_inherits; a table of that name that is not attached is never adopted (it may be a retired band).
CREATE FUNCTION attach_envelope_partition(parent regclass, child text, root regclass, bound text, implied text, sub text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE i.inhparent = parent AND c.relname = child) THEN
    RETURN false;
  END IF;
  IF to_regclass(quote_ident(child)) IS NOT NULL THEN
    RAISE EXCEPTION 'table % exists but is not a partition of %', child, parent USING ERRCODE = '55000';
  END IF;
  EXECUTE format('CREATE TABLE %I (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE, CONSTRAINT %I CHECK (%s)) %s',
                 child, root, child || '_bound', implied, sub);
  EXECUTE format('ALTER TABLE %s ATTACH PARTITION %I %s', parent, child, bound);
  EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', child, child || '_bound');
  RETURN true;
END $$;

-- Makes sure that the bands which hold `p_position` of `p_source` exist. Runs in a transaction of its own (never the insert's).
-- Returns whether anything was made. 22003: position outside the range; 23503: unknown source; 55000: band retired.
CREATE FUNCTION ensure_envelope_band(p_source int, p_position bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  width   bigint;
  number  bigint;
  low     bigint;
  found   text;
  made    boolean := false;
  base    text;
  parent  text;
  implied text;
BEGIN
  SELECT s.band_blocks::bigint << 20 INTO width FROM envelope_source s WHERE s.source_id = p_source;
  IF width IS NULL THEN
    RAISE EXCEPTION 'unknown envelope source %', p_source USING ERRCODE = '23503';
  END IF;
  IF p_position < 0 OR p_position > 9223372036854775807 - width THEN
    RAISE EXCEPTION 'position % is outside the range', p_position USING ERRCODE = '22003';
  END IF;
  number := p_position / width;
  low := number * width;
  PERFORM pg_advisory_xact_lock(18001, p_source);
  SELECT b.state INTO found FROM envelope_band b WHERE b.source_id = p_source AND b.band_no = number;
  IF found IS NOT NULL AND found <> 'open' THEN
    RAISE EXCEPTION 'band % of source % is %', number, p_source, found USING ERRCODE = '55000';
  END IF;
  implied := format('source_id = %s AND position >= %s AND position < %s', p_source, low, low + width);
  FOREACH base IN ARRAY ARRAY['envelope_meta', 'envelope_blob'] LOOP
    parent := format('%s_s%s', base, p_source);
    made := attach_envelope_partition(base::regclass, parent, base::regclass, format('FOR VALUES IN (%s)', p_source),
                                      format('source_id = %s', p_source), 'PARTITION BY RANGE (position)') OR made;
    made := attach_envelope_partition(parent::regclass, format('%s_b%s', parent, number), base::regclass,
                                      format('FOR VALUES FROM (%s) TO (%s)', low, low + width), implied, '') OR made;
  END LOOP;
  INSERT INTO envelope_band (source_id, band_no, lo, hi, state, at)
  VALUES (p_source, number, low, low + width, 'open', clock_timestamp()) ON CONFLICT DO NOTHING;
  RETURN made;
END $$;
