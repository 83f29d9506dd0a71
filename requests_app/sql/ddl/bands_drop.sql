-- What stands here is followed by the functions of ddl/envelopes.sql again (migration 0009).
DROP FUNCTION ensure_envelope_band(int, bigint);
DROP FUNCTION attach_envelope_partition(regclass, text, regclass, text, text);
