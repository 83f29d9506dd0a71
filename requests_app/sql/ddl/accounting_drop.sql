DROP FUNCTION count_envelopes(int, bigint[], smallint[], bigint[], smallint[], bigint[], bigint, bigint, bigint);
