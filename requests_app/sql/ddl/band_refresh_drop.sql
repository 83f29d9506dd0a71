DROP FUNCTION refresh_envelope_partitions(int);
