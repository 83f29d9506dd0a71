-- Usage and congestion of the envelope log (design 5.4.6; reference/envelopes.md 2.2). Counters move in the transaction, and where
-- possible in the statement, that inserted the envelopes, from the rows that the insert returned: a duplicate counts nothing.

-- Counts envelopes of one originator that were inserted just now: usage of those that have a payer, congestion of all.
-- Price of one = price of its kind (or p_base) + congestion units * p_fee, in picodollars. Units: how far the last 5 minutes were above
-- p_target messages, in per cent, 0 to 100. Returns the spend counted. Rows are locked in key order.
CREATE FUNCTION count_envelopes(
  p_source int, p_positions bigint[], p_kinds smallint[], p_payers bigint[],
  p_priced_kinds smallint[], p_prices bigint[], p_base bigint, p_target bigint, p_fee bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  this_minute bigint := floor(extract(epoch FROM clock_timestamp()) / 60);
  recent      bigint;
  surcharge   bigint;
  total       bigint;
BEGIN
  IF coalesce(cardinality(p_positions), 0) = 0 THEN
    RETURN 0;
  END IF;
  SELECT coalesce(sum(c.messages), 0) INTO recent FROM originator_congestion c
   WHERE c.source_id = p_source AND c.minute > this_minute - 5 AND c.minute <= this_minute;
  surcharge := least(100, greatest(0, (recent - p_target) * 100 / p_target)) * p_fee;
  WITH priced AS (
    SELECT e.payer, e.position, coalesce(b.price, p_base) + surcharge AS price
      FROM unnest(p_positions, p_kinds, p_payers) AS e(position, kind, payer)
      LEFT JOIN unnest(p_priced_kinds, p_prices) AS b(kind, price) ON b.kind = e.kind
     WHERE e.payer IS NOT NULL),
   counted AS (
    INSERT INTO usage_unsettled AS u (payer, source_id, minute, spend, messages, last_position)
    SELECT p.payer, p_source, this_minute, sum(p.price), count(*), max(p.position) FROM priced p GROUP BY p.payer ORDER BY p.payer
    ON CONFLICT (payer, source_id, minute) DO UPDATE
      SET spend = u.spend + excluded.spend, messages = u.messages + excluded.messages,
          last_position = greatest(u.last_position, excluded.last_position))
  SELECT coalesce(sum(p.price), 0) INTO total FROM priced p;
  INSERT INTO originator_congestion AS c (source_id, minute, messages)
  VALUES (p_source, this_minute, cardinality(p_positions))
  ON CONFLICT (source_id, minute) DO UPDATE SET messages = c.messages + excluded.messages;
  RETURN total;
END $$;

COMMENT ON FUNCTION count_envelopes IS 'usage and congestion of envelopes inserted in the same transaction; picodollars';
COMMENT ON TABLE usage_unsettled IS 'What a payer used of an originator in a minute and no payment covers yet; picodollars';
COMMENT ON TABLE usage_settled IS 'Usage that a payment (its reference) covers';
COMMENT ON TABLE originator_congestion IS 'Envelopes of an originator by minute; the last five make the congestion fee';
COMMENT ON TABLE publisher_head IS 'The last position a publisher assigned; locked while it assigns, so that position order is commit order';
COMMENT ON TABLE staged_envelope IS 'Publications that wait for their position; parked ones wait for a person';

ALTER TABLE publisher_head SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE originator_congestion SET (fillfactor = 70);
ALTER TABLE usage_unsettled SET (fillfactor = 70);
ALTER TABLE staged_envelope SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE staged_envelope ALTER COLUMN payload SET STORAGE EXTERNAL;
