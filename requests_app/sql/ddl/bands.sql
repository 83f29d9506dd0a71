-- Bands are made cheaper and faster than by the functions of ddl/envelopes.sql, which these replace: a table made in this transaction is
-- empty, so ATTACH has nothing to scan, and the CHECK that was to spare it the scan only cost two catalogue changes under the parent's lock.

DROP FUNCTION attach_envelope_partition(regclass, text, regclass, text, text, text);

-- Makes `child` like `root` and attaches it to `parent` with `bound`; whether it did. ATTACH leaves readers and writers of the parent
-- alone (SHARE UPDATE EXCLUSIVE), CREATE TABLE … PARTITION OF would wait for them. Existence is read from pg_inherits; a table of that
-- name that is not attached is never adopted (it may be a retired band): 55000.
CREATE FUNCTION attach_envelope_partition(parent regclass, child text, root regclass, bound text, sub text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE i.inhparent = parent AND c.relname = child) THEN
    RETURN false;
  END IF;
  IF to_regclass(quote_ident(child)) IS NOT NULL THEN
    RAISE EXCEPTION 'table % exists but is not a partition of %', child, parent USING ERRCODE = '55000';
  END IF;
  EXECUTE format('CREATE TABLE %I (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE) %s', child, root, sub);
  EXECUTE format('ALTER TABLE %s ATTACH PARTITION %I %s', parent, child, bound);
  RETURN true;
END $$;

-- Makes sure that the bands which hold `p_position` of `p_source` exist. Runs in a transaction of its own (never the insert's).
-- Returns whether anything was made. 22003: position outside the range; 23503: unknown source; 55000: band retired.
CREATE OR REPLACE FUNCTION ensure_envelope_band(p_source int, p_position bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  width  bigint;
  number bigint;
  low    bigint;
  found  text;
  made   boolean := false;
  base   text;
  parent text;
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
  FOREACH base IN ARRAY ARRAY['envelope_meta', 'envelope_blob'] LOOP
    parent := format('%s_s%s', base, p_source);
    made := attach_envelope_partition(base::regclass, parent, base::regclass, format('FOR VALUES IN (%s)', p_source),
                                      'PARTITION BY RANGE (position)') OR made;
    made := attach_envelope_partition(parent::regclass, format('%s_b%s', parent, number), base::regclass,
                                      format('FOR VALUES FROM (%s) TO (%s)', low, low + width), '') OR made;
  END LOOP;
  INSERT INTO envelope_band (source_id, band_no, lo, hi, state, at)
  VALUES (p_source, number, low, low + width, 'open', clock_timestamp()) ON CONFLICT DO NOTHING;
  RETURN made;
END $$;

COMMENT ON TABLE usage_billed IS 'Usage that a bill (its reference) has claimed and no payment covers yet; picodollars';
