-- A session that reads a table's list of partitions while another one's ATTACH commits may keep the list without the new partition: it takes
-- the notice of the change while it reads, forgets it when it stores what it had read before, and no other notice comes (seen in PostgreSQL
-- 18.4: of fresh sessions that read 400 partitions, every fiftieth). Its inserts then miss the band, and its reads leave the band out, until
-- the table changes again.

-- Tells every session once more that the partitions of the log and of `p_source` changed: by a change of nothing, in a transaction of its
-- own, under the lock that ATTACH takes (SHARE UPDATE EXCLUSIVE: readers and writers go on), in the order in which bands are made.
CREATE FUNCTION refresh_envelope_partitions(p_source int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  base   text;
  parent text;
BEGIN
  PERFORM pg_advisory_xact_lock(18001, p_source);
  FOREACH base IN ARRAY ARRAY['envelope_meta', 'envelope_blob'] LOOP
    FOREACH parent IN ARRAY ARRAY[base, format('%s_s%s', base, p_source)] LOOP
      IF to_regclass(quote_ident(parent)) IS NOT NULL THEN
        EXECUTE format('ALTER TABLE ONLY %I ALTER COLUMN position SET STATISTICS -1', parent);
      END IF;
    END LOOP;
  END LOOP;
END $$;
