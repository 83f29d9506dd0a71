DROP FUNCTION ensure_envelope_band(int, bigint);
DROP FUNCTION attach_envelope_partition(regclass, text, regclass, text, text, text);
DROP VIEW gateway_envelope;
DROP TABLE envelope_blob;
DROP TABLE envelope_meta;
